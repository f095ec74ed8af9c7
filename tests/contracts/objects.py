"""The few objects that the contract tests make."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def pod(name: str, *, gates: tuple[str, ...] = (), spec: Document | None = None, **metadata: Any) -> Document:
    """A pod that no scheduler takes up, so that only the test moves it."""
    whole: Document = {
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        **(spec or {}),
    }
    if gates:
        whole["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": whole}


def budget(name: str, *, gpu_hours: str | int = "10", **metadata: Any) -> Document:
    spec = {
        "selector": {"matchLabels": {"team": "blue"}},
        "quota": {"gpuHours": gpu_hours, "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    }
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def disruption_budget(name: str, labels: dict[str, str], healthy: int) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": healthy, "selector": {"matchLabels": labels}},
    }


def owner(document: Document) -> Document:
    """The owner reference that points at an object."""
    metadata = document["metadata"]
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def version_of(document: Document) -> str:
    return str(document["metadata"]["resourceVersion"])


def uid_of(document: Document) -> str:
    return str(document["metadata"]["uid"])

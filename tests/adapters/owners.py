"""Owners of pods as documents: Jobs, JobSets and Workloads of Kueue; the definitions of the last two are not in every cluster."""

from __future__ import annotations

from typing import Any

from headroom.adapters.kube import paths
from headroom.sim.catalog import bare_definition

Document = dict[str, Any]


def definitions() -> list[Document]:
    """JobSet and Kueue, as far as an API server needs them to keep their objects."""
    return [bare_definition(*paths.OWNERS[kind], kind, namespaced=True) for kind in ("JobSet", "Workload")]


def template(labels: dict[str, str] | None = None, **spec: Any) -> Document:
    """Pods with one GPU."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"labels": labels or {}}, "spec": {"restartPolicy": "Never", "containers": [container]} | spec}


def owner(
    kind: str, name: str = "train", *, namespace: str = "team-a", spec: Document | None = None, **metadata: Any
) -> Document:
    """An owner of a kind, with two pods."""
    job = {"parallelism": 2, "completions": 2, "template": template({"team": "a"})}
    specs: dict[str, Document] = {
        "Job": job,
        "JobSet": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}]},
        "Workload": {"podSets": [{"name": "main", "count": 2, "template": template({"team": "a"})}]},
    }
    group, version, _ = paths.OWNERS[kind]
    return {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace} | metadata,
        "spec": specs[kind] | (spec or {}),
    }

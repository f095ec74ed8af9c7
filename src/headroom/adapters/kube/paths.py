"""The addresses of things in the Kubernetes API."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from headroom.api.kinds import KINDS, OPERATOR_KINDS
from headroom.api.resources import GROUP, VERSION

OWNERS: Final = {
    "Job": ("batch", "v1", "jobs"),
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "Workload": ("kueue.x-k8s.io", "v1beta1", "workloads"),
}
"""The owners of pods that can be suspended: group, version and plural."""
_DOING: Final = {"GET": "reading", "POST": "creating", "PUT": "replacing", "PATCH": "changing", "DELETE": "deleting"}


def of(group: str, version: str, plural: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """Any address: a collection without a name, an object with one, and its subresource with a `part`.

    An empty group is the core API; an empty namespace is the whole cluster, or a kind that belongs to no namespace.
    """
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    scope = f"/namespaces/{_plain(namespace)}" if namespace else ""
    return f"{root}{scope}/{plural}" + (f"/{_plain(name)}" if name else "") + (f"/{part}" if part else "")


def pods(namespace: str = "") -> str:
    """All pods, or those of a namespace."""
    return of("", "v1", "pods", namespace)


def pod(namespace: str, name: str) -> str:
    """One pod."""
    return of("", "v1", "pods", namespace, name)


def eviction(namespace: str, name: str) -> str:
    """Where evictions of one pod are asked for."""
    return of("", "v1", "pods", namespace, name, "eviction")


def disruption_budgets(namespace: str) -> str:
    """The PodDisruptionBudgets of a namespace."""
    return of("policy", "v1", "poddisruptionbudgets", namespace)


def nodes() -> str:
    """All nodes."""
    return of("", "v1", "nodes")


def node(name: str) -> str:
    """One node."""
    return of("", "v1", "nodes", name=name)


def namespaces() -> str:
    """All namespaces."""
    return of("", "v1", "namespaces")


def namespace(name: str) -> str:
    """One namespace."""
    return of("", "v1", "namespaces", name=name)


def events(namespace: str) -> str:
    """The events of a namespace."""
    return of("", "v1", "events", namespace)


def event(namespace: str, name: str) -> str:
    """One event."""
    return of("", "v1", "events", namespace, name)


def configmaps(namespace: str) -> str:
    """The ConfigMaps of a namespace."""
    return of("", "v1", "configmaps", namespace)


def configmap(namespace: str, name: str) -> str:
    """One ConfigMap."""
    return of("", "v1", "configmaps", namespace, name)


def secret(namespace: str, name: str) -> str:
    """One Secret."""
    return of("", "v1", "secrets", namespace, name)


def leases(namespace: str) -> str:
    """The Leases of a namespace."""
    return of("coordination.k8s.io", "v1", "leases", namespace)


def lease(namespace: str, name: str) -> str:
    """One Lease."""
    return of("coordination.k8s.io", "v1", "leases", namespace, name)


def karpenter(plural: str, name: str = "") -> str:
    """All NodePools or NodeClaims of Karpenter, or one."""
    return of("karpenter.sh", "v1", plural, name=name)


def node_overlay(name: str = "") -> str:
    """All NodeOverlays of Karpenter, or one."""
    return of("karpenter.sh", "v1alpha1", "nodeoverlays", name=name)


def devices(plural: str) -> str:
    """All objects of a kind that is about devices, such as resourceclaims."""
    return of("resource.k8s.io", "v1", plural)


def budget_index(name: str = "") -> str:
    """All BudgetIndexes, or one."""
    return of(GROUP, VERSION, OPERATOR_KINDS["BudgetIndex"].plural, name=name)


def budget_hold(name: str = "") -> str:
    """All BudgetHolds, or one."""
    return of(GROUP, VERSION, OPERATOR_KINDS["BudgetHold"].plural, name=name)


def owner(kind: str, namespace: str = "", name: str = "") -> str:
    """All owners of pods of a kind in OWNERS, or one."""
    return of(*OWNERS[kind], namespace, name)


def policies(plural: str) -> str:
    """All admission policies or bindings of a kind."""
    return of("admissionregistration.k8s.io", "v1", plural)


def collection(kind: str, namespace: str = "") -> str:
    """All resources of one of our kinds, or those of a namespace."""
    return of(GROUP, VERSION, KINDS[kind].plural, namespace)


def resource(kind: str, namespace: str, name: str) -> str:
    """One resource of one of our kinds; the namespace is empty where the kind has none."""
    return of(GROUP, VERSION, KINDS[kind].plural, namespace, name)


def status(kind: str, namespace: str, name: str) -> str:
    """The status of one resource of one of our kinds."""
    return of(GROUP, VERSION, KINDS[kind].plural, namespace, name, "status")


def object_of(collection: str, namespace: str, name: str) -> str:
    """One object of a collection, which may be that of all namespaces."""
    root, _, plural = collection.rpartition("/")
    if namespace and "/namespaces/" not in collection:
        root = f"{root}/namespaces/{_plain(namespace)}"
    return f"{root}/{plural}/{_plain(name)}"


def spoken(path: str) -> str:
    """How people name what is at an address: `pods lab/train-0`, `powerpools.headroom.dev rack`, `nodes`."""
    parts = path.strip("/").split("/")
    core = parts[0] == "api"
    group, rest = ("", parts[2:]) if core else (parts[1] if len(parts) > 1 else "", parts[3:])
    scope = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        scope, rest = rest[1], rest[2:]
    if parts[0] not in ("api", "apis") or not rest:
        return path
    plural, name, part = (*rest, "", "")[:3]
    what = plural + (f"/{part}" if part else "") + (f".{group}" if group else "")
    if name:
        return f"{what} {scope}/{name}" if scope else f"{what} {name}"
    return f"{what} in {scope}" if scope else what


def doing(method: str, path: str) -> str:
    """How the sentence about a failed request begins: `deleting pods lab/train-0`."""
    return f"{_DOING.get(method, method)} {spoken(path)}"


def _plain(segment: str) -> str:
    # Names come from users too; none may climb out of its place in the address.
    return quote(segment, safe="") if segment not in (".", "..") else segment.replace(".", "%2E")

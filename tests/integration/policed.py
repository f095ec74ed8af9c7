"""Documents for a control plane with our policies, and who may do what there."""

import json
from typing import Any

from tests.api.cases import manifest
from tests.api.verdicts import Server, path_of

Document = dict[str, Any]

SYSTEM_ROLES = {
    "kubelet": "system:node",
    "scheduler": "system:kube-scheduler",
    "collector": "system:controller:generic-garbage-collector",
    "job-controller": "system:controller:job-controller",
}
USERS = (
    *("enforcer", "budgeteer", "only-one", "editor", "owner", "reader", "operator", "releaser", "kueue"),
    *SYSTEM_ROLES,
)
KUEUE_ROLE: Document = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "kueue"},
    "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["update", "patch"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["update", "patch"]},
    ],
}
"""What Kueue's controller may do, as far as it matters here."""
NAMESPACES = ("team-a", "team-b")


def budget(action: str, name: str = "team-a", namespace: str = "team-a", **spec: Any) -> Document:
    base = {"selector": {"matchLabels": {"team": "a"}}, "quota": {"gpuHours": "100", "windowHours": 24}}
    return manifest("GPUWorkloadBudget", name, base | {"enforcement": {"action": action}} | spec, namespace=namespace)


def create(server: Server, document: Document, *, dry: bool = True) -> tuple[int, Document]:
    return server.send("POST", path_of(document) + ("?dryRun=All" if dry else ""), json.dumps(document))

"""Documents for a control plane with our policies, and who may do what there."""

import json
from typing import Any

from tests.api.cases import manifest
from tests.api.verdicts import Server, path_of

USERS = ("enforcer", "budgeteer", "only-one", "editor", "owner", "reader", "operator")
NAMESPACES = ("team-a", "team-b")

Document = dict[str, Any]


def budget(action: str, name: str = "team-a", namespace: str = "team-a", **spec: Any) -> Document:
    base = {"selector": {"matchLabels": {"team": "a"}}, "quota": {"gpuHours": "100", "windowHours": 24}}
    return manifest("GPUWorkloadBudget", name, base | {"enforcement": {"action": action}} | spec, namespace=namespace)


def create(server: Server, document: Document, *, dry: bool = True) -> tuple[int, Document]:
    return server.send("POST", path_of(document) + ("?dryRun=All" if dry else ""), json.dumps(document))

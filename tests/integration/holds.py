"""Pods and holds for a control plane with our policies, and how a test knows that the policies know a hold."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from headroom.api.marks import GATE
from tests.api.cases import API_VERSION, manifest
from tests.api.verdicts import Server
from tests.control_plane import wait_until
from tests.integration.policed import Document

HOLDS = f"/apis/{API_VERSION}/budgetholds"
INDEXES = f"/apis/{API_VERSION}/budgetindexes"
NAMESPACES = ("hold-a", "hold-b", "hold-required")
GPU = "nvidia.com/gpu"
BECAUSE = "101.5 of 100 GPU-hours are used"
_NUMBERS = itertools.count(1)


def hold(name: str = "hold-a.a", **spec: Any) -> Document:
    base = {"budget": "hold-a/a", "namespaces": ["hold-a"], "matchLabels": {"team": "a"}}
    return manifest("BudgetHold", name, base | {"resources": [GPU, "nvidia.com/mig-*"], "because": BECAUSE} | spec)


def pod(name: str = "p", namespace: str = "hold-a", *resources: str, **more: Any) -> Document:
    """A pod of team a with a GPU; `labels`, `annotations`, `finalizers` and `ownerReferences` go into metadata, the rest into spec."""
    parts = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")
    about = {"name": name, "namespace": namespace, "labels": {"team": "a"}}
    about |= {part: more.pop(part) for part in parts if part in more}
    asked = dict.fromkeys(resources or (GPU,), "1")
    main = {"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {"containers": [main]} | more}


def plain(document: Document) -> Document:
    """The pod without resources."""
    return document | {"spec": document["spec"] | {"containers": [{"name": "main", "image": "none"}]}}


def path_of(document: Document, part: str = "") -> str:
    metadata = document["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}" + (f"/{part}" if part else "")


def create(server: Server, document: Document, *, dry: bool = True) -> tuple[int, Document]:
    path = f"/api/v1/namespaces/{document['metadata']['namespace']}/pods"
    return server.send("POST", path + ("?dryRun=All" if dry else ""), json.dumps(document))


def made(server: Server, document: Document, *, dry: bool = True) -> Document:
    code, answer = create(server, document, dry=dry)
    assert code == 201, answer
    return answer


def remove(server: Server, document: Document) -> None:
    code, current = server.send("GET", path_of(document))
    if code == 200 and current["metadata"].get("finalizers"):
        assert server.send("PUT", path_of(document), json.dumps(changed(current, finalizers=[])))[0] == 200
    server.send("DELETE", path_of(document) + "?gracePeriodSeconds=0")


def changed(document: Document, *, spec: Document | None = None, **metadata: Any) -> Document:
    """The document with other metadata and, where given, other parts of the spec; None takes a part away."""

    def without(part: Document) -> Document:
        return {key: value for key, value in part.items() if value is not None}

    both = {"metadata": without(document["metadata"] | metadata), "spec": without(document["spec"] | (spec or {}))}
    return document | both


def annotated(document: Document, **annotations: str | None) -> Document:
    """With other annotations of ours; None takes one away."""
    found = {f"headroom.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    kept = (document["metadata"].get("annotations") or {}) | found
    return changed(document, annotations={key: value for key, value in kept.items() if value is not None})


def put(server: Server, document: Document, part: str = "", *, dry: bool = True) -> tuple[int, Document]:
    return server.send("PUT", path_of(document, part) + ("?dryRun=All" if dry else ""), json.dumps(document))


def gates(document: Document) -> list[str]:
    return [each["name"] for each in document["spec"].get("schedulingGates", [])]


def set_holds(admin: Server, editor: Server, holds: Sequence[Document]) -> None:
    """Have exactly these holds, and wait until the policies know."""
    assert admin.send("DELETE", HOLDS)[0] == 200
    for each in holds:
        code, answer = admin.send("POST", HOLDS, json.dumps(each))
        assert code == 201, answer
    settle(admin, editor)


def settle(admin: Server, editor: Server) -> None:
    """Wait until both kinds of policies know all holds: what is written last is known last."""
    number = next(_NUMBERS)
    labels = {"marker": f"m{number}"}
    marker = hold(f"marker-{number}", budget="hold-a/marker", matchLabels=labels, resources=["example.com/marker"])
    code, answer = admin.send("POST", HOLDS, json.dumps(marker))
    assert code == 201, answer
    marked = pod("marked", "hold-a", "example.com/marker", labels=labels)

    def is_known() -> bool:
        waits = GATE in gates(made(admin, marked))
        return waits and create(editor, changed(marked, spec={"nodeName": "n"}))[0] == 403

    wait_until(is_known, "the policies know the holds")
    assert admin.send("DELETE", f"{HOLDS}/marker-{number}")[0] == 200

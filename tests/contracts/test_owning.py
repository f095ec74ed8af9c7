"""Who made a queued pod: the simulator's twin of our policies says what the API server says, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube.transport import STRATEGIC_PATCH
from headroom.api.marks import CONTROLLER_UID, GATE
from headroom.api.policies import OWNERSHIP, owning
from tests.contracts import test_hold
from tests.contracts.cluster import Cluster
from tests.contracts.objects import Document
from tests.contracts.test_hold import CHIEF, OWNER, denied, gates, make, patch, reign, stand, team_pod

policed_server, cluster = test_hold.policed_server, test_hold.cluster
SAID = {CONTROLLER_UID: "1"}


def of_owner(name: str = "p", owner: Document | None = None, **metadata: Any) -> Document:
    return team_pod(name, ownerReferences=[OWNER | (owner or {})], **metadata)


def said(document: Document) -> str | None:
    found: str | None = document["metadata"].get("annotations", {}).get(CONTROLLER_UID)
    return found


async def test_a_queued_pod_says_which_controller_made_it(cluster: Cluster) -> None:
    await stand(cluster)
    made = await make(cluster, of_owner(), "controller")
    assert (gates(made), said(made)) == ([GATE], "1")
    assert said(await make(cluster, of_owner("named", annotations=SAID), "controller")) == "1"
    assert said(await make(cluster, of_owner("misnamed", annotations={CONTROLLER_UID: "2"}), "controller")) == "1"


@pytest.mark.parametrize("owner", [{}, {"apiVersion": "example.com/v1"}, {"uid": "2"}], ids=["real", "group", "uid"])
async def test_a_pod_of_a_tenant_says_nothing_whatever_owner_it_names(cluster: Cluster, owner: Document) -> None:
    await stand(cluster)
    await reign(cluster)
    for user in ("editor", CHIEF):
        assert said(await make(cluster, of_owner(owner=owner), user, dry=True)) is None


async def test_only_controllers_of_gangs_are_named(cluster: Cluster) -> None:
    await stand(cluster)
    for owner in ({"apiVersion": "apps/v1", "kind": "ReplicaSet"}, {"apiVersion": "v1", "kind": "Node"}):
        assert said(await make(cluster, of_owner(owner=owner), "stranger", dry=True)) is None
    assert said(await make(cluster, of_owner(owner={"controller": False}), "controller", dry=True)) is None


async def test_a_pod_that_nothing_queues_is_left_as_it_is(cluster: Cluster) -> None:
    assert said(await make(cluster, of_owner(), "controller", dry=True)) is None
    gated = team_pod("p", gates=("example.com/gate",), ownerReferences=[OWNER])
    assert said(await make(cluster, gated, "controller", dry=True)) == "1"


async def test_nobody_else_says_so(cluster: Cluster) -> None:
    await stand(cluster)
    name = f"{cluster.namespace}/p"
    for document, user in (
        (team_pod(annotations=SAID), "editor"),
        (of_owner(annotations=SAID), "editor"),
        (team_pod(annotations=SAID), "controller"),
        (of_owner(owner={"apiVersion": "example.com/v1"}, annotations=SAID), "controller"),
    ):
        await denied(make(cluster, document, user, dry=True), OWNERSHIP, owning.FORGED, name, user=user)
    assert said(await make(cluster, team_pod(annotations=SAID), "releaser", dry=True)) == "1"


@pytest.mark.parametrize("part", ["", "status"])
async def test_nobody_says_so_later(cluster: Cluster, part: str) -> None:
    await stand(cluster)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    job: Document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    uid = (await cluster.create(job | {"spec": {"suspend": True, "template": template}}))["metadata"]["uid"]
    bare = await make(cluster, team_pod("bare"))
    owned = await make(cluster, of_owner("owned", {"uid": uid}), "controller")
    who = "kubelet" if part else "editor"
    for document, value in ((bare, "1"), (owned, "2"), (owned, None)):
        change: Document = {"metadata": {"annotations": {CONTROLLER_UID: value}}}
        name = f"{cluster.namespace}/{document['metadata']['name']}"
        call = patch(cluster, document, change, who, STRATEGIC_PATCH, part)
        await denied(call, OWNERSHIP, owning.FORGED, name, user=who)
    assert said(await patch(cluster, owned, {"metadata": {"annotations": {CONTROLLER_UID: None}}}, "releaser")) is None
    kept = await patch(cluster, owned, {"metadata": {"annotations": {"x": "y"}}})
    assert said(kept) == uid

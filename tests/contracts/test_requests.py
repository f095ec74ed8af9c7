"""Who may ask for a release, and in whose name: the simulator's twin of our policies says what the API server says."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headroom.adapters.kube.errors import Forbidden, Invalid
from headroom.adapters.kube.transport import MERGE_PATCH
from headroom.api.crd import crd
from headroom.api.kinds import KINDS, OPERATOR_KINDS
from headroom.api.policies import REQUESTS, policies, requesting
from headroom.sim.rights import Right, User
from tests.contracts.cluster import Cluster, refused
from tests.contracts.conftest import SIDES
from tests.contracts.objects import Document
from tests.contracts.server import ServerCluster
from tests.contracts.simulated import SimulatedCluster
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until

VERBS = ("create", "get", "update", "patch", "delete")
USERS: dict[str, tuple[str, ...] | None] = {"asker": (), "maker": None, "of-one": ("lab.a",)}
"""Everybody may write requests; `release` they have for all holds, for none, or for those of these names."""
NOBODY = "editor"
_NUMBERS = itertools.count(1)


def right_of(names: tuple[str, ...]) -> Document:
    rule: Document = {"apiGroups": ["headroom.dev"], "resources": ["budgetholds"], "verbs": ["release"]}
    return rule | ({"resourceNames": [*names]} if names else {})


def role(name: str, names: tuple[str, ...] | None) -> list[Document]:
    version, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["headroom.dev"], "resources": ["releaserequests"], "verbs": [*VERBS]}]
    rules += [] if names is None else [right_of(names)]
    subject = {"apiGroup": group, "kind": "User", "name": name}
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name}, "subjects": [subject]}
        | {"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}},
    ]


class AskedSimulation(SimulatedCluster):
    """A simulated cluster with our policies."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        for name, names in USERS.items():
            rights = [Right(verbs=VERBS, resources=("releaserequests",))]
            rights += [] if names is None else [Right(verbs=("release",), resources=("budgetholds",), names=names)]
            self._users[name] = self.server.users.add(User(name=name, rights=tuple(rights)))
        self._users[NOBODY] = self.server.users.add(User(name=NOBODY, rights=()))

    async def __aenter__(self) -> AskedSimulation:
        for each in policies():
            self.server.put(each)
        await super().__aenter__()
        return self


@pytest.fixture(scope="module")
def asked_server() -> Iterator[ControlPlane]:
    assets = find_assets()
    if why := lacking(assets, ()):
        pytest.skip(why)  # no control plane is built here; in CI a skip fails
    made = ControlPlane(assets, components=())
    for name in (*USERS, NOBODY):
        made.add_token_user(name)
    with made as plane:
        plane.apply(*(crd(kind) for kind in (KINDS | OPERATOR_KINDS).values()))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        plane.apply(*policies(), *(each for name, names in USERS.items() for each in role(name, names)))
        wait_until(lambda: "releaserequests" in plane.kubectl("api-resources"), "our kinds are served")
        yield plane


@pytest.fixture(params=SIDES)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    namespace = f"asked-{next(_NUMBERS)}"
    if request.param == "simulator":
        side: Cluster = AskedSimulation(namespace)
    else:
        side = ServerCluster(request.getfixturevalue("asked_server"), namespace)
    async with side:

        async def in_force() -> bool:
            body = a_request()
            made = await side.ask("POST", side.path("ReleaseRequest"), body, query={"dryRun": "All"}, user="asker")
            refusal = await side.ask("POST", side.path("ReleaseRequest"), body, query={"dryRun": "All"}, user="maker")
            return made.status == 201 and b"asker" in made.body and refusal.status == 403

        await side.until(in_force, "the policies are in force")
        yield side


def a_request(name: str = "one", **spec: Any) -> Document:
    document: Document = {"apiVersion": "headroom.dev/v1alpha1", "kind": "ReleaseRequest", "metadata": {"name": name}}
    return document | {"spec": {"target": {"kind": "Pod", "name": "p"}} | spec}


async def make(cluster: Cluster, document: Document, user: str, *, dry: bool = True) -> Document:
    query = {"dryRun": "All"} if dry else {}
    return await cluster.do("POST", cluster.path("ReleaseRequest"), document, user=user, query=query)


async def denied(call: Any, template: str, **values: str) -> None:
    with refused(Forbidden, 403, "Forbidden") as refusal:
        await call
    words = template.format(**values)
    why = f"ValidatingAdmissionPolicy '{REQUESTS}' with binding '{REQUESTS}' denied request: {words}"
    assert refusal.value.message.endswith(f'releaserequests.headroom.dev "one" is forbidden: {why}')


async def test_the_server_writes_who_asks(cluster: Cluster) -> None:
    for name in ({}, {"requestedBy": ""}, {"requestedBy": "asker"}):
        assert (await make(cluster, a_request(**name), "asker"))["spec"]["requestedBy"] == "asker"


async def test_nobody_asks_in_anothers_name(cluster: Cluster) -> None:
    for forged in ("admin", "system:serviceaccount:headroom-system:headroom", "asker ", "Asker"):
        call = make(cluster, a_request(requestedBy=forged), "asker")
        await denied(call, requesting.FORGED, user="asker", named=forged)


async def test_it_takes_the_right_to_release(cluster: Cluster) -> None:
    await denied(make(cluster, a_request(), "maker"), requesting.NOT_RELEASER, user="maker", only="")
    only = a_request(budget="lab/a")
    await denied(make(cluster, only, "maker"), requesting.NOT_RELEASER, user="maker", only=" lab.a")
    with refused(Forbidden, 403, "Forbidden"):
        await make(cluster, a_request(), NOBODY)


async def test_who_may_release_from_one_budget_asks_for_that_one_only(cluster: Cluster) -> None:
    assert await make(cluster, a_request(budget="lab/a"), "of-one")
    await denied(make(cluster, a_request(), "of-one"), requesting.NOT_RELEASER, user="of-one", only="")
    for other, only in (("lab/b", "lab.b"), ("lab/a.b", "lab.a.b"), ("la/b.a", "la.b.a")):
        call = make(cluster, a_request(budget=other), "of-one")
        await denied(call, requesting.NOT_RELEASER, user="of-one", only=f" {only}")


async def test_a_request_cannot_be_changed(cluster: Cluster) -> None:
    made = await make(cluster, a_request(), "asker", dry=False)
    changes: tuple[Any, ...] = (
        {"target": {"name": "other"}},
        {"requestedBy": "admin"},
        {"reason": "another"},
        {"budget": "lab/a"},
        {"paused": True},
    )
    for change in changes:
        with refused(Invalid, 422, "Invalid") as refusal:
            await change_(cluster, made, {"spec": change}, "asker")
        assert "cannot be changed: delete the object and create another" in refusal.value.message
    label = {"metadata": {"labels": {"a": "b"}}}
    assert await change_(cluster, made, label, "asker")
    await denied(change_(cluster, made, label, "maker"), requesting.NOT_RELEASER, user="maker", only="")


async def change_(cluster: Cluster, made: Document, change: Document, user: str) -> Document:
    query = {"dryRun": "All"}
    return await cluster.do("PATCH", cluster.path_of(made), change, user=user, query=query, content_type=MERGE_PATCH)


async def test_a_status_is_written_through_its_own_door_only(cluster: Cluster) -> None:
    forged = a_request() | {"status": {"phase": "Done"}}
    made = await make(cluster, forged, "asker", dry=False)
    assert "status" not in made
    with refused(Forbidden, 403, "Forbidden"):
        await cluster.do(
            "PATCH",
            cluster.path_of(made, "status"),
            {"status": {"phase": "Done"}},
            user="asker",
            content_type=MERGE_PATCH,
        )

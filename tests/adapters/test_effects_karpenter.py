"""What is done to NodePools and node classes on a simulated API server: nothing of others is changed, and no node is ended unasked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import paths
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.changes import Topic
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.node_pool_specs import spec_digest
from tests.adapters.doing import CHORES, do, do_twice
from tests.adapters.simulated import Cluster, virtual

NAME = "leftover-one-5f3a"
SPEC = {
    "weight": 60,
    "limits": {"nvidia.com/gpu": "1000"},
    "template": {
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"},
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
        }
    },
}
MAKE = actions.ApplyNodePool(node_pool=NAME, spec=SPEC)
CLASS = actions.ApplyNodeClass(kind="EC2NodeClass", node_class="headroom-9c1d", spec={"role": "nodes"})


class Field(Cluster):
    """A cluster with one LeftoverNodePool."""

    owner: AnyResource

    def pool(self, name: str = NAME) -> dict[str, Any]:
        return self.stored("NodePool", "", name)

    def uid(self, name: str = NAME) -> str:
        return str(self.pool(name)["metadata"]["uid"])

    async def does(self, action: actions.Action) -> None:
        await do(self, action, self.owner)
        await self.settle()

    def put(self, kind: str, name: str, spec: dict[str, Any] = SPEC, **labels: str) -> None:
        group = {"NodePool": "karpenter.sh/v1", "NodeClaim": "karpenter.sh/v1"}.get(kind, "karpenter.k8s.aws/v1")
        metadata = {"name": name, "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
        self.server.put({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec})

    def claim(self, pool: str = NAME) -> None:
        metadata = {"name": f"{pool}-x", "labels": {"karpenter.sh/nodepool": pool}}
        self.server.put({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": {}})

    def problems(self) -> dict[str, tuple[str, str]]:
        found = self.port.world(self.clock.now()).write_problems
        return {name: (each.action, each.message) for name, each in found.items()}


@asynccontextmanager
async def a_field(**spec: Any) -> AsyncIterator[Field]:
    async with Field() as field:
        field.owner = field.resource("LeftoverNodePool", "one", **spec)
        await field.settle()
        yield field


@virtual
async def test_a_node_pool_is_made_once_with_our_labels_and_no_owner() -> None:
    async with a_field() as field:
        await do_twice(field, MAKE, field.owner)
        await field.settle()
        metadata = field.pool()["metadata"]
        assert metadata["labels"] == {marks.LEFTOVER: "one", "app.kubernetes.io/managed-by": "headroom"}
        assert "ownerReferences" not in metadata
        known = field.port.world(field.clock.now()).node_pools[NAME]
        assert (known.weight, known.digest, dict(known.marks)) == (60, spec_digest(SPEC), {marks.LEFTOVER: "one"})
        assert field.problems() == {}


@virtual
async def test_exactly_the_one_that_was_decided_on_is_changed() -> None:
    async with a_field() as field:
        await field.does(MAKE)
        heavier = structs.replace(MAKE, spec=SPEC | {"weight": 90}, uid=field.uid())
        await field.does(heavier)
        assert field.pool()["spec"]["weight"] == 90
        with pytest.raises(Refused, match="it is now another object"):
            await field.does(structs.replace(heavier, uid="other"))
        with pytest.raises(Unavailable, match="already exists with another spec"):
            await field.does(MAKE)
        field.server.do("DELETE", paths.karpenter("nodepools", NAME))
        with pytest.raises(Refused, match="it is gone"):
            await field.does(heavier)


@virtual
async def test_a_node_pool_of_somebody_else_is_left_alone_and_told_of() -> None:
    async with a_field() as field:
        field.put("NodePool", NAME, SPEC | {"weight": 1})
        before = field.pool()
        field.port.subscribe("offers", frozenset({Topic.KARPENTER}))
        field.port.take_changes("offers")
        for action in (
            MAKE,
            structs.replace(MAKE, uid=field.uid()),
            structs.replace(MAKE, uid=field.uid(), only=("limits",)),
            actions.DeleteNodePool(node_pool=NAME, uid=field.uid(), with_nodes=True),
        ):
            with pytest.raises(Refused, match="Headroom did not create"):
                await field.does(action)
            assert field.problems()[f"NodePool/{NAME}"][0] == type(action).__name__
        assert field.pool() == before
        assert f"NodePool/{NAME}" in field.port.take_changes("offers").facts[Topic.KARPENTER]
        field.server.do("DELETE", paths.karpenter("nodepools", NAME))
        await field.does(MAKE)
        assert field.problems() == {}


@virtual
async def test_what_became_of_a_write_is_known_for_as_long_as_the_node_pool_stands() -> None:
    async with a_field() as field:
        await field.does(MAKE)
        heavier = {**SPEC, "weight": 90}
        await field.does(structs.replace(MAKE, spec=heavier, uid=field.uid()))
        [written] = field.port.world(field.clock.now()).pool_writes.values()
        digest = spec_digest(heavier)
        assert (written.node_pool, written.uid, written.asked, written.made) == (NAME, field.uid(), digest, digest)
        later = field.clock.now() + 4_000_000
        assert list(field.port.world(later).pool_writes) == [NAME]
        field.server.do("DELETE", paths.karpenter("nodepools", NAME))
        await field.settle()
        assert field.port.world(later).pool_writes == {}


@virtual
async def test_a_problem_is_forgotten_after_an_hour() -> None:
    async with a_field() as field:
        with pytest.raises(Refused):
            await field.does(structs.replace(MAKE, uid="gone"))
        assert field.problems() == {f"NodePool/{NAME}": ("ApplyNodePool", f"writing NodePool {NAME}: it is gone")}
        await field.settle(3601)
        assert field.problems() == {}


@virtual
async def test_a_field_of_another_manager_is_reported_and_not_taken() -> None:
    async with a_field() as field:
        await field.does(MAKE)
        theirs = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "spec": {"weight": 5}}
        await field.kube.apply(paths.karpenter("nodepools", NAME), theirs, owner="argo", force=True)
        with pytest.raises(Refused, match=r'spec\.weight: conflict with "argo"'):
            await field.does(structs.replace(MAKE, spec=SPEC | {"weight": 90}, uid=field.uid()))
        assert field.pool()["spec"]["weight"] == 5
        assert field.problems()[f"NodePool/{NAME}"][0] == "ApplyNodePool"


@virtual
async def test_of_the_original_only_the_limits_are_written() -> None:
    async with a_field() as field:
        original = {key: value for key, value in SPEC.items() if key != "limits"}
        field.put("NodePool", "leftover-one", original, **{"managed-by": "leftover"})
        limit = actions.ApplyNodePool(
            node_pool="leftover-one", spec=SPEC | {"weight": 7}, uid=field.uid("leftover-one"), only=("limits",)
        )
        for wrong in (structs.replace(limit, only=()), structs.replace(limit, only=("limits", "weight"))):
            with pytest.raises(Refused, match="only limits of a NodePool of the original controller may be written"):
                await field.does(wrong)
        await field.does(limit)
        found = field.pool("leftover-one")
        assert (found["spec"]["limits"], found["spec"]["weight"]) == (SPEC["limits"], 60)
        assert found["metadata"]["labels"] == {"managed-by": "leftover"}
        field.put("NodePool", "leftover-two", original, **{"managed-by": "leftover"})
        with pytest.raises(Refused, match="did not create"):
            await field.does(structs.replace(limit, node_pool="leftover-two", uid=field.uid("leftover-two")))
        await field.does(actions.DeleteNodePool(node_pool="leftover-one", uid=field.uid("leftover-one")))
        assert field.server.object("NodePool", "", "leftover-one") is None


@virtual
async def test_a_node_pool_with_nodes_is_deleted_only_where_that_is_asked_for() -> None:
    async with a_field() as field:
        await field.does(MAKE)
        field.claim("another")
        field.claim()
        delete = actions.DeleteNodePool(node_pool=NAME, uid=field.uid())
        with pytest.raises(Refused, match=f"NodeClaim {NAME}-x is there"):
            await field.does(delete)
        await field.does(structs.replace(delete, uid="another"))
        assert field.pool()
        await field.does(structs.replace(delete, with_nodes=True))
        assert field.server.object("NodePool", "", NAME) is None
        await field.does(delete)


@virtual
async def test_nothing_is_made_for_a_resource_that_is_paused_or_gone() -> None:
    async with a_field(paused=True) as field:
        for action in (MAKE, CLASS):
            with pytest.raises(Refused, match="is paused"):
                await field.does(action)
        field.owner = structs.replace(field.owner, uid="another")
        with pytest.raises(Refused, match="LeftoverNodePool/one is gone"):
            await field.does(MAKE)
        with pytest.raises(HeadroomError):
            await do(field, MAKE, CHORES)


@virtual
async def test_a_node_class_is_made_once_and_never_changed() -> None:
    async with a_field() as field:
        await field.does(CLASS)
        await field.does(structs.replace(CLASS, spec={"role": "other"}))
        found = field.stored("EC2NodeClass", "", "headroom-9c1d")
        assert (found["spec"], found["metadata"]["labels"][marks.LEFTOVER]) == ({"role": "nodes"}, "one")
        field.put("EC2NodeClass", "theirs", {"role": "nodes"})
        with pytest.raises(Refused, match="that Headroom did not create"):
            await field.does(structs.replace(CLASS, node_class="theirs"))
        with pytest.raises(Refused, match="no such kind"):
            await field.does(structs.replace(CLASS, kind="Secret"))


@virtual
async def test_a_node_class_goes_once_no_node_pool_names_it() -> None:
    async with a_field() as field:
        await field.does(CLASS)
        field.put("EC2NodeClass", "theirs", {})
        uid = field.stored("EC2NodeClass", "", "headroom-9c1d")["metadata"]["uid"]
        delete = actions.DeleteNodeClass(kind="EC2NodeClass", node_class="headroom-9c1d", uid=uid)
        ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "headroom-9c1d"}
        field.put("NodePool", "theirs", {"template": {"spec": {"nodeClassRef": ref}}})
        with pytest.raises(Refused, match="NodePool theirs names it"):
            await field.does(delete)
        field.server.do("DELETE", paths.karpenter("nodepools", "theirs"))
        await field.does(structs.replace(delete, uid="another"))
        assert field.stored("EC2NodeClass", "", "headroom-9c1d")
        await field.does(delete)
        assert field.server.object("EC2NodeClass", "", "headroom-9c1d") is None
        await field.does(delete)
        with pytest.raises(Refused, match="did not create"):
            await field.does(structs.replace(delete, node_class="theirs", uid=""))

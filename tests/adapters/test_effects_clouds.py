"""What is done for Spotpools on a simulated API server: nothing is bought or ended but what the pool asks for at that very moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import paths
from headroom.adapters.kube.effects import Effects
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.spot_pools_status import Claim
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.cloud_facts import Gateway, Instance, Launch, Listing, Offer, OfferFeed
from headroom.model.errors import Refused, Unavailable
from headroom.model.ports import Beside
from tests.adapters.doing import do_twice
from tests.adapters.simulated import Cluster, virtual

NAME = "Spotpool/team-a/one"
LAUNCH = actions.LaunchInstance(pool="team-a/one", slot=0, token="t1", instance_type="GN7.2XLARGE32", zone="z1")
END = actions.TerminateInstance(pool="team-a/one", instance="ins-1")
SLOT = {"slot": 0, "state": "Launching", "token": "t1", "instanceType": "GN7.2XLARGE32", "zone": "z1"}
ENDING = {"slot": 0, "state": "Ending", "token": "t1", "instanceId": "ins-1"}


class Bought:
    """A cloud that notes what it is asked for."""

    instances: dict[str, Instance] = {}
    listings: dict[str, Listing] = {}
    launches: dict[str, Launch] = {}
    offers: dict[str, Offer] = {}
    offer_feeds: dict[str, OfferFeed] = {}
    gateways: dict[str, Gateway] = {}

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    async def launch(self, pool: AnyResource, action: actions.LaunchInstance) -> None:
        self.calls.append(("launch", pool.uid, action.token))

    async def terminate(self, pool: AnyResource, instance: str, claim: Claim = "Slot") -> None:
        self.calls.append((f"terminate {claim}", pool.uid, instance))

    async def add_target(self, pool: AnyResource, target: str) -> None:
        self.calls.append(("add", pool.uid, target))

    async def remove_target(self, pool: AnyResource, target: str) -> None:
        self.calls.append(("remove", pool.uid, target))


class Yard(Cluster):
    """A cluster with one Spotpool."""

    def __init__(self) -> None:
        super().__init__()
        self.cloud = Bought()
        self.effects = Effects(
            self.kube, self.events, clock=self.clock, view=self.port, beside=Beside(clouds=self.cloud)
        )

    async def pool(self, *slots: dict[str, Any], kept: bool = True, **status: Any) -> AnyResource:
        """The pool with these slots in its status."""
        self.resource("Spotpool")
        if kept:
            self.change({"metadata": {"finalizers": [marks.POOL_FINALIZER]}})
        path = paths.status("Spotpool", "team-a", "one")
        self.server.do("PATCH", path, {"status": {"slots": list(slots)} | status})
        await self.settle()
        return self.read("Spotpool", "team-a", "one")

    def change(self, patch: dict[str, Any]) -> None:
        self.server.do("PATCH", paths.resource("Spotpool", "team-a", "one"), patch)

    def finalizers(self) -> list[str]:
        found: list[str] = self.stored("Spotpool", "team-a", "one")["metadata"].get("finalizers", [])
        return found

    async def do(self, action: Action, resource: AnyResource) -> None:
        await self.effects.perform(action, resource)


@asynccontextmanager
async def yard() -> AsyncIterator[Yard]:
    made = Yard()
    async with made:
        yield made


@virtual
async def test_a_machine_is_launched_while_its_intent_stands_in_the_status() -> None:
    async with yard() as here:
        pool = await here.pool(SLOT)
        await here.do(LAUNCH, pool)
        assert here.cloud.calls == [("launch", pool.uid, "t1")]


@pytest.mark.parametrize(
    ("slots", "kept", "patch", "says"),
    [
        ((), True, {}, "slot 0 no longer needs it"),
        ((SLOT | {"token": "t2"},), True, {}, "no longer needs it"),
        ((SLOT | {"zone": "z2"},), True, {}, "no longer needs it"),
        ((SLOT | {"state": "Cancelling"},), True, {}, "no longer needs it"),
        ((SLOT,), False, {}, "has no finalizer"),
        ((SLOT,), True, {"spec": {"paused": True}}, "is paused"),
    ],
)
@virtual
async def test_nothing_is_bought_that_the_pool_does_not_ask_for_now(
    slots: tuple[dict[str, Any], ...], kept: bool, patch: dict[str, Any], says: str
) -> None:
    async with yard() as here:
        pool = await here.pool(*slots, kept=kept)
        here.change(patch)  # the view does not know of it yet: the API server is asked
        with pytest.raises(Refused, match=says):
            await here.do(LAUNCH, pool)
        assert here.cloud.calls == []


@virtual
async def test_nothing_is_bought_for_a_pool_that_is_being_deleted_or_is_another_one_by_now() -> None:
    async with yard() as here:
        pool = await here.pool(SLOT)
        with pytest.raises(Refused, match="the pool is gone"):
            await here.do(LAUNCH, structs.replace(pool, uid="another"))
        with pytest.raises(Refused, match="is not that pool"):
            await here.do(structs.replace(LAUNCH, pool="team-b/one"), pool)
        here.server.do("DELETE", paths.resource("Spotpool", "team-a", "one"))
        with pytest.raises(Refused, match="is being deleted"):
            await here.do(LAUNCH, pool)
        assert here.cloud.calls == []


@virtual
async def test_a_machine_is_not_ended_while_its_slot_says_otherwise() -> None:
    async with yard() as here:
        pool = await here.pool(ENDING, orphans=[{"instanceId": "ins-9"}])
        await here.do(END, pool)
        await here.do(structs.replace(END, instance="ins-9"), pool)
        # One that has stopped has no slot any more; whether it really has, the cloud is asked.
        await here.do(structs.replace(END, instance="ins-2"), pool)
        kinds = [(kind, instance) for kind, _, instance in here.cloud.calls]
        assert kinds == [("terminate Slot", "ins-1"), ("terminate Orphan", "ins-9"), ("terminate Left", "ins-2")]
    async with yard() as here:
        pool = await here.pool(ENDING | {"state": "Running"})
        with pytest.raises(Refused, match="no longer needs it"):
            await here.do(END, pool)


@virtual
async def test_an_idle_machine_is_not_ended_if_a_pod_has_come_to_its_node() -> None:
    async with yard() as here:
        pool = await here.pool(ENDING | {"cause": "Idle", "node": "gpu-1"})
        here.pod("train-0", node="gpu-1")
        with pytest.raises(Refused, match=r"pod team-a/train-0 is there"):
            await here.do(END, pool)
        assert here.cloud.calls == []
        # One that was drained for as long as the pool gives is ended whoever is there.
        pool = await here.pool(ENDING | {"cause": "Surplus", "node": "gpu-1"})
        await here.do(END, pool)
        assert here.cloud.calls == [("terminate Slot", pool.uid, "ins-1")]


@virtual
async def test_the_finalizer_is_set_once_and_goes_only_when_nothing_is_left() -> None:
    async with yard() as here:
        pool = await here.pool(kept=False)
        add, remove = actions.AddFinalizer(object=NAME), actions.RemoveFinalizer(object=NAME)
        await here.do(add, pool)
        writes = here.writes()
        await here.do(add, pool)
        assert (here.finalizers(), here.writes()) == ([marks.POOL_FINALIZER], writes)
        with pytest.raises(Refused, match="is not being deleted"):
            await here.do(remove, pool)
        await here.pool(ENDING)
        here.server.do("DELETE", paths.resource("Spotpool", "team-a", "one"))
        with pytest.raises(Refused, match="some of its machines may not have ended"):
            await here.do(remove, pool)
        here.server.do("PATCH", paths.status("Spotpool", "team-a", "one"), {"status": {"slots": []}})
        await here.do(remove, pool)
        assert here.server.objects("Spotpool") == []


@virtual
async def test_a_pool_that_leaves_its_machines_goes_once_no_launch_is_under_way() -> None:
    async with yard() as here:
        running, remove = ENDING | {"state": "Running"}, actions.RemoveFinalizer(object=NAME)
        pool = await here.pool(running, {"slot": 2, "state": "Cancelling", "token": "t2"})
        here.change({"spec": {"deletionPolicy": "Retain"}})
        here.server.do("DELETE", paths.resource("Spotpool", "team-a", "one"))
        with pytest.raises(Refused, match="some of its machines may not have ended"):
            await here.do(remove, pool)
        here.server.do("PATCH", paths.status("Spotpool", "team-a", "one"), {"status": {"slots": [running]}})
        await here.do(remove, pool)
        assert here.server.objects("Spotpool") == []


@virtual
async def test_no_finalizer_is_set_on_what_is_being_deleted_or_is_not_ours() -> None:
    async with yard() as here:
        pool = await here.pool(kept=False)
        with pytest.raises(Refused, match="Headroom sets none on this kind"):
            await here.do(actions.AddFinalizer(object="Pod/team-a/p"), pool)
        here.change({"metadata": {"finalizers": ["example.com/other"]}})
        here.server.do("DELETE", paths.resource("Spotpool", "team-a", "one"))
        with pytest.raises(Refused, match="is being deleted"):
            await here.do(actions.AddFinalizer(object=NAME), pool)


@virtual
async def test_a_leftovernodepool_is_kept_by_a_finalizer_of_its_own() -> None:
    async with Cluster() as cluster:
        pool = cluster.resource("LeftoverNodePool", "one")
        await cluster.settle()
        await do_twice(cluster, actions.AddFinalizer(object="LeftoverNodePool/one"), pool)
        stored = cluster.stored("LeftoverNodePool", "", "one")
        assert stored["metadata"]["finalizers"] == [marks.LEFTOVER_FINALIZER]
        await do_twice(cluster, actions.RemoveFinalizer(object="LeftoverNodePool/one"), pool)
        assert not cluster.stored("LeftoverNodePool", "", "one")["metadata"].get("finalizers")


@virtual
async def test_targets_of_the_gateway_are_added_and_removed() -> None:
    async with yard() as here:
        pool = await here.pool()
        await here.do(actions.AddGatewayTarget(pool="team-a/one", gateway_target="10.0.0.1:8080"), pool)
        await here.do(actions.RemoveGatewayTarget(pool="team-a/one", gateway_target="10.0.0.2:8080"), pool)
        assert here.cloud.calls == [("add", pool.uid, "10.0.0.1:8080"), ("remove", pool.uid, "10.0.0.2:8080")]


@virtual
async def test_without_anybody_who_speaks_to_clouds_nothing_is_bought() -> None:
    async with yard() as here:
        pool = await here.pool(SLOT)
        with pytest.raises(Refused, match="this process does not call clouds"):
            await Effects(here.kube, here.events, clock=here.clock, view=here.port).perform(LAUNCH, pool)


@pytest.mark.parametrize("change", [{"region": "eu-frankfurt"}, {"provider": "aws"}])
@virtual
async def test_a_pool_stays_where_its_machines_are(change: dict[str, Any]) -> None:
    """Elsewhere nobody knows them: their slots would be free, others would be bought, and nobody would end them."""
    async with yard() as here:
        await here.pool(SLOT)
        with pytest.raises(Exception, match="cannot be changed: delete the object and create another"):
            here.change({"spec": change})
        here.change({"spec": {"maximum": 9}})


@virtual
async def test_a_node_whose_machine_ends_is_drained_of_pods_with_gpus_too_as_disruption_budgets_allow() -> None:
    async with yard() as here:
        pool = await here.pool(ENDING | {"state": "Draining", "node": "gpu-1"})
        metadata = {"name": "gpu-1", "annotations": {marks.CORDONED_BY: NAME}}
        here.server.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}})
        here.pod("train-0", node="gpu-1")
        here.pod("kept", node="gpu-1", metadata={"annotations": {marks.PROTECTED: "true"}})
        await here.do(actions.DrainNode(node="gpu-1"), pool)
        left = [
            each["metadata"]["name"]
            for each in here.server.objects("Pod")
            if not each["metadata"].get("deletionTimestamp")
        ]
        assert left == ["kept"]


@virtual
async def test_a_node_that_another_pool_cordoned_is_not_drained() -> None:
    async with yard() as here:
        pool = await here.pool(ENDING | {"state": "Draining", "node": "gpu-1"})
        metadata = {"name": "gpu-1", "annotations": {marks.CORDONED_BY: "PowerPool/one"}}
        here.server.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}})
        with pytest.raises((Refused, Unavailable), match="cordoned by PowerPool/one"):
            await here.do(actions.DrainNode(node="gpu-1"), pool)

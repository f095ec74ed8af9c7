"""What is done to machines on a simulated API server: nothing is switched off that could still be needed, and nobody is drained by mistake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headroom.adapters.kube import paths, raw
from headroom.adapters.kube.effects import Effects
from headroom.adapters.kube.effects_power import keeps_on
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.errors import Refused, Unavailable
from headroom.model.ports import Beside
from headroom.sim import faults as wrong
from tests.adapters.doing import CHORES, told
from tests.adapters.power.stage import Noting
from tests.adapters.simulated import Cluster, virtual
from tests.builders import a_resource

POOL = "PowerPool/one"
WAKE = actions.WakeMachine(pool="one", machine="worker-1")
SLEEP = actions.SleepMachine(pool="one", machine="worker-1")
DRAIN = actions.DrainNode(node="worker-1")


class Room(Cluster):
    """A cluster with a pool of one machine."""

    def __init__(self) -> None:
        super().__init__()
        self.switches = Noting()
        self.effects = Effects(
            self.kube, self.events, clock=self.clock, view=self.port, beside=Beside(switches=self.switches)
        )

    async def pool(self, state: str = "", **more: Any) -> AnyResource:
        """The pool, with its machine in this state, as the view has it."""
        self.resource("PowerPool", **more)
        machine = {"name": "worker-1", "state": state or "Off", "wokenAt": "2026-11-15T11:59:00Z"}
        self.server.do("PATCH", paths.status("PowerPool", "", "one"), {"status": {"machines": [machine]}})
        await self.settle()
        return self.read("PowerPool", "", "one")

    def machine(self, *, cordoned: bool = True, by: str = POOL) -> None:
        """Its node."""
        annotations = {"headroom.dev/cordoned-by": by} if by else {}
        metadata = {"name": "worker-1", "annotations": annotations}
        spec = {"unschedulable": True} if cordoned else {}
        self.server.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})

    def owned(self, name: str, kind: str = "ReplicaSet", gpus: str = "0", **more: Any) -> dict[str, Any]:
        """A pod on the machine that a controller has made."""
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
        metadata = {"ownerReferences": [owner]} | more.pop("metadata", {})
        limits = {"nvidia.com/gpu": gpus} if gpus != "0" else {}
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]} | more.pop("spec", {})
        return self.pod(name, node="worker-1", metadata=metadata, spec=spec, **more)

    async def do(self, action: Action, resource: AnyResource) -> None:
        await self.effects.perform(action, resource)


@asynccontextmanager
async def room() -> AsyncIterator[Room]:
    made = Room()
    async with made:
        yield made


# --- waking ----------------------------------------------------------------------------------------------------------------------


@virtual
async def test_a_machine_is_woken_on_the_word_of_its_pool_as_it_stands_now() -> None:
    async with room() as here:
        before = here.resource("PowerPool")
        await here.pool("Booting")
        await here.do(WAKE, before)
        assert here.switches.told == ["wake worker-1"]
        # The status that was written just before, and not the one that was decided on.
        assert here.switches.uids == [(before.uid, "2026-11-15T11:59:00Z")]


@pytest.mark.parametrize(
    ("action", "state", "spec", "why"),
    [
        (WAKE, "Off", {}, "it is now Off, not Booting"),
        (WAKE, "On", {}, "it is now On, not Booting"),
        (SLEEP, "Draining", {}, "it is now Draining, not Sleeping"),
        (SLEEP, "On", {}, "it is now On, not Sleeping"),
        (WAKE, "Booting", {"paused": True}, "PowerPool one is paused"),
        (SLEEP, "Sleeping", {"paused": True}, "PowerPool one is paused"),
        (actions.WakeMachine(pool="one", machine="other"), "Booting", {}, "PowerPool one has no such machine"),
        (
            actions.WakeMachine(pool="two", machine="worker-1"),
            "Booting",
            {},
            "PowerPool/one is not pool two",
        ),
    ],
)
@virtual
async def test_a_pool_that_wants_something_else_by_now_switches_nothing(
    action: actions.OnMachine, state: str, spec: dict[str, Any], why: str
) -> None:
    async with room() as here:
        here.machine()
        pool = await here.pool(state, **spec)
        with pytest.raises(Refused) as caught:
            await here.do(action, pool)
        assert str(caught.value).endswith(f": {why}")
        command = "Wake" if isinstance(action, actions.WakeMachine) else "Sleep"
        assert here.switches.told == [f"not {command}: {why}"]


@virtual
async def test_a_pool_that_is_gone_or_another_one_by_now_switches_nothing() -> None:
    async with room() as here:
        pool = await here.pool("Booting")
        here.server.do("DELETE", paths.resource("PowerPool", "", "one"), {})
        await here.settle()
        for known in (pool, a_resource("PowerPool")):
            with pytest.raises(Refused, match="waking machine worker-1: PowerPool one is gone"):
                await here.do(WAKE, known)
        await here.pool("Booting")
        with pytest.raises(Refused, match="PowerPool one is gone"):
            await here.do(WAKE, pool)
        with pytest.raises(Refused, match="is not pool one"):
            await here.do(WAKE, a_resource())


@virtual
async def test_where_nobody_switches_machines_none_is_switched() -> None:
    cluster = Cluster()
    with pytest.raises(Refused, match="this process does not switch machines"):
        await cluster.port.perform(WAKE, a_resource("PowerPool"))


# --- sleeping --------------------------------------------------------------------------------------------------------------------


@virtual
async def test_an_empty_machine_that_we_have_cordoned_goes_to_sleep() -> None:
    async with room() as here:
        here.machine()
        here.owned("done", status={"phase": "Succeeded"})
        here.owned("failed", status={"phase": "Failed"})
        here.owned("everywhere", kind="DaemonSet")
        here.owned("mirror", kind="Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
        here.pod("elsewhere", node="worker-2")
        here.pod("waiting")
        ask, queries = here.kube.get, list[Any]()

        async def noting(path: str, **more: Any) -> bytes:
            queries.append(more.get("query"))
            return await ask(path, **more)

        here.kube.get = noting  # type: ignore[method-assign]  # to see how the list is asked for
        await here.do(SLEEP, await here.pool("Sleeping"))
        assert here.switches.told == ["sleep worker-1"]
        # Without a version, so that the answer is no older than the question.
        assert queries == [None, {"fieldSelector": "spec.nodeName=worker-1", "limit": "500"}]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"cordoned": False}, "its node is not cordoned"),
        ({"cordoned": False, "by": ""}, "its node is not cordoned"),
        ({"by": ""}, "its node was cordoned by somebody else"),
        ({"by": "PowerPool/two"}, "its node was cordoned by PowerPool/two"),
    ],
)
@virtual
async def test_a_machine_that_pods_may_come_to_stays_on(node: dict[str, Any], why: str) -> None:
    async with room() as here:
        here.machine(**node)
        pool = await here.pool("Sleeping")
        with pytest.raises(Refused, match=f"putting machine worker-1 to sleep: {why}"):
            await here.do(SLEEP, pool)
        assert here.switches.told == [f"not Sleep: {why}"]


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
@virtual
async def test_a_machine_with_a_pod_on_it_stays_on(phase: str) -> None:
    """The view need not know of it: the API server is asked, and its answer comes from its storage."""
    async with room() as here:
        here.machine()
        pool = await here.pool("Sleeping")
        here.owned("late", status={"phase": phase} if phase else {})
        with pytest.raises(Refused, match="pod team-a/late is there"):
            await here.do(SLEEP, pool)
        assert here.switches.told == ["not Sleep: pod team-a/late is there"]


@virtual
async def test_a_pod_that_is_only_being_deleted_still_runs() -> None:
    async with room() as here:
        here.machine()
        here.owned("going", metadata={"finalizers": ["example.com/slow"]}, status={"phase": "Running"})
        here.owned("more")
        here.server.do("DELETE", paths.pod("team-a", "going"), {"gracePeriodSeconds": 0})
        pool = await here.pool("Sleeping")
        with pytest.raises(Refused, match="pod team-a/going is there and 1 more"):
            await here.do(SLEEP, pool)


@virtual
async def test_a_machine_whose_node_is_gone_is_looked_at_all_the_same() -> None:
    async with room() as here:
        pool = await here.pool("Sleeping")
        orphan = here.owned("orphan")
        with pytest.raises(Refused, match="pod team-a/orphan is there"):
            await here.do(SLEEP, pool)
        here.server.do("DELETE", paths.pod("team-a", "orphan"), {"gracePeriodSeconds": 0})
        assert orphan["spec"]["nodeName"] == "worker-1"
        await here.do(SLEEP, pool)
        assert here.switches.told[-1] == "sleep worker-1"


@virtual
async def test_every_page_of_the_list_is_read() -> None:
    async with room() as here:
        here.machine()
        for number in range(620):
            here.owned(f"done-{number:03d}", status={"phase": "Succeeded"})
        pool = await here.pool("Sleeping")
        here.owned("zebra")
        with pytest.raises(Refused, match="pod team-a/zebra is there"):
            await here.do(SLEEP, pool)


@virtual
async def test_what_cannot_be_looked_at_is_not_switched_off_and_the_plan_hears_of_it() -> None:
    async with room() as here:
        here.machine()
        pool = await here.pool("Sleeping")
        here.transport._faults.add(wrong.Outage(verb="list", path="/api/v1/pods*"))
        with pytest.raises(Unavailable):
            await here.do(SLEEP, pool)
        [told_of] = here.switches.told
        assert told_of.startswith("not Sleep: ")


@virtual
async def test_looking_that_takes_too_long_is_noted_too() -> None:
    async with room() as here:
        here.machine()
        pool = await here.pool("Sleeping")
        here.transport._faults.add(wrong.Slow(verb="list", path="/api/v1/pods*", ms=20_000))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(12):
                await here.do(SLEEP, pool)
        assert here.switches.told == ["not Sleep: there was no time to look at its node"]


@virtual
async def test_an_answer_that_is_no_list_is_no_empty_list() -> None:
    async with room() as here:
        here.machine()
        pool = await here.pool("Sleeping")
        ask = here.kube.get

        async def odd(path: str, **more: Any) -> bytes:
            return b'{"kind":"Status"}' if path == paths.pods() else await ask(path, **more)

        here.kube.get = odd  # type: ignore[method-assign]  # something before the API server answers in its place
        with pytest.raises(Unavailable, match="something that is not a list"):
            await here.do(SLEEP, pool)
        assert len(here.switches.told) == 1


# --- draining --------------------------------------------------------------------------------------------------------------------


def is_going(here: Room, name: str) -> bool:
    found = here.server.object("Pod", "team-a", name)
    return found is None or "deletionTimestamp" in found["metadata"]


@virtual
async def test_what_a_controller_makes_anew_is_evicted_and_told_so() -> None:
    async with room() as here:
        here.machine()
        for name in ("a", "b"):
            here.owned(name, status={"phase": "Running"})
        here.owned("everywhere", kind="DaemonSet")
        here.owned("done", status={"phase": "Succeeded"})
        pool = await here.pool("Draining")
        await here.do(DRAIN, pool)
        assert [is_going(here, name) for name in ("a", "b", "everywhere", "done")] == [True, True, False, False]
        said = "PowerPool one puts machine worker-1 to sleep; its controller recreates the pod elsewhere."
        assert told(here) == [(f"Pod/{name}", "Normal", "Drained", said) for name in ("a", "b")]
        writes = here.writes()
        await here.do(DRAIN, pool)
        assert here.writes() == writes


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"gpus": "1"}, "it has GPUs or other devices"),
        ({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}}, "it has GPUs or other devices"),
        ({"metadata": {"ownerReferences": []}}, "no controller would recreate it"),
        ({"metadata": {"namespace": "kube-system"}}, "it belongs to the cluster itself"),
        ({"metadata": {"namespace": "headroom-system"}}, "it is in Headroom's own namespace"),
        ({"metadata": {"annotations": {"headroom.dev/protected": "true"}}}, "it is protected by the annotation"),
    ],
)
@virtual
async def test_one_pod_that_must_stay_keeps_all_others(pod: dict[str, Any], why: str) -> None:
    async with room() as here:
        here.machine()
        here.owned("a", status={"phase": "Running"})
        for namespace in ("kube-system", "headroom-system"):
            here.server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        metadata = pod.get("metadata", {})
        if "namespace" in metadata:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": True}
            body = {"containers": [{"name": "c", "image": "i"}], "nodeName": "worker-1"}
            stays = {"name": "stays", "ownerReferences": [owner]} | metadata
            here.server.put({"apiVersion": "v1", "kind": "Pod", "metadata": stays, "spec": body})
        else:
            here.owned("stays", **pod)
        pool = await here.pool("Draining")
        with pytest.raises(Refused, match=f"draining node worker-1: pod .*/stays stays: {why}"):
            await here.do(DRAIN, pool)
        assert not is_going(here, "a")


@virtual
async def test_a_disruption_budget_has_the_last_word_on_each_pod() -> None:
    async with room() as here:
        here.machine()
        for name, guarded in (("a", "yes"), ("b", "yes"), ("c", "no")):
            here.owned(name, metadata={"labels": {"guarded": guarded}}, status={"phase": "Running"})
        budget = {"selector": {"matchLabels": {"guarded": "yes"}}, "maxUnavailable": 0}
        here.server.put(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "keep", "namespace": "team-a"},
                "spec": budget,
                "status": {
                    "disruptionsAllowed": 0,
                    "currentHealthy": 2,
                    "desiredHealthy": 2,
                    "expectedPods": 2,
                    "observedGeneration": 1,
                },
            }
        )
        pool = await here.pool("Draining")
        with pytest.raises(
            Unavailable, match="a PodDisruptionBudget refuses the eviction of pod team-a/a and 1 more now"
        ):
            await here.do(DRAIN, pool)
        assert [is_going(here, name) for name in ("a", "b", "c")] == [False, False, True]


@virtual
async def test_only_a_node_that_this_pool_has_cordoned_is_drained() -> None:
    async with room() as here:
        pool = await here.pool("Draining")
        with pytest.raises(Refused, match="draining node worker-1: it is gone"):
            await here.do(DRAIN, pool)
        here.machine(by="PowerPool/two")
        here.owned("a")
        with pytest.raises(Refused, match="its node was cordoned by PowerPool/two"):
            await here.do(DRAIN, pool)
        assert not is_going(here, "a")


# --- what others leave behind ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "of", "is_lifted"),
    [
        (POOL, POOL, True),
        (POOL, "PowerPool/two", False),  # decided on another's cordon
        (POOL, "", False),
        ("", POOL, False),
    ],
)
@virtual
async def test_a_chore_lifts_only_the_cordon_that_it_was_decided_on(by: str, of: str, is_lifted: bool) -> None:
    async with room() as here:
        here.machine(by=by)
        action = actions.UncordonNode(node="worker-1", by=of)
        if is_lifted:
            await here.do(action, CHORES)
        else:
            with pytest.raises(Refused, match=r"uncordoning node worker-1: .* cordoned it"):
                await here.do(action, CHORES)
        node = here.stored("Node", "", "worker-1")
        assert bool(node["spec"].get("unschedulable")) is not is_lifted
        assert ("headroom.dev/cordoned-by" in (node["metadata"].get("annotations") or {})) is (
            not is_lifted and bool(by)
        )


def test_what_is_hardly_a_pod_keeps_a_machine_on() -> None:
    assert keeps_on(raw.RawPod(), "nvidia.com/gpu")

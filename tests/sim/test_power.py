"""Machines beside the simulated cluster: they boot into nodes, go dark with what runs on them, and their switches can lie."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from headroom.adapters.kube import parse
from headroom.api.kinds import AnyResource
from headroom.model.errors import Refused, Unavailable
from headroom.sim import faults as wrong
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.faults import Crash, Fault, Faults
from headroom.sim.kubelet import PodLifecycle
from headroom.sim.power import SimSwitches, SimulatedMachines
from tests.sim.world import START, node, pod

T = TypeVar("T")


def a_pool(*names: str, **more: Any) -> dict[str, Any]:
    """A pool of machines with four GPUs; they can be asked whether they are on."""
    machines = [
        {"name": name, "gpuCount": 4, "labels": {"rack": "a"}}
        | {f"{word}Endpoint": f"http://power/{name}/{word}" for word in ("scaleUp", "scaleDown", "status")}
        for name in names
    ]
    metadata = {"name": "basement"}
    spec = {"machines": machines} | more
    return {"apiVersion": "headroom.dev/v1alpha1", "kind": "PowerPool", "metadata": metadata, "spec": spec}


def a_machine(name: str, power: str) -> dict[str, Any]:
    return {
        "apiVersion": "sim.headroom.dev/v1",
        "kind": "Machine",
        "metadata": {"name": name},
        "spec": {"power": power},
    }


class Place:
    """A cluster with machines, and one operator's switches."""

    def __init__(self, documents: list[dict[str, Any]], faults: list[Fault]) -> None:
        self.clock = SimClock(START)
        self.server = ApiServer(self.clock, random.Random(1))
        self.faults = Faults(self.clock, START, 7, faults)
        cluster = PodLifecycle(self.server)
        self.machines = SimulatedMachines(self.server, cluster, self.faults)
        for document in documents:
            self.server.put(document)
        self.machines.begin()
        cluster.start()
        self.transport = self.server.transport("headroom", actor="operator-1", faults=self.faults)
        self.switches = SimSwitches(self.machines, self.transport, self.clock)

    @property
    def pool(self) -> AnyResource:
        return parse.resource(self.server.object("PowerPool", "", "basement"))

    def ready(self, name: str) -> tuple[str, str]:
        """What the node's condition says and since when; nothing where there is no node."""
        found = self.server.object("Node", "", name)
        conditions = ((found or {}).get("status") or {}).get("conditions") or []
        return next(((each["status"], each["lastTransitionTime"][11:19]) for each in conditions), ("", ""))

    def taints(self, name: str) -> list[str]:
        found = self.server.object("Node", "", name) or {}
        return [each["key"].partition("/")[2] for each in found["spec"].get("taints") or []]

    def phase(self, name: str = "p") -> str:
        found = self.server.object("Pod", "default", name)
        return str(found["status"]["phase"]) if found else "gone"


def lived(work: Callable[[Place], Awaitable[T]], *documents: dict[str, Any], faults: tuple[Fault, ...] = ()) -> T:
    async def all_of_it() -> T:
        return await work(Place(list(documents), list(faults)))

    return run_virtual(all_of_it)


def test_a_machine_that_is_off_boots_into_a_node_with_its_gpus() -> None:
    async def work(place: Place) -> None:
        place.server.put(pod(gpus=3))
        await place.clock.sleep(1)
        assert place.ready("w1") == ("", "")
        await place.switches.wake(place.pool, "w1")
        assert place.machines.power("w1").power == "On"
        assert place.switches.calls["w1"].outcome == "Accepted"
        await place.clock.sleep(80)
        assert place.ready("w1") == ("", "")
        await place.clock.sleep(20)
        assert place.ready("w1") == ("True", "00:01:31")
        assert place.phase() == "Running"
        found = place.server.object("Node", "", "w1") or {}
        assert found["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        assert found["metadata"]["labels"]["rack"] == "a"
        assert place.taints("w1") == []

    lived(work, a_pool("w1"), a_machine("w1", "Off"))


def test_a_known_node_of_a_machine_that_is_off_is_not_ready_and_takes_no_pods() -> None:
    async def work(place: Place) -> None:
        place.server.put(pod())
        await place.clock.sleep(60)
        assert place.ready("w1")[0] == "Unknown"
        assert place.taints("w1") == ["not-ready"]
        assert place.phase() == "Pending"
        await place.switches.wake(place.pool, "w1")
        await place.clock.sleep(100)
        assert (place.ready("w1")[0], place.taints("w1"), place.phase()) == ("True", [], "Running")

    lived(work, a_pool("w1"), a_machine("w1", "Off"), node("w1"))


def test_a_machine_that_sleeps_takes_its_pods_along_and_that_is_kept_as_a_loss() -> None:
    async def work(place: Place) -> None:
        place.server.put(pod(runs_for="1m"))
        place.server.put(pod("done", runs_for="5s"))
        daemon = pod("daemon", gpus=0)
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
        daemon["metadata"]["ownerReferences"] = [owner]
        daemon["spec"]["nodeName"] = "w1"
        place.server.put(daemon)
        await place.clock.sleep(20)
        await place.switches.sleep(place.pool, "w1")
        assert (place.machines.power("w1").power, place.machines.lost) == ("On", [])
        await place.clock.sleep(25)
        assert place.machines.power("w1").power == "Off"
        assert [(each.pod, each.machine, each.by) for each in place.machines.lost] == [
            ("default/p", "w1", "operator-1")
        ]
        assert place.ready("w1")[0] == "True", "nobody has missed its heartbeat yet"
        await place.clock.sleep(40)
        assert place.ready("w1")[0] == "Unknown"
        assert place.phase() == "Running", "no kubelet says otherwise"
        await place.clock.sleep(300)
        found = place.server.object("Pod", "default", "p") or {}
        assert "deletionTimestamp" in found["metadata"]
        await place.switches.wake(place.pool, "w1")
        await place.clock.sleep(130)
        assert place.phase() == "gone"

    lived(work, a_pool("w1"), node("w1"))


def test_what_ran_on_a_machine_is_dead_when_it_comes_back() -> None:
    async def work(place: Place) -> None:
        place.server.put(pod())
        await place.clock.sleep(5)
        place.server.put(a_machine("w1", "Off"))
        await place.clock.sleep(5)
        assert [each.by for each in place.machines.lost] == [""], "nobody used a switch"
        place.server.put(a_machine("w1", "On"))
        await place.clock.sleep(95)
        assert place.phase() == "Failed"
        assert place.ready("w1")[0] == "True"

    lived(work, a_pool("w1"), a_machine("w1", "On"), node("w1"))


def test_twice_the_same_command_changes_nothing_and_a_machine_that_shuts_down_cannot_be_stopped() -> None:
    async def work(place: Place) -> None:
        await place.switches.wake(place.pool, "w1")
        await place.clock.sleep(60)
        await place.switches.wake(place.pool, "w1")
        await place.clock.sleep(40)
        assert place.ready("w1") == ("True", "00:01:30")
        await place.switches.sleep(place.pool, "w1")
        await place.clock.sleep(10)
        await place.switches.sleep(place.pool, "w1")
        await place.switches.wake(place.pool, "w1")
        await place.clock.sleep(11)
        assert place.machines.power("w1").power == "Off"
        assert [each.command for each in place.machines.told] == ["Wake", "Wake", "Sleep", "Sleep", "Wake"]
        assert len({each.key for each in place.machines.told}) == 2, "no status told them apart"

    lived(work, a_pool("w1"), a_machine("w1", "Off"))


def test_a_machine_that_is_sent_to_sleep_while_it_boots_never_comes_up() -> None:
    async def work(place: Place) -> None:
        await place.switches.wake(place.pool, "w1")
        await place.clock.sleep(30)
        await place.switches.sleep(place.pool, "w1")
        await place.clock.sleep(200)
        assert (place.machines.power("w1").power, place.ready("w1")) == ("Off", ("", ""))

    lived(work, a_pool("w1"), a_machine("w1", "Off"))


@pytest.mark.parametrize(
    ("faults", "outcome", "error", "acts"),
    [
        ([wrong.Refusal(status=500)], "Failed", Refused, False),
        ([wrong.Refusal(status=307)], "Failed", Refused, False),
        ([wrong.Outage()], "Failed", Unavailable, False),
        ([wrong.LostReply()], "Unknown", Unavailable, True),
        ([wrong.Slow(ms=7000)], "Unknown", Unavailable, True),
        ([wrong.Ignored()], "Accepted", None, False),
        ([wrong.Ignored(), wrong.LostReply()], "Unknown", Unavailable, False),
    ],
    ids=["500", "redirect", "unreachable", "lost reply", "slow", "ignored", "silence"],
)
def test_what_can_go_wrong_with_a_call(
    faults: list[Fault], outcome: str, error: type[Exception] | None, acts: bool
) -> None:
    async def work(place: Place) -> None:
        told = []
        place.switches.changed = lambda _machine: told.append(place.clock.now())
        try:
            await place.switches.wake(place.pool, "w1")
            raised = None
        except (Refused, Unavailable) as problem:
            raised = type(problem)
        assert (place.switches.calls["w1"].outcome, raised) == (outcome, error)
        assert (place.machines.power("w1").power == "On") == acts
        assert len(told) == 1
        assert place.clock.now() - START <= 5000, "a pool's calls may take five seconds"

    lived(work, a_pool("w1"), a_machine("w1", "Off"), faults=tuple(faults))


def test_an_effect_may_come_late_and_a_boot_may_fail_or_bring_fewer_gpus() -> None:
    async def work(place: Place) -> None:
        for name in ("late", "never", "slow", "poor"):
            await place.switches.wake(place.pool, name)
        assert [place.machines.power(name).power for name in ("late", "never", "slow")] == ["Off", "On", "On"]
        await place.clock.sleep(100)
        assert [place.ready(name)[0] for name in ("late", "never", "slow", "poor")] == ["", "", "", "True"]
        assert (place.server.object("Node", "", "poor") or {})["status"]["allocatable"]["nvidia.com/gpu"] == "3"
        await place.clock.sleep(60)
        assert [place.ready(name)[0] for name in ("late", "never", "slow")] == ["True", "", "True"]

    lived(
        work,
        a_pool("late", "never", "slow", "poor"),
        *(a_machine(name, "Off") for name in ("late", "never", "slow", "poor")),
        faults=(
            wrong.Late(verb="wake", path="*/late", ms=60_000),
            wrong.Ignored(verb="boot", path="*/never"),
            wrong.Late(verb="boot", path="*/slow", ms=50_000),
            wrong.Crippled(verb="boot", path="*/poor", gpus=3),
        ),
    )


@pytest.mark.parametrize(("fault", "has_acted"), [(wrong.CrashBefore, False), (wrong.CrashAfter, True)])
def test_an_operator_may_die_at_a_call(fault: Any, has_acted: bool) -> None:
    async def work(place: Place) -> None:
        with pytest.raises(Crash):
            await place.switches.wake(place.pool, "w1")
        assert (place.machines.power("w1").power == "On") == has_acted
        assert not place.transport.actor.alive
        successor = SimSwitches(place.machines, place.transport, place.clock)
        assert dict(successor.calls) == {}, "what a process remembers dies with it"

    lived(work, a_pool("w1"), a_machine("w1", "Off"), faults=(fault(verb="wake"),))


def test_machines_that_can_be_asked_are_and_silence_is_unknown_after_a_while() -> None:
    async def work(place: Place) -> list[tuple[int, str]]:
        asking = asyncio.create_task(place.switches.run())
        found = []
        for _ in range(12):
            await place.clock.sleep(10)
            found.append(dict(place.switches.machines)["w1"])
        asking.cancel()
        return [((each.since or 0) - START, each.power) for each in found]

    silence = wrong.Outage(verb="status", since="35s", until="75s")
    found = lived(work, a_pool("w1"), a_machine("w1", "Off"), faults=(silence,))
    assert list(dict.fromkeys(found)) == [(0, "Off"), (50_000, "Unknown"), (80_000, "Off")]


def test_a_pool_without_status_endpoints_knows_nothing_of_power() -> None:
    async def work(place: Place) -> None:
        asking = asyncio.create_task(place.switches.run())
        await place.clock.sleep(30)
        asking.cancel()
        assert dict(place.switches.machines) == {}

    pool = a_pool("w1")
    del pool["spec"]["machines"][0]["statusEndpoint"]
    lived(work, pool, a_machine("w1", "Off"))


def test_a_cordoned_node_is_tainted_and_untainted_again() -> None:
    async def work(place: Place) -> None:
        place.server.do("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
        await place.clock.sleep(1)
        assert place.taints("n1") == ["unschedulable"]
        place.server.do("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
        await place.clock.sleep(1)
        assert place.taints("n1") == []

    lived(work, node("n1"))

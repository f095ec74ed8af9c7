"""Kinds of which there are very many are written after all others, and only so fast."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec import structs

from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import Status
from headroom.model.actions import EvictPod, SetNodeResources, TaintNode
from headroom.model.conditions import judged
from headroom.model.decisions import Decision, Ref, status_wire
from headroom.model.world import ref_of
from headroom.runtime.surroundings import Runtime
from headroom.runtime.writes import SLOW_AT_ONCE, WriteBudget, Writer, pacing_of
from headroom.sim.clock import SimClock
from tests.adapters.simulated import virtual
from tests.builders import NOON, a_resource
from tests.runtime.fakes import FakePort, HandClock, Switch

PACING = pacing_of(Ref("Bandwidth", "", "n1"))


class Desk:
    """A writer with as many writes as it likes."""

    def __init__(self, *resources: AnyResource) -> None:
        self.clock, self.port = HandClock(), FakePort(*resources)
        budget = WriteBudget(self.clock, 1000.0, 1000)
        self.writer = Writer(self.port, Switch(), budget, Runtime(clock=self.clock, rng=random.Random(7)))

    def submit(self, name: str, pods: int, *, ready: bool | None = None, kind: str = "Bandwidth") -> None:
        ref = Ref(kind, "" if kind == "Bandwidth" else "team-a", name)
        resource = self.port.resources[ref]
        status = structs.replace(resource.status, pods=pods) if kind == "Bandwidth" else resource.status
        if ready is not None:
            condition = judged(resource, "Ready", ready, "Says", "So.", NOON)
            status = structs.replace(status, conditions=(condition,))
        decision = Decision(resource=ref, status=status, reason="Says", message="So.")
        self.writer.submit(decision, resource, effects=True)

    async def work(self) -> list[Ref]:
        """What is written until the writer rests."""
        self.port.done.clear()
        running = asyncio.create_task(self.writer.run())
        for _ in range(5000):
            await asyncio.sleep(0)
            if self.writer.idle:
                break
        running.cancel()
        return [ref for _, ref in self.port.done]


def test_only_kinds_of_which_there_is_one_for_each_node_are_paced() -> None:
    assert [name for name, kind in KINDS.items() if kind.pacing is not None] == ["Bandwidth"]
    assert PACING is not None
    assert (PACING.each_seconds, PACING.per_second) == (30.0, 50.0)


async def test_the_numbers_of_one_are_written_every_thirty_seconds_and_its_conditions_at_once() -> None:
    desk = Desk(a_resource("Bandwidth", "n1"))
    desk.submit("n1", 1)
    assert len(await desk.work()) == 1
    for pods in range(2, 31):
        desk.clock.seconds += 1.0
        desk.submit("n1", pods)
        assert await desk.work() == []
    desk.clock.seconds += 1.1
    desk.submit("n1", 31)
    assert len(await desk.work()) == 1
    assert desk.port.resources[Ref("Bandwidth", "", "n1")].status.pods == 31
    desk.clock.seconds += 1.0
    desk.submit("n1", 31, ready=False)
    assert len(await desk.work()) == 1


def taken_apart(monkeypatch: pytest.MonkeyPatch) -> list[Status]:
    """The statuses that a writer takes apart to see whether they differ."""
    found: list[Status] = []

    def wire(status: Status) -> dict[str, object]:
        found.append(status)
        return status_wire(status)

    monkeypatch.setattr("headroom.runtime.writes.status_wire", wire)
    return found


async def test_what_is_not_written_yet_or_waits_already_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, seen = Desk(a_resource("Bandwidth", "n1")), taken_apart(monkeypatch)
    desk.submit("n1", 1)
    assert len(seen) == 2
    desk.submit("n1", 2)
    assert len(seen) == 2, "it waits, so it differs"
    assert len(await desk.work()) == 1
    for pods in range(3, 30):
        desk.clock.seconds += 1.0
        desk.submit("n1", pods)
    assert len(seen) == 2
    desk.clock.seconds += 30.0
    desk.submit("n1", 30)
    assert len(seen) == 4
    assert len(await desk.work()) == 1


async def test_what_is_as_it_stands_again_waits_no_more() -> None:
    desk = Desk(a_resource("Bandwidth", "n1"))
    desk.submit("n1", 1)
    desk.submit("n1", 0)
    assert await desk.work() == []


async def test_very_many_take_their_time_and_come_after_all_others() -> None:
    nodes = [a_resource("Bandwidth", f"n{each:03}") for each in range(200)]
    desk = Desk(*nodes, a_resource())
    for each in nodes:
        desk.submit(each.name, 1)
    desk.submit("one", 0, ready=True, kind="GPUWorkloadBudget")
    began = desk.clock.seconds
    written = await desk.work()
    assert len(written) == 201
    assert written.index(ref_of(a_resource())) <= SLOW_AT_ONCE
    assert desk.clock.seconds - began >= (200 - 1) / 50.0


async def test_they_do_not_slow_down_the_numbers_of_others() -> None:
    desk = Desk(*(a_resource("Bandwidth", f"n{each}") for each in range(50)))
    before = desk.writer._pace()
    for each in range(50):
        desk.submit(f"n{each}", 1)
    await desk.work()
    assert desk.writer._pace() == before


@virtual
async def test_the_effects_of_very_many_come_at_that_pace_too_and_leave_room_for_others() -> None:
    """Native mode is turned on for a large fleet while a budget evicts."""
    clock, nodes = SimClock(NOON), [a_resource("Bandwidth", f"n{each:03}") for each in range(400)]
    port, budget = FakePort(*nodes, a_resource()), WriteBudget(clock, 60.0, 100)
    writer = Writer(port, Switch(), budget, Runtime(clock=clock, rng=random.Random(7)))
    running = asyncio.create_task(writer.run())
    for each in nodes:
        due = (TaintNode(node=each.name, taint="a=b:NoSchedule"), SetNodeResources(node=each.name, resources={}))
        status = structs.replace(each.status, pods=1)
        writer.submit(
            Decision(resource=ref_of(each), status=status, reason="", message="", actions=due), each, effects=True
        )
    await clock.sleep(10.0)
    written = len(port.done)
    assert written <= 10 * 50 + SLOW_AT_ONCE
    evictions = tuple(
        EvictPod(pod=f"team-a/{each}", uid=str(each), resource_version="1", grace_seconds=0) for each in range(9)
    )
    over = a_resource()
    decision = Decision(resource=ref_of(over), status=over.status, reason="", message="", actions=evictions)
    writer.submit(decision, over, effects=True)
    await clock.sleep(1.0)
    assert [each for _, each in port.done if isinstance(each, EvictPod)] == [*evictions]
    while not writer.idle:
        await clock.sleep(1.0)
    running.cancel()
    assert clock.now() - NOON >= (3 * 400 - 1) * 1000 / 50

"""How soon a status is written: what happened at once, numbers at a pace, and nothing that would be refused."""

import asyncio
from collections.abc import Collection
from typing import Any

from msgspec import structs

from headroom.adapters.kube.errors import Conflict
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model.changes import Changes
from headroom.model.decisions import Decision
from headroom.model.pace import Pace
from headroom.model.plans import Plan
from headroom.model.world import World, ref_of
from headroom.runtime.leader import Always
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.sim.clock import SimClock, run_virtual
from tests.builders import NOON, a_resource, a_world

KIND = "GPUWorkloadBudget"


class Port:
    """Budgets whose status is written only on top of the version that was decided on, slowly."""

    def __init__(self, clock: SimClock, budgets: int) -> None:
        self.clock = clock
        self.known = {each.name: each for each in (a_resource(name=f"b{number}") for number in range(budgets))}
        self.writes: list[tuple[int, str]] = []
        self.refused = self.asked = 0
        self.pods = False
        self.news = asyncio.Event()

    def world(self, now: int) -> World:
        return a_world(*self.known.values(), now=now)

    def subscribe(self, plan: str, parts: frozenset[str]) -> None:
        assert (plan, KIND) == ("test", *parts)

    def take_changes(self, plan: str) -> Changes:
        assert plan == "test"
        self.news.clear()
        taken, self.pods = self.pods, False
        return Changes(everything=taken)

    async def changed(self, besides: Collection[str] = ()) -> None:
        await self.news.wait()

    async def write_status(self, resource: AnyResource, status: Status) -> None:
        await self.clock.sleep(0.1)
        current = self.known[resource.name]
        if resource.resource_version != current.resource_version:
            self.refused += 1
            raise Conflict(409, "Conflict", "the object has been modified")
        version = str(int(current.resource_version or 0) + 1)
        self.known[resource.name] = structs.replace(current, status=status, resource_version=version)
        self.writes.append((self.clock.now() - NOON, resource.name))

    async def perform(self, action: Any, resource: AnyResource) -> None:
        raise AssertionError((action, resource))

    def happen(self) -> None:
        self.pods = True
        self.news.set()


def played(
    budgets: int, seconds: int, events_every: float = 0.0, *, pace: Pace | None = None, turn: int | None = None
) -> Port:
    """A plan whose numbers move with time, and whose tracked pods move with what happens; its next turn comes after `turn`."""

    async def script() -> Port:
        clock = SimClock(NOON)
        port, happened = Port(clock, budgets), [0]

        def decide(world: World, changes: Changes) -> list[Decision]:
            port.asked += 1
            chosen = (
                world.of_kind(KIND)
                if changes.everything
                else [(ref, world.resources[ref]) for ref in sorted(changes.resources) if ref in world.resources]
            )
            status = GPUWorkloadBudgetStatus(tracked_pods=happened[0], consumed_gpu_hours=str(world.now))
            return [
                Decision(
                    resource=ref_of(each),
                    status=status,
                    reason="x",
                    message="",
                    look_again_ms=30_000,
                    next_turn_ms=turn,
                )
                for _, each in chosen
            ]

        plan = Plan(name="test", kinds=(KIND,), at_most_every_ms=250, decide=decide)
        port_: Any = port
        around = Runtime(clock=clock, pace=pace or Pace())
        running = Operator(port_, Always(), Settings(identity="one"), around, [plan])
        port.happen()
        task = asyncio.create_task(running.run())
        for _ in range(round(seconds / events_every) if events_every else 1):
            await clock.sleep(events_every or seconds)
            happened[0] += bool(events_every)
            if events_every:
                port.happen()
        await running.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return port

    return run_virtual(script)


def test_one_budget_is_written_every_few_seconds_and_many_are_no_load() -> None:
    assert 11 <= len(played(1, 60).writes) <= 13
    assert len(played(20, 60).writes) == 40, "at the start, and every thirty seconds"


def test_what_happens_again_and_again_is_written_soon_and_never_refused() -> None:
    port = played(20, 30, events_every=0.1)
    last = {name: max(at for at, each in port.writes if each == name) for _, name in port.writes}
    assert len(last) == 20
    assert min(last.values()) > 29_000
    assert port.refused == 0


SLOW = Pace(numbers_seconds=(1800.0, 1800.0), idle_seconds=30.0, full_pass_seconds=1800.0, turn_ms={KIND: 900_000})


def test_at_a_slower_pace_less_is_done_without_need_and_what_happens_is_answered_as_soon() -> None:
    assert len(played(1, 60, pace=SLOW).writes) == 1
    port = played(1, 30, events_every=5, pace=SLOW)
    assert [at // 5000 for at, _ in port.writes] == list(range(6))
    assert max(at % 5000 for at, _ in port.writes) < 1000


def test_at_a_slower_pace_a_turn_is_not_missed_and_little_is_asked_before_it() -> None:
    often, seldom = played(1, 600, turn=120_000), played(1, 600, turn=120_000, pace=SLOW)
    assert (often.asked > 20, seldom.asked) == (True, 5)

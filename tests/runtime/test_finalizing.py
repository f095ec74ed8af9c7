"""Very many finalizers to let go of hold up nothing else, and what is no resource gets no status."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model.actions import Action, RemoveFinalizer
from headroom.model.changes import Changes
from headroom.model.decisions import Decision
from headroom.model.errors import Unavailable
from headroom.model.plans import Plan, judgement
from headroom.model.world import World, ref_of
from headroom.runtime.leader import Always
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.sim.clock import SimClock, run_virtual
from tests.builders import NOON, a_resource, a_world

KIND = "GPUWorkloadBudget"
Decide = Callable[[World, Changes], Iterable[Decision]]


class Port:
    """Budgets, and how long each write takes."""

    def __init__(self, clock: SimClock, *budgets: AnyResource) -> None:
        self.clock, self.budgets = clock, budgets
        self.removed: list[str] = []
        self.written: dict[str, int] = {}
        self.failing = 0
        self._was_told = False

    def world(self, now: int) -> World:
        return a_world(*self.budgets, now=now)

    def subscribe(self, plan: str, parts: frozenset[str]) -> None:
        assert plan == "test"
        assert KIND in parts

    def take_changes(self, plan: str) -> Changes:
        first, self._was_told = not self._was_told, True
        return Changes(everything=first)

    async def changed(self, besides: Collection[str] = ()) -> None:
        await self.clock.sleep(3600)

    async def write_status(self, resource: AnyResource, status: Status) -> None:
        assert resource.kind == KIND, "only resources have a status"
        await self.clock.sleep(0.005)
        self.written.setdefault(resource.name, self.clock.now())

    async def perform(self, action: Action, resource: AnyResource) -> None:
        await self.clock.sleep(0.005)
        if self.failing:
            self.failing -= 1
            raise Unavailable("removing a finalizer: nobody answers")
        assert isinstance(action, RemoveFinalizer)
        self.removed.append(action.object)


def operator(port: Port, plan: Plan, clock: SimClock) -> Operator:
    port_: Any = port
    return Operator(port_, Always(), Settings(identity="one"), Runtime(clock=clock), [plan])


def played(port_of: Any, plan: Plan, seconds: float) -> Port:
    async def script() -> Port:
        clock = SimClock(NOON)
        port: Port = port_of(clock)
        running = operator(port, plan, clock)
        task = asyncio.create_task(running.run())
        await clock.sleep(seconds)
        await running.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return port

    return run_virtual(script)


def test_thousands_of_finalizers_do_not_hold_up_a_judgement() -> None:
    def decide(world: World, _changes: Changes) -> list[Decision]:
        found = []
        for ref, budget in world.of_kind(KIND):
            verdict = judgement(world, ref, budget, (True, "Reconciled", "fine"))
            many = tuple(RemoveFinalizer(object=f"Pod/lab/{ref.name}-{number}") for number in range(300))
            busy = budget.name != "urgent"
            found.append(
                Decision(resource=ref, status=verdict.status, reason="x", message="", actions=many if busy else ())
            )
        return found

    budgets = [a_resource(name=f"busy-{number}") for number in range(8)] + [a_resource(name="urgent")]
    plan = Plan(name="test", kinds=(KIND,), at_most_every_ms=250, decide=decide)
    port = played(lambda clock: Port(clock, *budgets), plan, 30)
    assert set(port.written) == {each.name for each in budgets}
    assert max(port.written.values()) - NOON < 2000
    assert len(set(port.removed)) == 2400


def test_a_chore_that_fails_is_tried_again_and_writes_no_status() -> None:
    plan = Plan(
        name="test",
        kinds=(KIND,),
        at_most_every_ms=250,
        decide=lambda _world, _changes: [],
        chores=lambda _world: [RemoveFinalizer(object="Pod/lab/orphan")],
    )

    def port_of(clock: SimClock) -> Port:
        port = Port(clock, a_resource())
        port.failing = 2
        return port

    port = played(port_of, plan, 130)
    assert port.removed[0] == "Pod/lab/orphan"
    assert port.written == {}


def noted(budget: AnyResource, decide: Decide) -> list[Decision]:
    """What came into the history in five seconds of decisions on it."""
    found: list[Decision] = []

    async def script() -> None:
        clock = SimClock(NOON)
        plan = Plan(name="test", kinds=(KIND,), at_most_every_ms=250, decide=decide)
        running = operator(Port(clock, budget), plan, clock)
        running.loop.noted = lambda decision, _now: found.append(decision)
        task = asyncio.create_task(running.run())
        await clock.sleep(5)
        await running.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(script)
    return found


def test_finalizers_are_no_reason_to_call_a_decision_a_new_one() -> None:
    budget = a_resource()
    calls = [0]

    def decide(world: World, _changes: Changes) -> list[Decision]:
        calls[0] += 1
        actions = (RemoveFinalizer(object=f"Pod/lab/{calls[0]}"),)
        status = judgement(world, ref_of(budget), budget, (True, "Reconciled", "fine")).status
        return [
            Decision(resource=ref_of(budget), status=status, reason="x", message="", actions=actions, look_again_ms=300)
        ]

    assert len(noted(budget, decide)) == 1
    assert calls[0] > 5


def test_the_history_has_what_is_no_routine_and_the_end_of_it() -> None:
    budget = a_resource()
    left = ["fine", "fine too", "over", "fine", "fine too"]

    def decide(_world: World, _changes: Changes) -> list[Decision]:
        reason = left.pop(0) if left else "fine too"
        routine = reason != "over"
        return [
            Decision(
                resource=ref_of(budget),
                status=budget.status,
                reason=reason,
                message="",
                look_again_ms=300,
                routine=routine,
            )
        ]

    assert [each.reason for each in noted(budget, decide)] == ["over", "fine"]
    assert not left

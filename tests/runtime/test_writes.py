"""The writer in the middle of its work: whatever is decided meanwhile holds for what has not begun."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from msgspec import structs

from headroom.model.actions import (
    Action,
    ApplyNodePool,
    CordonNode,
    EmitEvent,
    EvictPod,
    LaunchInstance,
    PausePod,
    SleepMachine,
    UncordonNode,
    WakeMachine,
)
from headroom.model.conditions import find
from headroom.model.decisions import Decision
from headroom.model.errors import Refused, Unavailable
from headroom.model.plans import standing
from headroom.model.world import ref_of
from headroom.runtime.attempts import REPEAT_AFTER_SECONDS
from headroom.runtime.surroundings import Runtime
from headroom.runtime.writes import WriteBudget, Writer, batches
from tests.builders import a_ref, a_resource, a_world
from tests.runtime.fakes import FakePort, HandClock, Switch

MANY = tuple(
    EvictPod(pod=f"team-a/train-{number}", uid=str(number), resource_version="1", grace_seconds=0)
    for number in range(50)
)


class Desk:
    """A writer that is given decisions by hand."""

    def __init__(self) -> None:
        self.clock, self.port, self.gate = HandClock(), FakePort(a_resource()), Switch()
        around = Runtime(clock=self.clock, rng=random.Random(7))
        self.writer = Writer(self.port, self.gate, WriteBudget(self.clock, 10.0, 1), around)
        self._running: asyncio.Task[None] | None = None

    def decision(self, *actions: Action) -> Decision:
        resource = self.port.resources[a_ref()]
        return structs.replace(standing(a_world(resource), a_ref(), resource, "Says so."), actions=actions)

    def submit(self, *actions: Action, effects: bool = True) -> None:
        self.writer.submit(self.decision(*actions), self.port.resources[a_ref()], effects=effects)

    async def work(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let the writer run until something holds, or until it rests."""
        self._running = self._running or asyncio.create_task(self.writer.run())
        for _ in range(2000):
            await asyncio.sleep(0)
            if until() or self.writer.idle:
                return

    @property
    def evictions(self) -> int:
        return sum(what == "action" for what, _ in self.port.done)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def begun(desk: Desk) -> int:
    """A decision with many evictions of which a few are done."""
    desk.submit(*MANY)
    await desk.work(lambda: desk.evictions >= 5)
    assert 5 <= desk.evictions < len(MANY)
    return desk.evictions


def newer(desk: Desk) -> None:
    desk.submit()


def gone(desk: Desk) -> None:
    desk.writer.forget(a_ref())


def halted(desk: Desk) -> None:
    desk.writer.halted = True


def paused(desk: Desk) -> None:
    desk.submit(*MANY, effects=False)


def lost(desk: Desk) -> None:
    desk.gate.is_open = False


@pytest.mark.parametrize("what_happens", [newer, gone, halted, paused, lost])
async def test_what_is_decided_meanwhile_ends_the_rest(desk: Desk, what_happens: Callable[[Desk], None]) -> None:
    before = await begun(desk)
    what_happens(desk)
    await desk.work()

    assert desk.evictions <= before + 1, "only the one that was under way may still come to its end"


async def test_a_stop_does_not_wait_for_what_has_not_begun(desk: Desk) -> None:
    before = await begun(desk)
    at = desk.clock.seconds
    await desk.writer.stop()

    assert desk.evictions <= before + 1
    assert desk.clock.seconds - at < 1.0


async def test_an_action_that_carries_a_spec_is_one_like_any_other(desk: Desk) -> None:
    action = ApplyNodePool(node_pool="leftover-one", spec={"weight": 10})
    desk.submit(action)
    await desk.work()
    desk.submit(action)
    await desk.work()

    assert desk.port.done.count(("action", action)) == 1


async def test_many_failures_make_a_message_that_can_still_be_written(desk: Desk) -> None:
    desk.submit()
    await desk.work()
    desk.port.fails = [Refused(f"evicting pod team-a/train-{number}: {'no ' * 100}") for number in range(50)]
    desk.submit(*MANY)
    await desk.work()
    desk.submit(*MANY)
    await desk.work()

    degraded = find(desk.port.resources[a_ref()].status.conditions, "Degraded")
    assert degraded is not None
    assert degraded.message.endswith("and 47 more")
    assert len(degraded.message) < 5000


async def test_the_same_may_be_done_again_after_a_while(desk: Desk) -> None:
    desk.submit(MANY[0])
    await desk.work()
    desk.clock.seconds += REPEAT_AFTER_SECONDS + 1
    desk.submit(MANY[0])
    await desk.work()

    assert desk.evictions == 2


async def test_an_event_whose_write_got_no_answer_is_told_all_the_same(desk: Desk) -> None:
    event = EmitEvent(
        object="GPUWorkloadBudget/team-a/one", event_type="Warning", reason="InvalidSpec", message="Look."
    )
    desk.submit()
    await desk.work()
    desk.port.fails = [Unavailable("creating an event: no answer"), Unavailable("creating an event: no answer")]
    desk.submit(event)
    await desk.work()

    assert desk.port.done.count(("action", event)) == 1


async def test_nothing_is_done_while_the_status_that_remembers_it_cannot_be_written(desk: Desk) -> None:
    desk.port.fails = [Refused("changing the status: somebody was faster")]
    desk.submit(*MANY[:3])
    await desk.work()
    assert desk.port.done == []
    desk.submit(*MANY[:3])
    await desk.work()
    assert desk.port.done == [], "the status waits until it may be tried again, and so does the rest"
    desk.clock.seconds += 60
    desk.submit(*MANY[:3])
    await desk.work()
    assert [what for what, _ in desk.port.done] == ["status", "action", "action", "action"]


def test_what_rests_on_nothing_is_done_side_by_side_and_the_rest_in_order() -> None:
    pauses = tuple(PausePod(pod=f"a/{n}", uid=str(n)) for n in range(10))
    evictions = tuple(EvictPod(pod=f"a/{n}", uid=str(n), resource_version="1", grace_seconds=1) for n in range(2))
    assert [len(each) for each in batches((*evictions, *pauses, *evictions))] == [1, 1, 8, 2, 1, 1]


# --- commands to machines -----------------------------------------------------------------------------------------------------

WAKES = tuple(WakeMachine(pool="one", machine=f"w{number}") for number in range(200))


def test_machines_and_their_nodes_are_switched_side_by_side() -> None:
    nodes = (CordonNode(node="a"), CordonNode(node="b"), UncordonNode(node="c"))
    sleep = SleepMachine(pool="one", machine="w0")
    assert [len(each) for each in batches((*WAKES, *nodes, sleep))] == [64, 64, 64, 8, 2, 1, 1]


def switched(desk: Desk) -> int:
    return sum(what == "action" and isinstance(action, WakeMachine) for what, action in desk.port.done)


async def waking(desk: Desk) -> None:
    """A decision whose status is written and of whose commands a few are given."""
    desk.submit(*WAKES)
    await desk.work(lambda: switched(desk) >= 5)
    assert 5 <= switched(desk) < len(WAKES)


async def test_commands_are_given_although_the_next_decision_does_not_repeat_them(desk: Desk) -> None:
    await waking(desk)
    newer(desk)
    await desk.work()
    assert switched(desk) == len(WAKES)


@pytest.mark.parametrize("what_happens", [gone, halted, paused, lost])
async def test_but_none_begins_once_nothing_may_be_done(desk: Desk, what_happens: Callable[[Desk], None]) -> None:
    await waking(desk)
    before = switched(desk)
    what_happens(desk)
    await desk.work()
    assert switched(desk) == before


async def test_a_command_that_failed_is_left_to_the_plan(desk: Desk) -> None:
    desk.submit()
    await desk.work()
    desk.port.fails = [Unavailable("waking machine w0: no answer")]
    desk.submit(WAKES[0])
    await desk.work()
    for _ in range(20):
        desk.clock.seconds += 30
        desk.submit()
        await desk.work()
    assert switched(desk) == 0
    assert find(desk.port.resources[a_ref()].status.conditions, "Degraded") is None, "the plan tells what came of it"


async def test_a_new_command_is_not_taken_for_the_one_before(desk: Desk) -> None:
    for _ in range(2):
        desk.submit(WAKES[0])
        await desk.work()
        desk.submit()
        await desk.work()
    assert switched(desk) == 2


async def test_clouds_that_do_not_answer_keep_nobody_else_waiting(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write Spotpools names who answers behind a webhook, in as many pools as they like."""
    done: list[Action] = []
    never = asyncio.Event()

    async def perform(action: Action, resource: object) -> None:
        if isinstance(action, LaunchInstance):
            await never.wait()
        done.append(action)

    monkeypatch.setattr(desk.port, "perform", perform)
    for number in range(20):
        pool = a_resource("Spotpool", f"slow-{number}")
        action = LaunchInstance(pool=f"team-a/slow-{number}", slot=0, token="t", instance_type="g", zone="z")
        ref = ref_of(pool)
        decision = structs.replace(
            standing(a_world(pool), ref, pool, "Says so."), actions=(action,), status=pool.status
        )
        desk.writer.submit(decision, pool, effects=True)
    await desk.work(lambda: not desk.writer._waiting)
    await desk.work()
    desk.submit(MANY[0])
    await desk.work(lambda: bool(done))
    assert done == [MANY[0]]
    never.set()
    await desk.work()
    assert len(done) == 21


async def test_a_switch_may_take_longer_than_anything_else(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CordonNode, "timeout_seconds", 0.001)
    done: list[Action] = []

    async def slowly(action: Action, resource: object) -> None:
        await asyncio.sleep(0.1)
        done.append(action)

    monkeypatch.setattr(desk.port, "perform", slowly)
    desk.submit(WAKES[0], CordonNode(node="w0"))
    await desk.work(lambda: False)
    await asyncio.wait(desk.writer._busy.values())
    assert done == [WAKES[0]]

"""The loop and the writer: what is asked, what is written, and what never happens twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs

from headroom.api.resources import Status
from headroom.core import PLANS, budgets
from headroom.model.actions import Action, CordonNode, EmitEvent, EvictPod
from headroom.model.changes import Changes, Topic
from headroom.model.conditions import find
from headroom.model.decisions import Decision
from headroom.model.errors import Refused, Unavailable
from headroom.model.plans import Plan, affected, raised, standing
from headroom.model.world import World, by_ref
from headroom.runtime.loop import is_news
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from tests.builders import a_ref, a_resource, news_of
from tests.runtime.fakes import FakePort, HandClock, Switch

EVICT = EvictPod(pod="team-a/train-0", uid="u", resource_version="1", grace_seconds=30)


class Rig:
    """An operator over a hand-driven port."""

    def __init__(self, port: FakePort, *plans: Plan, is_open: bool = True, **settings: Any) -> None:
        self.clock, self.port, self.gate = HandClock(), port, Switch(is_open)
        self.around = Runtime(clock=self.clock, rng=random.Random(7))
        self.operator = Operator(port, self.gate, Settings(**settings), self.around, plans or PLANS)

    async def tick(self, seconds: float = 0.3) -> None:
        """Let time pass, tick once, and let the writer come to rest."""
        self.clock.seconds += seconds
        self.operator.loop.tick()
        writer = asyncio.create_task(self.operator.writer.run())
        for _ in range(200):
            await asyncio.sleep(0)
            if self.operator.writer.idle:
                break
        writer.cancel()

    def count(self, metric: str, **labels: str) -> float:
        return self.around.metrics.registry.get_sample_value(metric, labels) or 0.0


def plan_with(*actions: Action, kind: str = "GPUWorkloadBudget") -> Plan:
    """A plan that always wants these actions."""

    def decide(world: World, changes: Changes) -> Iterable[Decision]:
        for ref, resource in affected(world, kind, changes):
            yield structs.replace(standing(world, ref, resource, "Says so."), actions=actions)

    return Plan(name="wants", kinds=(kind,), at_most_every_ms=100, decide=decide)


async def test_an_unchanged_world_is_written_once() -> None:
    rig = Rig(FakePort(a_resource(), a_resource("PowerPool")))
    for _ in range(1000):
        await rig.tick()

    assert sorted(what for what, _ in rig.port.done) == ["status", "status"]


async def test_the_status_is_written_before_the_actions_run() -> None:
    rig = Rig(FakePort(a_resource()), plan_with(EVICT))
    await rig.tick()

    assert rig.port.done == [("status", a_ref()), ("action", EVICT)]


async def test_what_was_just_done_is_not_done_again() -> None:
    rig = Rig(FakePort(a_resource()), plan_with(EVICT))
    for _ in range(50):
        rig.port.change(Changes(everything=True))
        await rig.tick()

    assert rig.port.done.count(("action", EVICT)) == 1


async def test_without_the_right_to_act_nothing_is_written() -> None:
    rig = Rig(FakePort(a_resource()), plan_with(EVICT), is_open=False)
    await rig.tick()
    assert rig.port.done == []

    rig.gate.is_open = True
    await rig.tick()
    assert rig.port.done == [("status", a_ref()), ("action", EVICT)]


@pytest.mark.parametrize("fields", [{"stopped": True}, {"complete": False}], ids=["stopped", "incomplete view"])
async def test_a_thrown_switch_or_a_partial_view_ends_all_effects(fields: dict[str, Any]) -> None:
    rig = Rig(FakePort(a_resource()), plan_with(EVICT))
    rig.port.fields = fields
    await rig.tick()

    assert ("action", EVICT) not in rig.port.done


async def test_a_paused_resource_has_no_effects_but_a_status() -> None:
    rig = Rig(FakePort(a_resource(paused=True)), plan_with(EVICT))
    await rig.tick()

    assert rig.port.done == [("status", a_ref())]


async def test_a_switch_thrown_in_the_middle_of_a_decision_ends_the_rest_of_it() -> None:
    rig = Rig(FakePort(a_resource()), plan_with(EVICT))

    def stop() -> None:
        rig.port.fields = {"stopped": True}
        rig.port.change(news_of(Topic.SETTINGS))
        rig.clock.seconds += 1
        rig.operator.loop.tick()

    rig.port.after_status = stop
    await rig.tick()

    assert ("action", EVICT) not in rig.port.done


async def test_a_lost_lease_between_status_and_action_stops_the_action() -> None:
    rig = Rig(FakePort(a_resource()), plan_with(EVICT))
    rig.port.after_status = lambda: setattr(rig.gate, "is_open", False)
    await rig.tick()

    assert rig.port.done == [("status", a_ref())]


async def test_a_plan_that_raises_is_counted_reported_and_alone() -> None:
    def decide(world: World, changes: Changes) -> Iterable[Decision]:
        for ref, resource in affected(world, "GPUWorkloadBudget", changes):
            if ref.name == "poison":
                raise ZeroDivisionError("deep inside")
            yield standing(world, ref, resource, "Fine.")

    poisoned = Plan(name="poisoned", kinds=("GPUWorkloadBudget",), at_most_every_ms=100, decide=decide)
    others = [plan for plan in PLANS if plan.kinds[0] != "GPUWorkloadBudget"]
    rig = Rig(FakePort(a_resource(name="poison"), a_resource(name="sound"), a_resource("PowerPool")), poisoned, *others)
    await rig.tick()

    verdicts = {ref: find(each.status.conditions, "Ready") for ref, each in rig.port.resources.items()}
    bad = verdicts[a_ref(name="poison")]
    assert bad is not None
    assert (bad.status, bad.reason) == ("False", "InternalError")
    assert "ZeroDivisionError: deep inside" in bad.message
    told = [each for what, each in rig.port.done if what == "action"]
    assert [(each.object, each.reason) for each in told] == [("GPUWorkloadBudget/team-a/poison", "InternalError")]
    assert all(each is not None and each.status == "True" for ref, each in verdicts.items() if ref.name != "poison")
    assert rig.count("headroom_plan_errors_total", plan="poisoned") >= 1


async def test_a_plan_that_decides_all_together_is_asked_once_though_it_raises() -> None:
    asked = []

    def decide(_world: World, changes: Changes) -> Iterable[Decision]:
        asked.append(changes)
        raise ZeroDivisionError("deep inside")

    together = Plan(name="round", kinds=("PowerPool",), at_most_every_ms=100, decides_together=True, decide=decide)
    rig = Rig(FakePort(a_resource("PowerPool", "one"), a_resource("PowerPool", "two")), together)
    await rig.tick()
    assert len(asked) == 1
    found = [find(each.status.conditions, "Ready") for each in rig.port.resources.values()]
    assert [each.reason for each in found if each is not None] == ["InternalError", "InternalError"]


async def test_what_a_round_leaves_out_is_counted_as_a_bug() -> None:
    def decide(world: World, _changes: Changes) -> Iterable[Decision]:
        for ref, resource in world.of_kind("PowerPool"):
            is_bad = ref.name == "poison"
            yield raised(world, ref, resource, ValueError("odd")) if is_bad else standing(world, ref, resource, "Fine.")

    together = Plan(name="round", kinds=("PowerPool",), at_most_every_ms=100, decides_together=True, decide=decide)
    rig = Rig(FakePort(a_resource("PowerPool", "poison"), a_resource("PowerPool", "sound")), together)
    await rig.tick()
    assert rig.count("headroom_plan_errors_total", plan="round") == 1


async def test_a_failed_effect_backs_off_and_is_shown_until_it_works() -> None:
    rig = Rig(FakePort(a_resource()), plan_with(EVICT))
    await rig.tick(0.3)
    rig.port.done.clear()
    rig.clock.seconds += 60
    rig.port.fails = [Refused("evicting pod team-a/train-0: a disruption budget allows no eviction")]
    rig.port.change(Changes(everything=True))
    await rig.tick()
    for _ in range(20):
        await rig.tick(0.2)
    assert ("action", EVICT) not in rig.port.done

    degraded = find(rig.port.resources[a_ref()].status.conditions, "Degraded")
    assert degraded is not None
    assert "disruption budget" in degraded.message

    for _ in range(40):
        await rig.tick(1.0)
    assert rig.port.done.count(("action", EVICT)) >= 1
    assert find(rig.port.resources[a_ref()].status.conditions, "Degraded") is None


async def test_a_failed_status_write_is_tried_again() -> None:
    rig = Rig(FakePort(a_resource()))
    rig.port.fails = [Unavailable("writing: no answer")]
    await rig.tick()
    assert rig.port.done == []

    for _ in range(5):
        await rig.tick(1.0)
    assert rig.port.done == [("status", a_ref())]


def test_what_is_done_is_no_news_and_what_is_due_is() -> None:
    ref = a_ref()
    event = EmitEvent(object=str(ref), event_type="Normal", reason="One", message="One.")
    idle = Decision(resource=ref, status=Status(), reason="Fine", message="1 of 10")
    due = structs.replace(idle, actions=(event,))
    assert is_news(idle, due)
    assert not is_news(due, idle)
    assert not is_news(due, due)
    assert is_news(due, structs.replace(due, actions=(event, structs.replace(event, reason="Two"))))
    assert is_news(idle, structs.replace(idle, reason="Bad"))
    assert not is_news(idle, structs.replace(idle, message="2 of 10"))


async def test_a_turn_is_not_late_by_the_time_that_deciding_takes() -> None:
    asked: list[int] = []

    def slow(world: World, changes: Changes) -> Iterable[Decision]:
        asked.append(world.now)
        rig.clock.seconds += 0.4
        for ref, resource in world.of_kind("GPUWorkloadBudget"):
            # Ten seconds after the first look something turns, and it says so.
            left = asked[0] + 10_000 - world.now
            yield structs.replace(standing(world, ref, resource, "Says so."), look_again_ms=left or 600_000)

    plan = Plan(name="slow", kinds=("GPUWorkloadBudget",), at_most_every_ms=0, decide=slow)
    rig = Rig(FakePort(a_resource()), plan)
    await rig.tick()
    await rig.tick()  # its status was written, so it is looked at once more
    rig.clock.seconds += (asked[0] + 10_000 - rig.clock.now()) / 1000
    await rig.tick(0)
    assert asked[-1] == asked[0] + 10_000


async def test_an_event_that_is_due_again_with_other_numbers_is_no_other_decision() -> None:
    """Such as that of an operator without the lease, whose statuses are not written."""

    def tells(world: World, changes: Changes) -> Iterable[Decision]:
        for ref, resource in affected(world, "GPUWorkloadBudget", changes):
            event = EmitEvent(object="Pod/a/b", event_type="Normal", reason="Told", message=f"It is {world.now}.")
            decision = standing(world, ref, resource, "Says so.")
            yield structs.replace(decision, actions=(event,), look_again_ms=600_000)

    plan = Plan(name="tells", kinds=("GPUWorkloadBudget",), at_most_every_ms=100, decide=tells)
    rig = Rig(FakePort(a_resource()), plan)
    for _ in range(3):
        await rig.tick(61)
    assert rig.count("headroom_plan_differences_total", plan="tells") == 0


async def test_a_full_pass_finds_a_plan_that_forgot() -> None:
    def forgets(world: World, changes: Changes) -> Iterable[Decision]:
        for ref, resource in affected(world, "GPUWorkloadBudget", changes):
            # It depends on the cluster's name but is not told when that changes.
            decision = standing(world, ref, resource, "Says so.")
            yield structs.replace(decision, reason=f"In{world.cluster}", look_again_ms=600_000)

    plan = Plan(name="forgets", kinds=("GPUWorkloadBudget",), at_most_every_ms=100, decide=forgets)
    rig = Rig(FakePort(a_resource()), plan)
    await rig.tick()
    await rig.tick(61)
    assert rig.count("headroom_plan_differences_total", plan="forgets") == 0

    rig.port.fields = {"cluster": "other"}
    await rig.tick(61)
    assert rig.count("headroom_plan_differences_total", plan="forgets") == 1


async def test_a_deleted_resource_is_forgotten() -> None:
    rig = Rig(FakePort(a_resource()))
    await rig.tick()
    rig.port.resources = by_ref(())
    rig.port.change(Changes(resources={a_ref()}))
    await rig.tick()

    assert a_ref() not in rig.operator.loop.decisions


async def test_enforcement_is_written_before_judgements_when_writes_are_scarce() -> None:
    calm = [a_resource(name=f"b{index}") for index in range(5)]
    rig = Rig(
        FakePort(*calm, a_resource("PowerPool", "urgent")),
        budgets.PLAN,
        plan_with(CordonNode(node="worker-1"), kind="PowerPool"),
        write_burst=1,
        writes_per_second=1.0,
    )
    await rig.tick()

    assert rig.port.done[0] == ("status", a_ref("PowerPool", "urgent"))
    assert len(rig.port.done) == 7

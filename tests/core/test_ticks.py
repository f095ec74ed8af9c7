"""One tick is a sequence: every plan sees what those before it have decided, and of its own kinds what is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from msgspec import structs

from headroom.api.kinds import KINDS
from headroom.api.resources import Condition, Status
from headroom.core import CAPACITY, PLANS, budgets
from headroom.core.ticks import Tick, as_seen_by, decide_all
from headroom.model import conditions
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan
from headroom.model.times import HOUR
from headroom.model.world import World, by_ref
from headroom.runtime.loop import substance
from tests.builders import NOON, a_ref, a_resource, a_used_world, a_world
from tests.core import power_stage, stage
from tests.core.test_plans import History, histories

BUDGET, POOL = "GPUWorkloadBudget", "PowerPool"


def says(word: str, kind: str, reads: str = "") -> Plan:
    """A plan that writes a word into its resources' status, or what it sees in those it reads."""

    def decide(world: World, _changes: Changes) -> Iterator[Decision]:
        seen = [each.reason for _, other in world.of_kind(reads) for each in other.status.conditions]
        own = [each.reason for _, other in world.of_kind(kind) for each in other.status.conditions]
        for ref, resource in world.of_kind(kind):
            reason = "+".join([word, *seen, *(f"own:{each}" for each in own)])
            told = Condition(type="Ready", status="True", reason=reason, message="", last_transition_time="")
            status = structs.replace(resource.status, conditions=(told,))
            yield Decision(resource=ref, status=status, reason=reason, message="")

    return Plan(name=word, kinds=(kind,), reads=(reads,) if reads else (), at_most_every_ms=0, decide=decide)


def reasons(found: list[Decision]) -> list[str]:
    return [each.reason for each in found]


def test_a_later_plan_sees_what_an_earlier_one_has_decided() -> None:
    world = a_world(a_resource(BUDGET), a_resource(POOL))
    assert reasons(decide_all(world, (says("first", BUDGET), says("second", POOL, BUDGET)))) == [
        "first",
        "second+first",
    ]


def test_an_earlier_plan_does_not_see_what_a_later_one_decides() -> None:
    world = a_world(a_resource(BUDGET), a_resource(POOL))
    assert reasons(decide_all(world, (says("first", POOL, BUDGET), says("second", BUDGET)))) == ["first", "second"]


def test_of_its_own_kinds_a_plan_sees_what_is_written() -> None:
    world, plan = a_world(a_resource(BUDGET)), says("word", BUDGET)
    tick = Tick(world, (plan,))
    tick.ask(plan, EVERYTHING)
    assert reasons(tick.ask(plan, EVERYTHING)) == ["word"]


def test_what_earlier_ticks_decided_is_seen_until_it_is_written() -> None:
    world = a_world(a_resource(BUDGET), a_resource(POOL))
    plans = (says("first", BUDGET), says("second", POOL, BUDGET))
    known = {each.resource: each for each in decide_all(world, plans)}
    assert reasons(Tick(world, plans, known).ask(plans[1], Changes())) == ["second+first"]


def test_the_world_itself_stays_as_it_was() -> None:
    world = a_world(a_resource(BUDGET), a_resource(POOL))
    decide_all(world, (says("first", BUDGET), says("second", POOL, BUDGET)))
    assert all(each.status.conditions == () for each in world.resources.values())


def test_a_decision_on_what_is_gone_is_not_seen() -> None:
    world, plans = a_world(a_resource(POOL)), (says("first", BUDGET), says("second", POOL, BUDGET))
    gone = Decision(resource=a_ref(BUDGET), status=Status(), reason="first", message="")
    assert reasons(Tick(world, plans, {gone.resource: gone}).ask(plans[1], EVERYTHING)) == ["second"]


@given(steps=histories())
def test_asking_each_plan_for_what_changed_equals_asking_all_for_everything(steps: list[tuple[str, str, str]]) -> None:
    """The law that lets the loop ask for little, across the sequence."""
    history, known = History(), dict[Ref, Decision]()
    for what, kind, name in steps:
        changes = history.step(what, kind, name, known)
        known = {ref: each for ref, each in known.items() if ref in history.world.resources}
        tick, turned = Tick(history.world, PLANS, known), set(changes.resources)
        for plan in PLANS:
            mine = {ref for ref in turned if ref.kind in (*plan.kinds, *plan.reads)}
            found = {each.resource: each for each in tick.ask(plan, structs.replace(changes, resources=mine))}
            turned |= {ref for ref, each in found.items() if _turned(known.get(ref), each)}
            known |= found
        assert known == {each.resource: each for each in decide_all(history.world, PLANS)}


def _turned(before: Decision | None, after: Decision) -> bool:
    return before is None or substance(before) != substance(after)


def test_every_plan_reads_only_what_earlier_plans_decide() -> None:
    for place, plan in enumerate(PLANS):
        assert {*plan.reads} <= {kind for each in PLANS[:place] for kind in each.kinds}
    assert {kind for plan in PLANS for kind in plan.kinds} == {*KINDS}


# --- a budget that turns over quota in this very tick -----------------------------------------------------------------------------


def used_up(*, written: bool) -> World:
    """A budget that has used all of its quota, with a status that says so or that it has room; a pod of it waits, a machine sleeps."""
    budget = stage.a_budget(hours="10")
    pods = [stage.running("done", 12 * HOUR), power_stage.waiting("p", namespace="team-a", labels=(("team", "a"),))]
    pool = power_stage.a_pool(machines={"w1": 8})
    world = a_used_world(budget, pool, pods=pods, nodes=[power_stage.off("w1")])
    told = conditions.judged(budget, "QuotaExceeded", written, "Written", "", NOON)
    stale = structs.replace(budget, status=structs.replace(budget.status, conditions=(told,)))
    return structs.replace(world, resources=a_world(stale, pool).resources)


@pytest.mark.parametrize("written", [False, True])
def test_no_machine_wakes_for_a_budget_that_is_over_quota(written: bool) -> None:
    decided = {each.resource.kind: each for each in decide_all(used_up(written=written), PLANS)}
    assert conditions.holds(decided[BUDGET].status.conditions, "QuotaExceeded")
    assert power_stage.wakes(decided[POOL]) == []


def test_by_its_written_status_alone_one_would_wake() -> None:
    world = used_up(written=False)
    [pool] = CAPACITY.decide(world, EVERYTHING)
    assert power_stage.wakes(pool) == ["w1"]
    [pool] = CAPACITY.decide(as_seen_by(CAPACITY, world, PLANS), EVERYTHING)
    assert power_stage.wakes(pool) == []


def test_nobody_writes_to_the_world_inside_a_plan() -> None:
    """Who keeps the tables has them tell labels apart before a plan is asked; the plan itself only reads."""
    world = a_used_world(stage.a_budget(hours="18"), pods=[stage.running("p", HOUR)])
    new = stage.a_budget("two", selector={"matchLabels": {"squad": "x"}})
    known = structs.replace(world, resources=by_ref([*world.resources.values(), new]))
    before = (known.usage.regrouped, list(known.usage.groups))
    list(budgets.PLAN.decide(known, EVERYTHING))
    assert (known.usage.regrouped, known.usage.groups) == before
    Tick(known, PLANS).ask(budgets.PLAN, EVERYTHING)
    assert known.usage.regrouped == before[0] + 1, "a tick does it, once"
    Tick(known, PLANS).ask(budgets.PLAN, EVERYTHING)
    assert known.usage.regrouped == before[0] + 1

"""One tick is a sequence: every plan sees what those before it have decided, and of its own kinds what is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from msgspec import structs

from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import QueuedUnit, QueueStatus
from headroom.api.kinds import KINDS
from headroom.api.resources import Condition, Status
from headroom.cli.planning import with_chores
from headroom.core import CAPACITY, PLANS, budgets
from headroom.core.ticks import Heard, Tick, as_seen_by, decide_all, whole_tick
from headroom.model import conditions, times
from headroom.model.actions import Action, EmitEvent
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan
from headroom.model.times import HOUR, MINUTE, SECOND
from headroom.model.world import World, by_ref
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


def test_chores_see_what_earlier_plans_have_decided_too() -> None:
    def chores(world: World) -> Iterator[Action]:
        for ref, budget in world.of_kind(BUDGET):
            for each in budget.status.conditions:
                yield EmitEvent(object=str(ref), event_type="Normal", reason=each.reason, message="")

    world = a_world(a_resource(BUDGET), a_resource(POOL))
    plans = (says("first", BUDGET), structs.replace(says("second", POOL), chores=chores))
    tick, _ = whole_tick(world, plans)
    assert [each.reason for each in tick.chores(plans[1]) if isinstance(each, EmitEvent)] == ["first"]
    [*_, due] = with_chores(world, plans)
    assert [each.reason for each in due.actions if isinstance(each, EmitEvent)] == ["first"]


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
    history, known, heard = History(), dict[Ref, Decision](), Heard()
    for what, kind, name in steps:
        changes = history.step(what, kind, name, known)
        known = {ref: each for ref, each in known.items() if ref in history.world.resources}
        tick, turned = Tick(history.world, PLANS, known), set(changes.resources)
        for plan in PLANS:
            mine = {ref for ref in turned if ref.kind in (*plan.kinds, *plan.reads)}
            found = {each.resource: each for each in tick.ask(plan, structs.replace(changes, resources=mine))}
            turned |= {ref for ref, each in found.items() if heard.is_news(plan, each, history.world.now)}
            known |= found
        assert known == {each.resource: each for each in decide_all(history.world, PLANS)}


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


def test_a_round_over_no_resources_is_not_held() -> None:
    """However many pods are pending: to look for them costs most of what a round does."""
    rounds = []

    def decide(world: World, _changes: Changes) -> Iterator[Decision]:
        rounds.append(world)
        return iter(())

    alone = Plan(name="alone", kinds=(POOL,), at_most_every_ms=0, decide=decide)
    together = structs.replace(alone, name="together", decides_together=True)
    decide_all(a_world(a_resource(BUDGET)), (together,))
    assert not rounds
    decide_all(a_world(a_resource(BUDGET)), (alone,))
    assert len(rounds) == 1, "a plan may decide on what does not exist yet"
    decide_all(a_world(a_resource(POOL)), (together,))
    assert len(rounds) == 2


# --- estimated starts -----------------------------------------------------------------------------------------------------------------


def queueing(starts: dict[str, int | None], state: str = "Waiting") -> Decision:
    """A decision of a budget that queues some pods, with the moments at which they may start."""
    queue = tuple(
        QueuedUnit(unit=name, gpus="1", pods=1, starts_at="" if at is None else times.text(at), state=state)  # type: ignore[arg-type]  # one of its words
        for name, at in starts.items()
    )
    status = GPUWorkloadBudgetStatus(held=QueueStatus(units=len(queue), pods=len(queue), queue=queue))
    return Decision(resource=a_ref(BUDGET), status=status, reason="Holding", message="")


def news(*steps: tuple[int, Decision]) -> list[bool]:
    """Whether each of some decisions is news to who reads budgets; each with the moment at which it is made."""
    heard = Heard()
    return [heard.is_news(budgets.PLAN, decision, now) for now, decision in steps]


SOON = NOON + 10 * MINUTE


def test_an_estimated_start_that_moved_is_news() -> None:
    assert news((NOON, queueing({"Pod/a/p": SOON})), (NOON, queueing({"Pod/a/p": SOON - 5 * MINUTE}))) == [True, True]
    assert news((NOON, queueing({"Pod/a/p": SOON})), (NOON, queueing({"Pod/a/p": SOON + 5 * MINUTE}))) == [True, True]
    assert news((NOON, queueing({"Pod/a/p": None})), (NOON, queueing({"Pod/a/p": SOON}))) == [True, True]
    assert news((NOON, queueing({"Pod/a/p": SOON})), (NOON, queueing({"Pod/a/p": SOON}, "NeverFits"))) == [True, True]
    assert news((NOON, queueing({"Pod/a/p": SOON})), (NOON, queueing({"Pod/a/p": SOON}, "Releasing"))) == [True, True]
    assert news((NOON, queueing({"Pod/a/p": SOON})), (NOON, queueing({}))) == [True, True]


def test_one_that_moves_by_seconds_is_not_until_they_add_up() -> None:
    moved = [(NOON + n * SECOND, queueing({"Pod/a/p": SOON + 2 * n * SECOND})) for n in range(60)]
    found = news(*moved)
    assert found[0]
    assert 1 <= sum(found[1:]) <= 3


def test_one_that_lies_far_ahead_may_move_by_more() -> None:
    far = NOON + 20 * HOUR
    assert news((NOON, queueing({"a": far})), (NOON, queueing({"a": far - HOUR}))) == [True, False]
    assert news((NOON, queueing({"a": far})), (NOON, queueing({"a": NOON + HOUR}))) == [True, True]


def test_a_pod_whose_start_comes_near_by_a_minute_has_its_machine_woken() -> None:
    """The law across the sequence: who is asked only when something is news decides as who is asked about everything."""
    pool = power_stage.a_pool(machines={"w1": 8}, bootTimeoutSeconds=300)
    pod = structs.replace(
        power_stage.waiting("p", namespace="team-a", labels=(("team", "a"),)),
        gates=(marks.GATE,),
        unschedulable_since=None,
    )
    world = a_used_world(stage.a_budget(hours="10"), pool, pods=[pod], nodes=[power_stage.off("w1")])

    def seen(starts: int) -> list[str]:
        told = queueing({"Pod/team-a/p": starts}).status
        overlaid = structs.replace(world, resources=world.resources.overlaid({a_ref(BUDGET): told}))
        [found] = CAPACITY.decide(overlaid, EVERYTHING)
        return power_stage.wakes(found)

    assert (seen(NOON + 6 * MINUTE), seen(NOON + 4 * MINUTE)) == ([], ["w1"])
    steps = [(NOON, queueing({"Pod/team-a/p": NOON + each * MINUTE})) for each in (6, 4)]
    assert news(*steps) == [True, True]

"""The ladder: when steps begin and end, what Pause does, and what people are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.api import marks
from headroom.api.enforcement import EnteredStep
from headroom.api.resources import Condition
from headroom.core.budgets import PLAN
from headroom.model.actions import Action, EmitEvent, EvictPod, PausePod, RemoveFinalizer, ResumeOwner, ResumePod
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Decision
from headroom.model.facts import Pod, Workload, WorkloadPart
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.world import ref_of
from tests.builders import NOON
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running

USED = running("done", 20 * HOUR, phase="Succeeded", ended=NOON - 2 * HOUR, ended_by="ContainerFinish")
"""18 GPU-hours, the first of which leave the window after four hours."""


def steps(stage: Stage) -> list[tuple[str, str]]:
    return [(each.at, each.action) for each in stage.status().steps]


def reasons(decision: Decision) -> list[str]:
    return [each.reason for each in decision.actions if isinstance(each, EmitEvent)]


def with_status(budget: Any, **fields: Any) -> Any:
    return structs.replace(budget, status=structs.replace(budget.status, **fields))


def exceeded(since: int) -> dict[str, Any]:
    found = Condition(
        type="QuotaExceeded", status="True", reason="QuotaReached", message="", last_transition_time=text(since)
    )
    return {"conditions": (found,)}


# --- steps ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "stand"),
    [
        ("23", []),
        ("22.5", [("80%", "AlertOnly")]),
        ("18", [("80%", "AlertOnly"), ("100%", "Hold")]),
        ("15.1", [("80%", "AlertOnly"), ("100%", "Hold")]),
        ("15", [("80%", "AlertOnly"), ("100%", "Hold"), ("120%", "Evict")]),
    ],
)
def test_steps_begin_at_their_share_exactly(hours: str, stand: list[tuple[str, str]]) -> None:
    stage = Stage(a_budget(hours=hours, enforce=["80% AlertOnly", "100% Hold", "120% Evict"]), pods=[USED])
    stage.look()
    assert steps(stage) == stand


@pytest.mark.parametrize(("hours", "stays"), [("18.1", True), ("18.94", True), ("18.95", False), ("30", False)])
def test_a_step_ends_five_points_below(hours: str, stays: bool) -> None:
    since = (EnteredStep(at="100%", action="Pause", since=text(NOON - HOUR)),)
    stage = Stage(with_status(a_budget(hours=hours, enforce="Pause"), steps=since), pods=[USED])
    stage.look()
    assert bool(steps(stage)) == stays
    if stays:
        assert stage.status().steps == since


def test_a_step_stands_for_its_dwell() -> None:
    since = (EnteredStep(at="100%", action="Pause", since=text(NOON - 30 * SECOND)),)
    stage = Stage(with_status(a_budget(hours="30", enforce="Pause"), steps=since), pods=[USED])
    stage.look()
    assert steps(stage)
    stage.pass_time(30 * SECOND)
    assert not steps(stage)


def test_a_status_without_steps_is_understood_by_its_condition() -> None:
    """As the seed wrote it, or a version before there were steps."""
    stage = Stage(with_status(a_budget(hours="18.5", enforce="Pause"), **exceeded(NOON - HOUR)), pods=[USED])
    stage.look()
    assert stage.status().steps == (EnteredStep(at="100%", action="Pause", since=text(NOON - HOUR)),)


def test_grace_counts_from_the_condition_also_for_higher_steps() -> None:
    budget = a_budget(hours="10", enforce=["120% Evict"], grace=600)
    stage = Stage(with_status(budget, **exceeded(NOON - 11 * MINUTE)), pods=[running("p", 18 * HOUR)])
    assert [type(each) for each in stage.look()] == [EvictPod]


def test_a_very_low_step_can_be_left() -> None:
    since = (EnteredStep(at="4%", action="AlertOnly", since=text(NOON - HOUR)),)
    stage = Stage(with_status(a_budget(hours="1000", enforce=["4% AlertOnly"]), steps=since), pods=[USED])
    stage.look()
    assert not steps(stage)


def test_it_looks_again_when_grace_is_over() -> None:
    stage = Stage(a_budget(hours="1", grace=7), pods=[running("p", 2 * HOUR)])
    stage.look()
    assert stage.decisions["one"].look_again_ms == 7 * SECOND


# --- events -----------------------------------------------------------------------------------------------------------------------


def test_each_turn_is_told_once() -> None:
    stage = Stage(a_budget(hours="22.4", enforce=["80% AlertOnly", "100% Pause"]), pods=[USED, running("r", 0)])
    stage.look()
    assert reasons(stage.decisions["one"]) == ["StepReached"]
    stage.pass_time(HOUR, every=10 * MINUTE)
    assert reasons(stage.decisions["one"]) == []
    told = []
    for _ in range(40):
        stage.pass_time(30 * MINUTE)
        told += reasons(stage.decisions["one"])
    assert told == []  # what comes in leaves at the same rate


def test_a_single_action_tells_with_the_quotas_own_event() -> None:
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[USED])
    stage.look()
    assert reasons(stage.decisions["one"]) == ["QuotaExceeded"]
    told = []
    for _ in range(30):
        stage.pass_time(10 * MINUTE)
        told += reasons(stage.decisions["one"])
    assert told == ["WithinBudget", "StepLeft"]


def test_the_message_has_the_numbers() -> None:
    stage = Stage(a_budget(hours="18", enforce=["100% Hold"]), pods=[USED])
    stage.look()
    (said,) = [
        each.message
        for each in stage.decisions["one"].actions
        if isinstance(each, EmitEvent) and each.reason == "StepReached"
    ]
    assert "18.0 of 18 GPU-hours" in said


def test_a_step_in_its_grace_says_when_it_will_act() -> None:
    stage = Stage(a_budget(hours="18", enforce=["100% Hold"], grace=90), pods=[USED])
    stage.look()
    assert f"Hold takes effect at {text(NOON + 90 * SECOND)}" in stage.decisions["one"].message
    found = next(each for each in stage.status().conditions if each.type == "Holding")
    assert found.message.startswith(
        f"New pods start as always until the grace period ends at {text(NOON + 90 * SECOND)}"
    )


# --- pause ------------------------------------------------------------------------------------------------------------------------


def paused(actions: list[Action]) -> list[str]:
    return [each.pod.partition("/")[2] for each in actions if isinstance(each, PausePod)]


def paused_by(name: str) -> tuple[tuple[str, str], ...]:
    return ((marks.PAUSED_AT, text(NOON)), (marks.PAUSED_BY, f"GPUWorkloadBudget/team-a/{name}"))


def offenders() -> list[Pod]:
    return [running(f"p{gpus}", HOUR, gpus=gpus) for gpus in (4, 3, 2)]


def test_all_offenders_are_paused_and_all_resumed_after_recovery() -> None:
    stage = Stage(a_budget(hours="9", enforce="Pause"), pods=offenders())
    assert paused(stage.look()) == ["p2", "p3", "p4"]
    assert stage.pass_time(10 * MINUTE, every=MINUTE) == []
    assert {dict(pod.annotations)[marks.PAUSED_BY] for pod in stage.pods.values()} == {"GPUWorkloadBudget/team-a/one"}
    for uid, pod in stage.pods.items():
        stage.pods[uid] = structs.replace(pod, phase="Succeeded", ended=stage.now, ended_by="ContainerFinish")
    done = stage.pass_time(26 * HOUR, every=HOUR)
    assert sorted(each.pod for each in done if isinstance(each, ResumePod)) == ["team-a/p2", "team-a/p3", "team-a/p4"]
    assert not any(pod.annotations for pod in stage.pods.values())


@pytest.mark.parametrize("change", ["deleted", "alert", "raised"])
def test_pause_is_undone_with_its_budget(change: str) -> None:
    stage = Stage(a_budget(hours="9", enforce="Pause"), pods=offenders())
    stage.look()
    stage.now += 2 * MINUTE
    (ref,) = stage.budgets
    if change == "deleted":
        del stage.budgets[ref]
    else:
        new = a_budget(hours="9", enforce="AlertOnly") if change == "alert" else a_budget(hours="99", enforce="Pause")
        stage.budgets[ref] = structs.replace(new, status=stage.status())
    assert [type(each) for each in stage.look()] == [ResumePod] * 3


def test_a_mark_that_a_tenant_removes_comes_back() -> None:
    stage = Stage(a_budget(hours="9", enforce="Pause"), pods=offenders())
    stage.look()
    stage.pods["uid-p4"] = structs.replace(stage.pods["uid-p4"], annotations=())
    assert paused(stage.look()) == ["p4"]


def test_alert_only_touches_nothing() -> None:
    stage = Stage(a_budget(hours="1", enforce="AlertOnly"), pods=[*offenders(), gated("g", labels=(("team", "b"),))])
    stage.pods["uid-g"] = structs.replace(stage.pods["uid-g"], gates=("example.com/theirs",))
    assert stage.look() == []
    assert stage.pass_time(HOUR, every=10 * MINUTE) == []


def test_last_enforcement_is_when_something_was_done() -> None:
    stage = Stage(a_budget(hours="9", enforce="Pause"), pods=offenders())
    stage.look()
    assert stage.status().last_enforcement_at == ""
    stage.pass_time(MINUTE)
    assert stage.status().last_enforcement_at == text(NOON)
    stage.pass_time(HOUR)
    assert stage.status().last_enforcement_at == text(NOON)


# --- what is left behind ----------------------------------------------------------------------------------------------------------


def test_the_mark_of_a_release_goes_after_the_horizon() -> None:
    old = running("old", 2 * HOUR, annotations=((marks.RELEASED_AT, text(NOON - HOUR)),))
    fresh = running("fresh", 2 * HOUR, annotations=((marks.RELEASED_AT, text(NOON - HOUR + SECOND)),))
    assert Stage(a_budget(hours="99"), pods=[old, fresh]).look() == [ResumePod(pod="team-a/old", uid="uid-old")]
    assert len(Stage(pods=[old, fresh]).look()) == 2, "without a budget nobody needs it"
    marked = structs.replace(old, annotations=(*paused_by("one"), *old.annotations))
    assert Stage(a_budget(hours="1", enforce="Pause"), pods=[marked]).look() == [], "a pause that stands is not undone"


@pytest.mark.parametrize(("budgets", "goes"), [([], True), ([{"accounting": "Exact"}], False), ([{}], True)])
def test_a_living_pod_keeps_its_finalizer_only_for_an_exact_budget(budgets: list[dict[str, Any]], goes: bool) -> None:
    made = [a_budget(f"b{place}", hours="99", **spec) for place, spec in enumerate(budgets)]
    pod = running("p", HOUR, finalizers=("headroom.dev/usage",))
    stage = Stage(*made, pods=[pod])
    assert (RemoveFinalizer(object="Pod/team-a/p") in stage.look()) == goes


def test_an_owner_suspended_for_its_pods_stays_so_while_the_step_stands() -> None:
    """Its template has no label of the team: that came from somewhere else, and would come again."""
    bare = WorkloadPart(labels=(), requests=(("nvidia.com/gpu", 1_000_000),))
    kept = Workload(
        kind="Job",
        uid="j",
        namespace="team-a",
        name="j",
        parts=(bare,),
        suspended=True,
        suspended_by="GPUWorkloadBudget/team-a/one",
        created=NOON - HOUR,
    )
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[USED])
    stage.look()
    stage.workloads[kept.key] = kept
    assert not [each for each in stage.look() if isinstance(each, ResumeOwner)]
    assert [each for each in stage.pass_time(6 * HOUR, every=10 * MINUTE) if isinstance(each, ResumeOwner)]


# --- the law ----------------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_deciding_on_what_changed_equals_deciding_on_everything(data: st.DataObject) -> None:
    """Budgets that act share caps and pods, so a change of one of them concerns the others."""
    enforced = st.sampled_from(["AlertOnly", "Pause", "Hold", "Suspend", "Evict"])
    budgets = [
        a_budget(name, hours=str(data.draw(st.integers(1, 30))), enforce=data.draw(enforced))
        for name in ("a", "b", "c")
    ]
    pods = []
    for number in range(data.draw(st.integers(0, 6))):
        owner = data.draw(st.sampled_from([None, of_job("j"), of_job("w", "ReplicaSet")]))
        make = data.draw(st.sampled_from([running, gated]))
        begun = data.draw(st.integers(1, 30)) * HOUR
        pods.append(
            running(f"p{number}", begun, owner=owner)
            if make is running
            else gated(f"p{number}", owner=owner, labels=TEAM)
        )
    stage = Stage(*budgets, pods=pods)
    stage.look()
    stage.now += data.draw(st.integers(1, 90)) * SECOND
    world = stage.world()
    full = {each.resource: each for each in PLAN.decide(world, EVERYTHING)}
    changed = data.draw(st.sampled_from(list(stage.budgets)))
    news = data.draw(st.sampled_from([Changes(resources={changed}), Changes(pods=set(stage.pods))]))
    for each in PLAN.decide(world, news):
        assert each == full[each.resource]
    if any(each.spec.enforcement.action != "AlertOnly" for each in budgets) and news:
        acting = {ref_of(each) for each in budgets if each.spec.enforcement.action != "AlertOnly"}
        assert acting <= {each.resource for each in PLAN.decide(world, news)}

"""Evictions that PodDisruptionBudgets refuse: the status says since when and by which, and a deadline ends it where a step has one."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api.enforcement import RefusedEviction, Stopped
from headroom.core.budgets import refusals
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.ladder import ActiveStep
from headroom.model import conditions
from headroom.model.actions import DeletePod, EmitEvent, EvictPod
from headroom.model.facts import Pod
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.world import Caps
from tests.builders import NOON
from tests.core.stage import Stage, a_budget, of_job, running

PDB = ("team-a/pdb",)


def laddered(hours: str = "1", grace: str | None = None, *, deletes: bool = True, at: str = "100%") -> Any:
    step: dict[str, Any] = {"at": at, "action": "Evict"} | ({"afterDeadline": "Delete"} if deletes else {})
    step |= {"graceForDisruptionBudgets": grace} if grace else {}
    return a_budget(hours=hours, enforce=[], enforcement={"steps": [step]})


def refusing(budget: Any, *pods: Pod, names: tuple[str, ...] = ("p",), by: tuple[str, ...] = PDB) -> Stage:
    stage = Stage(budget, pods=pods or [running("p", 6 * HOUR)])
    stage.refusing = {f"uid-{name}": by for name in names}
    return stage


def moments(stage: Stage, kind: type[DeletePod | EvictPod], name: str = "p") -> list[int]:
    return [at - NOON for at, each in stage.done if isinstance(each, kind) and each.pod == f"team-a/{name}"]


def blocked(stage: Stage) -> tuple[str, str]:
    found = conditions.find(stage.status().conditions, "EnforcementBlocked")
    assert found is not None
    return found.reason, found.message


def test_the_status_says_since_when_and_by_which() -> None:
    stage = refusing(laddered(deletes=False))
    stage.look()
    stage.pass_time(9 * MINUTE, every=10 * SECOND)
    (found,) = stage.status().refused
    assert (found.unit, found.since, found.by, found.pods) == ("Pod/team-a/p", text(NOON), PDB, ("team-a/p",))
    assert found.deleted_at == ""
    reason, message = blocked(stage)
    assert reason == "EvictionBlocked"
    assert message == (
        f"PodDisruptionBudget team-a/pdb has refused the eviction of Pod/team-a/p since {text(NOON)}. Others are stopped instead."
    )
    assert moments(stage, DeletePod) == []


def test_it_is_told_once_as_an_event() -> None:
    stage = refusing(laddered(deletes=False))
    told = []
    for _ in range(60):
        stage.look()
        told += [
            each
            for each in stage.decisions["one"].actions
            if isinstance(each, EmitEvent) and each.reason == "EvictionRefused"
        ]
        stage.now += 10 * SECOND
    assert len(told) == 1
    assert "PodDisruptionBudget team-a/pdb" in told[0].message


@pytest.mark.parametrize(("grace", "ms"), [(None, 10 * MINUTE), ("1m", MINUTE), ("25m", 25 * MINUTE)])
def test_after_the_deadline_it_is_deleted(grace: str | None, ms: int) -> None:
    stage = refusing(laddered(grace=grace))
    stage.look()
    stage.pass_time(30 * MINUTE, every=10 * SECOND)
    (at,) = moments(stage, DeletePod)
    assert ms <= at <= ms + 20 * SECOND
    assert stage.status().refused == ()
    assert [each.outcome for each in stage.status().stopped][:1] == ["Stopped"]


def test_the_deadline_counts_from_the_first_refusal_over_restarts() -> None:
    stage = refusing(laddered())
    stage.look()
    stage.pass_time(5 * MINUTE, every=10 * SECOND)
    again = Stage(*stage.budgets.values(), pods=stage.pods.values(), now=stage.now)
    again.rows, again.refusing = dict(stage.rows), stage.refusing  # what was heard before is forgotten
    again.pass_time(6 * MINUTE, every=10 * SECOND)
    assert len(moments(again, DeletePod)) == 1
    assert 10 * MINUTE <= moments(again, DeletePod)[0] <= 10 * MINUTE + 20 * SECOND


def test_a_step_that_does_not_act_yet_deletes_nothing() -> None:
    """It stands, and its grace period is not over: what another step has evicted is not deleted by it."""
    first, second = {"at": "90%", "action": "Evict"}, {"at": "100%", "action": "Evict", "afterDeadline": "Delete"}
    budget = a_budget(hours="1", enforce=[], grace=3600, enforcement={"steps": [first, second]})
    account = BudgetAccount(Stage(budget, pods=[running("p", 6 * HOUR)]).world(), budget)
    acts, waits = ActiveStep(100, "Evict", NOON, NOON), ActiveStep(100, "Evict", NOON, NOON + HOUR)
    assert refusals.deletes_after(account, [acts]) == 10 * MINUTE
    assert refusals.deletes_after(account, [waits]) is None


def test_nobody_else_goes_in_its_place_where_it_will_be_deleted() -> None:
    """What tenants guard by disruption budgets is not paid for by others who share the quota."""
    pods = running("p", 30 * HOUR), running("other", 31 * HOUR)
    stage = refusing(laddered("47.5"), *pods)
    stage.look()
    stage.pass_time(15 * MINUTE, every=10 * SECOND)
    assert moments(stage, EvictPod, "other") == []
    assert len(moments(stage, DeletePod)) == 1


def test_a_gang_is_deleted_as_a_whole() -> None:
    ranks = [running(f"r{n}", 6 * HOUR, owner=of_job("j")) for n in range(3)]
    stage = refusing(laddered(), *ranks, names=("r0", "r1", "r2"))
    stage.look()
    stage.pass_time(12 * MINUTE, every=10 * SECOND)
    assert {len(moments(stage, DeletePod, f"r{n}")) for n in range(3)} == {1}
    assert len({at for n in range(3) for at in moments(stage, DeletePod, f"r{n}")}) == 1


def test_a_few_that_are_refused_do_not_keep_all_others() -> None:
    """Each is asked for two minutes and left for five, so four of them would take turns for ever."""
    stuck = [running(f"s{n}", HOUR) for n in range(5)]
    stage = refusing(
        laddered(deletes=False), *stuck, running("willing", 12 * HOUR), names=tuple(f"s{n}" for n in range(5))
    )
    stage.look()
    stage.pass_time(15 * MINUTE, every=10 * SECOND)
    assert len(moments(stage, EvictPod, "willing")) == 1


def test_one_that_cannot_be_deleted_either_does_not_keep_others() -> None:
    """As where the right to delete pods is missing."""
    stage = refusing(laddered(grace="1m"), running("p", HOUR), running("willing", 2 * HOUR))
    for _ in range(100):
        kept = stage.pods["uid-p"]
        stage.look()
        stage.pods["uid-p"] = kept
        stage.evicted.pop("uid-p", None)
        stage.now += 10 * SECOND
    assert len(moments(stage, EvictPod, "willing")) == 1


@pytest.mark.parametrize(("tried", "due"), [(None, True), (NOON - 3 * MINUTE, True), (NOON - MINUTE, False)])
def test_one_that_would_not_go_since_its_deadline_is_left_like_any_other(tried: int | None, due: bool) -> None:
    refused = RefusedEviction(unit="Pod/team-a/p", since="", uids=("uid-p",), deleted_at=text(NOON - 2 * MINUTE))
    past = [] if tried is None else [Stopped(unit="Pod/team-a/p", action="Evict", at=text(tried), outcome="Blocked")]
    assert bool(refusals.overdue([refused], NOON, past)) is due


def test_what_is_remembered_ends_with_the_step_and_with_the_pods() -> None:
    stage = refusing(laddered())
    stage.look()
    stage.pass_time(MINUTE, every=10 * SECOND)
    assert stage.status().refused
    world = stage.world()
    account = BudgetAccount(world, stage.budgets[next(iter(stage.budgets))])
    assert refusals.kept(account, (), None) == ()
    stage.pods.clear()
    stage.pass_time(10 * SECOND)
    assert stage.status().refused == ()


@pytest.mark.parametrize(
    ("deletes", "may", "degraded"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_step_that_deletes_says_if_the_operator_may_not(deletes: bool, may: bool, degraded: bool) -> None:
    """Before anything is refused, not after."""
    stage = Stage(laddered("1000", deletes=deletes), pods=[running("p", HOUR)], caps=Caps(deletes=may))
    stage.look()
    found = conditions.find(stage.status().conditions, "Degraded")
    assert found is not None
    assert (found.status == "True", found.reason == "DeleteForbidden") == (degraded, degraded)
    assert ("ClusterRole headroom-pod-deleter" in found.message) == degraded


def test_of_very_many_disruption_budgets_a_few_are_named() -> None:
    """Else whoever makes enough of them keeps the status from being written, and with it everything that comes after."""
    stage = refusing(laddered(deletes=False), by=tuple(f"team-a/{number:04}-{'x' * 200}" for number in range(2000)))
    for _ in range(3):
        stage.pass_time(MINUTE, every=10 * SECOND)
        (found,) = stage.status().refused
        assert found.by[0].startswith("team-a/0000")
        assert len(found.by) == 8

"""A budget that spans clusters queues in all of them, by the verdict of its home cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.budget_hold import hold_name
from headroom.core.budgets import hold_of
from headroom.model import conditions
from headroom.model.actions import DeleteBudgetHold
from headroom.model.facts import Hold, Pod
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import LedgerState
from tests.builders import NOON, a_used_world
from tests.core.stage import Stage, a_budget, brief, gated
from tests.core.test_holding import DONE, KEY, released


def a_verdict(*, holds: bool, ago: int = SECOND) -> HomeVerdict:
    return HomeVerdict(cluster="east", budget=KEY, holds=holds, since=NOON - HOUR if holds else 0, at=NOON - ago)


def west(verdict: HomeVerdict | None, *pods: Pod, hours: str = "18", stands: bool = False, **spec: Any) -> Stage:
    """Another cluster than the home of the budget, of which 18 GPU-hours are used."""
    budget = a_budget(hours=hours, enforce="Hold", homeCluster="east", **spec)
    found = hold_of(a_used_world(budget), budget)
    holds = {hold_name(KEY): Hold(name=hold_name(KEY), created=NOON - HOUR, spec=found)} if stands else {}
    verdicts = (verdict,) if verdict is not None else ()
    return Stage(budget, pods=[DONE, *pods], cluster="west", holds=holds, ledger=LedgerState(verdicts=verdicts))


def said(stage: Stage, type_: str = "Holding") -> str:
    found = conditions.find(stage.status().conditions, type_)
    return found.message if found else ""


def test_new_pods_wait_here_when_home_holds() -> None:
    """Though nothing would be exceeded by what is counted here."""
    stage = west(a_verdict(holds=True), hours="100")
    assert brief(stage.look()) == [f"ApplyBudgetHold {KEY}"]
    assert stage.look() == []
    followed = stage.status().following
    assert (followed.cluster, followed.holding, followed.since, followed.stale) == (
        "east",
        True,
        text(NOON - HOUR),
        False,
    )
    assert "Cluster east decides." in said(stage)
    assert "cluster east decides" in said(stage, "Ready")


def test_nothing_is_released_while_home_holds() -> None:
    stage = west(a_verdict(holds=True), gated("p"), hours="100", stands=True)
    assert stage.look() == []
    assert stage.status().held.pods == 1


def test_what_fits_is_released_in_turn_once_home_holds_no_more() -> None:
    first, second = gated("a", gpus=2), gated("b", gpus=2, created=NOON - SECOND)
    stage = west(a_verdict(holds=False), first, second, hours="21", stands=True)
    assert released(stage.look()) == ["a"], "each as far as the quota has room, not all at once"
    assert stage.holds, "and the hold stays while somebody waits"


def test_a_hold_ends_when_home_does_not_hold_and_nobody_waits() -> None:
    assert west(a_verdict(holds=False), stands=True).look() == [DeleteBudgetHold(budget=KEY)]


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        a_verdict(holds=False, ago=2 * MINUTE),
        a_verdict(holds=True, ago=9 * HOUR),
        a_verdict(holds=False, ago=-HOUR),
    ],
    ids=["never heard", "old", "very old", "of a wrong clock"],
)
def test_without_a_fresh_word_everything_stays_and_nothing_is_released(verdict: HomeVerdict | None) -> None:
    stage = west(verdict, gated("p"), hours="100", stands=True)
    assert stage.look() == []
    assert stage.status().following.stale
    assert "Cluster east decides and has not reported" in said(stage)


@pytest.mark.parametrize("verdict", [None, a_verdict(holds=False, ago=HOUR)], ids=["never heard", "old"])
def test_without_a_fresh_word_a_hold_begins_by_what_is_counted_here(verdict: HomeVerdict | None) -> None:
    assert brief(west(verdict).look()) == [f"ApplyBudgetHold {KEY}"]
    assert west(verdict, hours="100").look() == []


def test_the_fresh_word_of_home_counts_more_than_what_is_counted_here() -> None:
    assert west(a_verdict(holds=False)).look() == []


def test_a_verdict_on_another_budget_or_of_another_cluster_is_none() -> None:
    for wrong in (
        structs.replace(a_verdict(holds=True), cluster="north"),
        structs.replace(a_verdict(holds=True), budget="team-a/two"),
    ):
        assert west(wrong, hours="100").look() == []


def test_home_decides_for_itself() -> None:
    stage = west(a_verdict(holds=False), hours="18")
    stage.more["cluster"] = "east"
    assert brief(stage.look()) == [f"ApplyBudgetHold {KEY}"]
    assert stage.status().following is None


def test_a_budget_that_only_alerts_does_nothing_elsewhere() -> None:
    stage = west(a_verdict(holds=True))
    (ref,) = stage.budgets
    stage.budgets[ref] = a_budget(hours="18", enforce="AlertOnly", homeCluster="east")
    assert stage.look() == []
    assert stage.status().following is None

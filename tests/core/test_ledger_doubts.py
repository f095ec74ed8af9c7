"""What budgets say and leave alone while the ledger, the clock or the cluster's id is in doubt."""

from typing import Any

import pytest
from msgspec import structs

from headroom.core.budgets import PLAN
from headroom.model import conditions, snapshots
from headroom.model.changes import EVERYTHING
from headroom.model.times import HOUR, MINUTE, text
from headroom.model.usage import DAY
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import LedgerState
from tests.builders import NOON, a_used_world
from tests.core.stage import a_budget, gated, running

RIVAL = LedgerState(rival="headroom-0-1234")
LOST = LedgerState(loaded=False, lost=True, problem="reading the ledger x: it has no history of cluster default.")
AHEAD, BEHIND = LedgerState(clock_offset_ms=43 * DAY), LedgerState(clock_offset_ms=-4 * HOUR)


def decided(ledger: LedgerState, *, enforce: Any = "Evict", hours: str = "1", **more: Any) -> Any:
    budget = a_budget(hours=hours, enforce=enforce)
    (found,) = PLAN.decide(a_used_world(budget, pods=[running("p", 5 * HOUR)], ledger=ledger, **more), EVERYTHING)
    return found


def said(decision: Any, type_: str) -> tuple[str, str, str] | None:
    found = conditions.find(decision.status.conditions, type_)
    return None if found is None else (found.status, found.reason, found.message)


def effects(decision: Any) -> list[str]:
    return [
        type(each).__name__ for each in decision.actions if type(each).__name__ not in ("EmitEvent", "ApplyBudgetIndex")
    ]


def test_without_doubt_it_acts_and_says_nothing_of_doubts() -> None:
    decision = decided(LedgerState())
    assert effects(decision) == ["EvictPod"]
    assert said(decision, "HistoryIncomplete") is None
    assert said(decision, "ClockSuspect") is None
    assert said(decision, "Degraded") == ("False", "ReconcileSucceeded", "All usage is counted.")


@pytest.mark.parametrize("ledger", [RIVAL, LOST, AHEAD, BEHIND])
def test_nothing_is_enforced_in_doubt(ledger: LedgerState) -> None:
    assert effects(decided(ledger)) == []
    assert not ledger.trusted


@pytest.mark.parametrize("ledger", [RIVAL, LOST, AHEAD, BEHIND])
def test_and_nothing_is_released(ledger: LedgerState) -> None:
    """It is below its quota: without doubt, the pod that is queued would start."""
    for known, released in ((ledger, []), (LedgerState(), ["ReleasePod"])):
        budget = a_budget(hours="100", enforce="Hold")
        stage = a_used_world(budget, pods=[gated("q")], ledger=known)
        (decision,) = PLAN.decide(stage, EVERYTHING)
        done = effects(decision) + [type(each).__name__ for each in PLAN.chores(stage)]
        assert [each for each in done if each == "ReleasePod"] == released


def test_a_step_of_the_clock_that_the_api_server_agrees_with_is_told_and_nothing_more() -> None:
    decision = decided(LedgerState(clock_step_ms=-2 * MINUTE))
    assert effects(decision) == ["EvictPod"]
    status, reason, message = said(decision, "ClockSuspect") or ("", "", "")
    assert (status, reason) == ("True", "ClockStepped")
    assert "jumped back by 2m" in message


@pytest.mark.parametrize(("ledger", "words"), [(AHEAD, "43d ahead of"), (BEHIND, "4h behind")])
def test_an_offset_is_told_with_its_size(ledger: LedgerState, words: str) -> None:
    status, reason, message = said(decided(ledger), "ClockSuspect") or ("", "", "")
    assert (status, reason) == ("True", "ClockOffset")
    assert f"clock is {words} the API server's" in message
    decision = decided(ledger)
    assert decision.status.consumed_gpu_hours == "5", "counting goes on"


def test_a_clone_is_told_with_what_to_do() -> None:
    status, reason, message = said(decided(RIVAL), "Degraded") or ("", "", "")
    assert (status, reason) == ("True", "ClusterIdShared")
    assert "headroom-0-1234" in message
    assert "--cluster-id" in message


def test_a_lost_ledger_leaves_the_last_numbers() -> None:
    budget = a_budget(hours="1")
    budget = structs.replace(budget, status=structs.replace(budget.status, consumed_gpu_hours="77", as_of=text(NOON)))
    stage = a_used_world(budget, pods=[running("p", 5 * HOUR)], ledger=LOST)
    (decision,) = PLAN.decide(stage, EVERYTHING)
    status: Any = decision.status
    assert (status.consumed_gpu_hours, status.as_of) == ("77", text(NOON))
    for type_ in ("Ready", "Degraded"):
        found = said(decision, type_)
        assert found is not None
        assert found[1] == "HistoryLost"
        assert "it has no history" in found[2]


@pytest.mark.parametrize("age", [0, HOUR, DAY - 1, DAY, 2 * DAY])
def test_history_that_is_shorter_than_the_window_is_told_with_the_moment_it_ends(age: int) -> None:
    since = NOON - age
    decision = decided(LedgerState(known_since=since), enforce="AlertOnly")
    found, degraded = said(decision, "HistoryIncomplete"), said(decision, "Degraded")
    assert degraded is not None
    assert degraded[0] == "False"
    if age >= DAY:
        assert found is None
        assert degraded[2] == "All usage is counted."
    else:
        assert found is not None
        assert found[0] == "True"
        assert f"covers the whole window from {text(since + DAY)}." in found[2]
        assert degraded[1:] == ("HistoryIncomplete", found[2])


def test_what_was_told_goes_with_its_cause() -> None:
    told = decided(LedgerState(known_since=NOON, clock_offset_ms=DAY))
    budget = structs.replace(a_budget(hours="1"), status=told.status)
    (after,) = PLAN.decide(a_used_world(budget, pods=[running("p", 5 * HOUR)]), EVERYTHING)
    assert said(after, "HistoryIncomplete") is None
    assert said(after, "ClockSuspect") is None


def test_doubts_are_kept_in_a_snapshot() -> None:
    state = LedgerState(
        lost=True,
        loaded=False,
        known_since=5,
        rival="r",
        clock_offset_ms=60_000,
        clock_step_ms=-60_000,
        verdicts=(HomeVerdict(cluster="east", budget="lab/a", holds=True, since=3, at=4),),
    )
    saved = snapshots.load(snapshots.save(a_used_world(a_budget(), ledger=state))).ledger
    assert saved == state

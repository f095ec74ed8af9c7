"""What `headroom explain` says of a budget beside its numbers: what was released, what is refused, and whose verdict it follows."""

from __future__ import annotations

import pytest
from msgspec import structs

from headroom.api.budgets import Following, GPUWorkloadBudgetStatus
from headroom.api.enforcement import RefusedEviction, Released
from headroom.cli import face_budgets
from tests.core.stage import a_budget

AT, LATER = "2026-11-15T12:00:00Z", "2026-11-15T14:00:00Z"
BUDGET = a_budget(hours="10", enforce=["100% Hold", "110% Evict"])


def said(capsys: pytest.CaptureFixture[str], **status: object) -> str:
    face_budgets.show(BUDGET, structs.replace(GPUWorkloadBudgetStatus(as_of=AT), **status))
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("following", "words"),
    [
        (Following(cluster="home"), "cluster home, which lets new pods run\n"),
        (Following(cluster="home", holding=True, since=AT), f"cluster home, which queues new pods since {AT}\n"),
        (Following(cluster="home", stale=True), "it has not reported for two minutes, so queued pods stay queued\n"),
    ],
)
def test_whose_verdict_it_follows(capsys: pytest.CaptureFixture[str], following: Following, words: str) -> None:
    assert words in said(capsys, following=following)
    assert "Decided by" not in said(capsys)


def test_which_disruption_budget_is_in_the_way_and_what_comes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    refused = RefusedEviction(unit="Pod/team-a/p", since=AT, by=("team-a/pdb", "team-a/all"))
    words = f"Pod/team-a/p since {AT}, by PodDisruptionBudget team-a/pdb and team-a/all; "
    assert f"{words}others are stopped instead\n" in said(capsys, refused=(refused,))
    late = structs.replace(refused, deleted_at=LATER)
    assert f"{words}deleted at {LATER} unless evicted before\n" in said(capsys, refused=(late,))
    unnamed = structs.replace(refused, by=())
    assert "by a PodDisruptionBudget; others are stopped instead\n" in said(capsys, refused=(unnamed,))
    assert said(capsys, refused=(refused,) * 9).count("Eviction refused") == 3


def test_what_was_released_and_how_much_of_it_is_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    released = Released(owner="Job/team-a/fit", uid="u", at=AT, until=LATER, gpus="8", used_gpus="4")
    asked = Released(owner="Job/team-a/now", uid="v", at=AT, until=LATER, gpus="2", request="team-a/urgent")
    found = said(capsys, released=(released, asked))
    title, heads, *rows = found[found.index("Released") :].splitlines()[:4]
    assert title == "Released, may start without queueing again"
    assert heads.split() == ["OWNER", "GPUS", "ALLOCATED", "AT", "UNTIL", "BY"]
    assert [" ".join(row.split()) for row in rows] == [
        f"Job/team-a/fit 8 4 {AT} {LATER} queue",
        f"Job/team-a/now 2 0 {AT} {LATER} team-a/urgent",
    ]
    assert "Released" not in said(capsys)

"""The ladder under faults: whatever dies, is lost or comes late, the same rules hold, nobody is stopped twice, and all is undone."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import pytest

from tests.scenarios.dense import MINUTE, MINUTES, dense, problems
from tests.scenarios.ladder import AS_EVER, Run, a_leader

VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
SLOW: dict[str, Any] = {"patience": 90_000, "unseen": 0.1}
"""While operators die, a lease runs out, the next one has to read everything, and what ends meanwhile is known within bounds."""


@cache
def calm() -> Run:
    """The story without any fault, at the pace of a real operator."""
    return dense(pace=AS_EVER)


def effects(run: Run) -> list[tuple[str, str]]:
    """The verb and path of everything that the operator did, less the letters that a server gives to names."""
    made = {life.name for life in run.auditor.lives.values() if life.owner}
    found: dict[tuple[str, str], None] = {}
    for each in run.operators_writes():
        if "/events" in each.path or "/status" in each.path:
            continue
        path = (
            re.sub(r"/pods/([^/]+)-[a-z0-9]{5}(?=/|$)", r"/pods/\1-*", each.path)
            if _is_made(each.path, made)
            else each.path
        )
        found[VERBS[each.method], path] = None
    return list(found)


def _is_made(path: str, made: set[str]) -> bool:
    return any(f"/pods/{name}" in path for name in made)


def is_quiet(run: Run, minutes: int = 1) -> bool:
    """Whether nothing was written any more at the end."""
    end = run.simulation.scenario.duration
    return not run.operators_writes(end - minutes * MINUTE)


def test_without_faults_everything_is_done_and_undone() -> None:
    run = calm()
    assert problems(run) == []
    assert is_quiet(run)
    done = {(stop.action, stop.ran()) for stop in run.auditor.stops()}
    assert done == {("Evict", True), ("Evict", False), ("Suspend", True), ("Suspend", False)}
    assert run.auditor.paused
    assert {life.name for life in run.auditor.lives.values() if life.released} >= {"new", "new-gang-0", "new-gang-1"}
    assert set(run.auditor.holds) == {"lab/vision", "lab/batch"}


@pytest.mark.parametrize(
    ("kind", "part", "parts"),
    [(kind, part, 4) for kind in ("CrashBefore", "CrashAfter") for part in range(4)]
    + [("LostReply", 0, 1), ("Refusal", 0, 1)],
)
def test_every_effect_struck_once(kind: str, part: int, parts: int) -> None:
    """Each effect meets the fault the first time that it is tried. Of crashes a run has a quarter, or time would leave nothing to do."""
    known = effects(calm())[part::parts]
    faults = [{"type": kind, "verb": verb, "path": path, "times": 1} for verb, path in known]
    run = dense(*faults, duration="24m")
    assert problems(run, **SLOW) == []
    assert is_quiet(run)
    assert len(run.report.happened) >= len(known) - 1, "the faults should have met something"


@pytest.mark.parametrize("kind", ["CrashBefore", "CrashAfter"])
@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("create", "*/budgetholds"),
        ("delete", "*/budgetholds/*"),
        ("create", "*/eviction"),
        ("patch", "*/jobs/*"),
        ("patch", "*/jobsets/*"),
        ("patch", "*/pods/new-gang-*"),
        ("patch", "*/gpuworkloadbudgets/*/status"),
    ],
)
def test_one_crash_at_each_kind_of_effect(kind: str, verb: str, path: str) -> None:
    run = dense({"type": kind, "verb": verb, "path": path})
    assert problems(run, **SLOW) == []
    assert is_quiet(run)
    assert [word for _, _, word in run.report.happened] == [kind], "the fault met nothing"


@pytest.mark.parametrize(
    "faults",
    [
        [{"type": "WatchDelay", "ms": 4000}],
        [{"type": "StaleView", "from": "60s", "until": "100s"}, {"type": "StaleView", "from": "160s", "until": "180s"}],
        [{"type": "LostReply", "probability": 0.3, "until": "12m"}, {"type": "Duplicate", "probability": 0.3}],
        [{"type": "DroppedStream", "probability": 0.1, "until": "12m"}, {"type": "Expire", "probability": 0.02}],
    ],
    ids=["late", "stale", "lost", "broken"],
)
def test_a_bad_view_or_lost_replies_change_nothing(faults: list[dict[str, Any]]) -> None:
    run = dense(*faults, duration=f"{MINUTES + 4}m")
    assert problems(run, **SLOW) == []


@pytest.mark.parametrize("late", [0, 3000])
def test_two_leaders_stop_nobody_twice(late: int) -> None:
    """Both lead at once, each by a lease of its own; one may see everything later than the other."""
    delay = [{"type": "WatchDelay", "actor": "operator-2", "ms": late}] if late else []
    run = dense(*delay, operators=2, make_operator=a_leader, pace=AS_EVER)
    # They notice each other by their claims on the cluster; from then on nobody stops anything, or undoes what stands.
    assert [each for each in problems(run, **SLOW) if " has headroom.dev/paused-" not in each] == []
    evicted = Counter(life.uid for _, life in run.auditor.evictions() if life is not None)
    assert set(evicted.values()) <= {1}
    budgets = run.simulation.server.objects("GPUWorkloadBudget")
    assert all("ClusterIdShared" in str(each["status"]["conditions"]) for each in budgets)

"""Usage under faults: whatever dies, and whenever, the truth lies within the bounds, and equals them where nothing was unseen.

The truth is kept by somebody else: an auditor looks at the simulated API server itself, many times a second, and adds up what the
pods' own timestamps say. The operator is the production one, with a ledger that outlives it.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from headroom.model.errors import Unavailable
from headroom.model.times import moment
from headroom.model.usage import Heartbeat, UsageRow
from headroom.runtime import recording
from headroom.sim.clock import run_virtual
from headroom.sim.faults import Crash
from headroom.sim.operators import ledger_of, production
from headroom.sim.scenario import Report, Scenario, Simulation
from tests.scenarios.ladder import AS_EVER, UNHURRIED_BUT_LEASES, bookmarked
from tests.tiers import DEEP

RECORDING = structs.replace(
    UNHURRIED_BUT_LEASES,
    record_seconds=AS_EVER.record_seconds,
    numbers_seconds=AS_EVER.numbers_seconds,
    turn_ms=AS_EVER.turn_ms,
)
"""Usage is recorded and told as often as ever."""
MINUTES = 9
EVERY_MS = 100
HOUR = 3_600_000
TEAMS = ("a", "b")


def a_budget(team: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": team, "namespace": "lab"},
        "spec": {
            "selector": {"matchLabels": {"team": team}},
            "quota": {"gpuHours": "1000", "windowHours": 24},
            "enforcement": {"action": "AlertOnly"},
        }
        | spec,
    }


def a_pod(name: str, runs_for: str = "", gpus: str = "1", finalizers: tuple[str, ...] = ()) -> dict[str, Any]:
    annotations = {"sim.headroom.dev/runs-for": runs_for} if runs_for else {}
    metadata = {"name": name, "namespace": "lab", "labels": {"team": "a"}, "annotations": annotations}
    container = {"name": "main", "image": "train:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"nvidia.com/gpu": "64", "pods": "110", "cpu": "64"}},
}
STORY: list[dict[str, Any]] = [
    {"at": "20s", "apply": a_pod("short", "1m", "2")},
    {"at": "30s", "apply": a_pod("relabelled", "5m", "4")},
    {"at": "40s", "apply": a_pod("deleted-after-its-end", "1m", "8")},
    {"at": "50s", "apply": a_pod("deleted-while-it-runs", "", "1")},
    {"at": "60s", "apply": a_pod("stays", "", "3")},
    {"at": "150s", "patch": {"resource": "Pod/lab/relabelled", "merge": {"metadata": {"labels": {"team": "b"}}}}},
    {"at": "160s", "delete": "Pod/lab/deleted-after-its-end"},
    {"at": "200s", "delete": "Pod/lab/deleted-while-it-runs"},
    {"at": "300s", "delete": "Pod/lab/short"},
]


class Auditor:
    """Sees every pod of the server, and what became of it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._seen: dict[str, list[tuple[int, str, dict[str, Any]]]] = {}
        self._last: dict[str, int] = {}

    async def run(self) -> None:
        clock = self._simulation.clock
        while True:
            for pod in self._simulation.server.objects("Pod"):
                known = self._seen.setdefault(pod["metadata"]["uid"], [])
                team = pod["metadata"].get("labels", {}).get("team", "")
                if not known or known[-1][1:] != (team, pod):
                    known.append((clock.now(), team, pod))
                self._last[pod["metadata"]["uid"]] = clock.now()
            await clock.sleep(EVERY_MS / 1000)

    def truth(self, team: str, at: int) -> Fraction:
        """GPU-hours of a team up to a moment, by the pods' own timestamps."""
        return sum((self._used(uid, team, at) for uid in self._seen), Fraction(0))

    def _used(self, uid: str, team: str, at: int) -> Fraction:
        seen = self._seen[uid]
        pod = seen[-1][2]
        states = [each["state"] for each in pod.get("status", {}).get("containerStatuses", [])]
        runs = [state.get("running") or state.get("terminated") for state in states]
        starts = [moment(run["startedAt"]) for run in runs if run]
        if not starts:
            return Fraction(0)
        finishes = [moment(state["terminated"]["finishedAt"]) for state in states if "terminated" in state]
        gone = self._last[uid] + EVERY_MS if uid not in self._alive() else at
        end = min(at, finishes[-1] or 0) if finishes and pod["status"]["phase"] != "Running" else min(at, gone)
        gpus = int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        total = Fraction(0)
        for place, (begin, label, _) in enumerate(seen):
            until = seen[place + 1][0] if place + 1 < len(seen) else end
            if label == team:
                first = (starts[0] or 0) if place == 0 else max(begin, starts[0] or 0)
                total += Fraction(max(0, min(until, end) - max(first, starts[0] or 0)) * gpus, HOUR)
        return total

    def _alive(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self._simulation.server.objects("Pod")}


class Outcome:
    """How a run ended."""

    def __init__(self, report: Report, auditor: Auditor, simulation: Simulation) -> None:
        self.report, self.auditor, self.simulation = report, auditor, simulation

    def bounds(self, team: str) -> tuple[Fraction, Fraction, Fraction]:
        """What is certain, the truth, and what is possible, all at the moment that the status is true for."""
        status = (self.simulation.server.object("GPUWorkloadBudget", "lab", team) or {})["status"]
        truth = self.auditor.truth(team, moment(status["asOf"]) or 0)
        return Fraction(status["consumedGpuHours"]), truth, Fraction(status["upperGpuHours"])

    @property
    def pods(self) -> list[str]:
        """Which pods are still there."""
        return sorted(pod["metadata"]["name"] for pod in self.simulation.server.objects("Pod"))


TOLERANCE = Fraction(8 * 2 * EVERY_MS, HOUR)
"""The auditor looks every 100 ms, and a watch takes a moment too; some pods have 8 GPUs."""


def play(
    *faults: dict[str, Any],
    operators: int = 1,
    prepare: Callable[[Simulation], None] = lambda _: None,
    story: list[dict[str, Any]] = STORY,
    exact: bool = False,
    restart_after: str = "5s",
) -> Outcome:
    """The story with these faults."""
    timeline = [*({"at": "0s", "fault": {"actor": "operator-*"} | each} for each in faults), *story]
    spec = {
        "duration": f"{MINUTES}m",
        "seed": 5,
        "operators": operators,
        "restartAfter": restart_after,
        "timeline": timeline,
    }
    scenario = {"apiVersion": "sim.headroom.dev/v1", "kind": "Scenario", "spec": spec}
    more = {"accounting": "Exact"} if exact else {}
    documents = [scenario, NODE, *(a_budget(team, **more) for team in TEAMS)]

    async def run() -> Outcome:
        simulation = bookmarked(Simulation(Scenario.of(documents), partial(production, pace=RECORDING)), RECORDING)
        prepare(simulation)
        auditor = Auditor(simulation)
        watching = asyncio.create_task(auditor.run())
        report = await simulation.play()
        watching.cancel()
        return Outcome(report, auditor, simulation)

    return run_virtual(run)


def check(outcome: Outcome, *, unseen_seconds: int = 0) -> None:
    """The truth lies within the bounds, and these are no wider than what was not seen."""
    assert outcome.report.passed, outcome.report.failures
    for team in TEAMS:
        low, truth, high = outcome.bounds(team)
        assert low <= truth + TOLERANCE, f"team {team}: {float(low)} is more than the truth, {float(truth)}"
        assert truth <= high + TOLERANCE, f"team {team}: {float(high)} is less than the truth, {float(truth)}"
        most = Fraction(unseen_seconds * 1000 * 18, HOUR)
        assert high - low <= most, f"team {team}: the bounds are {float((high - low) * 3600)} GPU-seconds apart"


def test_without_faults_it_is_exact() -> None:
    outcome = play()
    check(outcome)
    assert outcome.pods == ["relabelled", "stays"]
    assert all(low == high > 0 for low, _, high in map(outcome.bounds, TEAMS))


REQUESTS = [("patch", "*/status", nth) for nth in (1, 2, 3, 5, 8, 13, 21)] + [
    ("*", "*/leases*", nth) for nth in (1, 2, 5)
]


KINDS = ("CrashBefore", "LostReply", "CrashAfter", "Refusal")
STRUCK = [
    (kind, *request)
    for place, request in enumerate(REQUESTS)
    for number, kind in enumerate(KINDS)
    if DEEP or (place + number) % 2 == 0
]
"""Every request with every kind of fault; unless deep, each with one that was carried out and one that was not."""


@pytest.mark.parametrize(("kind", "verb", "path", "nth"), STRUCK)
def test_one_fault_at_a_request_is_invisible_in_the_end(kind: str, verb: str, path: str, nth: int) -> None:
    check(play({"type": kind, "verb": verb, "path": path, "nth": nth}), unseen_seconds=12)


def at_write(write: int, what: Callable[[Simulation], None], *, after: bool) -> Callable[[Simulation], None]:
    """Something happens just before, or just after, the nth write to the ledger that has rows in it."""

    def prepare(simulation: Simulation) -> None:
        ledger = ledger_of(simulation.server.transport("auditor"))
        real, count = ledger.write, itertools.count(1)

        async def counted(rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
            due = bool(rows) and next(count) == write
            if due and not after:
                what(simulation)
            await real(rows, heartbeat)
            if due and after:
                what(simulation)

        ledger.write = counted  # type: ignore[method-assign]  # the ledger of this run alone

    return prepare


def die(simulation: Simulation) -> None:
    """The operator is gone at this very moment."""
    simulation.kill_operator("operator-1")
    raise Crash


def test_the_story_has_as_many_writes_as_are_tried() -> None:
    met: list[int] = []
    for write in range(WRITES - 1, WRITES + 2):
        play(prepare=at_write(write, lambda _, write=write: met.append(write), after=True))  # type: ignore[misc]  # bound now
    assert met == [WRITES - 1, WRITES]


WRITES = 10
"""Writes with rows in the story without faults."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_killed_at_any_write_to_the_ledger_nothing_is_lost_or_counted_twice(write: int, after: bool) -> None:
    check(play(prepare=at_write(write, die, after=after)), unseen_seconds=15)


@pytest.mark.parametrize("write", [6, 7, 8, 9])
def test_it_is_the_same_if_recording_begins_before_the_ledger_was_read(
    write: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "PATIENCE_SECONDS", 2.0)
    check(play(prepare=at_write(write, die, after=False)), unseen_seconds=15)


@pytest.mark.parametrize("at", ["45s", "90s", "149s", "155s", "199s", "250s"])
def test_killed_in_the_middle_and_away_for_a_minute_the_truth_stays_within_the_bounds(at: str) -> None:
    killed = [*STORY, {"at": at, "killOperator": "operator-1"}]
    check(play(story=sorted(killed, key=lambda each: int(each["at"][:-1])), restart_after="60s"), unseen_seconds=80)


def test_two_leaders_without_a_fence_and_a_late_view_change_nothing() -> None:
    second = {"type": "SecondLeader", "until": "8m"}
    late = {"type": "WatchDelay", "actor": "operator-2", "ms": 2000, "until": "8m"}
    outcome = play(second, late, {"type": "LostReply", "probability": 0.2, "until": "8m"}, operators=2)
    check(outcome, unseen_seconds=10)


def test_a_ledger_that_is_away_loses_nothing_and_is_said() -> None:
    said: list[str] = []

    def prepare(simulation: Simulation) -> None:
        ledger = ledger_of(simulation.server.transport("auditor"))

        def away() -> None:
            now = simulation.clock.now() - simulation.scenario.start
            if 60_000 < now < 240_000:
                budget = simulation.server.object("GPUWorkloadBudget", "lab", "a") or {}
                said.extend(
                    each["reason"]
                    for each in budget.get("status", {}).get("conditions", [])
                    if each["type"] == "Degraded"
                )
                raise Unavailable("writing the ledger: the disk is full")

        ledger.before_write = away

    outcome = play(prepare=prepare)
    check(outcome)
    assert "LedgerUnavailable" in said
    degraded = (outcome.simulation.server.object("GPUWorkloadBudget", "lab", "a") or {})["status"]["conditions"]
    assert next(each for each in degraded if each["type"] == "Degraded")["status"] == "False"


EXACT_STORY: list[dict[str, Any]] = [
    {"at": "20s", "apply": a_pod("one", "1m", "2", ("headroom.dev/usage",))},
    {"at": "25s", "apply": a_pod("two", "2m", "4", ("headroom.dev/usage",))},
    {"at": "30s", "killOperator": "operator-1"},
    {"at": "85s", "delete": "Pod/lab/one"},
    {"at": "200s", "delete": "Pod/lab/two"},
]


def test_exact_accounting_keeps_a_pod_until_its_end_is_in_the_ledger() -> None:
    """The first pod ends and is deleted while the operator is away; its finalizer keeps it until the operator is back."""
    outcome = play(story=EXACT_STORY, exact=True, restart_after="90s")
    check(outcome)
    assert outcome.pods == []
    low, truth, high = outcome.bounds("a")
    assert low == high > 0
    assert abs(low - truth) <= TOLERANCE


def test_without_exact_accounting_the_same_story_gives_bounds() -> None:
    story = [each for each in EXACT_STORY if "apply" not in each]
    pods: list[dict[str, Any]] = [
        {"at": "20s", "apply": a_pod("one", "1m", "2")},
        {"at": "25s", "apply": a_pod("two", "2m", "4")},
    ]
    outcome = play(story=[*pods, *story], restart_after="90s")
    check(outcome, unseen_seconds=100)
    low, _, high = outcome.bounds("a")
    assert low < high

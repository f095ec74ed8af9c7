"""The quick replay against the full simulator with the production operator: the same work, the same budgets, the same course of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from headroom.adapters import documents
from headroom.model.facts import Namespace, Shape
from headroom.model.pace import Pace
from headroom.model.times import MINUTE, SECOND, duration, moment
from headroom.model.world import by_ref
from headroom.sim.whatif.lives import EVICTED, SUSPENDED
from headroom.sim.whatif.measures import PolicyOutcome
from headroom.sim.whatif.outcome import outcome
from headroom.sim.whatif.replay import replay
from headroom.sim.whatif.work import Case, RequestedPod, owner_of
from tests.scenarios.ladder import CAPS, FOR_WEEKS, Run, a_budget, a_job, a_template, play, stage
from tests.tiers import DEEP

BEGIN = moment("2026-01-01T00:00:00Z") or 0
EVERY = 5 * SECOND
APART = 30 * SECOND
"""How far apart the same start may be: what is gathered, and what the operator waits for until everything has arrived."""


class Job(NamedTuple):
    """A Job that somebody makes."""

    name: str
    at: int
    """Minutes after the begin."""
    minutes: int
    gpus: int = 1
    pods: int = 1
    team: str = "vision"
    declares: bool = True
    tier: str = "prod"

    @property
    def labels(self) -> dict[str, str]:
        return {"team": self.team, "tier": self.tier}

    @property
    def declared(self) -> str:
        return f"{self.minutes}m" if self.declares else ""


class Course(NamedTuple):
    """What became of the work."""

    starts: dict[str, list[int]]
    """By Job: when its pods began to run, in milliseconds after the begin."""
    stopped: set[str]
    """Jobs of which something that ran was stopped."""
    gpu_hours: float


def full(
    jobs: Sequence[Job],
    budgets: Sequence[Any],
    length: str,
    pace: Pace = FOR_WEEKS,
) -> tuple[Course, Run]:
    timeline = []
    for job in jobs:
        template = a_template(job.labels, job.gpus, f"{job.minutes}m", job.declared)
        timeline.append({"at": f"{job.at}m", "apply": a_job(job.name, template, job.pods)})
    run = play(stage(*budgets), timeline, duration=length, pace=pace)
    assert run.report.passed, run.report.failures
    lives = [life for life in run.auditor.lives.values() if life.started is not None]
    starts: dict[str, list[int]] = {job.name: [] for job in jobs}
    stopped, used, end = set(), 0, BEGIN + (duration(length) or 0)
    for life in lives:
        name = life.owner.rpartition("/")[2]
        assert life.started is not None
        starts[name].append(life.started - BEGIN)
        over = min(each for each in (life.ended, life.gone, end) if each is not None)
        used += life.gpus * (over - life.started)
        if life.going is not None and (life.ended is None or life.going <= life.ended):
            stopped.add(name)
    return Course({name: sorted(each) for name, each in starts.items()}, stopped, used / 3_600_000), run


def quick(jobs: Sequence[Job], budgets: Sequence[Any], length: str) -> tuple[Course, PolicyOutcome]:
    case = Case(title="test", begin=BEGIN, end=BEGIN + (duration(length) or 0), caps=CAPS)
    found = documents.Documents()
    for number, each in enumerate(stage(*budgets)):
        documents._take(found, each, documents.DocumentPosition("test", number), any_group=False)
    case.nodes = [structs.replace(node, ready=True) for node in found.nodes]
    case.prices = tuple(found.prices)
    case.namespaces = {name: Namespace(name=name) for name in ("lab", "studio", "headroom-system")}
    for job in jobs:
        annotations = (("headroom.dev/expected-duration", job.declared),) if job.declares else ()
        for number in range(job.pods):
            case.works.append(
                RequestedPod(
                    name=f"{job.name}-{number}",
                    namespace="lab",
                    owner=owner_of("Job", "lab", job.name),
                    arrives=BEGIN + job.at * MINUTE,
                    length=job.minutes * MINUTE,
                    labels=tuple(sorted(job.labels.items())),
                    annotations=annotations,
                    shape=Shape(requests=(("nvidia.com/gpu", job.gpus * 10**6),)),
                    grace_seconds=2,
                )
            )
    resources = by_ref(found.resources)
    log = replay(case, resources, every=EVERY)
    starts: dict[str, list[int]] = {job.name: [] for job in jobs}
    stopped = set()
    for life in log.lives:
        if life.started is not None:
            starts[life.work.owner.name].append(life.started - BEGIN)
            if life.end in (EVICTED, SUSPENDED):
                stopped.add(life.work.owner.name)
    told = outcome(case, resources, log)
    return Course({name: sorted(each) for name, each in starts.items()}, stopped, told.total.gpu_hours), told


PRICES = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "headroom-prices", "namespace": "headroom-system"},
    "data": {"book": "\n".join(f'- {{node: n{number}, pricePerHour: "64"}}' for number in range(4))},
}
VISION = a_budget("vision", "10", "80% AlertOnly", "100% Hold", "120% Evict")
HOLDS = a_budget("vision", "10", "100% Hold")
ALL = a_budget("everyone", "14", "100% Hold", "130% Evict", labels={"tier": "prod"})
SUSPENDS = a_budget("vision", "10", "100% Hold", "110% Suspend")
DOLLARS = a_budget("vision", "1000", "100% Hold")
DOLLARS["spec"]["quota"] = {"usd": "10", "windowHours": 24}

SHORT = [Job(f"short-{number}", 10 * number, 60) for number in range(24)]
LONG = [Job(f"long-{number}", 3 * number, 60 * 30, declares=False) for number in range(5)]
MIXED = [
    *LONG[:3],
    *(Job(f"speech-{number}", 5 + 20 * number, 90, team="speech") for number in range(12)),
    *SHORT[4:12],
]
GANGS = [Job(f"gang-{number}", 15 * number, 120, pods=2) for number in range(8)]


CASES: dict[str, tuple[list[Job], list[Any], str]] = {
    "overlapping budgets": (MIXED, [VISION, ALL], "36h"),
    "suspended": ([*LONG[:2], *SHORT[6:10]], [SUSPENDS], "30h"),
}
"""Two in which everything happens: pods are held, released, evicted, and Jobs suspended; the others look at one thing each."""
MORE: dict[str, tuple[list[Job], list[Any], str]] = {
    "hold and release": (SHORT, [HOLDS], "40h"),
    "eviction": (LONG, [VISION], "20h"),
    "gangs": (GANGS, [HOLDS], "40h"),
    "dollars": (SHORT, [DOLLARS, PRICES], "40h"),
}
CHOSEN = CASES | MORE if DEEP else CASES


@pytest.mark.parametrize(("jobs", "budgets", "length"), CHOSEN.values(), ids=CHOSEN)
def test_a_replay_goes_as_the_full_simulator_does(jobs: list[Job], budgets: list[Any], length: str) -> None:
    wanted, _ = full(jobs, budgets, length)
    found, _ = quick(jobs, budgets, length)
    assert found.stopped == wanted.stopped
    assert {name: len(each) for name, each in found.starts.items()} == {
        name: len(each) for name, each in wanted.starts.items()
    }
    apart = {
        name: (one, other)
        for name in wanted.starts
        for one, other in zip(found.starts[name], wanted.starts[name], strict=True)
        if abs(one - other) > APART
    }
    assert apart == {}
    assert found.gpu_hours == pytest.approx(wanted.gpu_hours, rel=0.002)

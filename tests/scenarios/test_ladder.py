"""The ladder for seven simulated days: three budgets that overlap, gangs, Jobs and services, and far more asked for than there is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from headroom.sim.faults import split
from tests.scenarios.auditing import Judge, ledger_of
from tests.scenarios.ladder import (
    CAPS,
    FOR_WEEKS,
    Run,
    a_budget,
    a_gang,
    a_job,
    a_jobset,
    a_pod,
    a_service,
    a_template,
    play,
    stage,
)
from tests.tiers import DEEP

HOUR = 3_600_000
NAMESPACES = {"lab", "studio"}
VISION = a_budget("vision", "100", "80% AlertOnly", "100% Hold", "120% Evict", enforcement={"evictionsPerMinute": 2})
BATCH = a_budget("batch", "110", "90% Pause", "100% Hold", "110% Suspend", labels={"tier": "batch"})
ALL = a_budget(
    "all",
    "270",
    "70% AlertOnly",
    "100% Hold",
    "115% Evict",
    labels={"kind": "gpu"},
    namespace="headroom-system",
    namespaceSelector={"matchLabels": {"gpus": "yes"}},
)
BUDGETS = [VISION, BATCH, ALL]
WAVES = ((0, 12), (52, 64), (104, 114))
"""Hours in which tenants ask for far more than there is; between them they wait, and the ladder is left again."""

SECOND_WAVE = 116 if DEEP else 75
"""Hours until the second wave is over and undone; unless deep, until Jobs that it stopped have been resumed."""


def load(seed: int, waves: Sequence[tuple[int, int]] = WAVES) -> list[dict[str, Any]]:
    """What tenants ask for in a week: each wave is about twice what the budgets allow in a day."""
    rng, timeline, number = split(seed, "load"), [], 0
    for begin, end in waves:
        at = begin * 3600 + 600
        # The first ones declare nothing and run for long, so that what runs goes past the quota.
        timeline += [{"at": f"{at}s", "apply": each} for each in _long(begin, rng)]
        while at < end * 3600:
            number += 1
            timeline += [{"at": f"{at}s", "apply": each} for each in _asked(number, rng)]
            timeline.append({"at": f"{at + 60}s", "apply": a_pod(f"same-{number}", _same())})
            at += rng.randrange(10 * 60, 50 * 60)
        # What declares no length and runs for longer than there is room for never gets done: somebody gives it up.
        left = (f"ReplicaSet/lab/service-{begin}", f"Job/lab/long-job-{begin}", f"Job/lab/long-speech-{begin}")
        timeline += [{"at": f"{end + 14}h", "delete": each} for each in (*left, f"JobSet/lab/long-set-{begin}")]
    whole = a_template({"team": "vision", "tier": "prod", "kind": "gpu"}, 64, "4h", "4h")
    timeline.append({"at": "10h", "apply": a_pod("more-than-the-quota", whole)})
    timeline.append({"at": "120h", "delete": "Pod/lab/more-than-the-quota"})
    return timeline


def _same() -> dict[str, Any]:
    """Pods that are all alike, so that nothing but their age can decide who is first."""
    return a_template({"team": "vision", "tier": "prod", "kind": "gpu"}, 1, "2h", "2h")


def _long(wave: int, rng: random.Random) -> list[dict[str, Any]]:
    prod, batch = ({"team": "vision", "tier": tier, "kind": "gpu"} for tier in ("prod", "batch"))
    of_speech = {"team": "speech", "tier": "batch", "kind": "gpu"}
    return [
        a_service(f"service-{wave}", a_template(prod, 1), 2),
        *a_gang(f"long-gang-{wave}", a_template(prod, 1, f"{rng.randrange(10, 16)}h"), 3),
        *(a_pod(f"long-{wave}-{number}", a_template(prod, 1, "14h")) for number in range(3)),
        a_job(f"long-job-{wave}", a_template(batch, 2, "16h"), 2),
        a_jobset(f"long-set-{wave}", a_template(of_speech, 1, "15h"), 3),
        a_job(f"long-speech-{wave}", a_template(of_speech, 2, "14h"), 2),
        *a_gang(f"long-studio-{wave}", a_template(of_speech, 2, "12h"), 2, "studio"),
    ]


def _asked(number: int, rng: random.Random) -> list[dict[str, Any]]:
    labels = {"team": rng.choice(("vision", "vision", "speech")), "tier": rng.choice(("batch", "prod")), "kind": "gpu"}
    minutes = rng.choice((20, 40, 60, 120, 180, 300))
    declared = rng.choice(("", f"{minutes}m", f"{minutes + 30}m"))
    template = a_template(labels, rng.choice((1, 1, 2)), f"{minutes}m", declared)
    namespace = rng.choice(("lab", "lab", "studio"))
    match rng.choice(("pod", "job", "gang", "jobset")):
        case "pod":
            return [a_pod(f"pod-{number}", template, namespace)]
        case "job":
            return [a_job(f"job-{number}", template, rng.choice((1, 2)), namespace)]
        case "gang":
            return a_gang(f"gang-{number}", template, 3, namespace)
    return [a_jobset(f"set-{number}", template, 3, namespace)]


@cache
def week() -> Run:
    """Seven days; the last wave is over after five."""
    return play(stage(*BUDGETS), load(3), duration="168h", pace=FOR_WEEKS)


def judged(run: Run) -> list[str]:
    """Whatever is wrong with it."""
    ledgers = [ledger_of(each, NAMESPACES) for each in BUDGETS]
    return Judge(run.auditor, ledgers, (CAPS.cluster, CAPS.namespace)).problems()


def test_a_week_has_no_sawtooth_no_starvation_and_no_injustice() -> None:
    run = week()
    assert run.report.failures == []
    assert judged(run) == []


def test_a_resumed_job_keeps_its_room_and_passes_nobody_who_waited_before_it() -> None:
    """With this seed Jobs that had run are resumed while older pods wait, and their pods come while others are judged."""
    run = play(stage(*BUDGETS), load(5, WAVES[:2]), duration=f"{SECOND_WAVE}h", pace=FOR_WEEKS)
    assert run.report.failures == []
    assert judged(run) == []
    assert {"Job/lab/long-speech-52", "JobSet/lab/long-set-52"} <= run.auditor.resting.keys()


def test_a_week_has_everything_in_it() -> None:
    """What was never tried proves nothing."""
    auditor = week().auditor
    assert {(stop.action, stop.budget) for stop in auditor.stops() if stop.ran()} >= {
        ("Evict", "lab/vision"),
        ("Suspend", "lab/batch"),
        ("Evict", "headroom-system/all"),
    }
    assert {name: len(spans) >= 2 for name, spans in auditor.holds.items()} == dict.fromkeys(
        ("lab/vision", "lab/batch", "headroom-system/all"), True
    )
    waited = [life for life in auditor.lives.values() if life.gated]
    assert {life.unit.partition("/")[0] for life in waited} == {"Pod", "PodGroup", "Job", "JobSet"}
    assert {bool(life.length) for life in waited if life.released} == {True, False}
    assert len(waited) > 50
    assert auditor.paused


def test_after_a_week_everything_is_undone_and_all_is_quiet() -> None:
    run = week()
    assert run.left() == []
    assert all(end <= run.auditor.end for spans in run.auditor.holds.values() for _, end in spans)
    assert [life.name for life in run.auditor.lives.values() if not life.is_over(run.auditor.end)] == []
    assert run.operators_writes(since=166 * HOUR) == []

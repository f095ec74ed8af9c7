"""Some dense minutes of the ladder: up to its last step and down again, with everything that can be done to a workload."""

from __future__ import annotations

from typing import Any

from headroom.model.times import moment
from tests.scenarios.auditing import Judge, ledger_of
from tests.scenarios.auditor import Life
from tests.scenarios.ladder import (
    CAPS,
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

START = "2026-01-01T00:00:00Z"
MINUTE = 60_000
MINUTES = 18
BRIEF = {"gracePeriodSeconds": 0, "releaseHorizon": "5m", "recoverWithin": "2m"}
VISION = a_budget("vision", "2", "90% Pause", "100% Hold", "105% Evict", window=1, enforcement=BRIEF)
BATCH = a_budget("batch", "2", "100% Hold", "105% Suspend", labels={"tier": "batch"}, window=1, enforcement=BRIEF)
BUDGETS = [VISION, BATCH]
VISION_LABELS, BATCH_LABELS = {"team": "vision", "tier": "prod"}, {"team": "speech", "tier": "batch"}
LATE = {"arrives": "late"}
"""The label of a node that is not there at first, so that what needs it cannot start."""


def past(minutes_ago: int = 45) -> list[Life]:
    """What ended so long ago; after 45 minutes it leaves the window of an hour in the minutes 7 to 15."""
    end = (moment(START) or 0) - minutes_ago * MINUTE
    both = (("a", VISION_LABELS), ("b", BATCH_LABELS))
    return [_life(name, labels, end - 8 * MINUTE, end) for name, labels in both]


def _life(name: str, labels: dict[str, str], begin: int, end: int) -> Life:
    return Life(
        uid=f"uid-of-{name}",
        namespace="lab",
        name=name,
        labels=labels,
        gpus=14,
        unit=f"Pod/lab/{name}",
        owner="",
        length=None,
        protected=False,
        created=begin,
        gated=False,
        started=begin,
        ended=end,
        going=end,
        gone=end,
    )


def story() -> list[dict[str, Any]]:
    """What tenants do."""
    running = [
        *a_gang("gang", a_template(VISION_LABELS, 1, "8m"), 3),
        a_pod("one", a_template(VISION_LABELS, 2, "8m")),
        a_pod("two", a_template(VISION_LABELS, 2, "8m")),
        a_service("service", a_template(VISION_LABELS, 1)),
        a_job("job", a_template(BATCH_LABELS, 2, "4m"), 2),
        a_jobset("set", a_template(BATCH_LABELS, 1, "4m"), 3),
        a_job("both", a_template(VISION_LABELS | BATCH_LABELS | {"team": "vision"}, 1, "3m", "4m")),
    ]
    stuck = [
        a_job("stuck-job", _needing_the_late(a_template(BATCH_LABELS, 1, "1m", "2m"))),
        a_service("stuck-service", _needing_the_late(a_template(VISION_LABELS, 1))),
        a_pod("stuck-pod", _needing_the_late(a_template(VISION_LABELS, 1, "1m", "2m"))),
    ]
    new = [
        a_pod("new", a_template(VISION_LABELS, 1, "1m", "2m")),
        *a_gang("new-gang", a_template(VISION_LABELS, 1, "1m", "2m"), 2),
        a_job("new-job", a_template(BATCH_LABELS, 2, "1m"), 1),
    ]
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late", "labels": LATE}}
    node |= {"status": {"allocatable": {"nvidia.com/gpu": "64", "pods": "250", "cpu": "1000"}}}
    return [
        *({"at": "10s", "apply": each} for each in running),
        *({"at": "20s", "apply": each} for each in stuck),
        *({"at": "150s", "apply": each} for each in new),
        {"at": "10m", "apply": node},
        *({"at": "13m", "delete": f"ReplicaSet/lab/{name}"} for name in ("service", "stuck-service")),
    ]


def _needing_the_late(template: dict[str, Any]) -> dict[str, Any]:
    return template | {"spec": template["spec"] | {"nodeSelector": LATE}}


def dense(*faults: dict[str, Any], more: list[dict[str, Any]] | None = None, **options: Any) -> Run:
    """The story with these faults, and what else happens."""
    struck = [{"at": "0s", "fault": {"actor": "operator-*"} | each} for each in faults]
    timeline = [*struck, *story(), *(more or [])]
    return play(stage(*BUDGETS), timeline, past=past(), start=START, **{"duration": f"{MINUTES}m"} | options)


def problems(run: Run, **options: Any) -> list[str]:
    """Whatever is wrong with a run, its end included."""
    ledgers = [ledger_of(each, {"lab", "studio"}) for each in BUDGETS]
    found = Judge(run.auditor, ledgers, (CAPS.cluster, CAPS.namespace), **options).problems()
    return [*run.report.failures, *found, *run.left()]

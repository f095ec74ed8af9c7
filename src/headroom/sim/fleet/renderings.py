"""The demo's work on spot machines: a Spotpool that launches them, and renderings that only its nodes take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.model import times
from headroom.sim.answers import Body
from headroom.sim.faults import split
from headroom.sim.fleet import teams, work
from headroom.sim.fleet.machines import OURS, MachineSort, made, named

POOL: Final = "burst"
RECLAIMED_AFTER: Final = "30m"
"""After so long the demo's cloud takes a machine back."""
FIRST: Final = 3 * times.MINUTE
"""Machines are launched when work asks for them, so none of it began before the start."""
_TEAM: Final = teams.Team(
    name=teams.NOBODY.name,
    sort=MachineSort("spot", "g6.12xlarge", 0, "2.00"),
    busy=3.0,
    declares=False,
    tasks=(
        teams.Task("render", 2, 4, 25),
        teams.Task("render-video", 1, 4, 20),
        teams.Task("render-preview", 1, 2, 15),
    ),
)


def pool() -> Body:
    """Idle machines end soon, so that somebody who watches for minutes sees it."""
    spec: Body = {
        "provider": "aws",
        "region": "us-east-1",
        "zones": ["us-east-1a", "us-east-1b"],
        "instanceTypes": ["g6.12xlarge", "g5.12xlarge"],
        "allocation": "LowestPrice",
        "maximum": 4,
        "desired": "Demand",
        "maxPricePerHour": "2.50",
        "idleSeconds": 300,
        "template": {"gpuCount": 4, "labels": {"pool": POOL}},
        "credentialsSecretRef": {"name": "spot-keys"},
    }
    annotations = {"sim.headroom.dev/reclaims-after": RECLAIMED_AFTER}
    return named(made(OURS, "Spotpool", POOL, spec, _TEAM.name), annotations=annotations)


def arrivals(seed: int) -> Iterator[tuple[int, Body]]:
    """Every Job, in order and without end: milliseconds after the start, and the Job."""
    for each in teams.flow(_TEAM, split(seed, "renderings"), FIRST):
        job = work.job(each)
        job["spec"]["template"]["spec"] |= {
            "nodeSelector": {"pool": POOL},
            "tolerations": [{"key": "headroom.dev/spotpool", "operator": "Exists", "effect": "NoSchedule"}],
        }
        yield each.at, job

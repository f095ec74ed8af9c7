"""The demo's cheapest capacity: offers whose prices wander, a LeftoverNodePool that ranks them, and scorings that only its nodes take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.model import times
from headroom.sim.answers import Body
from headroom.sim.faults import split
from headroom.sim.fleet import teams, work
from headroom.sim.fleet.machines import FACTS, OURS, MachineSort, made, named

POOL: Final = "cheapest"
FIRST: Final = 20 * times.MINUTE
"""By then somebody who watches has seen what is first, and why."""
_TAINT: Final = "nvidia.com/gpu"
_WANDERS: Final = "35%"
_TEAM: Final = teams.Team(
    name=teams.NOBODY.name,
    sort=MachineSort("cheapest", "g5.xlarge", 0, "0.40"),
    busy=3.0,
    declares=False,
    tasks=(teams.Task("score", 2, 1, 40), teams.Task("score-new", 1, 1, 30)),
)
_SPOT: Final = (
    ("g5.xlarge", "us-east-1a", "0.4343", 7),
    ("g5.xlarge", "us-east-1b", "0.3939", 6),
    ("g6.xlarge", "us-east-1a", "0.3720", 7),
    ("g6.xlarge", "us-east-1b", "0.4105", 9),
)
_ON_DEMAND: Final = (("g5.xlarge", "1.006"), ("g6.xlarge", "0.8048"))


def documents(start: str) -> list[Body]:
    """The pool with its node class, and what is offered."""
    spec: Body = {
        "region": "us-east-1",
        "families": ["g5", "g6"],
        "nodeClassName": "gpu",
        "labels": {"pool": POOL},
        "taints": [f"{_TAINT}:NoSchedule"],
        "limits": {"nvidia.com/gpu": "8"},
        # A morning of the story has room for a switch or two.
        "switchAfter": "10m",
        "minDwell": "30m",
        "consolidateAfter": "5m",
    }
    role = {"role": "nodes", "subnetSelectorTerms": [{"tags": {"cluster": "demo"}}]}
    return [
        made("karpenter.k8s.aws/v1", "EC2NodeClass", "gpu", role),
        made(OURS, "LeftoverNodePool", POOL, spec),
        *(_offer(kind, zone, price, start, score=score) for kind, zone, price, score in _SPOT),
        *(_offer(kind, "us-east-1a", price, start, capacity="on-demand") for kind, price in _ON_DEMAND),
    ]


def _offer(kind: str, zone: str, price: str, start: str, *, score: int | None = None, capacity: str = "spot") -> Body:
    spec: Body = {"provider": "aws", "region": "us-east-1", "zone": zone, "instanceType": kind, "arch": "amd64"}
    spec |= {"vendor": "nvidia", "gpus": "1", "capacityType": capacity, "pricePerHour": price, "at": start}
    if score is None:
        return made(FACTS, "Offer", f"{kind}-{zone}-{capacity}", spec)
    offer = made(FACTS, "Offer", f"{kind}-{zone}", spec | {"score": score})
    return named(offer, annotations={"sim.headroom.dev/price-moves": _WANDERS})


def arrivals(seed: int) -> Iterator[tuple[int, Body]]:
    """Every Job, in order and without end: milliseconds after the start, and the Job."""
    for each in teams.flow(_TEAM, split(seed, "scorings"), FIRST):
        job = work.job(each)
        job["spec"]["template"]["spec"] |= {
            "nodeSelector": {"pool": POOL},
            "tolerations": [{"key": _TAINT, "operator": "Exists", "effect": "NoSchedule"}],
        }
        yield each.at, job

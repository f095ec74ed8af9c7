"""A small GPU cluster for the demo: nodes, teams whose jobs come and go, and one resource of each of the five kinds."""

from __future__ import annotations

import random
from typing import Any, Final

from headroom.api.policies import policies
from headroom.model import times
from headroom.sim.answers import Body
from headroom.sim.catalog import SIM_GROUP
from headroom.sim.faults import split

TEAMS: Final = ("vision", "speech", "search", "robotics", "climate", "genome")
START: Final = "2026-03-02T08:00:00Z"
_OURS: Final = "headroom.dev/v1alpha1"
_FACTS: Final = f"{SIM_GROUP}/v1"
_GPUS_OF_A_NODE: Final = 8
LADDERS: Final[tuple[Body, ...]] = (
    {
        "steps": [
            {"at": "80%", "action": "AlertOnly"},
            {"at": "100%", "action": "Hold"},
            {"at": "120%", "action": "Evict"},
        ]
    },
    {"action": "Hold"},
    {"action": "AlertOnly"},
)
_TASKS: Final = ("train", "tune", "eval", "label", "sweep")


def fleet(seed: int, nodes: int = 6, teams: int = 3, hours: int = 8) -> list[Body]:
    """The documents of the demo's scenario; the same seed always gives the same ones."""
    rng = split(seed, "fleet")
    names = [f"gpu-{number:02d}" for number in range(1, nodes + 1)]
    chosen = TEAMS[:teams]
    return [
        *(_node(name) for name in names),
        *policies(),
        *(_budget(team, rng, LADDERS[place % len(LADDERS)]) for place, team in enumerate(chosen)),
        _spot_pool(chosen[0]),
        _power_pool(names[-1]),
        _bandwidth(names[0]),
        _node_pool(),
        *_outside(names[-1], rng),
        _scenario(seed, hours, [job for team in chosen for job in _jobs(team, hours, rng)]),
    ]


def _object(version: str, kind: str, name: str, spec: Body, namespace: str = "") -> Body:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _node(name: str) -> Body:
    room = {"cpu": "96", "memory": "768Gi", "pods": "110", "nvidia.com/gpu": str(_GPUS_OF_A_NODE)}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "us-east-1a"}
    labels |= {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    node = _object("v1", "Node", name, {"providerID": f"sim:///{name}"})
    node["metadata"]["labels"] = labels
    return node | {"status": {"capacity": room, "allocatable": room}}


def _budget(team: str, rng: random.Random, ladder: Body) -> Body:
    spec = {
        "selector": {"matchLabels": {"team": team}},
        "quota": {"gpuHours": str(rng.choice((24, 40, 64))), "windowHours": 24},
        "enforcement": ladder | {"gracePeriodSeconds": 60},
    }
    return _object(_OURS, "GPUWorkloadBudget", team, spec, team)


def _spot_pool(team: str) -> Body:
    spec = {
        "region": "us-east-1",
        "availabilityZone": "us-east-1a",
        "instanceType": "g5.12xlarge",
        "minimum": 1,
        "maximum": 3,
    }
    return _object(_OURS, "Spotpool", "spare", spec, team)


def _power_pool(machine: str) -> Body:
    switch = {
        "name": machine,
        "gpuCount": _GPUS_OF_A_NODE,
        "scaleUpEndpoint": f"http://power-api/{machine}/start",
        "scaleDownEndpoint": f"http://power-api/{machine}/stop",
    }
    return _object(_OURS, "PowerPool", "basement", {"machines": [switch], "policy": {"idleSeconds": 900}})


def _bandwidth(node: str) -> Body:
    links = {"network": {"ulMbps": 100_000, "dlMbps": 100_000}, "local": {"ulMbps": 200_000, "dlMbps": 200_000}}
    return _object(_OURS, "Bandwidth", node, {"capacity": links})


def _node_pool() -> Body:
    return _object(
        _OURS, "LeftoverNodePool", "cheapest", {"region": "us-east-1", "families": ["g5", "g6"], "nodeClassName": "gpu"}
    )


def _outside(machine: str, rng: random.Random) -> list[Body]:
    since: Body = {"power": "On", "since": START}
    facts = [_object(_FACTS, "Machine", machine, since)]
    for type_, gpus, dollars in (("g5.12xlarge", 4, 5.67), ("g6.12xlarge", 4, 4.60), ("g5.xlarge", 1, 1.01)):
        for zone in ("us-east-1a", "us-east-1b"):
            price = round(dollars * rng.uniform(0.3, 0.6), 4)
            spec = {"provider": "aws", "region": "us-east-1", "zone": zone, "instanceType": type_, "arch": "amd64"}
            spec |= {"vendor": "nvidia", "gpus": str(gpus), "capacityType": "spot", "pricePerHour": f"{price:.4f}"}
            facts.append(_object(_FACTS, "Offer", f"{type_}-{zone}", spec | {"at": START}))
    return facts


def _jobs(team: str, hours: int, rng: random.Random) -> list[tuple[int, Body]]:
    """When each job of a team arrives: every quarter of an hour or so, for some minutes up to two hours."""
    found, at, number = [], rng.randrange(0, 5 * times.MINUTE), 0
    while at < hours * times.HOUR:
        number += 1
        name = f"{rng.choice(_TASKS)}-{number}"
        found.append((at - at % times.SECOND, _job(team, name, rng)))
        at += rng.randrange(5 * times.MINUTE, 25 * times.MINUTE)
    return found


def _job(team: str, name: str, rng: random.Random) -> Body:
    minutes = rng.choice((5, 10, 20, 45, 90, 120))
    gpus: dict[str, Any] = {"limits": {"nvidia.com/gpu": str(rng.choice((1, 1, 2, 4, 8)))}}
    template = {
        "metadata": {"labels": {"team": team}, "annotations": {"sim.headroom.dev/runs-for": f"{minutes}m"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 10,
            "containers": [{"name": "main", "image": f"registry.example/{team}:1", "resources": gpus}],
        },
    }
    pods = rng.choice((1, 1, 2, 3))
    return _object("batch/v1", "Job", name, {"completions": pods, "parallelism": pods, "template": template}, team)


def _scenario(seed: int, hours: int, jobs: list[tuple[int, Body]]) -> Body:
    timeline = [{"at": f"{at // times.SECOND}s", "apply": job} for at, job in sorted(jobs, key=lambda each: each[0])]
    spec = {"start": START, "duration": f"{hours}h", "seed": seed, "operators": 1, "timeline": timeline}
    return _object(_FACTS, "Scenario", "demo", spec)

"""A piece of work of the demo, and how it stands in the cluster: as hours in the ledger, as pods that run, or as a Job to come."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Final
from zlib import crc32

from msgspec import Struct

from headroom.model import times
from headroom.sim.answers import Body
from headroom.sim.faults import split
from headroom.sim.fleet.machines import FACTS, GPUS_OF_A_MACHINE, INSTANCE_TYPE, MachineSort, made, names

START: Final = times.moment("2026-03-03T08:00:00Z") or 0
"""A Tuesday morning."""
KEPT_SECONDS: Final = 900
"""For so long a finished Job is shown."""
USER: Final = "example.com/user"
"""The label that says whose work it is."""
PEOPLE: Final = ("amira", "bo", "chidi", "dana", "emre", "fatima")
_DECLARED_STEP: Final = 15 * times.MINUTE


class WorkBatch(Struct, frozen=True, kw_only=True):
    """Some pods that come together and run for as long."""

    at: int
    """When it is asked for: milliseconds after the start, less than 0 for what was there before."""
    team: str
    """Its namespace."""
    name: str
    lasts: int
    """Milliseconds."""
    pods: int
    gpus: int
    """Of each pod."""
    sort: MachineSort
    rate: str = ""
    """The bandwidth that each pod asks for, out of it and into it."""
    declares: bool = False
    """Whether it says how long it will take."""
    is_covered: bool = True
    """Whether it has the label that the team's budget counts by."""

    @property
    def gpu_hours(self) -> float:
        """What it uses in all."""
        return self.pods * self.gpus * self.lasts / times.HOUR

    @property
    def labels(self) -> dict[str, str]:
        """Those of its pods."""
        found = {"app": self.name.rpartition("-")[0], USER: PEOPLE[crc32(self.name.encode()) % len(PEOPLE)]}
        return found | ({"team": self.team} if self.is_covered else {})


def job(work: WorkBatch) -> Body:
    """The Job that somebody applies."""
    spec = {
        "completions": work.pods,
        "parallelism": work.pods,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": {"metadata": {"labels": work.labels, "annotations": _annotations(work)}, "spec": _pod_spec(work)},
    }
    return made("batch/v1", "Job", work.name, spec, work.team)


def _annotations(work: WorkBatch) -> dict[str, str]:
    found = {"sim.headroom.dev/runs-for": f"{work.lasts // times.SECOND}s"}
    if work.declares:
        # People round up, and a little more than they think they need.
        minutes = (work.lasts // _DECLARED_STEP + 1) * _DECLARED_STEP // times.MINUTE
        found["headroom.dev/expected-duration"] = f"{minutes}m"
    return found | (asks(work.rate) if work.rate else {})


def asks(rate: str) -> dict[str, str]:
    """Annotations that ask for as much bandwidth in both directions."""
    return {f"kubernetes.io/{way}-bandwidth": rate for way in ("egress", "ingress")}


def _pod_spec(work: WorkBatch) -> Body:
    resources = {"limits": {"nvidia.com/gpu": str(work.gpus)}}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "nodeSelector": {INSTANCE_TYPE: work.sort.instance_type},
        "containers": [{"name": "main", "image": f"registry.example/{work.team}:1", "resources": resources}],
    }


def used(works: Iterable[WorkBatch]) -> list[Body]:
    """What was over before the demo begins, as rows of the ledger."""
    found = []
    for work in works:
        price = Decimal(work.sort.price) * work.gpus / GPUS_OF_A_MACHINE
        for rank in range(work.pods):
            spec = {
                "namespace": work.team,
                "pod": f"{work.name}-{rank}",
                "start": times.text(START + work.at),
                "end": times.text(START + work.at + work.lasts),
                "gpus": str(work.gpus),
                "labels": work.labels,
                "pricePerHour": str(round(price, 6)),
            }
            found.append(made(FACTS, "Usage", f"{work.team}-{work.name}-{rank}", spec))
    return found


class InitialPlacement:
    """Puts work that has begun before the demo onto machines: each pod on the first one with room."""

    def __init__(self, seed: int, sorts: Iterable[MachineSort], asleep: Collection[str] = ()) -> None:
        self._rng = split(seed, "running")
        self._free = {
            sort.name: {name: GPUS_OF_A_MACHINE for name in names(sort) if name not in asleep} for sort in sorts
        }

    def running(self, work: WorkBatch) -> list[Body]:
        """Its Job and its pods; nothing if there is no room for it."""
        taken: list[str] = []
        free = self._free[work.sort.name]
        for _ in range(work.pods):
            name = next((name for name, room in free.items() if room >= work.gpus), None)
            if name is None:
                break
            free[name] -= work.gpus
            taken.append(name)
        if len(taken) < work.pods:
            for name in taken:
                free[name] += work.gpus
            return []
        owner, since = job(work), times.text(START + work.at)
        owner["metadata"] |= {"uid": self._uid(), "creationTimestamp": since}
        owner["status"] = {"active": work.pods, "startTime": since}
        return [owner, *(self._pod(work, owner, name) for name in taken)]

    def _pod(self, work: WorkBatch, owner: Body, node: str) -> Body:
        since = times.text(START + work.at)
        letters = "".join(self._rng.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
        pod = made("v1", "Pod", f"{work.name}-{letters}", _pod_spec(work) | {"nodeName": node}, work.team)
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": work.name, "uid": owner["metadata"]["uid"]}
        pod["metadata"] |= {
            "uid": self._uid(),
            "creationTimestamp": since,
            "labels": work.labels,
            "annotations": _annotations(work),
            "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": True}],
        }
        return pod | {"status": runs(since)}

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))


def runs(since: str) -> Body:
    """The status of a pod that has been running since a moment."""
    state = {"name": "main", "image": "", "imageID": "", "ready": True, "started": True, "restartCount": 0}
    conditions = [
        {"type": type_, "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
        for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    return {
        "phase": "Running",
        "startTime": since,
        "conditions": conditions,
        "containerStatuses": [state | {"state": {"running": {"startedAt": since}}}],
    }

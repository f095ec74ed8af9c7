"""The demo's pods that talk only to each other: a StatefulSet of caches on one machine, so that what they send stays off its network card."""

from __future__ import annotations

import uuid
from typing import Final

from headroom.api.bandwidth import SIBLINGS, TRAFFIC
from headroom.sim.answers import Body
from headroom.sim.fleet.machines import H100, made, named, names
from headroom.sim.fleet.work import asks, runs

NAME: Final = "vector-cache"
_TEAM: Final = "search"
_COUNT: Final = 3
_RATE: Final = "100G"
_IDS: Final = uuid.UUID("6f7b0a52-6f0b-4c59-8a3b-0d6c52c1a7e4")


def documents(start: str) -> list[Body]:
    """The StatefulSet and its pods, which run since the start. They hold no GPU, so no budget counts them."""
    labels, spec = {"app": NAME}, {"containers": [{"name": "main", "image": f"registry.example/{_TEAM}:1"}]}
    notes = asks(_RATE) | {TRAFFIC: SIBLINGS}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": spec}
    of_set = {"replicas": _COUNT, "serviceName": NAME, "selector": {"matchLabels": labels}, "template": template}
    owner = named(made("apps/v1", "StatefulSet", NAME, of_set, _TEAM), uid=str(_IDS))
    return [owner, *(_pod(rank, spec, labels, notes, start) for rank in range(_COUNT))]


def _pod(rank: int, spec: Body, labels: dict[str, str], notes: dict[str, str], start: str) -> Body:
    pod = made("v1", "Pod", f"{NAME}-{rank}", spec | {"nodeName": names(H100)[1]}, _TEAM)
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": NAME, "uid": str(_IDS)}
    pod["metadata"] |= {
        "uid": str(uuid.uuid5(_IDS, str(rank))),
        "creationTimestamp": start,
        "labels": labels,
        "annotations": notes,
        "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": True}],
    }
    return pod | {"status": runs(start)}

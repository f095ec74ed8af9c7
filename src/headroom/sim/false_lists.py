"""Lists that are not the server's: without their objects, or without an end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headroom.adapters.kube.transport import Reply
from headroom.sim import faults as wrong
from headroom.sim.answers import json
from headroom.sim.faults import Fault

PAGE: Final = b"<!DOCTYPE html><html><body>Please sign in.</body></html>"


def falsified(reply: Reply, due: Iterable[Fault]) -> Reply:
    """A reply with these faults; only lists can be false."""
    for fault in due:
        if isinstance(fault, wrong.FALSE_LISTS) and reply.status == 200:
            found = msgspec.json.decode(reply.body)
            if "items" in found:
                reply = json(200, _emptied(found) if isinstance(fault, wrong.EmptyList) else _endless(found))
    return reply


def _emptied(found: dict[str, object]) -> dict[str, object]:
    metadata = msgspec.convert(found["metadata"], dict[str, object])
    return found | {"items": [], "metadata": {"resourceVersion": metadata["resourceVersion"]}}


def _endless(found: dict[str, object]) -> dict[str, object]:
    metadata = msgspec.convert(found["metadata"], dict[str, object])
    return found | {"metadata": metadata | {"continue": "the-same-again"}}


def nothing(version: int) -> bytes:
    """The line that ends a list of nothing."""
    ends = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": ends}
    return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": metadata}})

"""Kubernetes events: what Headroom did and why, where `kubectl describe` shows it.

The name of an event follows from what it says about which object, so saying the same again counts up one event and never makes a
second. A token for each occurrence, kept on the event, tells a repetition after a crash or a lost reply from a new occurrence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.model import times
from headroom.model.ports import Clock

LONGEST_MESSAGE: Final = 1024
OCCURRENCE: Final = "headroom.dev/occurrence"
"""The annotation with the token of the occurrence that was counted last."""
_LONGEST_NAME: Final = 253


class _Metadata(Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Counted(Struct):
    metadata: _Metadata
    count: int | None = None


class Events:
    """Writes events in the name of a component."""

    def __init__(self, kube: Kube, clock: Clock, component: str = "headroom") -> None:
        self._kube = kube
        self._clock = clock
        self._component = component

    async def emit(
        self,
        object_reference: Mapping[str, Any],
        type: Literal["Normal", "Warning"],  # noqa: A002  the API's word
        reason: str,
        message: str,
        *,
        once: str = "",
    ) -> None:
        """Record an event on the object with this apiVersion, kind, namespace, name and uid.

        Each call counts as another occurrence, but calls that follow each other with the same token `once` are one.
        """
        # Events on cluster-scoped objects live in this one; the API server insists.
        namespace = object_reference.get("namespace") or "default"
        metadata: dict[str, Any] = {"name": _name(object_reference, reason, message), "namespace": namespace}
        if once:
            metadata["annotations"] = {OCCURRENCE: once}
        try:
            body = self._body(object_reference, type, reason, message)
            await self._kube.create(paths.events(namespace), {"metadata": metadata} | body)
        except errors.AlreadyExists:
            await self._count(paths.event(namespace, metadata["name"]), once)
        except (errors.NotFound, errors.Forbidden) as problem:
            # The namespace is gone or going, and its events with it: nobody is left to tell.
            if isinstance(problem, errors.Forbidden) and "being terminated" not in problem.message:
                raise

    async def _count(self, path: str, once: str) -> None:
        """One more occurrence of an event that is there, unless it is the one that was counted last."""
        try:
            there = msgspec.json.decode(await self._kube.get(path), type=_Counted)
            meta = there.metadata
            if once and (meta.annotations or {}).get(OCCURRENCE) == once:
                return
            # Tied to what was read: another replica may count at the same moment.
            tied = {"resourceVersion": meta.resource_version, "annotations": {OCCURRENCE: once or None}}
            last = _seconds(self._clock.now())
            await self._kube.merge_patch(
                path, {"metadata": tied, "count": (there.count or 1) + 1, "lastTimestamp": last}
            )
        except errors.NotFound:
            return  # expired between two requests; the next occurrence recreates it

    def _body(self, reference: Mapping[str, Any], type_: str, reason: str, message: str) -> dict[str, Any]:
        now = _seconds(self._clock.now())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": dict(reference),
            "type": type_,
            "reason": reason,
            "message": _shortened(message),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _name(reference: Mapping[str, Any], reason: str, message: str) -> str:
    parts = (str(reference.get("uid") or ""), reason, message)
    # Each part with its length, so that no two lists of parts read the same.
    digest = hashlib.sha256(
        "".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass")
    ).hexdigest()
    room = _LONGEST_NAME - 17
    return f"{str(reference.get('name') or 'unnamed')[:room].rstrip('.-')}.{digest[:16]}"


def _shortened(message: str) -> str:
    """The message within the API's limit, which counts bytes."""
    encoded = message.encode("utf-8", "replace")
    if len(encoded) <= LONGEST_MESSAGE:
        return encoded.decode()
    return encoded[: LONGEST_MESSAGE - 3].decode("utf-8", "ignore") + "…"


def _seconds(ms: int) -> str:
    return times.text(ms - ms % times.SECOND)

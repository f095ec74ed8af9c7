"""Kubernetes events: what Headroom did and why, where `kubectl describe` shows it.

The name of an event follows from what it says about which object, so saying the same again, even after a crash, counts up
one event and never makes a second.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.model import times
from headroom.model.ports import Clock

LONGEST_MESSAGE: Final = 1024
REMEMBERED: Final = 4096
"""Events whose count is known without asking; older ones are looked up."""
FRESH: Final = 10 * times.MINUTE
_LONGEST_NAME: Final = 253


class _Counted(Struct):
    count: int | None = None


class _Known(Struct):
    count: int
    at: int


class Events:
    """Writes events in the name of a component."""

    def __init__(self, kube: Kube, clock: Clock, component: str = "headroom") -> None:
        self._kube = kube
        self._clock = clock
        self._component = component
        self._known: OrderedDict[str, _Known] = OrderedDict()

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

        Without `once`, each call counts as another occurrence. With it, all calls with the same token are one occurrence.
        """
        # Events on objects of no namespace live in this one; the API server insists.
        namespace = object_reference.get("namespace") or "default"
        name = _name(object_reference, reason, message, once)
        key = f"{namespace}/{name}"
        known = self._known.get(key)
        fresh = known is not None and self._clock.now() - known.at < FRESH
        if known is not None and fresh and not once:
            try:
                return await self._count(namespace, name, known.count + 1)
            except errors.NotFound:
                self._known.pop(key)  # expired on the server: it is new again
        elif fresh:
            return None
        body = self._body(object_reference, type, reason, message) | {
            "metadata": {"name": name, "namespace": namespace}
        }
        return await self._create(namespace, name, body, counts=not once)

    async def _create(self, namespace: str, name: str, body: dict[str, Any], *, counts: bool) -> None:
        try:
            await self._kube.create(paths.events(namespace), body)
        except errors.AlreadyExists:
            if counts:
                await self._count_on(namespace, name)
                return
        except (errors.NotFound, errors.Forbidden) as problem:
            # The namespace is gone or going, and its events with it: nobody is left to tell.
            if isinstance(problem, errors.Forbidden) and "being terminated" not in problem.message:
                raise
            return
        self._remember(f"{namespace}/{name}", 1)

    async def _count_on(self, namespace: str, name: str) -> None:
        """One more occurrence of an event that we do not remember."""
        try:
            there = msgspec.json.decode(await self._kube.get(paths.event(namespace, name)), type=_Counted)
            await self._count(namespace, name, (there.count or 1) + 1)
        except errors.NotFound:
            return  # expired between two requests; the next occurrence makes it anew

    async def _count(self, namespace: str, name: str, count: int) -> None:
        change = {"count": count, "lastTimestamp": _seconds(self._clock.now())}
        await self._kube.merge_patch(paths.event(namespace, name), change)
        self._remember(f"{namespace}/{name}", count)

    def _remember(self, key: str, count: int) -> None:
        self._known[key] = _Known(count, self._clock.now())
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

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


def _name(reference: Mapping[str, Any], reason: str, message: str, once: str) -> str:
    parts = (str(reference.get("uid") or ""), reason, message, once)
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

"""WATCH: the events of a collection from any version that is still kept, with bookmarks and initial events."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.sim.answers import Body, ErrorAnswer
from headroom.sim.apistore import Change, ObjectStore, Record
from headroom.sim.catalog import PathTarget, ResourceType
from headroom.sim.clock import SimClock
from headroom.sim.reads import matching, version_of, wrong_options
from headroom.sim.selecting import Match

BOOKMARK_SECONDS: Final = 60.0
LAST_BOOKMARK_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 2700.0
"""A real server ends a watch after a random half hour to an hour; here always after the middle of that."""

_EMPTY: Final[dict[str, Body]] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Node": {"spec": {}, "status": {}},
}


class WatchLine(Struct, frozen=True):
    """One line of a watch, and when it happened."""

    at: int
    data: bytes
    version: int


class Watch:
    """One open watch. `line` gives its lines one after the other."""

    def __init__(
        self,
        store: ObjectStore,
        target: PathTarget,
        query: Mapping[str, str],
        clock: SimClock,
        every: float = BOOKMARK_SECONDS,
    ) -> None:
        """With a bookmark `every` so many seconds."""
        self._store, self._clock, self._every = store, clock, every
        self._type, self._namespace = target.type, target.namespace
        self._match: Match | None = matching(target.type, query)
        self._lines: deque[WatchLine] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._stop: Callable[[], None] | None = None
        self.bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        seconds = float(query.get("timeoutSeconds") or 0) or LONGEST_SECONDS
        self._deadline = clock.monotonic() + seconds
        # A real server with nothing to say of a kind sends its first bookmark after two minutes.
        self._next_bookmark = self._bookmark_after(clock.monotonic(), 2 * every)
        self._start(query)

    def _start(self, query: Mapping[str, str]) -> None:
        asked, initial = query.get("resourceVersion"), query.get("sendInitialEvents")
        version = version_of(asked, where="watch")
        self._check(query)
        try:
            if initial == "true" or (version == 0 and initial is None):
                for record in self._store.all(self._type, self._namespace):
                    if self._match is None or self._match(record.body):
                        self._add("ADDED", record.raw(), self._store.version)
                if initial == "true" and self.bookmarks:
                    self._add("BOOKMARK", self.bookmark_object(self._store.version, initial=True), self._store.version)
            elif version:
                for change in self._store.since(version):
                    self.offer(change)
        except ErrorAnswer as failure:
            # A watch is already answered with 200 when the server finds out that the version is gone.
            self._add("ERROR", msgspec.json.encode(failure.document()), version)
            self._ended = True
            return
        self._stop = self._store.subscribe(self.offer)

    def _check(self, query: Mapping[str, str]) -> None:
        match, initial = query.get("resourceVersionMatch"), query.get("sendInitialEvents")
        if initial is not None and match != "NotOlderThan":
            raise wrong_options(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        if match and initial is None:
            raise wrong_options(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )

    def _bookmark_after(self, now: float, pause: float) -> float:
        """When the next bookmark is due: about every minute unless told otherwise, and shortly before the end."""
        last = self._deadline - LAST_BOOKMARK_SECONDS
        return min(now + pause, last) if now < last else math.inf

    def _add(self, kind: str, raw: bytes, version: int) -> None:
        data = b'{"type":"' + kind.encode() + b'","object":' + raw + b"}"
        self._lines.append(WatchLine(self._clock.now(), data, version))
        self._wake.set()

    def offer(self, change: Change) -> None:
        """Take note of a change, if it is one of this watch's."""
        record: Any = change.after or change.before
        if (change.type.group, change.type.plural) != (self._type.group, self._type.plural):
            return
        if self._namespace and record.key[0] != self._namespace:
            return
        was = change.before is not None and self._sees(change.before)
        now = change.after is not None and self._sees(change.after)
        if now and change.after:
            self._add("MODIFIED" if was else "ADDED", change.after.raw(), change.version)
        elif was and change.before:
            self._add("DELETED", _at(change.before, change.version), change.version)

    def _sees(self, record: Record) -> bool:
        return self._match is None or self._match(record.body)

    def bookmark_object(self, version: int, *, initial: bool = False) -> bytes:
        """The object of a bookmark: nothing but a version."""
        return bookmark_object(self._type, version, initial=initial)

    async def line(self, seconds: float) -> WatchLine | None:
        """The next line; None at the end. Raises TimeoutError when so many seconds brought none."""
        limit = self._clock.monotonic() + seconds
        while not self._lines:
            now = self._clock.monotonic()
            if self._ended or now >= self._deadline:
                self.close()
                return None
            if self.bookmarks and now >= self._next_bookmark:
                self._next_bookmark = self._bookmark_after(now, self._every)
                self._add("BOOKMARK", self.bookmark_object(self._store.version), self._store.version)
                break
            if now >= limit:
                raise TimeoutError
            await self._pause(min(limit, self._deadline, self._next_bookmark if self.bookmarks else limit) - now)
        return self._lines.popleft()

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        # Never so short that rounding could make it nothing: time would then stand still.
        timer = self._clock.call_later(max(seconds, 0.001), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def nudge(self) -> None:
        """Let a waiting reader look again, though nothing came."""
        self._wake.set()

    def close(self) -> None:
        """End the watch."""
        self._ended = True
        self._wake.set()
        if self._stop:
            self._stop()
            self._stop = None


def bookmark_object(type_: ResourceType, version: int, *, initial: bool = False) -> bytes:
    """The object of a bookmark: of its kind, with a version and otherwise empty."""
    metadata: Body = {"resourceVersion": str(version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    body = {"kind": type_.kind, "apiVersion": type_.api_version, "metadata": metadata}
    return msgspec.json.encode(body | ({} if type_.custom else _EMPTY.get(type_.kind, {})))


def _at(record: Record, version: int) -> bytes:
    """A record that left the view of a selector, with the version at which it did."""
    if record.version == version:
        return record.raw()
    document = record.document()
    return msgspec.json.encode(document | {"metadata": document["metadata"] | {"resourceVersion": str(version)}})

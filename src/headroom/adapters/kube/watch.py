"""Keeps a sink equal to one collection of the API server: list, watch, resume, list again, for ever.

Nothing is lost and nothing is invented: an object leaves the sink only when the server said that it was deleted, or when a list
that was read to its end does not have it and the server confirms that by name. A kind that is not served takes nothing along.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final, Generic, TypeVar

import msgspec

from headroom.adapters.kube import absence, errors, paths
from headroom.adapters.kube.backoff import Backoff
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.listwatch import Decoder, Event, Sink
from headroom.model import sight
from headroom.model.errors import HeadroomError, Unavailable
from headroom.model.pace import Pace
from headroom.model.ports import Clock

Fact = TypeVar("Fact")

OPEN_SECONDS: Final = 15.0
"""A server that does not even begin to answer a watch for so long is asked again."""
LIST_SECONDS: Final = 300.0
MOST_PAGES: Final = 10_000
"""A list that has no end by then has none at all."""
CALM_SECONDS: Final = 10.0
"""A stream that held for so long was a success, even if nothing happened."""
SHORT_SECONDS: Final = 1.0
"""A stream that ended sooner than this is suspicious."""
CATCH_UP_SECONDS: Final = 5.0
"""For so long after a stream was opened, what comes may have happened while nobody listened."""
GRACE_SECONDS: Final = 3.0
"""A watch that is opened again so soon was never away; for longer nothing is decided on what it showed."""
CONFIRMED: Final = 10
"""Of the objects that a list lacks so many are looked for by name; of our own kinds, all."""
BREATH: Final = 256
"""Objects after which other tasks get a turn."""
_PACE: Final = Pace()


class Reflector(Generic[Fact]):
    """Runs for ever, and heals by itself from whatever the server or the network does."""

    def __init__(  # noqa: PLR0913  four things to connect, time and chance, four settings, and a waiter for news
        self,
        kube: Kube,
        path: str,
        decoder: Decoder[Fact],
        sink: Sink[Fact],
        *,
        clock: Clock,
        rng: random.Random,
        query: Mapping[str, str] | None = None,
        pace: Pace = _PACE,
        optional: bool = False,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        """A kind that is `optional` may be unknown to the server. Whenever it may be seen or not seen any more, `turned` is called."""
        self.is_needed = not optional or (absence.is_ours(path) and paths.spoken(path) not in sight.BESIDE)
        """Without it nothing can be decided; any other kind limits only what needs it."""
        self.synced = False
        """True while nothing is known to be missing: since the last complete list no event was lost."""
        self.absent = False
        """The server is known not to serve the kind, and nothing of it is in the sink: so it has no objects."""
        self.tried = False
        """There was an answer, or none in time: whatever is not seen by now may not be seen for long."""
        self.heard = clock.monotonic()
        """When the server last told us all there is, or something new, on the monotonic clock."""
        self.known_until = 0
        """While no stream is established: the moment (milliseconds since 1970) up to which nothing was missed."""
        self.problem = ""
        """The last failure as a sentence; empty when all is well."""
        self.relists = 0
        """Complete lists after the first."""
        self._kube, self._path, self._decoder, self._sink = kube, path, decoder, sink
        self._clock, self._rng, self._pace = clock, rng, pace
        self._absence, self._turned = absence.AbsentKind(kube, path) if optional else None, turned
        self._query = dict(query or {})
        self._version = ""
        self._listed_before = False
        self._streams_initial = True
        self._backoff = Backoff(rng)
        self._short_ends = 0
        self._gone = 0
        self._countdown = BREATH
        self._began = self.heard
        self._is_open = False
        self._caught_up = 0.0
        self._opened_at = 0.0
        self._in_touch_at = float("-inf")

    @property
    def seen(self) -> bool:
        """Whether the sink is what the server has now, as far as anybody can tell."""
        now = self._clock.monotonic()
        is_held = self._is_open and now - self._opened_at >= SHORT_SECONDS
        is_near = is_held or now - self._in_touch_at <= GRACE_SECONDS
        return self.synced and is_near and now - self.heard <= self._pace.oldest_seconds

    @property
    def is_served(self) -> bool:
        """Whether the server had the kind when it was last known."""
        return self._listed_before and not self.absent

    @property
    def cause(self) -> str:
        """Why the kind is not seen, as a sentence; empty while it is seen or absent."""
        if self.absent or self.seen:
            return ""
        # Always the same words, since they stand in statuses: a number that grows would be written again and again.
        silence = (
            f"nothing was received for more than {self._pace.oldest_seconds:g}s" if self.synced else "no answer yet"
        )
        return self.problem or f"{self._doing}: {silence}"

    @property
    def established(self) -> bool:
        """Whether what happens now is heard now: a stream is open, and it has made up for the time without one."""
        return self._is_open and self._clock.monotonic() >= self._caught_up

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            self._began = self._clock.monotonic()
            if self._is_too_silent:
                self._version = ""
            try:
                if self._version:
                    await self._follow(seen=None)
                elif self._streams_initial:
                    await self._follow(seen=set())
                else:
                    await self._list()
                    continue
            except (HeadroomError, msgspec.MsgspecError) as problem:
                await self._recover(problem)
            else:
                await self._resume()

    # Listing and watching

    async def _list(self) -> None:
        """A consistent list in pages; whatever page fails, nothing is removed."""
        seen: set[str] = set()
        cont, asked, passed = "", self._clock.now(), set[str]()
        for _ in range(MOST_PAGES):
            page = self._decoder.page(await self._kube.page(self._path, query=self._query, cont=cont))
            for fact in page.items:
                self._sink.put(fact, listed=True)
                seen.add(self._sink.key(fact))
            await asyncio.sleep(0)
            cont = page.cont
            if not cont:
                break
            if cont in passed:
                raise Unavailable(f"{self._doing}: the list repeats: a page leads to one that was already read")
            passed.add(cont)
            self._check_time()
        else:
            raise Unavailable(f"{self._doing}: the list has no end after {MOST_PAGES} pages")
        await self._confirm(seen)
        # The next list may be streamed again.
        self._streams_initial = True
        self._take_in(seen, page.version, asked)

    def _check_time(self) -> None:
        if self._clock.monotonic() - self._began > LIST_SECONDS:
            raise Unavailable(f"{self._doing}: the list has no end after {LIST_SECONDS:g}s")

    async def _confirm(self, seen: set[str]) -> None:
        """Look by name for what a list lacks before it is removed: a list may be cut short, or not be the server's at all."""
        missing = sorted(set(self._sink.keys()) - seen)
        step = 1 if absence.is_ours(self._path) else max(1, len(missing) // CONFIRMED)
        for key in missing[::step]:
            known = self._sink.identity(key)
            if known is not None and not await absence.is_gone(self._kube, self._path, self._query, known):
                name = f"{known.namespace}/{known.name}" if known.namespace else known.name
                raise Unavailable(f"{self._doing}: the list lacks {name}, which exists")
            self._check_time()

    async def _follow(self, seen: set[str] | None) -> None:
        """One stream until its end; with `seen` it begins with the whole collection."""
        asked = self._clock.now()
        query = {
            **self._query,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(*self._pace.watch_seconds)),
        }
        idle = self._pace.silent_seconds
        if seen is None:
            query["resourceVersion"] = self._version
            # Silence goes on from stream to stream, or one that breaks now and then could hide anything.
            idle -= self._began - self.heard
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        is_resumed = seen is None
        try:
            async with asyncio.timeout(OPEN_SECONDS) as opening:

                def opened() -> None:
                    opening.reschedule(None)
                    if is_resumed:
                        self._stream_opened()

                async with aclosing(self._kube.watch(self._path, query=query, idle=idle, opened=opened)) as lines:
                    async for line in lines:
                        seen = await self._heard_line(line, seen, asked)
        except TimeoutError:
            raise Unavailable(f"{self._doing}: no answer within {OPEN_SECONDS:g}s") from None
        finally:
            self._stream_closed()
        if seen is not None:
            raise Unavailable(f"{self._doing}: the stream ended before the list was complete")
        # The server ended it, after it had said all.
        self.known_until = self._clock.now()

    async def _heard_line(self, line: bytes, seen: set[str] | None, asked: int) -> set[str] | None:
        event = self._decoder.event(line)
        if event.type == "ERROR":
            raise self._error(event)
        if seen is None:
            self._take(event)
            self.heard = self._in_touch_at = self._clock.monotonic()
        elif event.initial_end:
            await self._confirm(seen)
            self._take_in(seen, event.version, asked)
            self._stream_opened()
            seen = None
        else:
            self._take_initial(event, seen, asked)
            self._check_time()
        self._countdown -= 1
        if self._countdown <= 0:
            self._countdown = BREATH
            await asyncio.sleep(0)
        return seen

    def _stream_opened(self) -> None:
        self._is_open, self._opened_at = True, self._clock.monotonic()
        self._caught_up = self._opened_at + CATCH_UP_SECONDS

    def _stream_closed(self) -> None:
        now = self._clock.monotonic()
        if self._is_open and now - self._opened_at >= SHORT_SECONDS:
            self._in_touch_at = now
        self._is_open = False

    def _take(self, event: Event[Fact]) -> None:
        fact = event.fact
        if not self._is_open:
            self._stream_opened()
        if self._clock.monotonic() >= self._caught_up:
            self.known_until = self._clock.now()
        if fact is not None:
            if event.type == "DELETED":
                self._sink.remove(self._sink.key(fact), fact, self.known_until)
            else:
                self._sink.put(fact)
        if event.version:
            self._version = event.version
        self._all_is_well()

    def _take_initial(self, event: Event[Fact], seen: set[str], asked: int) -> None:
        fact = event.fact
        if fact is None:
            return
        key = self._sink.key(fact)
        if event.type == "DELETED":
            # A list shows nothing that was gone already when it was asked for.
            self._sink.remove(key, fact, asked if key in seen else self.known_until)
            seen.discard(key)
        else:
            self._sink.put(fact, listed=True)
            seen.add(key)

    def _take_in(self, seen: set[str], version: str, asked: int) -> None:
        """The end of a complete list: what it does not have is gone. It is never older than the moment it was asked for."""
        # Sorted, so that a simulation goes the same way every time.
        for key in sorted(set(self._sink.keys()) - seen):
            self._sink.remove(key, None, self.known_until)
        self.known_until = asked
        self.relists += self._listed_before
        self._version = version
        # Only what comes after the list shows whether the watch holds.
        self._began = self.heard = self._in_touch_at = self._clock.monotonic()
        was_synced, self.synced = self.synced, True
        self._listed_before = self.tried = True
        self.absent, self.problem = False, ""
        if self._absence is not None:
            self._absence.refute()
        self._sink.listed()
        if not was_synced:
            self._turned()

    # Failing and going on

    async def _resume(self) -> None:
        """After a stream that the server ended: go on at once, unless it does nothing but end."""
        lasted = self._clock.monotonic() - self._began
        if lasted >= CALM_SECONDS:
            self._all_is_well()
        if lasted >= SHORT_SECONDS:
            self._short_ends = 0
            return
        self._short_ends += 1
        if self._short_ends > 1:
            await self._pause(None)

    def _all_is_well(self) -> None:
        self.problem = ""
        self._gone = 0
        self._backoff.reset()

    @property
    def _is_too_silent(self) -> bool:
        """Whether nothing at all, not even a bookmark, was heard for as long as a stream may be silent: then a new list is due.

        A watch from a version of the future is never answered, or with an error for ever. And a server that has nothing to say
        of a kind sends its first bookmark only after two minutes, which is too long to go on calling the view complete.
        """
        # Not all of it: the moments at which it began and ended are rounded, and a second silence would be too much.
        return self._clock.monotonic() - self.heard >= 0.9 * self._pace.silent_seconds

    async def _recover(self, problem: HeadroomError | msgspec.MsgspecError) -> None:
        """After a failure: decide what to begin again with, and when."""
        listing = not self._version
        if self._clock.monotonic() - self._began >= CALM_SECONDS and not listing:
            self._all_is_well()
        self.problem, self.tried = self._sentence(problem), True
        if isinstance(problem, errors.Gone | errors.NotFound):
            # Events were lost, or the kind itself went: only a new list tells what is still there.
            self._version = ""
            self.synced = False
        if isinstance(problem, errors.NotFound) and self._absence is not None:
            was_absent, self.absent = self.absent, await self._is_absent(self._absence)
            if self.absent != was_absent:
                self._turned()
        if listing and self._streams_initial and not isinstance(problem, _SAME_FOR_A_LIST):
            self._streams_initial = False
            if isinstance(problem, errors.ApiError):
                return  # this server does not stream lists, or not now: pages at once
        if isinstance(problem, errors.Gone):
            self._gone += 1
            if self._gone == 1:
                return
        if self._is_too_silent and not listing:
            return  # that was pause enough
        await self._pause(problem)

    async def _is_absent(self, kind: absence.AbsentKind) -> bool:
        """Whether the kind is not served, and nobody would take that for the end of objects that were there.

        Of a kind of others that was never seen, what discovery says is enough. A kind of ours was there when we started.
        """
        is_ours = absence.is_ours(self._path)
        is_proven = await kind.is_proven(at_once=not is_ours and not self._listed_before)
        return is_proven and not set(self._sink.keys()) and (self._listed_before or not is_ours)

    async def _pause(self, problem: Exception | None) -> None:
        if self.absent and not absence.is_ours(self._path):
            # Nothing tells when somebody installs it.
            await self._clock.sleep(self._rng.uniform(*self._pace.absent_seconds))
            return
        asked_for = problem.retry_after if isinstance(problem, errors.ApiError) else None
        await self._clock.sleep(self._backoff.pause(is_seen=self.seen, asked_for=asked_for))

    def _error(self, event: Event[Fact]) -> errors.ApiError:
        message = f"{self._doing}: {event.message or 'the server ended the stream with an error'}"
        return errors.class_for(event.status_code)(event.status_code, "", message)

    def _sentence(self, problem: Exception) -> str:
        if isinstance(problem, errors.Forbidden):
            what = self._doing.removeprefix("watching ")
            return f"{problem}; grant the verbs get, list and watch on {what}, as deploy/rbac.yaml does"
        if isinstance(problem, errors.NotFound) and absence.is_ours(self._path):
            return f"{problem}; install the kinds with `headroom crds | kubectl apply -f -`"
        if isinstance(problem, msgspec.MsgspecError):
            return f"{self._doing}: the answer cannot be read: {problem}"
        return str(problem)

    @property
    def _doing(self) -> str:
        return f"watching {paths.spoken(self._path)}"


# A list in pages would be answered just the same.
_SAME_FOR_A_LIST: Final = (errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.TooManyRequests)

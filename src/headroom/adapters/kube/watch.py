"""Keeps a sink equal to one collection of the API server: list, watch, resume, list again, for ever.

Nothing is lost and nothing is invented: an object leaves the sink only when the server said that it was deleted, when a list
that was read to its end does not have it, or with its whole kind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.api.resources import GROUP
from headroom.model.errors import HeadroomError, Unavailable
from headroom.model.ports import Clock

Fact = TypeVar("Fact")
FactIn_contra = TypeVar("FactIn_contra", contravariant=True)

IDLE_SECONDS: Final = 90.0
"""Silence after which a stream counts as dead; the server sends a bookmark about once a minute."""
WATCH_SECONDS: Final = (300, 600)
"""For how long a stream is asked for, at random, so that many do not end at once."""
SHORTEST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
CALM_SECONDS: Final = 10.0
"""A stream that held for so long was a success, even if nothing happened."""
SHORT_SECONDS: Final = 1.0
"""A stream that ended sooner than this is suspicious."""
CATCH_UP_SECONDS: Final = 5.0
"""For so long after a stream was opened, what comes may have happened while nobody listened."""
BREATH: Final = 256
"""Objects after which other tasks get a turn."""


class Page(Struct, Generic[Fact], frozen=True, gc=False):
    """One page of a list."""

    items: list[Fact]
    version: str
    cont: str = ""
    """Where the next page begins; empty on the last one."""


class Event(Struct, Generic[Fact], frozen=True, gc=False):
    """One line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    fact: Fact | None = None
    version: str = ""
    initial_end: bool = False
    """True for the bookmark with the annotation k8s.io/initial-events-end."""
    status_code: int = 0
    """The code of an ERROR."""
    message: str = ""
    """The words of an ERROR."""


class Decoder(Protocol[Fact]):
    """Turns the server's JSON into facts.

    An object that cannot be understood must not raise, since the same object would come again for ever: its event has no
    fact, and its page leaves it out. Only what is no event or list at all raises `msgspec.MsgspecError`.
    """

    def page(self, body: bytes) -> Page[Fact]:
        """A page of a list."""
        ...

    def event(self, line: bytes) -> Event[Fact]:
        """A line of a watch."""
        ...


class Sink(Protocol[FactIn_contra]):
    """Holds the facts."""

    def key(self, fact: FactIn_contra) -> str:
        """What tells this fact from all others."""
        ...

    def keys(self) -> Iterable[str]:
        """The keys of all facts held."""
        ...

    def put(self, fact: FactIn_contra, *, listed: bool = False) -> None:
        """Hold a fact, in place of one with the same key.

        One that was `listed` is the truth, however old it looks: a cluster restored from a backup counts from lower versions.
        """
        ...

    def remove(self, key: str, last: FactIn_contra | None, seen_until: int, /) -> None:
        """Let go of a fact; there may be none.

        `last` is its final state, None where nobody told. Up to `seen_until`, in milliseconds since 1970, it was surely there.
        """
        ...

    def listed(self) -> None:
        """A complete list has been taken in: the sink is now what the server has."""
        ...


class Reflector(Generic[Fact]):
    """Runs for ever, and heals by itself from whatever the server or the network does."""

    def __init__(  # noqa: PLR0913  four things to connect, time and chance, four settings, and who waits for news
        self,
        kube: Kube,
        path: str,
        decoder: Decoder[Fact],
        sink: Sink[Fact],
        *,
        clock: Clock,
        rng: random.Random,
        query: Mapping[str, str] | None = None,
        idle: float = IDLE_SECONDS,
        optional: bool = False,
        dispensable: bool = False,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        """A kind that is `optional` may be unknown to the server; one that is `dispensable` may even be hidden from us.

        Whenever that turns, `turned` is called.
        """
        self.synced = False
        """True while nothing is known to be missing: since the last complete list no event was lost."""
        self.absent = False
        """The server does not know the kind, or does not let us see it, and we can do without: so it has no objects."""
        self.heard = clock.monotonic()
        """When the server last told us anything, on the monotonic clock."""
        self.known_until = 0
        """While no stream is established: the moment (milliseconds since 1970) up to which nothing was missed."""
        self.problem = ""
        """The last failure as a sentence; empty when all is well."""
        self.relists = 0
        """Complete lists after the first."""
        self._kube, self._path, self._decoder, self._sink = kube, path, decoder, sink
        self._clock, self._rng, self._idle = clock, rng, idle
        self._optional, self._dispensable, self._turned = optional or dispensable, dispensable, turned
        self._query = dict(query or {})
        self._version = ""
        self._listed_before = False
        self._streams_initial = True
        self._failures = 0
        self._short_ends = 0
        self._gone = 0
        self._countdown = BREATH
        self._began = self.heard
        self._is_open = False
        self._caught_up = 0.0

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
        cont, asked = "", self._clock.now()
        while True:
            page = self._decoder.page(await self._kube.page(self._path, query=self._query, cont=cont))
            self.heard = self._clock.monotonic()
            for fact in page.items:
                self._sink.put(fact, listed=True)
                seen.add(self._sink.key(fact))
            await asyncio.sleep(0)
            cont = page.cont
            if not cont:
                break
        # The next list may be streamed again.
        self._streams_initial = True
        self._take_in(seen, page.version, asked)

    async def _follow(self, seen: set[str] | None) -> None:
        """One stream until its end; with `seen` it begins with the whole collection."""
        asked = self._clock.now()
        query = {**self._query, "allowWatchBookmarks": "true", "timeoutSeconds": str(self._rng.randint(*WATCH_SECONDS))}
        idle = self._idle
        if seen is None:
            query["resourceVersion"] = self._version
            # Silence goes on from stream to stream, or one that breaks now and then could hide anything.
            idle -= self._began - self.heard
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        opened = self._stream_opened if seen is None else None
        try:
            async with aclosing(self._kube.watch(self._path, query=query, idle=idle, opened=opened)) as lines:
                async for line in lines:
                    event = self._decoder.event(line)
                    if event.type == "ERROR":
                        raise self._error(event)
                    if seen is None:
                        self._take(event)
                    else:
                        seen = self._take_initial(event, seen, asked)
                    self.heard = self._clock.monotonic()
                    self._countdown -= 1
                    if self._countdown <= 0:
                        self._countdown = BREATH
                        await asyncio.sleep(0)
        finally:
            self._is_open = False
        if seen is not None:
            raise Unavailable(f"{self._doing}: the stream ended before the list was complete")
        # The server ended it, after it had said all.
        self.known_until = self._clock.now()

    def _stream_opened(self) -> None:
        self._is_open = True
        self._caught_up = self._clock.monotonic() + CATCH_UP_SECONDS

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

    def _take_initial(self, event: Event[Fact], seen: set[str], asked: int) -> set[str] | None:
        """What has been seen so far, None once it was everything."""
        fact = event.fact
        if fact is not None:
            key = self._sink.key(fact)
            if event.type == "DELETED":
                # A list shows nothing that was gone already when it was asked for.
                self._sink.remove(key, fact, asked if key in seen else self.known_until)
                seen.discard(key)
            else:
                self._sink.put(fact, listed=True)
                seen.add(key)
        elif event.initial_end:
            self._take_in(seen, event.version, asked)
            self._stream_opened()
            return None
        return seen

    def _take_in(self, seen: set[str], version: str, asked: int) -> None:
        """The end of a complete list: what it does not have is gone. It is never older than the moment it was asked for."""
        self._remove_all_but(seen)
        self.known_until = asked
        self.relists += self._listed_before
        self._listed_before = True
        self._version = version
        # Only what comes after the list shows whether the watch holds.
        self._began = self._clock.monotonic()
        self.synced = True
        self._set_absent(False)
        self.problem = ""
        self._sink.listed()

    def _remove_all_but(self, seen: set[str]) -> None:
        # Sorted, so that a simulation goes the same way every time.
        for key in sorted(set(self._sink.keys()) - seen):
            self._sink.remove(key, None, self.known_until)

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
        self._failures = self._short_ends = self._gone = 0

    @property
    def _is_too_silent(self) -> bool:
        """Whether nothing at all, not even a bookmark, was heard for as long as a stream may be silent: then a new list is due.

        A watch from a version of the future is never answered, or with an error for ever. And a server that has nothing to say
        of a kind sends its first bookmark only after two minutes, which is too long to go on calling the view complete.
        """
        # Not all of it: the moments at which it began and ended are rounded, and a second silence would be too much.
        return self._clock.monotonic() - self.heard >= 0.9 * self._idle

    async def _recover(self, problem: HeadroomError | msgspec.MsgspecError) -> None:
        """After a failure: decide what to begin again with, and when."""
        listing = not self._version
        if self._clock.monotonic() - self._began >= CALM_SECONDS and not listing:
            self._all_is_well()
        self._set_absent(self._can_do_without(problem))
        # A kind of ours should be there, though we can do without; one of others is their affair.
        is_theirs = self.absent and isinstance(problem, errors.NotFound) and not self._is_ours
        self.problem = "" if is_theirs else self._sentence(problem)
        if self.absent or isinstance(problem, errors.Gone | errors.NotFound):
            # Events were lost, or the kind itself went: only a new list tells what is still there.
            self._version = ""
            self.synced = False
        if self.absent:
            self._remove_all_but(set())
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

    def _set_absent(self, absent: bool) -> None:
        before, self.absent = self.absent, absent
        if absent != before:
            self._turned()

    def _can_do_without(self, problem: Exception) -> bool:
        if isinstance(problem, errors.Forbidden):
            return self._dispensable
        return self._optional and isinstance(problem, errors.NotFound)

    async def _pause(self, problem: Exception | None) -> None:
        """Exponential backoff with full jitter, never shorter than the server asks for."""
        longest = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(self._failures, 16))
        self._failures += 1
        hint = problem.retry_after if isinstance(problem, errors.ApiError) else None
        await self._clock.sleep(max(self._rng.uniform(0, longest), min(hint or 0.0, LONGEST_PAUSE)))

    def _error(self, event: Event[Fact]) -> errors.ApiError:
        message = f"{self._doing}: {event.message or 'the server ended the stream with an error'}"
        return errors.class_for(event.status_code)(event.status_code, "", message)

    def _sentence(self, problem: Exception) -> str:
        if isinstance(problem, errors.Forbidden):
            what = self._doing.removeprefix("watching ")
            return f"{problem}; grant the verbs list and watch on {what}, as deploy/rbac.yaml does"
        if isinstance(problem, errors.NotFound) and self._is_ours:
            return f"{problem}; install the kinds with `headroom crds | kubectl apply -f -`"
        if isinstance(problem, msgspec.MsgspecError):
            return f"{self._doing}: the answer cannot be read: {problem}"
        return str(problem)

    @property
    def _is_ours(self) -> bool:
        return self._path.startswith(f"/apis/{GROUP}/")

    @property
    def _doing(self) -> str:
        return f"watching {paths.spoken(self._path)}"


# A list in pages would be answered just the same.
_SAME_FOR_A_LIST: Final = (errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.Throttled)

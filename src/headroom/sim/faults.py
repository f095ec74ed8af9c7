"""Faults as data: what goes wrong, for whom, on which requests and when. All chance comes from one seed, split by party."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import reduce
from operator import or_
from typing import Any

import msgspec
from msgspec import Struct

from headroom.model import times
from headroom.model.errors import Misconfigured
from headroom.model.ports import Clock


class Crash(BaseException):
    """The operator instance that made the request died here. Nothing of it may catch this."""


class Fault(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", rename="camel", forbid_unknown_fields=True):
    """Whom and what a fault meets. Patterns are those of file names; times count from the start of the scenario."""

    actor: str = "*"
    verb: str = "*"
    path: str = "*"
    nth: int | None = None
    """Only the n-th request that matches, counted from 1."""
    probability: float | None = None
    """Each request that matches with this chance."""
    times: int | None = None
    """At most so often."""
    since: str = msgspec.field(default="", name="from")
    until: str = ""


class LostReply(Fault, frozen=True, kw_only=True):
    """The effect happens, the reply never arrives."""


class Refusal(Fault, frozen=True, kw_only=True):
    """The server says no, and nothing happens."""

    status: int = 503
    reason: str = ""
    message: str = "the simulated server refuses this"
    retry_after: int | None = None


class Slow(Fault, frozen=True, kw_only=True):
    """The server takes its time; beyond the client's timeout the reply is lost."""

    ms: int


class Outage(Fault, frozen=True, kw_only=True):
    """The server cannot be reached; streams break."""


class Hang(Fault, frozen=True, kw_only=True):
    """The server takes the request and never answers."""


class Garbage(Fault, frozen=True, kw_only=True):
    """Something before the server answers in its place: with 200, and a page for people."""


class EmptyList(Fault, frozen=True, kw_only=True):
    """Lists have nothing in them, and streams begin with nothing and stay silent, though the objects are there."""


class EndlessList(Fault, frozen=True, kw_only=True):
    """Every page of a list leads to another one; watches are refused."""


class CrashBefore(Fault, frozen=True, kw_only=True):
    """The operator dies just before its request is sent."""


class CrashAfter(Fault, frozen=True, kw_only=True):
    """The operator dies after its request had its effect and before it read the reply."""


class Expire(Fault, frozen=True, kw_only=True):
    """The server forgets all history just before the request, or at once if it is given on a timeline without a match."""


class WatchDelay(Fault, frozen=True, kw_only=True):
    """Every event of a watch arrives so much later."""

    ms: int


class StaleView(Fault, frozen=True, kw_only=True):
    """Watches stand still until the end of the window, though their connection lives."""


class DroppedStream(Fault, frozen=True, kw_only=True):
    """Watches break: those that are open when its time comes, and with an end or a chance also later ones."""


class BlackHole(Fault, frozen=True, kw_only=True):
    """Watches stay open and fall silent for good: which ones, as with `DroppedStream`."""


class Duplicate(Fault, frozen=True, kw_only=True):
    """Events of a watch arrive twice."""


class SecondLeader(Fault, frozen=True, kw_only=True):
    """Another operator instance is started beside those that run; it stops at the end of the window."""


class OfOutside(Fault, frozen=True, kw_only=True):
    """A fault of something beside the cluster, which heeds it by itself."""


class Ignored(OfOutside, frozen=True, kw_only=True):
    """A machine's switch says yes, and nothing happens; as a fault of `boot`, the machine is on and never becomes a node."""


class Late(OfOutside, frozen=True, kw_only=True):
    """A machine's switch says yes and acts so much later; as a fault of `boot`, the machine takes so much longer."""

    ms: int


class Crippled(OfOutside, frozen=True, kw_only=True):
    """A fault of `boot`: the machine comes up with so many GPUs only."""

    gpus: int


FALSE_LISTS = (EmptyList, EndlessList)
FALSE_ANSWERS = (Hang, Garbage, *FALSE_LISTS)
ON_REQUESTS = (
    *(LostReply, Refusal, Slow, Outage, *FALSE_ANSWERS),
    *(CrashBefore, CrashAfter, Expire, OfOutside),
)
ON_EVENTS = (WatchDelay, StaleView, DroppedStream, BlackHole, Duplicate)


def _kinds(of: type[Fault]) -> Iterator[type[Fault]]:
    """All faults that can be named, those of other modules included."""
    for each in of.__subclasses__():
        below = list(_kinds(each))
        yield from below or (each,)


def fault(document: Any) -> Fault:
    """The fault that a document describes. Raises Misconfigured with a reason for anything else."""
    try:
        found: Fault = msgspec.convert(document, reduce(or_, _kinds(Fault)))
    except msgspec.ValidationError as failure:
        raise Misconfigured(f"reading a fault: {failure}") from None
    for word, text in (("from", found.since), ("until", found.until)):
        if text and times.duration(text) is None:
            raise Misconfigured(f"reading a fault: {word} must be a duration such as 90s or 5m, not {text!r}")
    if isinstance(found, StaleView) and not found.until:
        raise Misconfigured("reading a fault: a StaleView needs an end; give until")
    return found


def split(seed: int | str, party: str) -> random.Random:
    """The randomness of one party: its own, whatever the others do with theirs."""
    return random.Random(f"{seed}/{party}")


class Faults:
    """The faults of a run, and how often each has happened."""

    def __init__(self, clock: Clock, start_ms: int, seed: int | str = 0, faults: Iterable[Fault] = ()) -> None:
        self._clock, self._start, self._seed = clock, start_ms, seed
        self._faults: list[Fault] = []
        self._seen: list[int] = []
        self._fired: list[int] = []
        self._rngs: dict[str, random.Random] = {}
        self.happened: list[tuple[int, str, str]] = []
        """When, to whom, what."""
        self.on_add: list[Callable[[Fault], None]] = []
        for each in faults:
            self.add(each)

    def add(self, fault: Fault) -> None:
        """From now on this goes wrong too."""
        self._faults.append(fault)
        self._seen.append(0)
        self._fired.append(0)
        for listener in self.on_add:
            listener(fault)

    def clear(self) -> None:
        """Heal everything."""
        self._faults, self._seen, self._fired = [], [], []

    def window(self, fault: Fault) -> tuple[int, int | None]:
        """When a fault begins and ends; None for never."""
        end = times.duration(fault.until) if fault.until else None
        return self._start + (times.duration(fault.since) or 0), None if end is None else self._start + end

    def is_open(self, fault: Fault) -> bool:
        """Whether a fault's time is now."""
        begin, end = self.window(fault)
        now = self._clock.now()
        return now >= begin and (end is None or now < end)

    def on_request(self, actor: str, verb: str, path: str) -> list[Fault]:
        """What goes wrong with this request."""
        return self._due(actor, verb, path, ON_REQUESTS)

    def on_event(self, actor: str, path: str) -> list[Fault]:
        """What goes wrong with this event of a watch."""
        return self._due(actor, "watch", path, ON_EVENTS)

    def meets(self, fault: Fault, actor: str, verb: str, path: str) -> bool:
        """Whether a fault is about such requests at all."""
        return fnmatchcase(actor, fault.actor) and fnmatchcase(verb, fault.verb) and fnmatchcase(path, fault.path)

    def strikes_once(self, fault: Fault) -> bool:
        """Whether a fault meets only the streams that are open when its time comes."""
        limits = (fault.nth, fault.probability, fault.times)
        return isinstance(fault, (DroppedStream, BlackHole)) and limits == (None, None, None) and not fault.until

    def _due(self, actor: str, verb: str, path: str, kinds: tuple[type[Fault], ...]) -> list[Fault]:
        found = []
        for index, each in enumerate(self._faults):
            if not isinstance(each, kinds) or self.strikes_once(each):
                continue
            if not self.meets(each, actor, verb, path) or not self.is_open(each):
                continue
            if self._fires(index, each, actor):
                self._fired[index] += 1
                self.happened.append((self._clock.now(), actor, type(each).__name__))
                found.append(each)
        return found

    def _fires(self, index: int, fault: Fault, actor: str) -> bool:
        self._seen[index] += 1
        most = fault.times
        if most is None and isinstance(fault, (CrashBefore, CrashAfter)) and fault.probability is None:
            most = 1
        if most is not None and self._fired[index] >= most:
            return False
        if fault.nth is not None:
            return self._seen[index] == fault.nth
        if fault.probability is None:
            return True
        rng = self._rngs.setdefault(actor, split(self._seed, f"faults/{actor}"))
        return rng.random() < fault.probability

"""The journal: what was decided here, the newest of it in memory for those who look, all of it in the ledger."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.model.actions import RemoveFinalizer
from headroom.model.decisions import Decision, Ref
from headroom.model.history import Entry
from headroom.model.ports import Ledger
from headroom.model.usage import DAY
from headroom.runtime.clock import Due

MOST_REMEMBERED: Final = 5000
FOLLOW_SECONDS: Final = 5.0
"""How often who does not lead reads what the leader decided."""
LAST_WORDS_SECONDS: Final = 60.0
MOST_ACTIONS: Final = 20
"""Of one decision that are remembered by name."""
MOST_WAITING: Final = 1000
"""Entries that wait while the ledger is away; what is older is forgotten, since the log has it too."""
REACH: Final = 7 * DAY
"""What is older is only in the ledger."""
OVERLAP: Final = 60_000
"""Another replica's entry may be written a little later than it was made."""
MOST_NAMED: Final = 3
MOST_NEWS: Final = 5
"""Sentences of one entry; a pool may turn hundreds of machines at once."""
_DONE: Final = {
    "EvictPod": ("Evicting", "Evicts"),
    "DeletePod": ("Deleting", "Deletes"),
    "SuspendOwner": ("Suspending", "Suspends"),
    "ReleasePod": ("Releasing", "Lets start"),
    "ResumeOwner": ("Resuming", "Lets go on"),
    "PausePod": ("Pausing", "Asks to pause"),
    "ResumePod": ("Resuming", "Asks to go on"),
    "ApplyBudgetHold": ("HoldBegins", "New pods wait from now on"),
    "DeleteBudgetHold": ("HoldEnds", "New pods start again"),
}
"""What matters to people, the most first: a reason and the beginning of a sentence."""
_OF_THE_BUDGET: Final = ("ApplyBudgetHold", "DeleteBudgetHold")
_TARGETS: Final = ("pod", "object", "budget", "node", "machine", "instance", "nodePool", "nodeClass", "pool")


class Noted(Struct, frozen=True, order=True):
    """One decision as it is remembered. They sort by their moments."""

    at: int
    key: bytes
    resource: str
    reason: str
    message: str
    actions: tuple[str, ...]
    """The first of them, each in a few words; events are left out, they say what the message says."""
    count: int
    """How many there were."""
    news: tuple[tuple[str, str], ...] = ()
    """The events on the resource itself, each with its reason and its sentence."""

    @property
    def ref(self) -> Ref:
        """Which resource it is about."""
        kind, _, rest = self.resource.partition("/")
        namespace, _, name = rest.rpartition("/")
        return Ref(kind, namespace, name)


def noted(entry: Entry) -> Noted:
    """An entry of the ledger as it is remembered: what was done and what is news come first, how things stand after it."""
    actions: list[dict[str, Any]] = msgspec.json.decode(entry.actions)
    done = [each for each in actions if each["type"] != "EmitEvent"]
    events = [each for each in actions if each["type"] == "EmitEvent" and each["object"] == entry.resource]
    news = tuple((str(each["reason"]), str(each["message"])) for each in events)
    told = [(_DONE[kind][0], _sentence(kind, done)) for kind in _DONE if any(each["type"] == kind for each in done)]
    told += news[:MOST_NEWS]
    reason = told[0][0] if told else entry.reason
    rest = [f"And {len(news) - MOST_NEWS} more."] if len(news) > MOST_NEWS else [] if news else [entry.message]
    message = " ".join([said for _, said in told] + rest)
    said = tuple(_spoken(each) for each in done[:MOST_ACTIONS])
    return Noted(entry.at, entry.key, entry.resource, reason, message, said, len(done), news)


def _sentence(kind: str, done: list[dict[str, Any]]) -> str:
    """What was done, and to whom: the first few of them."""
    names = [_target(each) for each in done if each["type"] == kind]
    if kind in _OF_THE_BUDGET:
        return f"{_DONE[kind][1]}."
    more = len(names) - MOST_NAMED
    return f"{_DONE[kind][1]} {', '.join(names[:MOST_NAMED])}{f' and {more} more' if more > 0 else ''}."


def _spoken(action: dict[str, Any]) -> str:
    return f"{action['type']} {_target(action)}".strip()


def _target(action: dict[str, Any]) -> str:
    target = next((str(action[name]) for name in _TARGETS if name in action), "")
    return f"{action['kind']}/{target}" if "kind" in action else target


class Remembered:
    """Entries in the order of their moments, the newest of them, and how they are searched."""

    def __init__(self) -> None:
        self._noted: list[Noted] = []
        self._texts: dict[bytes, str] = {}
        """Of each entry what a search looks at, made once: a search must not cost more than reading it."""
        self._arrived: deque[Noted] = deque(maxlen=MOST_REMEMBERED)
        self._count = 0

    def newest(self, since: int, limit: int, wanted: Callable[[Noted], bool]) -> list[Noted]:
        """Those from a moment on that somebody wants, the newest first."""
        found: list[Noted] = []
        for each in reversed(self._noted):
            if each.at < since or len(found) >= limit:
                break
            if wanted(each):
                found.append(each)
        return found

    def text(self, entry: Noted) -> str:
        """All words of an entry, in lower case."""
        known = self._texts.get(entry.key)
        return searched(entry) if known is None else known

    def since(self, count: int) -> tuple[int, list[Noted]]:
        """How many entries ever came, and those that came after so many."""
        new = self._count - count
        if not 0 <= new <= len(self._arrived):
            return self._count, list(self._noted)
        return self._count, list(self._arrived)[len(self._arrived) - new :]

    def take(self, new: Iterable[Noted]) -> None:
        """Take in those that are not known yet."""
        for each in new:
            if each.key not in self._texts:
                self._texts[each.key] = searched(each)
                bisect.insort(self._noted, each)
                self._arrived.append(each)
                self._count += 1
        # Cutting a part off at a time, so that a full journal is not moved with every entry.
        if len(self._noted) > MOST_REMEMBERED + MOST_REMEMBERED // 10:
            for each in self._noted[:-MOST_REMEMBERED]:
                del self._texts[each.key]
            del self._noted[:-MOST_REMEMBERED]


def searched(entry: Noted) -> str:
    """What a search looks at."""
    return f"{entry.resource} {entry.reason} {entry.message} {' '.join(entry.actions)}".lower()


class Journal(Remembered):
    """What was decided on the resources of one cluster, in the order of its moments."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self._waiting: deque[Entry] = deque(maxlen=MOST_WAITING)
        self._read_until: int | None = None

    def decided(self, decision: Decision, now: int, cluster: str) -> None:
        """Take down a decision."""
        told = [action for action in decision.actions if not isinstance(action, RemoveFinalizer)]
        actions = msgspec.json.encode(told).decode()
        said = {"resource": str(decision.resource), "reason": decision.reason, "message": decision.message}
        entry = Entry(cluster=cluster, at=now, actions=actions, **said)
        self._waiting.append(entry)
        self.take([noted(entry)])

    async def write(self) -> None:
        """Make durable what is not."""
        entries = list(self._waiting)
        if entries:
            await self._ledger.note(entries)
            while self._waiting and self._waiting[0] in entries:
                self._waiting.popleft()

    async def follow(self, due: Due, *, leads: bool, now: int, cluster: str) -> None:
        """What was decided before us and beside us. Who has just begun to lead may not have heard the other's last words."""
        if not leads or not due.was_done("journal"):
            due.did("standing by")
        if not due.is_time("standing by", LAST_WORDS_SECONDS) and due.is_time("journal", FOLLOW_SECONDS):
            await self.read(now, cluster)
            due.did("journal")

    async def read(self, now: int, cluster: str) -> None:
        """Take in what stands in the ledger from before, or from another replica."""
        since = now - REACH if self._read_until is None else self._read_until - OVERLAP
        found = await self._ledger.history(since, MOST_REMEMBERED, cluster)
        self._read_until = now
        self.take(noted(entry) for entry in found if entry.key not in self._texts)

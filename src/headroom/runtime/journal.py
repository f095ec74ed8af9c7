"""The journal: what was decided here, the newest of it in memory for those who look, all of it in the ledger."""

from __future__ import annotations

import bisect
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from headroom.model.action_names import target_of
from headroom.model.actions import BY_NAME, Action, EmitEvent, RemoveFinalizer
from headroom.model.decisions import Decision, Ref
from headroom.model.history import Entry
from headroom.model.ports import Ledger
from headroom.model.sentences import Sentence
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
_BETWEEN: Final = re.compile(r"(?<=\.) (?=[A-Z])")
_HOLD_BEGINS: Final = "New pods are queued from now on."


class JournalEvent(NamedTuple):
    """An event."""

    reason: str
    message: str
    machine: str = ""
    """The machine of a pool that it is about, where it is about one."""


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
    news: tuple[JournalEvent, ...] = ()
    """The events on the resource itself."""

    @property
    def ref(self) -> Ref:
        """Which resource it is about."""
        kind, _, rest = self.resource.partition("/")
        namespace, _, name = rest.rpartition("/")
        return Ref(kind, namespace, name)


def noted(entry: Entry) -> Noted:
    """An entry of the ledger as it is remembered: what was done and what is news come first, how things stand after it."""
    actions: list[dict[str, Any]] = msgspec.json.decode(entry.actions)
    done = [each for each in actions if each["type"] != EmitEvent.__name__]
    events = [each for each in actions if each["type"] == EmitEvent.__name__ and each["object"] == entry.resource]
    news = tuple(
        JournalEvent(str(each["reason"]), str(each["message"]), str(each.get("machine", ""))) for each in events
    )
    told = _sentences(done)
    told += [(each.reason, each.message) for each in news[:MOST_NEWS]]
    reason = told[0][0] if told else entry.reason
    rest = [f"And {len(news) - MOST_NEWS} more."] if len(news) > MOST_NEWS else [] if news else [entry.message]
    message = _once([*(said for _, said in told), *rest])
    said = tuple(_spoken(each) for each in done[:MOST_ACTIONS])
    return Noted(entry.at, entry.key, entry.resource, reason, message, said, len(done), news)


def _once(said: list[str]) -> str:
    """Messages after each other, without the sentences that stood there before: each event says how the quota stands."""
    known = dict.fromkeys(sentence for each in said for sentence in _BETWEEN.split(each) if sentence)
    if _HOLD_BEGINS in known:
        known.pop("New pods will be queued.", None)
    return " ".join(known)


def _sentences(done: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What was done, and to whom, the weightiest first: a reason and a sentence for each that people should know of."""
    targets: dict[tuple[Sentence, str], list[str]] = {}
    for each in done:
        known = BY_NAME.get(each["type"])
        if known is not None and known.wording is not None:
            targets.setdefault((known.wording, each["type"]), []).append(target_of(each))
    return [(sentence.reason, _sentence(sentence, names)) for (sentence, _), names in sorted(targets.items())]


def _sentence(sentence: Sentence, names: list[str]) -> str:
    if not sentence.names_targets:
        return f"{sentence.begins}."
    more = len(names) - MOST_NAMED
    return f"{sentence.begins} {', '.join(names[:MOST_NAMED])}{f' and {more} more' if more > 0 else ''}."


def _spoken(action: dict[str, Any]) -> str:
    return f"{action['type']} {target_of(action)}".strip()


def _brief(action: Action) -> dict[str, Any]:
    """An action without the specs that it carries: an entry says what was done, not all that was written."""
    return {name: each for name, each in msgspec.to_builtins(action).items() if not isinstance(each, dict | list)}


class EntryIndex:
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


class Journal(EntryIndex):
    """What was decided on the resources of one cluster, in the order of its moments."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self._waiting: deque[Entry] = deque(maxlen=MOST_WAITING)
        self._read_until: int | None = None

    def decided(self, decision: Decision, now: int, cluster: str) -> None:
        """Take down a decision."""
        told = [action for action in decision.actions if not isinstance(action, RemoveFinalizer)]
        actions = msgspec.json.encode([_brief(each) for each in told]).decode()
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

"""The journal: what was decided, the newest of it in memory for those who look, all of it in the ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from headroom.model.actions import RemoveFinalizer
from headroom.model.decisions import Decision
from headroom.model.history import Entry
from headroom.model.ports import Ledger
from headroom.model.usage import DAY

MOST_REMEMBERED: Final = 5000
MOST_WAITING: Final = 1000
"""Entries that wait while the ledger is away; what is older is forgotten, since the log has it too."""
REACH: Final = 7 * DAY
"""What is older is only in the ledger."""
OVERLAP: Final = 60_000
"""Another replica's entry may be written a little later than it was made."""


class Journal:
    """Entries in the order of their moments."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._entries: list[Entry] = []
        self._known: set[bytes] = set()
        self._waiting: deque[Entry] = deque(maxlen=MOST_WAITING)
        self.generation = 0
        """Grows with every entry."""

    def decided(self, decision: Decision, now: int, cluster: str) -> None:
        """Take down a decision."""
        told = [action for action in decision.actions if not isinstance(action, RemoveFinalizer)]
        actions = msgspec.json.encode(told).decode()
        said = {"resource": str(decision.resource), "reason": decision.reason, "message": decision.message}
        entry = Entry(cluster=cluster, at=now, actions=actions, **said)
        self._waiting.append(entry)
        self._take([entry])

    async def write(self) -> None:
        """Make durable what is not."""
        entries = list(self._waiting)
        if entries:
            await self._ledger.note(entries)
            while self._waiting and self._waiting[0] in entries:
                self._waiting.popleft()

    async def read(self, now: int) -> None:
        """Take in what stands in the ledger from before, or from another replica."""
        since = max(now - REACH, self._entries[-1].at - OVERLAP) if self._entries else now - REACH
        self._take(await self._ledger.history(since, MOST_REMEMBERED))

    def newest(self, since: int, limit: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Those from a moment on that somebody wants, the newest first."""
        found: list[Entry] = []
        for entry in reversed(self._entries):
            if entry.at < since or len(found) >= limit:
                break
            if wanted(entry):
                found.append(entry)
        return found

    def _take(self, entries: Iterable[Entry]) -> None:
        new = [entry for entry in entries if entry.key not in self._known]
        if not new:
            return
        self.generation += 1
        is_late = len(new) > 1 or bool(self._entries and new[0].at < self._entries[-1].at)
        self._entries += new
        self._known |= {entry.key for entry in new}
        if is_late:
            self._entries.sort(key=lambda entry: (entry.at, entry.key))
        # Cutting a part off at a time, so that a full journal is not moved with every entry.
        if len(self._entries) > MOST_REMEMBERED + MOST_REMEMBERED // 10:
            self._known -= {entry.key for entry in self._entries[:-MOST_REMEMBERED]}
            del self._entries[:-MOST_REMEMBERED]

"""A ledger in memory: the same rules, with no disk. Its writes can be made to fail, before or after they took effect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from headroom.model.history import Entry
from headroom.model.usage import Heartbeat, Row, merged

Key = tuple[str, int, str, int]


class MemoryLedger:
    """A `Ledger` as a dict; it never waits."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.before_write: Callable[[], None] | None = None
        """Called before each write; what it raises, the writer gets, and nothing was written."""
        self.after_write: Callable[[], None] | None = None
        """Called after each write; what it raises, the writer gets, and all was written."""
        self._changed: dict[Key, int] = {}
        self._last = 0
        self._heartbeats: dict[str, int] = {}
        self._history: dict[tuple[int, bytes], Entry] = {}

    async def write(self, rows: Sequence[Row], heartbeat: Heartbeat | None = None) -> None:
        """Merge rows with those there are, all or none."""
        await self.merge(rows, heartbeat)

    async def merge(self, rows: Sequence[Row], heartbeat: Heartbeat | None = None) -> int:
        """The same; how many rows were new or said something new."""
        if self.before_write is not None:
            self.before_write()
        changed = [key for key, row in _together(rows).items() if self._merge_one(key, row)]
        self._last += bool(changed)
        self._changed |= dict.fromkeys(changed, self._last)
        if heartbeat is not None:
            before = self._heartbeats.get(heartbeat.cluster, heartbeat.complete_until)
            self._heartbeats[heartbeat.cluster] = max(before, heartbeat.complete_until)
        if self.after_write is not None:
            self.after_write()
        return len(changed)

    async def read(self, since: int) -> AsyncIterator[list[Row]]:
        """All rows that may reach beyond `since`."""
        found = [row for row in self.rows.values() if (over := _surely_over(row)) is None or over > since]
        if found:
            yield found

    async def changes(self, after: int) -> tuple[list[Row], int]:
        """Rows written after the cursor."""
        return [self.rows[key] for key, number in self._changed.items() if number > after], self._last

    async def cursor(self) -> int:
        """The cursor that stands for everything written so far."""
        return self._last

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is in the ledger."""
        return dict(self._heartbeats)

    async def prune(self, before: int) -> int:
        """Forget rows that were over before that moment, and history from before it; how many rows there were."""
        gone = [key for key, row in self.rows.items() if (over := _surely_over(row)) is not None and over < before]
        for key in gone:
            del self.rows[key], self._changed[key]
        self._history = {key: entry for key, entry in self._history.items() if entry.at >= before}
        return len(gone)

    async def note(self, entries: Sequence[Entry]) -> None:
        """Add to the history."""
        self._history |= {(entry.at, entry.key): entry for entry in entries}

    async def history(self, since: int, limit: int) -> list[Entry]:
        """Entries from that moment on, the newest first."""
        newest_first = sorted(self._history.items(), reverse=True)
        return [entry for (at, _), entry in newest_first if at >= since][:limit]

    async def close(self) -> None:
        """Nothing to let go of; what was written stays, as it does in a file."""

    def _merge_one(self, key: Key, row: Row) -> bool:
        before = self.rows.get(key)
        self.rows[key] = row if before is None else merged(before, row)
        return self.rows[key] != before


def _together(rows: Sequence[Row]) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    for row in rows:
        found[row.key] = merged(found[row.key], row) if row.key in found else row
    return found


def _surely_over(row: Row) -> int | None:
    return row.gone_by if row.ended is None else row.ended

"""How far back the rows in memory reach: the largest window, and one more where that is not very much."""

from __future__ import annotations

from typing import Final

from headroom.model.ports import Ledger
from headroom.model.usage_table import UsageTable

MOST_LOOKED_BACK: Final = 200_000
"""Rows in memory up to which those of one window more are kept too."""


class Horizon:
    """Reads rows of longer ago as windows grow, and forgets them again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._is_much = False
        self.since = 0
        """From this moment on all is known."""

    async def load(self, table: UsageTable, since: int) -> int:
        """Read what reaches beyond a moment; that moment."""
        async for rows in self._ledger.read(since):
            table.extend(rows)
        return since

    def reaches(self, table: UsageTable, since: int) -> None:
        """All is known from that moment on."""
        self.since = table.complete_since = since

    async def lengthen(self, table: UsageTable, since: int) -> bool:
        """Read what a longer window needs; whether a budget with one has come."""
        if since >= self.since:
            return False
        self.reaches(table, await self.load(table, since))
        return True

    async def look_back(self, table: UsageTable, since: int) -> None:
        """Read one window more, for whoever wants to see what the window held before; not where that is very much."""
        if self._is_much or since >= self.since:
            return
        async for rows in self._ledger.read(since):
            table.extend(rows)
            self._is_much = len(table) > MOST_LOOKED_BACK
            if self._is_much:
                return
        self.reaches(table, since)

    def forget(self, table: UsageTable, now: int, window: int) -> None:
        """Forget what neither the window nor one more needs."""
        # One window of rows more than half of what may be is two windows of too many.
        self._is_much = len(table) > MOST_LOOKED_BACK // (2 if self._is_much else 1)
        kept_since = now - (window if self._is_much else 2 * window)
        table.prune(kept_since)
        self.reaches(table, max(self.since, kept_since))

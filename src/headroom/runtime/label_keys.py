"""Which labels rows of usage keep in memory: those that budgets select by. The ledger has all of them, for a budget that comes later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headroom.core.usage import budgets_of, label_keys
from headroom.model.ports import Clock, Ledger
from headroom.model.usage import UsageRow
from headroom.model.usage_table import UsageTable
from headroom.model.world import World
from headroom.runtime.custody import budgets_in

SHORTEST_MS: Final = 1000
"""A row that tells of a change lasts at least so long, however often a pod is relabelled."""
PAUSE_SECONDS: Final = 5.0
SHARE: Final = 10
"""Reading for new keys takes at most one part in so many of the time."""


class LabelKeys:
    """Follows what budgets select by."""

    def __init__(self, clock: Clock, also: frozenset[str] = frozenset()) -> None:
        """`also` are keys that are kept whatever budgets select by."""
        self._clock, self._also = clock, also
        self._not_before = 0.0

    def new_table(self, world: World) -> UsageTable:
        """A table that keeps what the budgets of a world select by."""
        table = UsageTable(world.cluster)
        self.follow(table, world, ())
        return table

    def follow(self, table: UsageTable, world: World, unwritten: Iterable[UsageRow]) -> bool:
        """Keep what budgets select by now; whether the ledger has to be read for some of it. `unwritten` is not there yet.

        While no budget can be read, all labels are kept, so the first one needs nothing from the ledger. A key that no budget
        selects by any more is kept on until `forget`.
        """
        readable = budgets_of(world)
        wanted = label_keys(readable) | self._also
        if not readable or (table.keys is not None and wanted <= table.keys):
            return False
        table.keep(wanted | (table.keys or frozenset()))
        table.extend(list(unwritten))
        return bool(table.unread)

    def forget(self, table: UsageTable, world: World) -> None:
        """Keep nothing any more that no budget selects by, unless a budget cannot be read."""
        budgets = budgets_in(world)
        if world.complete and budgets and all(each.spec is not None for each in budgets) and table.keys is not None:
            table.keep(label_keys(budgets) | self._also)

    def unite(self, table: UsageTable, other: UsageTable, unwritten: Iterable[UsageRow]) -> None:
        """Merge another table's rows. If it keeps fewer labels, the ledger has to be read for the others."""
        keys = table.keys
        if other.keys is not None and keys != other.keys:
            table.keep(other.keys if keys is None else other.keys & keys)
        table.extend(list(other))
        if keys is not None and keys != table.keys:
            table.keep(keys)
            table.extend(list(unwritten))

    async def read(self, table: UsageTable, ledger: Ledger, since: int) -> bool:
        """Read what rows lack, where they lack something; whether that was done. Not too often, whoever makes new budgets."""
        unread, began = table.unread, self._clock.monotonic()
        if not unread or began < self._not_before:
            return False
        async for rows in ledger.read(since):
            table.extend(rows)
        table.unread -= unread
        now = self._clock.monotonic()
        self._not_before = now + max(PAUSE_SECONDS, SHARE * (now - began))
        return True

"""Rows that wait to be durable, by key and by pod, and those that were made so of late."""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from typing import Final

from headroom.model.ports import Origin
from headroom.model.usage import UsageRow, merged
from headroom.model.usage_table import UsageTable

Key = tuple[str, int, str, int]
Batch = dict[Key, UsageRow]

MOST: Final = 20_000
LONG_SECONDS: Final = 3600.0
SHORT_SECONDS: Final = 600.0


class Unwritten:
    """What a crash would lose, unless it is still in view."""

    def __init__(self) -> None:
        self._rows: Batch = {}
        self._pods: dict[str, int] = {}
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def pods(self) -> KeysView[str]:
        """Uids of the pods of which something is not durable yet, what is being written included."""
        return self._pods.keys()

    @property
    def rows(self) -> list[UsageRow]:
        """All that wait."""
        return list(self._rows.values())

    def lag_ms(self, now: float) -> int:
        """How long the oldest of it has waited."""
        return round(1000 * (now - self._since)) if self._pods else 0

    def add(self, rows: Iterable[UsageRow], now: float) -> bool:
        """More of them; whether there were any."""
        found = False
        for row in rows:
            found = True
            if row.key not in self._rows:
                self._pods[row.uid] = self._pods.get(row.uid, 0) + 1
            if not self._rows:
                self._since = now
            # What is reported of a row later may have fewer of its labels.
            self._rows[row.key] = merged(self._rows[row.key], row) if row.key in self._rows else row
        return found

    def again(self, rows: Iterable[UsageRow], now: float) -> None:
        """These were written, and must be written again, unless more is known of them by now."""
        self.add([row for row in rows if row.key not in self._rows], now)

    def take(self) -> Batch:
        """All that wait, to be written now."""
        batch, self._rows = self._rows, {}
        return batch

    def put_back(self, batch: Batch) -> None:
        """It was not written. What is newer counts."""
        for key, row in batch.items():
            if key in self._rows:
                self._forget(row.uid)
            self._rows[key] = merged(self._rows[key], row) if key in self._rows else row

    def wrote(self, batch: Batch) -> None:
        """It is durable."""
        for row in batch.values():
            self._forget(row.uid)

    def _forget(self, uid: str) -> None:
        left = self._pods[uid] - 1
        if left:
            self._pods[uid] = left
        else:
            del self._pods[uid]


def lacking(table: UsageTable, there: Iterable[UsageRow]) -> list[UsageRow]:
    """Rows of the table's own cluster that a ledger with these rows lacks: a database may be emptied or replaced while it is in use."""
    known = {row.key for row in there}
    return [row for row in table if row.cluster == table.cluster and row.key not in known]


class Resending:
    """What was written of late. A server that takes over from another may lack some of it, and then it is sent again.

    An acknowledged row is on the disk of the server that took it. Unless that one replicates synchronously, one that takes over may
    not have it. So the rows of the last minutes are sent again after every new connection, and all that are remembered if the server
    is another one, is on another timeline, or counts fewer writes than were seen; then also what else it lacks of the rows in memory
    (`lacking`). Rows merge: one that is there changes nothing.
    """

    def __init__(self) -> None:
        self._rows: dict[Key, tuple[float, UsageRow]] = {}
        self._origin: Origin | None = None

    def wrote(self, batch: Batch, now: float) -> None:
        """The ledger took these."""
        for key, row in batch.items():
            before = self._rows.pop(key, None)
            self._rows[key] = now, row if before is None else merged(before[1], row)
        # What was written last stands last.
        while self._rows and (len(self._rows) > MOST or next(iter(self._rows.values()))[0] < now - LONG_SECONDS):
            del self._rows[next(iter(self._rows))]

    def is_behind(self, origin: Origin) -> bool:
        """Whether the server may know less than the one before."""
        before = self._origin
        if before is None:
            return False
        is_other = bool(before.server and origin.server and before.server != origin.server)
        return is_other or origin.last < before.last or (origin.is_empty and not before.is_empty)

    def answered(self, origin: Origin, now: float) -> list[UsageRow]:
        """What a server that answers now may lack."""
        before, behind = self._origin, self.is_behind(origin)
        self._origin = origin
        if behind:
            return [row for _, row in self._rows.values()]
        if before is None or origin.connections == before.connections:
            return []
        return [row for at, row in self._rows.values() if at >= now - SHORT_SECONDS]

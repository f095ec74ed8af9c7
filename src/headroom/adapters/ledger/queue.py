"""A queue on disk before a ledger that may be away: rows wait in a small SQLite ledger of their own.

Waiting rows merge by the same rules, so the queue grows with the number of distinct rows, not with the number of writes.
"""

# ruff: noqa: S608  statements are put together from names of our own; values are always parameters

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from headroom.adapters.ledger import encoding, schema
from headroom.adapters.ledger.encoding import BEFORE_ALL, cluster_identifier, identifier
from headroom.adapters.ledger.sqlite import SqliteLedger, put, put_history
from headroom.adapters.ledger.sqlite_file import transaction
from headroom.model.errors import HeadroomError, Unavailable
from headroom.model.history import Entry
from headroom.model.ports import Ledger
from headroom.model.usage import Heartbeat, Row

LARGEST: Final = 1_000_000
AT_ONCE: Final = 5_000
PAUSE_SECONDS: Final = 5.0


class Waiting(NamedTuple):
    """How much is in the queue."""

    rows: int
    """Rows of usage, and entries of the history."""
    heartbeats: int


NOTHING: Final = Waiting(0, 0)


class QueuedLedger:
    """A `Ledger` whose writes succeed while the one behind it is unreachable, up to `largest` waiting rows."""

    def __init__(
        self,
        ledger: Ledger,
        path: Path | str,
        *,
        largest: int = LARGEST,
        pause: float = PAUSE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._queue = SqliteLedger(path)
        self._largest = largest
        self._pause = pause
        self._monotonic = monotonic
        self._one_at_a_time = asyncio.Lock()
        self._waiting: Waiting | None = None
        """None before the file was looked at."""
        self._why = ""
        self._next_try = monotonic()

    @property
    def problem(self) -> str:
        """That the ledger is unreachable, why, and how much waits; empty while all is well."""
        return f"{self._why} ({self.waiting} rows wait in {self._queue.path})" if self._why else ""

    @property
    def waiting(self) -> int:
        """How many rows and entries wait."""
        return self._waiting.rows if self._waiting else 0

    async def write(self, rows: Sequence[Row], heartbeat: Heartbeat | None = None) -> None:
        """Merge rows into the ledger or, while it is away, into the queue; durable once this returns."""
        async with self._one_at_a_time:
            if await self._is_direct() and await self._reaches(lambda: self._ledger.write(rows, heartbeat)):
                return
            await self._enqueue(lambda connection: put(connection, rows, heartbeat))
            await self._drain()

    async def note(self, entries: Sequence[Entry]) -> None:
        """Add to the history of the ledger or, while it is away, to the queue's."""
        async with self._one_at_a_time:
            if await self._is_direct() and await self._reaches(lambda: self._ledger.note(entries)):
                return
            await self._enqueue(lambda connection: put_history(connection, entries))
            await self._drain()

    async def read(self, since: int) -> AsyncIterator[list[Row]]:
        """What waits, then what the ledger has. A row in both comes twice, and merges."""
        async for rows in self._queue.read(since):
            yield rows
        async for rows in self._ledger.read(since):
            yield rows

    async def changes(self, after: int) -> tuple[list[Row], int]:
        """Rows that anybody wrote to the ledger after the cursor."""
        return await self._ledger.changes(after)

    async def cursor(self) -> int:
        """The ledger's cursor."""
        return await self._ledger.cursor()

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is in the ledger; what waits is not there yet."""
        return await self._ledger.heartbeats()

    async def history(self, since: int, limit: int, cluster: str = "") -> list[Entry]:
        """The ledger's history; what waits is not there yet."""
        return await self._ledger.history(since, limit, cluster)

    async def prune(self, before: int) -> int:
        """Forget rows of the ledger; the queue is forgotten as it empties."""
        return await self._ledger.prune(before)

    async def close(self) -> None:
        """Let go of both; what waits stays in its file for the next start."""
        await self._queue.close()
        await self._ledger.close()

    async def _is_direct(self) -> bool:
        """Nothing waits, so a write need not wait either."""
        if self._waiting is None:
            self._waiting = await self._queue.run("reading the queue of", _waiting)
        return self._waiting == NOTHING

    async def _reaches(self, send: Callable[[], Awaitable[None]]) -> bool:
        """Try the ledger, unless it was away a moment ago."""
        if self._monotonic() < self._next_try:
            return False
        try:
            await send()
        except Unavailable as error:
            self._is_away(error)
            return False
        self._why = ""
        return True

    def _is_away(self, error: HeadroomError) -> None:
        self._why = str(error)
        self._next_try = self._monotonic() + self._pause

    async def _enqueue(self, add: Callable[[sqlite3.Connection], object]) -> None:
        """Into the file, unless that makes it too large: then nothing of this, and all that was there stays."""

        def work(connection: sqlite3.Connection) -> Waiting:
            with transaction(connection):
                add(connection)
                waiting = _waiting(connection)
                if waiting.rows > self._largest:
                    raise Unavailable(
                        f"{self._why or 'writing to the ledger'}; its queue {self._queue.path} is full with "
                        f"{self._largest} rows, so nothing more is kept until the ledger is back"
                    )
            return waiting

        self._waiting = await self._queue.run("queueing for", work)

    async def _drain(self) -> None:
        """Send what waits, the oldest first, heartbeats last: one says that everything before it has arrived."""
        if self._monotonic() < self._next_try:
            return
        try:
            while rows := await self._queue.run("reading the queue of", _oldest):
                await self._ledger.write(rows)
                self._waiting = await self._queue.run("emptying the queue of", partial(_forget, rows))
            while entries := await self._queue.history(BEFORE_ALL, AT_ONCE):
                await self._ledger.note(entries)
                self._waiting = await self._queue.run("emptying the queue of", partial(_forget_history, entries))
            for cluster, until in (await self._queue.heartbeats()).items():
                await self._ledger.write([], Heartbeat(cluster=cluster, complete_until=until))
            self._waiting = await self._queue.run("emptying the queue of", _forget_rest)
            self._why = ""
        except HeadroomError as error:
            # Everything is safe in the queue, so whoever writes need not know; `problem` says it.
            self._is_away(error)


def _oldest(connection: sqlite3.Connection) -> list[Row]:
    query = f"SELECT {schema.READ} FROM usage ORDER BY changed LIMIT ?"
    return encoding.decoded(connection.execute(query, (AT_ONCE,)))


def _waiting(connection: sqlite3.Connection) -> Waiting:
    query = "SELECT (SELECT count(*) FROM usage) + (SELECT count(*) FROM history), (SELECT count(*) FROM clusters)"
    return Waiting(*connection.execute(query).fetchone())


def _forget(rows: Sequence[Row], connection: sqlite3.Connection) -> Waiting:
    keys = [(cluster_identifier(row.cluster), row.day, identifier(row.uid), row.start) for row in rows]
    with transaction(connection):
        connection.executemany("DELETE FROM usage WHERE cluster = ? AND day = ? AND uid = ? AND start = ?", keys)
        return _waiting(connection)


def _forget_history(entries: Sequence[Entry], connection: sqlite3.Connection) -> Waiting:
    with transaction(connection):
        keys = [(entry.at, entry.key) for entry in entries]
        connection.executemany("DELETE FROM history WHERE at = ? AND id = ?", keys)
        return _waiting(connection)


def _forget_rest(connection: sqlite3.Connection) -> Waiting:
    """Nobody else writes here, so the heartbeats are those that were sent."""
    with transaction(connection):
        connection.execute("DELETE FROM clusters")
        return _waiting(connection)

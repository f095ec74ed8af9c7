"""A queue on disk before a ledger elsewhere: every row goes there first, and on to the ledger as soon as that takes it.

So a write is durable in milliseconds whatever the ledger does, and one that hangs keeps nobody waiting. Waiting rows merge by the same
rules as in a ledger, so the queue grows with the number of distinct rows, not with the number of writes.
"""

# ruff: noqa: S608  statements are put together from names of our own; values are always parameters

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from headroom.adapters.ledger import encoding, schema
from headroom.adapters.ledger.encoding import BEFORE_ALL, identifier
from headroom.adapters.ledger.sqlite import SqliteLedger, put, put_history
from headroom.adapters.ledger.sqlite_file import transaction
from headroom.model.cloud_facts import Experience
from headroom.model.errors import HeadroomError, Unavailable
from headroom.model.history import Entry
from headroom.model.machine_records import MachineRecord
from headroom.model.ports import Ledger, Origin
from headroom.model.retention import Retention
from headroom.model.usage import Heartbeat, UsageRow
from headroom.model.verdicts import HomeVerdict

LARGEST: Final = 1_000_000
AT_ONCE: Final = 5_000
PAUSE_SECONDS: Final = 5.0
LAG_SECONDS: Final = 3.0
"""A ledger that has not taken what has waited for so long is down, whatever it is doing."""
FAREWELL_SECONDS: Final = 2.0
"""For sending the rest at the end; what does not go stays in the file for the next start."""


class QueueDepth(NamedTuple):
    """How much is in the queue."""

    rows: int
    """Rows of usage, and entries of the history."""
    heartbeats: int


NOTHING: Final = QueueDepth(0, 0)


class QueuedLedger:
    """A `Ledger` whose writes are durable in a file at once, up to `largest` rows that wait for the ledger behind it."""

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
        self._largest, self._pause, self._monotonic = largest, pause, monotonic
        self._waiting = NOTHING
        self._why = ""
        self._next_try = monotonic()
        self._behind_since: float | None = None
        """Since when something waits."""
        self._news = asyncio.Event()
        self._one_sends = asyncio.Lock()
        self._sender: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str:
        """That the ledger is down or behind, why, and how much waits; empty while all is well."""
        why = self._why
        if not why and self.lag_seconds > LAG_SECONDS:
            why = f"writing to the ledger {getattr(self._ledger, 'place', '')}: it has not answered yet"
        return f"{why} ({self.waiting} rows wait in {self._queue.path})" if why else ""

    @property
    def lag_seconds(self) -> float:
        """How long the oldest of what waits has waited."""
        return 0.0 if self._behind_since is None else self._monotonic() - self._behind_since

    @property
    def waiting(self) -> int:
        """How many rows and entries wait."""
        return self._waiting.rows

    async def write(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
        """Put rows into the queue, durable once this returns; they go on to the ledger by themselves."""
        try:
            await self._enqueue(lambda connection: put(connection, rows, heartbeat))
        except Unavailable:
            if not await self._goes_past(rows, heartbeat):
                raise
        self._wake()

    async def note(self, entries: Sequence[Entry]) -> None:
        """Put entries of the history into the queue."""
        await self._enqueue(lambda connection: put_history(connection, entries))
        self._wake()

    async def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        """What waits, then what the ledger has. A row in both comes twice, and merges."""
        self._wake()
        async for rows in self._queue.read(since):
            yield rows
        async for rows in self._ledger.read(since):
            yield rows

    async def changes(self, after: int) -> tuple[list[UsageRow], int]:
        """Rows that anybody wrote to the ledger after the cursor."""
        return await self._ledger.changes(after)

    async def cursor(self) -> int:
        """The ledger's cursor."""
        return await self._ledger.cursor()

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is in the ledger or waits here."""
        found = await self._ledger.heartbeats()
        for cluster, until in (await self._queue.heartbeats()).items():
            found[cluster] = max(until, found.get(cluster, until))
        return found

    async def history(self, since: int, limit: int, cluster: str = "") -> list[Entry]:
        """The ledger's history; what waits is not there yet."""
        return await self._ledger.history(since, limit, cluster)

    async def prune(self, cluster: str, before: int) -> int:
        """Forget rows of the ledger; the queue is forgotten as it empties."""
        return await self._ledger.prune(cluster, before)

    async def retentions(self) -> dict[str, Retention]:
        """The ledger's."""
        return await self._ledger.retentions()

    async def retain(self, retention: Retention) -> None:
        """Write it to the ledger itself: nothing may be forgotten by what only stands here."""
        await self._ledger.retain(retention)

    async def claim(self, cluster: str, holder: str, now: int) -> dict[str, int]:
        """Claim in the ledger itself: a claim that comes late would be taken for one of now."""
        return await self._ledger.claim(cluster, holder, now)

    async def claimed(self, cluster: str) -> dict[str, int]:
        """When each holder last claimed the cluster in the ledger."""
        return await self._ledger.claimed(cluster)

    async def unclaim(self, cluster: str, holder: str) -> None:
        """Give the claim back in the ledger itself."""
        await self._ledger.unclaim(cluster, holder)

    async def publish(self, cluster: str, verdicts: Sequence[HomeVerdict]) -> None:
        """In the ledger itself: a verdict that comes late would be taken for one of now."""
        await self._ledger.publish(cluster, verdicts)

    async def verdicts(self) -> tuple[HomeVerdict, ...]:
        """What the ledger itself has."""
        return await self._ledger.verdicts()

    async def record_machines(self, records: Sequence[MachineRecord]) -> None:
        """In the ledger itself: whoever records them tries again."""
        await self._ledger.record_machines(records)

    async def experience(self, since: int, until: int) -> list[Experience]:
        """What the ledger itself has."""
        return await self._ledger.experience(since, until)

    async def origin(self) -> Origin:
        """Which server the ledger is on."""
        return await self._ledger.origin()

    async def close(self) -> None:
        """Send what goes quickly, and close both; what still waits stays in its file for the next start."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        if self._waiting != NOTHING:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self.send()
        await self._queue.close()
        await self._ledger.close()

    async def _enqueue(self, add: Callable[[sqlite3.Connection], object]) -> None:
        """Into the file, unless that makes it too large: then nothing of this, and all that was there stays."""

        def work(connection: sqlite3.Connection) -> QueueDepth:
            with transaction(connection):
                add(connection)
                waiting = _waiting(connection)
                if waiting.rows > self._largest:
                    raise Unavailable(
                        f"{self._why or 'writing to the ledger'}; its queue {self._queue.path} is full with "
                        f"{self._largest} rows, so no more usage is recorded until the ledger is back"
                    )
            return waiting

        self._waiting = await self._queue.run("queueing for", work)
        if self._behind_since is None:
            self._behind_since = self._monotonic()

    async def _goes_past(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None) -> bool:
        """Past a queue that takes nothing, whose disk is full for example, into a ledger that does."""
        if self._why or self.lag_seconds > LAG_SECONDS:
            return False
        try:
            # A heartbeat says that everything before it has arrived.
            await self._ledger.write(rows, heartbeat if self._waiting == NOTHING else None)
        except HeadroomError:
            return False
        return True

    # Sending on

    def _wake(self) -> None:
        self._news.set()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._keep_sending())

    async def _keep_sending(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self.send()
            while self._why:
                await asyncio.sleep(max(0.01, self._pause))
                await self.send()

    async def send(self) -> None:
        """Send what waits, unless the ledger was away a moment ago."""
        async with self._one_sends:
            if self._monotonic() < self._next_try:
                return
            began = self._monotonic()
            try:
                await self._send_all()
            except HeadroomError as error:
                # Everything is safe in the queue, so whoever writes need not know; `problem` says it.
                self._why, self._next_try = str(error), self._monotonic() + self._pause
                return
            self._why = ""
            self._behind_since = None if self._waiting == NOTHING else began

    async def _send_all(self) -> None:
        """The oldest first, heartbeats last: one says that everything before it has arrived."""
        beats = await self._queue.heartbeats()
        while stored := await self._queue.run("reading the queue of", _oldest):
            await self._ledger.write(await asyncio.to_thread(encoding.decoded, [each[:-1] for each in stored]))
            self._waiting = await self._queue.run("emptying the queue of", partial(_forget, stored))
        while entries := await self._queue.history(BEFORE_ALL, AT_ONCE):
            await self._ledger.note(entries)
            self._waiting = await self._queue.run("emptying the queue of", partial(_forget_history, entries))
        for cluster, until in beats.items():
            await self._ledger.write([], Heartbeat(cluster=cluster, complete_until=until))
            self._waiting = await self._queue.run("emptying the queue of", partial(_forget_heartbeat, cluster, until))


def _oldest(connection: sqlite3.Connection) -> list[Any]:
    query = f"SELECT {schema.read(schema.LATEST)}, changed FROM usage ORDER BY changed LIMIT ?"
    return connection.execute(query, (AT_ONCE,)).fetchall()


def _waiting(connection: sqlite3.Connection) -> QueueDepth:
    query = "SELECT (SELECT count(*) FROM usage) + (SELECT count(*) FROM history), (SELECT count(*) FROM clusters)"
    return QueueDepth(*connection.execute(query).fetchone())


def _forget(stored: Sequence[Sequence[Any]], connection: sqlite3.Connection) -> QueueDepth:
    """What was sent, unless it says more by now."""
    keys = [(*encoding.key_of(each), each[-1]) for each in stored]
    statement = "DELETE FROM usage WHERE cluster = ? AND day = ? AND uid = ? AND start = ? AND changed = ?"
    with transaction(connection):
        connection.executemany(statement, keys)
        return _waiting(connection)


def _forget_history(entries: Sequence[Entry], connection: sqlite3.Connection) -> QueueDepth:
    with transaction(connection):
        keys = [(entry.at, entry.key) for entry in entries]
        connection.executemany("DELETE FROM history WHERE at = ? AND id = ?", keys)
        return _waiting(connection)


def _forget_heartbeat(cluster: str, until: int, connection: sqlite3.Connection) -> QueueDepth:
    with transaction(connection):
        known = (identifier(cluster), until)
        connection.execute("DELETE FROM clusters WHERE cluster = ? AND complete_until = ?", known)
        return _waiting(connection)

"""The ledger in one SQLite file: the default, for one replica.

All work happens in one thread of its own, so the event loop never waits for the disk, and one transaction per write makes it durable.
"""

# ruff: noqa: S608  statements are put together from names of our own; values are always parameters

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from headroom.adapters.ledger import encoding, schema, sqlite_file
from headroom.adapters.ledger.encoding import BEFORE_FIRST_KEY, COLUMNS, Values, identified, identifier
from headroom.adapters.ledger.history import entry_of, history_values
from headroom.adapters.ledger.info import Info
from headroom.adapters.ledger.machines import SqliteMachines
from headroom.adapters.ledger.retaining import retention_values, retentions_of
from headroom.adapters.ledger.sqlite_file import transaction
from headroom.adapters.ledger.verdicts import SqliteVerdicts
from headroom.model.errors import HeadroomError, Refused
from headroom.model.history import Entry
from headroom.model.ports import Origin
from headroom.model.retention import Retention
from headroom.model.usage import DAY, Heartbeat, UsageRow

PAGE: Final = 10_000
"""Rows that are read at once; between two pages others get their turn."""

Result = TypeVar("Result")

_UPSERT: Final = f"INSERT INTO usage ({schema.ALL}, changed) VALUES ({', '.join('?' * len(COLUMNS))}, ?) {schema.MERGE}"
_PAGE: Final = f"""SELECT {{columns}} FROM usage
WHERE (cluster, day, uid, start) > (?, ?, ?, ?) AND ({schema.SURELY_OVER} IS NULL OR {schema.SURELY_OVER} > ?)
ORDER BY cluster, day, uid, start LIMIT {PAGE}"""
_KEYS: Final = "cluster, day, uid, start"
# Nothing can be over before the day on which its pod was created, so the key leads to what is old.
_PRUNE: Final = f"""DELETE FROM usage WHERE ({_KEYS}) IN (SELECT {_KEYS} FROM usage
WHERE cluster = ? AND day <= ? AND {schema.SURELY_OVER} < ? ORDER BY {_KEYS} LIMIT ?)"""
_PRUNE_HISTORY: Final = """DELETE FROM history WHERE (at, id) IN (
SELECT at, id FROM history WHERE cluster = ? AND at < ? ORDER BY at LIMIT ?)"""


class SqliteLedger(SqliteVerdicts, SqliteMachines):
    """A `Ledger` in one file. It is opened at its first use, and made if there is none."""

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._read_only = read_only
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._connection: sqlite3.Connection | None = None
        self._lock: int | None = None
        self._was_checked = False
        self._files: dict[Path, tuple[int, int]] = {}
        """Which files are open, by their paths."""
        self._vanished = ""
        self._is_closed = False

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return str(self.path)

    async def write(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
        """Merge rows with those there are, all or none; durable once this returns."""
        await self.merge(rows, heartbeat)

    async def merge(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> int:
        """The same; how many rows were new or said something new."""

        def work(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                return put(connection, rows, heartbeat)

        return await self.run("writing to", work)

    async def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        """All rows that may reach beyond `since`, page by page in the order of their keys."""
        after = BEFORE_FIRST_KEY
        while True:
            stored, rows = await self.run("reading", partial(_page, after, since))
            if rows:
                yield rows
            if len(stored) < PAGE:
                return
            after = encoding.key_of(stored[-1])

    async def changes(self, after: int) -> tuple[list[UsageRow], int]:
        """Some rows written after the cursor. Writes are numbered in the order in which they are committed."""
        return await self.run("reading", partial(_changes, after))

    async def cursor(self) -> int:
        """The cursor that stands for everything written so far."""
        return await self.run("reading", last_number)

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is in the ledger."""
        return await self.run("reading", _heartbeats)

    async def prune(self, cluster: str, before: int) -> int:
        """Forget some of a cluster's rows that were over before that moment, and history; how many there were."""

        def work(connection: sqlite3.Connection) -> int:
            known = (identifier(cluster), before // DAY, before, schema.PRUNED_AT_ONCE)
            with transaction(connection):
                gone = connection.execute(_PRUNE, known).rowcount
                gone += connection.execute(_PRUNE_HISTORY, (known[0], before, schema.PRUNED_AT_ONCE)).rowcount
            return gone

        return await self.run("pruning", work)

    async def retentions(self) -> dict[str, Retention]:
        """What is known of each cluster, and must be kept of it."""

        def work(connection: sqlite3.Connection) -> dict[str, Retention]:
            if sqlite_file.version_of(connection, self.path) < 3:
                return {}  # opened only to read, so it stays as old as it is
            return retentions_of(connection.execute(f"SELECT {schema.RETENTION} FROM retention"))

        return await self.run("reading", work)

    async def retain(self, retention: Retention) -> None:
        """Write what must be kept of a cluster."""
        values = retention_values(retention)
        marks = ", ".join("?" * len(values))
        statement = f"INSERT INTO retention ({schema.RETENTION}) VALUES ({marks}) {schema.RETAIN}"

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.execute(statement, values)

        await self.run("writing to", work)

    async def claim(self, cluster: str, holder: str, now: int) -> dict[str, int]:
        """Say that `holder` leads in a cluster; how often each holder said so."""
        name = identifier(cluster)

        def work(connection: sqlite3.Connection) -> dict[str, int]:
            with transaction(connection):
                connection.execute(f"INSERT INTO claims VALUES (?, ?, 1, ?) {schema.CLAIM}", (name, holder, now))
                old = now - schema.CLAIM_KEPT_MS
                connection.execute("DELETE FROM claims WHERE cluster = ? AND at < ?", (name, old))
                return dict(connection.execute("SELECT holder, renewals FROM claims WHERE cluster = ?", (name,)))

        return await self.run("writing to", work)

    async def claimed(self, cluster: str) -> dict[str, int]:
        """When each holder last said so."""
        query, name = "SELECT holder, at FROM claims WHERE cluster = ?", identifier(cluster)
        return await self.run("reading", lambda connection: dict(connection.execute(query, (name,))))

    async def unclaim(self, cluster: str, holder: str) -> None:
        """Say that it leads no more."""

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.execute("DELETE FROM claims WHERE cluster = ? AND holder = ?", (identifier(cluster), holder))

        await self.run("writing to", work)

    async def origin(self) -> Origin:
        """A file is always the same server."""

        def work(connection: sqlite3.Connection) -> Origin:
            is_empty = connection.execute("SELECT NOT EXISTS (SELECT 1 FROM usage)").fetchone()[0]
            return Origin(last=last_number(connection), is_empty=bool(is_empty))

        return await self.run("reading", work)

    async def note(self, entries: Sequence[Entry]) -> None:
        """Add to the history; what is there already stays as it is."""

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                put_history(connection, entries)

        await self.run("writing history to", work)

    async def history(self, since: int, limit: int, cluster: str = "") -> list[Entry]:
        """Entries from that moment on, the newest first: of all clusters, or of one."""

        def work(connection: sqlite3.Connection) -> list[Entry]:
            if sqlite_file.version_of(connection, self.path) < 2:
                return []  # opened only to read, so it stays as old as it is
            of_cluster = identifier(cluster) if cluster else None
            query = f"""SELECT {schema.HISTORY} FROM history WHERE at >= ?1 AND (?3 IS NULL OR cluster = ?3)
ORDER BY at DESC, id DESC LIMIT ?2"""
            return [entry_of(values) for values in connection.execute(query, (since, limit, of_cluster))]

        return await self.run("reading the history of", work)

    async def info(self) -> Info:
        """What is in it."""

        def work(connection: sqlite3.Connection) -> Info:
            rows, oldest, newest = connection.execute(schema.INFO).fetchone()
            beside = (self.path, Path(f"{self.path}-wal"))
            return Info(
                place=self.place,
                version=sqlite_file.version_of(connection, self.path),
                rows=rows,
                oldest=oldest,
                newest=newest,
                clusters=_heartbeats(connection),
                size=sum(file.stat().st_size for file in beside if file.exists()),
            )

        return await self.run("reading", work)

    async def migrate(self, wanted: int) -> None:
        """Go to that version of the schema. The next use of a newer Headroom goes up again by itself."""
        await self.run("migrating", lambda connection: sqlite_file.migrate(connection, self.path, wanted))

    async def backup(self, file: Path) -> None:
        """A copy of the whole ledger as of one moment; whoever writes goes on."""

        def work(connection: sqlite3.Connection) -> None:
            with closing(sqlite3.connect(file, isolation_level=None)) as target:
                connection.backup(target)
                # So that the copy is one file and needs no other beside it.
                target.execute("PRAGMA journal_mode = DELETE")

        await self.run("backing up", work)

    async def close(self) -> None:
        """Close the file."""
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
        self._thread.shutdown(wait=False)

    async def run(self, doing: str, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do this in the ledger's thread, as soon as everything before it is done."""
        if self._is_closed:
            raise Refused(f"{doing} the ledger {self.path}: it is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, doing, work)

    def _guarded(self, doing: str, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            connection = self._opened()
            self._must_be_the_same(doing)
            return work(connection)
        except HeadroomError:
            raise
        except (sqlite3.Error, OSError, OverflowError, UnicodeError) as error:
            # The next call starts from what is on disk, whatever state this one left behind.
            self._disconnect()
            raise sqlite_file.failure(doing, self.path, error) from error

    def _must_be_the_same(self, doing: str) -> None:
        """Whoever deletes or replaces a file that is open goes unnoticed by SQLite: it would write into the one that is gone."""
        for path in () if self._read_only else (self.path, Path(f"{self.path}-wal")):
            known, found = self._files.get(path), sqlite_file.identity(path)
            if known is None and found is not None:
                self._files[path] = found
            elif known != found:
                self._vanished = path.name
                self._disconnect()
                raise sqlite_file.vanished(doing, path.name, self.path)

    def _opened(self) -> sqlite3.Connection:
        if self._vanished:
            # Whatever stands there by now is another ledger, and must be taken up as one is at a start.
            raise sqlite_file.vanished("opening", self._vanished, self.path)
        if self._connection is not None:
            return self._connection
        if self._was_checked and not self.path.exists():
            self._vanished = self.path.name
            raise sqlite_file.vanished("opening", self._vanished, self.path)
        if self._lock is None and not self._read_only:
            self._lock = sqlite_file.take_lock(self.path)
        sqlite_file.must_be_whole(self.path)
        if not self.path.exists():
            if self._read_only:
                raise Refused(f"opening the ledger {self.path}: there is no such file; check the path")
            sqlite_file.create(self.path)
        connection = sqlite_file.opened(self.path, read_only=self._read_only)
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        # SQLite makes and removes the file beside it as it opens and closes.
        self._files.pop(Path(f"{self.path}-wal"), None)
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        if not self._was_checked:
            sqlite_file.check_pages(connection, self.path)
        version = sqlite_file.version_of(connection, self.path)
        schema.check_version(version, self.place)
        if not self._read_only:
            sqlite_file.migrate(connection, self.path, schema.LATEST)
        self._was_checked = True

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):  # a file that is being closed need not be whole
                self._connection.close()
            self._connection = None

    def _let_go(self) -> None:
        self._disconnect()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def put(connection: sqlite3.Connection, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> int:
    """Merge rows inside a transaction; how many were new or said something new."""
    values = encoding.encoded(rows)
    number = last_number(connection) + 1
    before = connection.total_changes
    connection.executemany(_UPSERT, [(*each, number) for each in values])
    changed = connection.total_changes - before
    if changed:
        connection.execute("UPDATE counter SET last = ?", (number,))
    if heartbeat is not None:
        beat = (identifier(heartbeat.cluster), heartbeat.complete_until)
        connection.execute(f"INSERT INTO clusters VALUES (?, ?) {schema.HEARTBEAT}", beat)
    return changed


def put_history(connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    """Add entries inside a transaction."""
    statement = f"INSERT OR IGNORE INTO history ({schema.HISTORY}) VALUES (?, ?, ?, ?, ?, ?, ?)"
    connection.executemany(statement, [history_values(entry) for entry in entries])


def _columns(connection: sqlite3.Connection) -> str:
    return schema.read(sqlite_file.version_of(connection, Path()))


def _page(after: Values, since: int, connection: sqlite3.Connection) -> tuple[list[Any], list[UsageRow]]:
    stored = connection.execute(_PAGE.format(columns=_columns(connection)), (*after, since)).fetchall()
    return stored, encoding.decoded(stored)


def _changes(after: int, connection: sqlite3.Connection) -> tuple[list[UsageRow], int]:
    # Rows of one write have one number, and are never torn apart.
    bound = "SELECT changed FROM usage WHERE changed > ? ORDER BY changed LIMIT 1 OFFSET ?"
    full = connection.execute(bound, (after, PAGE)).fetchone()
    until = full[0] if full else last_number(connection)
    query = f"SELECT {_columns(connection)} FROM usage WHERE changed > ? AND changed <= ? ORDER BY changed"
    return encoding.decoded(connection.execute(query, (after, until))), until


def last_number(connection: sqlite3.Connection) -> int:
    """The number of the last write that changed something."""
    number: int = connection.execute("SELECT last FROM counter").fetchone()[0]
    return number


def _heartbeats(connection: sqlite3.Connection) -> dict[str, int]:
    found = connection.execute("SELECT cluster, complete_until FROM clusters").fetchall()
    return {identified(cluster): until for cluster, until in found}

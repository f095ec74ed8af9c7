"""The ledger in PostgreSQL: for two replicas, several clusters or a large fleet.

Whoever writes takes a turn: an advisory lock, held until the transaction is committed. So writes are numbered in the order in which
others can see them, so that `changes` skips none, and two writers cannot lock each other's rows.
Nothing here waits for long: each call has a time limit, and after any failure the connection is dropped and the next call makes a new one.
"""

# ruff: noqa: S608  statements are put together from names of our own; values are always parameters

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg  # type: ignore[import-untyped]  # it comes without types

from headroom.adapters.ledger import encoding, schema
from headroom.adapters.ledger.encoding import BEFORE_FIRST_KEY, COLUMNS, identified, identifier
from headroom.adapters.ledger.history import entry_of, history_values
from headroom.adapters.ledger.info import Info
from headroom.adapters.ledger.machines import PostgresMachines
from headroom.adapters.ledger.retaining import retention_values, retentions_of
from headroom.adapters.ledger.schema import POSTGRES
from headroom.adapters.ledger.verdicts import QUICK_SECONDS, PostgresVerdicts
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.history import Entry
from headroom.model.ports import Origin
from headroom.model.retention import Retention
from headroom.model.usage import DAY, Heartbeat, UsageRow

PAGE: Final = 10_000
CALL_SECONDS: Final = 30.0
LONG_CALL_SECONDS: Final = 600.0
"""For what goes through all rows: migrations and summaries."""
CONNECT_SECONDS: Final = 10.0
CHANGES: Final = 5_000

Result = TypeVar("Result")

_TURN: Final = 7_163_350_146
"""The advisory lock's number; any, but always the same."""
_BEGIN_MY_TURN: Final = f"BEGIN; SELECT pg_advisory_xact_lock({_TURN})"
_GIVEN: Final = """CREATE TEMPORARY TABLE given (LIKE usage) ON COMMIT DELETE ROWS;
ALTER TABLE given DROP COLUMN changed"""
"""Many rows are copied in here, which costs a quarter of what parameters cost, and merged from here by one statement."""
_FEW: Final = 100
"""So many rows or fewer are parameters: for them, emptying that table costs more than it saves."""
_TYPES: Final = {"cluster": "bytea", "uid": "bytea"} | dict.fromkeys(encoding.TEXTS, "text")
_ARRAYS: Final = ", ".join(f"${number}::{_TYPES.get(name, 'bigint')}[]" for number, name in enumerate(COLUMNS, start=1))


def _upsert(source: str) -> str:
    """Merge everything in `source` under the next number."""
    columns = f"{schema.ALL}, (SELECT last + 1 FROM counter)"
    return f"INSERT INTO usage ({schema.ALL}, changed) SELECT {columns} FROM {source} {schema.MERGE}"


_UPSERT_MANY: Final = _upsert("given")
_UPSERT_FEW: Final = _upsert(f"unnest({_ARRAYS}) AS few ({schema.ALL})")
_PUT_HISTORY: Final = f"""INSERT INTO history ({schema.HISTORY}) SELECT * FROM unnest(
$1::bigint[], $2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[]) ON CONFLICT DO NOTHING"""
_PAGE: Final = f"""SELECT {{columns}} FROM usage
WHERE (cluster, day, uid, start) > ($1, $2, $3, $4) AND ({schema.SURELY_OVER} IS NULL OR {schema.SURELY_OVER} > $5)
ORDER BY cluster, day, uid, start LIMIT {PAGE}"""
_BOUND: Final = "SELECT changed FROM usage WHERE changed > $1 ORDER BY changed LIMIT 1 OFFSET $2"
_KEYS: Final = "cluster, day, uid, start"
# Nothing can be over before the day on which its pod was created, so the key leads to what is old.
_PRUNE: Final = f"""DELETE FROM usage WHERE ({_KEYS}) IN (SELECT {_KEYS} FROM usage
WHERE cluster = $1 AND day <= $2 AND {schema.SURELY_OVER} < $3 ORDER BY {_KEYS} LIMIT $4 FOR UPDATE SKIP LOCKED)"""
_PRUNE_HISTORY: Final = """DELETE FROM history WHERE (at, id) IN (
SELECT at, id FROM history WHERE cluster = $1 AND at < $2 ORDER BY at LIMIT $3)"""
_IDENTITY: Final = """SELECT system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
FROM pg_control_system()"""
_SIZE: Final = """SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relname IN ('usage', 'clusters', 'history') AND relkind = 'r' AND pg_table_is_visible(oid)"""


class PostgresLedger(PostgresVerdicts, PostgresMachines):
    """A `Ledger` in a database of its own. It connects at its first use, and again whenever it must."""

    def __init__(self, url: str, *, read_only: bool = False, timeout: float = CALL_SECONDS) -> None:
        self._url = url
        self._read_only = read_only
        self._timeout = timeout
        self._connection: Any = None
        self._connections, self._version = 0, schema.LATEST
        self._server = ""
        self._one_at_a_time = asyncio.Lock()
        self._is_closed = False

    @property
    def place(self) -> str:
        """Where it is, without anything that is secret."""
        parts = urlsplit(self._url)
        named = parse_qs(parts.query)
        host = (parts.netloc.rpartition("@")[2]) or named.get("host", [""])[0]
        return f"postgresql://{host}/{parts.path.lstrip('/')}"

    async def write(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
        """Merge rows with those there are, all or none; durable once this returns."""
        await self.merge(rows, heartbeat)

    async def merge(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> int:
        """The same; how many rows were new or said something new."""
        values = await asyncio.to_thread(encoding.encoded, rows) if len(rows) > 500 else encoding.encoded(rows)

        async def work(connection: Any) -> int:
            await connection.execute(_BEGIN_MY_TURN)
            changed = await _put(connection, values) if values else 0
            if heartbeat is not None:
                statement = f"INSERT INTO clusters VALUES ($1, $2) {schema.HEARTBEAT}"
                await connection.execute(statement, identifier(heartbeat.cluster), heartbeat.complete_until)
            await connection.execute("UPDATE counter SET last = last + 1; COMMIT" if changed else "COMMIT")
            return changed

        return await self.run("writing to", work)

    async def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        """All rows that may reach beyond `since`, page by page in the order of their keys."""
        after = BEFORE_FIRST_KEY
        while True:
            key = after

            async def work(connection: Any, key: encoding.Values = key) -> tuple[list[Any], list[UsageRow]]:
                stored = await connection.fetch(_PAGE.format(columns=schema.read(self._version)), *key, since)
                # In a thread, so that a page of thousands does not hold up the event loop.
                return stored, await asyncio.to_thread(encoding.decoded, stored)

            stored, rows = await self.run("reading", work)
            if rows:
                yield rows
            if len(stored) < PAGE:
                return
            after = encoding.key_of(stored[-1])

    async def changes(self, after: int) -> tuple[list[UsageRow], int]:
        """Some rows written after the cursor."""

        async def work(connection: Any) -> tuple[list[Any], int]:
            # The number first: what is written between the two questions then comes twice, not never.
            last = await connection.fetchval("SELECT last FROM counter")
            # Rows of one write have one number, and are never torn apart.
            full = await connection.fetchval(_BOUND, after, CHANGES)
            until = last if full is None else full
            query = (
                f"SELECT {schema.read(self._version)} FROM usage WHERE changed > $1 AND changed <= $2 ORDER BY changed"
            )
            return await connection.fetch(query, after, until), until

        stored, until = await self.run("reading", work)
        return await asyncio.to_thread(encoding.decoded, stored) if stored else [], until

    async def cursor(self) -> int:
        """The cursor that stands for everything written so far."""
        query = "SELECT coalesce(max(last), 0) FROM counter"
        last: int = await self.run("reading", lambda connection: connection.fetchval(query), QUICK_SECONDS)
        return last

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is in the ledger."""
        return await self.run("reading", _heartbeats, QUICK_SECONDS)

    async def prune(self, cluster: str, before: int) -> int:
        """Forget some of a cluster's rows that were over before that moment, and history; how many there were.

        It takes no turn: nothing is numbered, and what somebody else is writing to is left for the next time.
        """
        name, day, most = identifier(cluster), before // DAY, schema.PRUNED_AT_ONCE

        async def work(connection: Any) -> int:
            gone = _affected(await connection.execute(_PRUNE, name, day, before, most))
            return gone + _affected(await connection.execute(_PRUNE_HISTORY, name, before, most))

        return await self.run("pruning", work)

    async def retentions(self) -> dict[str, Retention]:
        """What is known of each cluster, and must be kept of it."""

        async def work(connection: Any) -> dict[str, Retention]:
            if await _version(connection) < 3:
                return {}  # opened only to read, so it stays as old as it is
            return retentions_of(await connection.fetch(f"SELECT {schema.RETENTION} FROM retention"))

        return await self.run("reading", work, QUICK_SECONDS)

    async def retain(self, retention: Retention) -> None:
        """Write what must be kept of a cluster."""
        values = retention_values(retention)
        marks = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        statement = f"INSERT INTO retention ({schema.RETENTION}) VALUES ({marks}) {schema.RETAIN}"
        await self.run("writing to", lambda connection: connection.execute(statement, *values), QUICK_SECONDS)

    async def claim(self, cluster: str, holder: str, now: int) -> dict[str, int]:
        """Say that `holder` leads in a cluster; how often each holder said so."""
        name = identifier(cluster)

        async def work(connection: Any) -> dict[str, int]:
            await connection.execute(f"INSERT INTO claims VALUES ($1, $2, 1, $3) {schema.CLAIM}", name, holder, now)
            old = now - schema.CLAIM_KEPT_MS
            await connection.execute("DELETE FROM claims WHERE cluster = $1 AND at < $2", name, old)
            return dict(await connection.fetch("SELECT holder, renewals FROM claims WHERE cluster = $1", name))

        return await self.run("writing to", work, QUICK_SECONDS)

    async def claimed(self, cluster: str) -> dict[str, int]:
        """When each holder last said so."""

        async def work(connection: Any) -> dict[str, int]:
            return dict(await connection.fetch("SELECT holder, at FROM claims WHERE cluster = $1", identifier(cluster)))

        return await self.run("reading", work, QUICK_SECONDS)

    async def unclaim(self, cluster: str, holder: str) -> None:
        """Say that it leads no more."""
        known, query = (identifier(cluster), holder), "DELETE FROM claims WHERE cluster = $1 AND holder = $2"
        await self.run("writing to", lambda connection: connection.execute(query, *known), QUICK_SECONDS)

    async def origin(self) -> Origin:
        """Which server answers: its identity and timeline, as of the last connection."""
        query = "SELECT coalesce(max(last), 0), NOT EXISTS (SELECT FROM usage) FROM counter"
        last, is_empty = await self.run("reading", lambda connection: connection.fetchrow(query), QUICK_SECONDS)
        return Origin(server=self._server, connections=self._connections, last=last, is_empty=is_empty)

    async def note(self, entries: Sequence[Entry]) -> None:
        """Add to the history; what is there already stays as it is."""
        if entries:
            columns = list(zip(*map(history_values, entries), strict=True))
            await self.run("writing history to", lambda connection: connection.execute(_PUT_HISTORY, *columns))

    async def history(self, since: int, limit: int, cluster: str = "") -> list[Entry]:
        """Entries from that moment on, the newest first: of all clusters, or of one."""

        async def work(connection: Any) -> list[Entry]:
            if await _version(connection) < 2:
                return []  # opened only to read, so it stays as old as it is
            of_cluster = identifier(cluster) if cluster else None
            query = f"""SELECT {schema.HISTORY} FROM history WHERE at >= $1 AND ($3::BYTEA IS NULL OR cluster = $3)
ORDER BY at DESC, id DESC LIMIT $2"""
            return [entry_of(values) for values in await connection.fetch(query, since, limit, of_cluster)]

        return await self.run("reading the history of", work)

    async def info(self) -> Info:
        """What is in it."""

        async def work(connection: Any) -> Info:
            rows, oldest, newest = await connection.fetchrow(schema.INFO)
            return Info(
                place=self.place,
                version=await _version(connection),
                rows=rows,
                oldest=oldest,
                newest=newest,
                clusters=await _heartbeats(connection),
                size=await connection.fetchval(_SIZE),
            )

        return await self.run("reading", work, LONG_CALL_SECONDS)

    async def migrate(self, wanted: int) -> None:
        """Go to that version of the schema. The next use of a newer Headroom goes up again by itself."""
        await self.run("migrating", lambda connection: _migrate(connection, wanted), LONG_CALL_SECONDS)

    async def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        async with self._one_at_a_time:
            self._drop()

    async def run(self, doing: str, work: Callable[[Any], Awaitable[Result]], seconds: float | None = None) -> Result:
        """Do this on the connection, as soon as everything before it is done, within the time limit."""
        if self._is_closed:
            raise Refused(f"{doing} the ledger {self.place}: it is closed")
        limit = self._limit(seconds)
        try:
            async with asyncio.timeout(limit), self._one_at_a_time:
                return await self._attempt(work)
        except HeadroomError:
            raise
        except TimeoutError:
            why = f"it did not answer within {limit:g}s; check the server and the network"
            raise Unavailable(f"{doing} the ledger {self.place}: {why}") from None
        except Exception as error:  # noqa: BLE001  whatever a driver, a socket or TLS throws, the ledger is not there
            raise self._failure(doing, error) from None

    def _limit(self, seconds: float | None) -> float:  # long calls get at least the usual time, quick ones at most that
        if seconds is None:
            return self._timeout
        seconds = CONNECT_SECONDS if seconds == QUICK_SECONDS and self._connection is None else seconds
        return max(seconds, self._timeout) if seconds == LONG_CALL_SECONDS else min(seconds, self._timeout)

    async def _attempt(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncio.wait_for(self._connected(), self._timeout)
                await self._check(self._connection)
                self._connections += 1
                self._server = await _identity(self._connection)
            return await work(self._connection)
        except BaseException:
            # No polite end: whoever hangs would hang that too. The server rolls back by itself.
            self._drop()
            raise

    async def _connected(self) -> Any:
        limit = str(int(LONG_CALL_SECONDS * 1000))
        settings = {
            "application_name": "headroom",
            # A client that dies later must not keep it.
            "idle_in_transaction_session_timeout": str(int(self._timeout * 1000)),
            "statement_timeout": limit,
            # Pages are read along the key. Before a new table's statistics are there, the planner would sort all of it for each.
            "enable_sort": "off",
            "jit": "off",
        }
        return await asyncpg.connect(self._url, timeout=self._timeout, server_settings=settings)

    async def _check(self, connection: Any) -> None:
        version = await _version(connection)
        schema.check_version(version, self.place)
        self._version = version if self._read_only else schema.LATEST
        if self._read_only and not version:
            raise Refused(f"opening the ledger {self.place}: this database has no ledger; check its name")
        if not self._read_only:
            if version < schema.LATEST:
                await _migrate(connection, schema.LATEST)
            await connection.execute(_GIVEN)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _failure(self, doing: str, error: Exception) -> HeadroomError:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        for secret in _secrets(self._url):
            said = said.replace(secret, "***")
        # Class 22 and these: the values themselves; a later try cannot help.
        if isinstance(error, asyncpg.DataError | OverflowError | UnicodeError) or str(
            getattr(error, "sqlstate", "")
        ).startswith("22"):
            return Refused(f"{doing} the ledger {self.place}: it cannot store this: {said}")
        return Unavailable(f"{doing} the ledger {self.place}: {said}; check the server and the ledger's URL")


def _secrets(url: str) -> list[str]:
    parts = urlsplit(url)
    found = [parts.password or "", unquote(parts.password or ""), *parse_qs(parts.query).get("password", [])]
    return [secret for secret in found if secret]


async def _put(connection: Any, values: list[encoding.Values]) -> int:
    """Merge rows inside a transaction; how many were new or said something new."""
    if len(values) <= _FEW:
        return _affected(await connection.execute(_UPSERT_FEW, *zip(*values, strict=True)))
    await connection.copy_records_to_table("given", records=values, columns=COLUMNS)
    return _affected(await connection.execute(_UPSERT_MANY))


def _affected(status: str) -> int:
    """From `INSERT 0 12` or `DELETE 12`."""
    return int(status.rpartition(" ")[2])


async def _version(connection: Any) -> int:
    """The schema version; 0 without a ledger."""
    # Not to_regclass: it may answer from what the connection knew before it waited for its turn.
    query = "SELECT count(*) FROM pg_class WHERE relname = 'schema_version' AND pg_table_is_visible(oid)"
    if not await connection.fetchval(query):
        return 0
    return int(await connection.fetchval("SELECT version FROM schema_version"))


async def _migrate(connection: Any, wanted: int) -> None:
    """Go up or down to a version, in one transaction; of two that come at once, the second finds it done."""
    await connection.execute(_BEGIN_MY_TURN)
    version = await _version(connection)
    if not version:
        await connection.execute(schema.VERSION_TABLE)
        await connection.execute(schema.FIRST_VERSION)
    if version != wanted:
        for statement in schema.way(POSTGRES, version, wanted):
            await connection.execute(statement)
    await connection.execute("COMMIT")


async def _identity(connection: Any) -> str:
    """Which server this is, and on which timeline: a replica that takes over begins a new one. Empty if it may not be asked."""
    try:
        found = await connection.fetchrow(_IDENTITY)
    except asyncpg.PostgresError:
        return ""
    return f"{found[0]}/{found[1]}"


async def _heartbeats(connection: Any) -> dict[str, int]:
    found = await connection.fetch("SELECT cluster, complete_until FROM clusters")
    return {identified(cluster): until for cluster, until in found}

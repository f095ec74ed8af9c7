"""What became of machines, in the ledger: each cluster writes of its own, and all read what all have seen."""

# ruff: noqa: S608  statements are put together from names of our own; values are always parameters

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from headroom.adapters.ledger.encoding import Values, escaped, identifier
from headroom.adapters.ledger.sqlite_file import transaction
from headroom.model.cloud_facts import Experience
from headroom.model.machine_records import KEPT, MachineRecord

Result = TypeVar("Result")

_OUTCOMES: Final = {"": 0, "Failed": 1, "Interrupted": 2}
_COLUMNS: Final = "cluster, machine, instance_type, zone, capacity_type, began, seen_until, outcome"
_MERGE: Final = """ON CONFLICT (cluster, machine, instance_type, zone, capacity_type) DO UPDATE SET
began = CASE WHEN excluded.began < machines.began THEN excluded.began ELSE machines.began END,
seen_until = CASE WHEN excluded.seen_until > machines.seen_until THEN excluded.seen_until ELSE machines.seen_until END,
outcome = CASE WHEN excluded.outcome > machines.outcome THEN excluded.outcome ELSE machines.outcome END"""
"""Written twice, late or by two leaders, a record says the same."""
_LENGTH: Final = """CASE WHEN outcome = 1 THEN 0 ELSE
CASE WHEN seen_until < {until} THEN seen_until ELSE {until} END - CASE WHEN began > {since} THEN began ELSE {since} END END"""


def _read(since: str, until: str) -> str:
    """All that was seen between two moments, by offer. What is said to have happened later than now is left out."""
    length = _LENGTH.format(since=since, until=until)
    return f"""SELECT instance_type, zone, capacity_type, sum(CASE WHEN began >= {since} THEN 1 ELSE 0 END),
sum(CASE WHEN outcome = 1 THEN 1 ELSE 0 END), sum(CASE WHEN outcome = 2 THEN 1 ELSE 0 END),
sum(CASE WHEN {length} > 0 THEN {length} ELSE 0 END)
FROM machines WHERE seen_until >= {since} AND began <= {until}
GROUP BY instance_type, zone, capacity_type ORDER BY instance_type, zone, capacity_type"""


def _values(each: MachineRecord) -> Values:
    words = (each.machine, each.instance_type, each.zone, each.capacity_type)
    return (identifier(each.cluster), *map(escaped, words), each.began, each.seen_until, _OUTCOMES[each.outcome])


def _of(stored: Iterable[Sequence[Any]]) -> list[Experience]:
    return [
        Experience(
            offer="/".join(words),
            launches=int(launches),
            failures=int(failures),
            interruptions=int(interruptions),
            machine_ms=int(length),
        )
        for *words, launches, failures, interruptions, length in stored
    ]


def _newest(records: Sequence[MachineRecord]) -> int:
    return max(each.seen_until for each in records)


class _Postgres(Protocol):
    async def run(self, doing: str, work: Callable[[Any], Awaitable[Any]], seconds: float | None = None) -> Any: ...


class PostgresMachines:
    """What a ledger in PostgreSQL does about them."""

    async def record_machines(self: _Postgres, records: Sequence[MachineRecord]) -> None:
        """Merge records with those there are, and forget old ones of the same cluster."""
        if not records:
            return
        statement = f"INSERT INTO machines ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) {_MERGE}"
        forget = "DELETE FROM machines WHERE cluster = $1 AND seen_until < $2"

        async def work(connection: Any) -> None:
            async with connection.transaction():
                # In one order, so that two who write cannot wait for each other.
                await connection.executemany(statement, sorted(map(_values, records)))
                await connection.execute(forget, identifier(records[0].cluster), _newest(records) - KEPT)

        await self.run("writing to", work)

    async def experience(self: _Postgres, since: int, until: int) -> list[Experience]:
        """What all clusters have seen between two moments."""

        async def work(connection: Any) -> list[Experience]:
            if await connection.fetchval("SELECT to_regclass('machines')") is None:
                return []  # opened only to read, so it stays as old as it is
            return _of(await connection.fetch(_read("$1::bigint", "$2::bigint"), since, until))

        found: list[Experience] = await self.run("reading", work)
        return found


class _Sqlite(Protocol):
    async def run(self, doing: str, work: Callable[[sqlite3.Connection], Result]) -> Result: ...


class SqliteMachines:
    """What a ledger in SQLite does about them."""

    async def record_machines(self: _Sqlite, records: Sequence[MachineRecord]) -> None:
        """Merge records with those there are, and forget old ones of the same cluster."""
        if not records:
            return
        statement = f"INSERT INTO machines ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) {_MERGE}"
        forget = "DELETE FROM machines WHERE cluster = ? AND seen_until < ?"

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.executemany(statement, map(_values, records))
                connection.execute(forget, (identifier(records[0].cluster), _newest(records) - KEPT))

        await self.run("writing to", work)

    async def experience(self: _Sqlite, since: int, until: int) -> list[Experience]:
        """What all clusters have seen between two moments."""

        def work(connection: sqlite3.Connection) -> list[Experience]:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'machines'").fetchone():
                return []  # opened only to read, so it stays as old as it is
            return _of(connection.execute(_read("?1", "?2"), (since, until)))

        return await self.run("reading", work)

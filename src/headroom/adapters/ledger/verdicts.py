"""The verdicts of home clusters in the ledger: who leads there writes them, the other clusters read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from headroom.adapters.ledger.encoding import Values, identified, identifier
from headroom.adapters.ledger.sqlite_file import transaction
from headroom.model.verdicts import HomeVerdict

QUICK_SECONDS: Final = 3.0
"""For what any server answers at once: one that does not is down."""
Result = TypeVar("Result")

_READ: Final = "SELECT cluster, budget, holds, since, at FROM verdicts ORDER BY cluster, budget"
_MERGE: Final = """ON CONFLICT (cluster, budget) DO UPDATE SET
holds = excluded.holds, since = excluded.since, at = excluded.at"""


def _values(each: HomeVerdict) -> Values:
    return identifier(each.cluster), each.budget, int(each.holds), each.since, each.at


def _of(stored: Iterable[Sequence[Any]]) -> tuple[HomeVerdict, ...]:
    return tuple(
        HomeVerdict(cluster=identified(cluster), budget=budget, holds=bool(holds), since=since, at=at)
        for cluster, budget, holds, since, at in stored
    )


class _Postgres(Protocol):
    async def run(self, doing: str, work: Callable[[Any], Awaitable[Any]], seconds: float | None = None) -> Any: ...


class PostgresVerdicts:
    """What a ledger in PostgreSQL does about them."""

    async def publish(self: _Postgres, cluster: str, verdicts: Sequence[HomeVerdict]) -> None:
        """Write all verdicts of a home cluster, in place of those before."""

        async def work(connection: Any) -> None:
            async with connection.transaction():
                known = [each.budget for each in verdicts]
                await connection.execute(
                    "DELETE FROM verdicts WHERE cluster = $1 AND budget <> ALL($2::text[])", identifier(cluster), known
                )
                statement = f"INSERT INTO verdicts VALUES ($1, $2, $3, $4, $5) {_MERGE}"  # noqa: S608  names of our own
                await connection.executemany(statement, [_values(each) for each in verdicts])

        await self.run("writing to", work, QUICK_SECONDS)

    async def verdicts(self: _Postgres) -> tuple[HomeVerdict, ...]:
        """What every home cluster said last."""

        async def work(connection: Any) -> tuple[HomeVerdict, ...]:
            return _of(await connection.fetch(_READ))

        found: tuple[HomeVerdict, ...] = await self.run("reading", work, QUICK_SECONDS)
        return found


class _Sqlite(Protocol):
    async def run(self, doing: str, work: Callable[[sqlite3.Connection], Result]) -> Result: ...


class SqliteVerdicts:
    """What a ledger in SQLite does about them; only one cluster writes there, so nobody else hears of them."""

    async def publish(self: _Sqlite, cluster: str, verdicts: Sequence[HomeVerdict]) -> None:
        """Write all verdicts of a home cluster, in place of those before."""

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.execute("DELETE FROM verdicts WHERE cluster = ?", (identifier(cluster),))
                connection.executemany("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?)", map(_values, verdicts))

        await self.run("writing to", work)

    async def verdicts(self: _Sqlite) -> tuple[HomeVerdict, ...]:
        """What every home cluster said last."""
        return await self.run("reading", lambda connection: _of(connection.execute(_READ)))

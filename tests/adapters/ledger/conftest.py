"""The three ledgers under one name."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.sim.ledger import MemoryLedger
from tests.adapters.ledger.rows import Kept
from tests.postgres import Postgres

SQL = ("sqlite", "postgres")


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger of the kind in `request.param` goes."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/ledger.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(params=["memory", *SQL])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """An empty ledger of each kind."""
    made = MemoryLedger() if request.param == "memory" else _sql(request, tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=SQL)
async def sql_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteLedger | PostgresLedger]:
    """An empty ledger of each kind that has a database."""
    made = _sql(request, tmp_path)
    yield made
    await made.close()


def _sql(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteLedger | PostgresLedger:
    if request.param == "sqlite":
        return SqliteLedger(tmp_path / "ledger.db")
    server: Postgres = request.getfixturevalue("postgres")
    return PostgresLedger(server.new_database())


@pytest.fixture(params=["memory", *SQL])
def writers(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tuple[Kept, Kept]]:
    """Opens one ledger twice, again and again, for tests of many examples. Each example uses a cluster of its own."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
        return lambda: (PostgresLedger(url), PostgresLedger(url))
    memory = MemoryLedger()

    def make() -> tuple[Kept, Kept]:
        # Nobody else may write to the file, so both share what is open, as the parts of one operator do.
        one = memory if request.param == "memory" else SqliteLedger(tmp_path / "ledger.db")
        return one, one

    return make

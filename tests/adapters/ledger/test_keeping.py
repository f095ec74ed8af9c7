"""What a ledger keeps of each cluster and what it forgets, asked of all three."""

import asyncio
import contextlib
from typing import Any

import pytest

from headroom.adapters.ledger import postgres as postgres_ledger
from headroom.adapters.ledger import schema, sqlite
from headroom.adapters.ledger.encoding import identifier
from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.model.errors import Unavailable
from headroom.model.history import Entry
from headroom.model.retention import Reach, Retention
from headroom.model.usage import DAY, UsageRow
from tests.adapters.ledger.rows import CLUSTER, TODAY, Kept, everything, row, united
from tests.postgres import Postgres

OTHER = "another-cluster"


def over(number: int, cluster: str = CLUSTER) -> UsageRow:
    return row(number, cluster=cluster, ended=TODAY + 5, evidence=3)


async def test_a_cluster_forgets_its_own_rows_and_history_only(ledger: Kept) -> None:
    entries = [Entry(cluster=each, at=TODAY, resource="x", reason="Over") for each in (CLUSTER, OTHER)]
    await ledger.write([over(1), over(2, OTHER), row(3)])
    await ledger.note(entries)
    assert await ledger.prune(CLUSTER, TODAY + DAY) == 2
    assert (await everything(ledger)).keys() == {over(2, OTHER).key, row(3).key}
    assert await ledger.history(0, 10) == [entries[1]]
    assert await ledger.prune("nobody", TODAY + DAY) == 0


async def test_a_pod_that_was_created_long_ago_and_still_runs_stays(ledger: Kept) -> None:
    old = row(1, created=TODAY - 400 * DAY, start=TODAY - 400 * DAY)
    recent = row(2, created=TODAY - 400 * DAY, start=TODAY - 400 * DAY, ended=TODAY, evidence=3)
    await ledger.write([old, recent, over(3)])
    assert await ledger.prune(CLUSTER, TODAY) == 0
    assert await ledger.prune(CLUSTER, TODAY + 1) == 1
    assert (await everything(ledger)).keys() == {old.key, over(3).key}


async def test_pruning_takes_a_few_rows_at_a_time_until_none_is_left(
    sql_ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PRUNED_AT_ONCE", 10)
    await sql_ledger.write([*map(over, range(1, 26)), row(99)])
    took = [await sql_ledger.prune(CLUSTER, TODAY + DAY) for _ in range(4)]
    assert took == [10, 10, 5, 0]
    assert (await everything(sql_ledger)).keys() == {row(99).key}


async def test_what_must_be_kept_is_what_was_written_last(ledger: Kept) -> None:
    assert await ledger.retentions() == {}
    first = Retention(cluster=CLUSTER, known_since=5)
    reach = Reach(window=90 * DAY, shorter=DAY, since=7)
    second = Retention(cluster=CLUSTER, known_since=6, own=reach, spanning=Reach(window=1), looked_at=8, prune_from=9)
    third = Retention(cluster=OTHER, known_since=1, spanning=reach)
    for each in (first, second, third):
        await ledger.retain(each)
    assert await ledger.retentions() == {CLUSTER: second, OTHER: third}


async def test_an_empty_table_of_usage_is_told(ledger: Kept) -> None:
    assert (await ledger.origin()).is_empty
    await ledger.write([row(1, ended=TODAY, evidence=3)])
    assert not (await ledger.origin()).is_empty


async def test_claims_are_counted_for_each_holder_of_a_cluster(ledger: Kept) -> None:
    assert await ledger.claim(CLUSTER, "one", TODAY) == {"one": 1}
    assert await ledger.claim(OTHER, "two", TODAY) == {"two": 1}
    assert await ledger.claim(CLUSTER, "two", TODAY) == {"one": 1, "two": 1}
    assert await ledger.claim(CLUSTER, "one", TODAY + 1) == {"one": 2, "two": 1}
    assert await ledger.claimed(CLUSTER) == {"one": TODAY + 1, "two": TODAY}
    await ledger.unclaim(CLUSTER, "two")
    await ledger.unclaim(CLUSTER, "two")
    assert await ledger.claim(CLUSTER, "one", TODAY + 2) == {"one": 3}


async def test_a_claim_of_long_ago_is_forgotten(sql_ledger: Kept) -> None:
    await sql_ledger.claim(CLUSTER, "gone", TODAY)
    assert await sql_ledger.claim(CLUSTER, "here", TODAY + 2 * DAY) == {"here": 1}


async def test_changes_come_in_parts_that_tear_no_write_apart(
    sql_ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "PAGE", 10)
    monkeypatch.setattr(postgres_ledger, "CHANGES", 10)
    writes = [[row(number * 10 + each) for each in range(4)] for number in range(1, 12)]
    writes.append([row(number) for number in range(1000, 1040)])
    for rows in writes:
        await sql_ledger.write(rows)
    cursor, told, sizes = 0, [], []
    while True:
        rows, cursor = await sql_ledger.changes(cursor)
        if not rows:
            break
        told += rows
        sizes.append(len(rows))
    assert united(told) == await everything(sql_ledger)
    assert len(told) == 11 * 4 + 40, "none twice"
    assert max(sizes) <= 10 + 40, "at most a page and one write"
    assert cursor == await sql_ledger.cursor()


async def test_the_server_of_a_ledger_is_the_same_until_another_one_answers(sql_ledger: Kept) -> None:
    await sql_ledger.write([row(1)])
    first = await sql_ledger.origin()
    await sql_ledger.write([row(2)])
    second = await sql_ledger.origin()
    assert (second.server, second.connections, second.last) == (first.server, first.connections, first.last + 1)


async def test_a_new_connection_and_another_database_system_are_told(
    postgres: Postgres, own_postgres: Postgres
) -> None:
    ledger, elsewhere = PostgresLedger(postgres.new_database()), PostgresLedger(own_postgres.new_database())
    first = await ledger.origin()
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headroom'")
    with contextlib.suppress(Unavailable):  # one call may find its connection gone
        await ledger.cursor()
    again = await ledger.origin()
    assert (again.server, again.connections) == (first.server, first.connections + 1)
    assert first.server
    assert (await elsewhere.origin()).server != first.server
    await ledger.close()
    await elsewhere.close()


async def test_a_writer_does_not_wait_for_one_who_prunes(postgres: Postgres) -> None:
    """Pruning takes no turn and touches no row that somebody writes to, so neither of the two waits for the other."""
    url = postgres.new_database()
    pruner, writer = PostgresLedger(url, timeout=30), PostgresLedger(url, timeout=30)
    await pruner.write([over(number) for number in range(1, 5001)])
    stands_still = asyncio.Event()

    async def prune_and_stand_still(connection: Any) -> None:
        await connection.execute("BEGIN")
        await connection.execute(postgres_ledger._PRUNE, identifier(CLUSTER), TODAY // DAY + 1, TODAY + DAY, 2000)
        await writer.write([row(90_000)])
        stands_still.set()
        await connection.execute("COMMIT")

    await pruner.run("pruning", prune_and_stand_still)
    assert stands_still.is_set()

    async def write_and_stand_still(connection: Any) -> None:
        await connection.execute(postgres_ledger._BEGIN_MY_TURN)
        await connection.execute("SELECT 1 FROM usage WHERE pod = 'train-4000' FOR UPDATE")
        while await pruner.prune(CLUSTER, TODAY + DAY):
            pass
        await connection.execute("COMMIT")

    await writer.run("writing to", write_and_stand_still)
    assert (await everything(writer)).keys() == {over(4000).key, row(90_000).key}, "left for the next time"
    assert await pruner.prune(CLUSTER, TODAY + DAY) == 1
    await pruner.close()
    await writer.close()

"""PostgreSQL when things go wrong: killed, silent, refusing, and with many writers at once."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]  # it comes without types
import pytest

from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.adapters.ledger.queue import QueuedLedger
from headroom.model.errors import HeadroomError, Unavailable
from headroom.model.usage import Heartbeat
from tests.adapters.ledger.rows import CLUSTER, TODAY, everything, flat, row, united
from tests.postgres import PASSWORD, Postgres
from tests.processes import free_ports


def said(error: BaseException) -> str:
    """All that a log could show of it."""
    return "".join(traceback.format_exception(error)) + repr(error)


async def more(things: list[Any], count: int) -> None:
    """Wait until another task has added that many."""
    wanted = len(things) + count
    async with asyncio.timeout(120):
        while len(things) < wanted:  # noqa: ASYNC110  nobody who does it can be asked to tell
            await asyncio.sleep(0.01)


class Proxy:
    """Between a client and the server; once `silent`, it takes everything and passes nothing on."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.silent = asyncio.Event()
        self.port = free_ports(1)[0]
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        yield self
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self.silent.is_set():
                    sink.write(data)
        finally:
            sink.transport.abort()


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(own_postgres: Postgres) -> None:
    ledger = PostgresLedger(own_postgres.new_database(), timeout=30)
    acknowledged: list[int] = []
    failures: list[HeadroomError] = []
    done = asyncio.Event()

    async def write() -> None:
        number = 0
        while not (done.is_set() and acknowledged[-1] == number):
            try:
                await ledger.write([row(number + 1)], Heartbeat(cluster=CLUSTER, complete_until=number + 1))
            except Unavailable as error:
                failures.append(error)
                await asyncio.sleep(0.01)
                continue
            acknowledged.append(number)
            number += not done.is_set()

    writing = asyncio.create_task(write())
    for _ in range(3):
        await more(acknowledged, 20)
        await asyncio.to_thread(own_postgres.kill)
        await more(failures, 1)
        await asyncio.to_thread(own_postgres.start)
    await more(acknowledged, 20)
    done.set()
    await writing
    wanted = {row(number + 1).key for number in acknowledged}
    assert (await everything(ledger)).keys() == wanted
    assert await ledger.heartbeats() == {CLUSTER: max(acknowledged) + 1}
    assert not [error for error in failures if "s3cret" in said(error)]
    await ledger.close()


async def test_a_silent_server_is_unavailable_and_then_works_again(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with Proxy(postgres.port).open() as proxy:
        ledger = PostgresLedger(url.replace(str(postgres.port), str(proxy.port)), timeout=10)
        await ledger.write([row(1)])
        proxy.silent.set()
        for _ in range(2):  # in an open connection first, then while making one
            with pytest.raises(Unavailable, match="did not answer within 10s"):
                await ledger.write([row(2)])
        with pytest.raises(Unavailable, match="did not answer within 10s"):
            await flat(ledger.read(0))
        proxy.silent.clear()
        await ledger.write([row(2)])
        assert len(await everything(ledger)) == 2
        await ledger.close()


async def test_a_writer_that_keeps_its_turn_does_not_hang_the_others(postgres: Postgres) -> None:
    url = postgres.new_database()
    first, second = PostgresLedger(url), PostgresLedger(url, timeout=10)
    await first.write([row(1)])
    in_turn, release = asyncio.Event(), asyncio.Event()

    async def dawdle(connection: asyncpg.Connection) -> None:
        await connection.execute("BEGIN; LOCK TABLE counter, usage")
        in_turn.set()
        await release.wait()
        await connection.execute("ROLLBACK")

    dawdling = asyncio.create_task(first.run("waiting in", dawdle))
    await in_turn.wait()
    with pytest.raises(Unavailable, match="did not answer within 10s"):
        await second.write([row(2)])
    release.set()
    await dawdling
    await second.write([row(2)])
    assert len(await everything(first)) == 2
    await first.close()
    await second.close()


async def test_no_password_in_any_failure(postgres: Postgres) -> None:
    wrong = "hush/hush@"
    nobody = free_ports(1)[0]
    for url in (
        postgres.url("postgres", wrong),
        postgres.url("no_such_database"),
        f"postgresql://postgres:{quote(PASSWORD, safe='')}@127.0.0.1:{nobody}/x",
        f"postgresql://127.0.0.1:{postgres.port}/postgres?user=postgres&password={quote(wrong, safe='')}",
        f"postgresql://postgres:{quote(wrong, safe='')}@127.0.0.1:{postgres.port}/postgres?sslmode={quote(wrong, safe='')}",
    ):
        ledger = PostgresLedger(url, timeout=30)
        with pytest.raises(Unavailable, match="check the server and the ledger's URL") as failed:
            await ledger.cursor()
        text = said(failed.value) + ledger.place + repr(ledger)
        assert not [secret for secret in (PASSWORD, wrong, "s3cret", "hush") if secret in text], text
        await ledger.close()


async def test_changes_skip_nothing_while_many_write(postgres: Postgres) -> None:
    url = postgres.new_database()
    writers = [PostgresLedger(url) for _ in range(4)]
    reader = PostgresLedger(url)
    await reader.cursor()
    wanted = [
        [row(number * 1000 + each, labels=(("n", str(each)),)) for each in range(30)] for number in range(len(writers))
    ]
    told = []
    cursor = 0

    async def write(number: int) -> None:
        for each in wanted[number]:
            await writers[number].write([each, row(500_000, observed=number)])

    writing = asyncio.gather(*map(write, range(len(writers))))
    finished = False
    while not finished:
        finished = writing.done()
        rows, new_cursor = await reader.changes(cursor)
        assert new_cursor >= cursor
        told += rows
        cursor = new_cursor
    await writing
    assert united(told) == await everything(reader)
    assert len(united(told)) == 4 * 30 + 1
    for ledger in (*writers, reader):
        await ledger.close()


async def test_a_cancelled_call_leaves_a_ledger_that_works(postgres: Postgres) -> None:
    ledger = PostgresLedger(postgres.new_database())
    await ledger.write([row(1)])
    for delay in (0.0, 0.001, 0.002, 0.005):
        task = asyncio.create_task(ledger.write([row(number) for number in range(2, 500)]))
        await asyncio.sleep(delay)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # it was told to end
            await task
        assert len(await everything(ledger)) in {1, 499}
    await ledger.write([row(number) for number in range(2, 500)])
    assert len(await everything(ledger)) == 499
    await ledger.close()


async def test_an_ordinary_user_will_do_and_a_server_without_a_connection_to_spare_is_waited_for(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    own_postgres.sql("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    database = own_postgres.new_database().rpartition("/")[2]
    own_postgres.sql(f"ALTER DATABASE {database} OWNER TO plain")
    url = f"postgresql://plain:plain@127.0.0.1:{own_postgres.port}/{database}"
    queued = QueuedLedger(PostgresLedger(url, timeout=30), tmp_path / "queue.db", pause=0)
    await queued.write([row(1)])
    assert (await queued.origin()).server, "who it is, everybody may ask"
    assert await queued.prune(CLUSTER, 0) == 0
    own_postgres.sql("ALTER ROLE plain CONNECTION LIMIT 0")
    own_postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'plain'")
    async with asyncio.timeout(120):
        for number in range(2, 20):
            await queued.write([row(number)])
        while "too many connections" not in queued.problem:  # noqa: ASYNC110  nobody can be asked to tell
            await asyncio.sleep(0.05)
        own_postgres.sql("ALTER ROLE plain CONNECTION LIMIT -1")
        while queued.problem or queued.waiting:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.05)
    assert len(await everything(queued)) == 19
    await queued.close()


async def test_two_clusters_write_and_prune_at_once(postgres: Postgres) -> None:
    url = postgres.new_database()
    ledgers = {name: PostgresLedger(url) for name in ("a", "b")}

    async def live(name: str) -> None:
        for number in range(0, 400, 20):
            old = [row(each, cluster=name, ended=TODAY, evidence=3) for each in range(number, number + 20)]
            await ledgers[name].write(old, Heartbeat(cluster=name, complete_until=number))
            await ledgers[name].write([row(10_000 + number, cluster=name)])
            while await ledgers[name].prune(name, TODAY + 1):
                pass
            await ledgers[name].claim(name, "me", TODAY)

    await asyncio.gather(*map(live, ledgers))
    left = await everything(ledgers["a"])
    assert left.keys() == {row(10_000 + each, cluster=name).key for each in range(0, 400, 20) for name in ledgers}
    assert await ledgers["b"].heartbeats() == {"a": 380, "b": 380}
    for each in ledgers.values():
        await each.close()

"""Writing, reading and pruning the ledger with durability on: rows a second in batches, replays, single writes, a week of rows.

    make bench NAME=ledger                1,000,000 rows in SQLite, 300,000 in PostgreSQL (about four minutes)
    make bench NAME=ledger ARGS=--small   a twentieth of that, to see that it works; keeps no results

Every write is one transaction that is on disk when it returns. The rows are those of training jobs of eight pods, each job with labels of its own.
"""

import asyncio
import random
import sys
import tempfile
import time
import uuid
from pathlib import Path

from bench import results
from bench.results import Row as Figure
from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.model.usage import DAY, UsageRow
from tests.postgres import Postgres

CLUSTER = "6f0e4b0a-3a51-4a8e-8b53-61d5ae5c2f10"
FIRST_DAY = 20_000 * DAY
DAYS = 7
GOAL = 20_000
SINGLE = 500

AnyLedger = SqliteLedger | PostgresLedger


def say(text: str) -> None:
    """A line of progress."""
    print(f"ledger: {text}", file=sys.stderr, flush=True)


def a_row(number: int, total: int, chance: random.Random) -> UsageRow:
    """A pod that trained for an hour; one in ten is still running."""
    created = FIRST_DAY + number * DAYS * DAY // total
    job = number // 8
    team = f"team-{job % 20}"
    is_over = number % 10 > 0
    labels = (
        ("app", "train"),
        ("batch.kubernetes.io/job-name", f"train-{job:06d}"),
        ("index", str(number % 8)),
        ("team", team),
    )
    return UsageRow(
        cluster=CLUSTER,
        uid=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        start=created + 2000,
        namespace=team,
        pod=f"train-{job:06d}-{number % 8}",
        created=created,
        observed=created + 2500,
        earliest=created + 2000,
        seen_until=created + 3_600_000,
        ended=created + 3_600_000 if is_over else None,
        evidence=3 if is_over else 0,
        amounts=(("nvidia.com/gpu", 1_000_000 * (1 + job % 8)),),
        labels=labels,
        price=2_500_000,
    )


async def write(ledger: AnyLedger, rows: list[UsageRow], at_once: int) -> float:
    """Rows a second."""
    began = time.perf_counter()
    for first in range(0, len(rows), at_once):
        await ledger.write(rows[first : first + at_once])
    return len(rows) / (time.perf_counter() - began)


async def read(ledger: AnyLedger, since: int) -> tuple[int, float]:
    """How many rows came, and the seconds that took."""
    began, count = time.perf_counter(), 0
    async for rows in ledger.read(since):
        count += len(rows)
    return count, time.perf_counter() - began


async def size_of(name: str, ledger: AnyLedger) -> Figure:
    """Bytes on disk for each row."""
    info = await ledger.info()
    return Figure(figure=f"{name}: size of a row on disk", value=round(info.size / info.rows), unit="bytes")


async def measure(name: str, ledger: AnyLedger, total: int, *, with_goals: bool) -> list[Figure]:
    """All figures of one engine."""
    chance = random.Random(1)
    say(f"{name}: making {total:,} rows")
    rows = [a_row(number, total, chance) for number in range(total)]
    await ledger.cursor()
    half = total // 2
    goal = GOAL if with_goals else None
    figures = []
    for at_once, part in ((1000, rows[:half]), (10_000, rows[half:])):
        say(f"{name}: writing {len(part):,} rows, {at_once:,} at once")
        rate = await write(ledger, part, at_once)
        figure = f"{name}: rows written, {at_once:,} at once"
        figures.append(Figure(figure=figure, value=round(rate), unit="per s", goal=goal, sense="min"))
    say(f"{name}: the same again")
    rate = await write(ledger, rows, 10_000)
    figures.append(
        Figure(figure=f"{name}: rows replayed, 10,000 at once", value=round(rate), unit="per s", goal=goal, sense="min")
    )
    rate = await write(ledger, [a_row(number, total, chance) for number in range(SINGLE)], 1)
    figures.append(Figure(figure=f"{name}: single durable writes", value=round(rate), unit="per s"))
    say(f"{name}: reading {DAYS} days")
    count, seconds = await read(ledger, FIRST_DAY)
    assert count == total + SINGLE, count
    figures.append(Figure(figure=f"{name}: read of {total:,} rows of {DAYS} days", value=round(seconds, 2), unit="s"))
    return figures


async def waits(ledger: PostgresLedger, until: asyncio.Event) -> list[float]:
    """How long single writes take, in milliseconds, until it is enough."""
    found: list[float] = []
    chance = random.Random(2)
    while not until.is_set():
        began = time.perf_counter()
        await ledger.write([a_row(len(found), 1_000_000, chance)])
        found.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(0.01)
    return sorted(found)


async def pruned(ledger: PostgresLedger, writer: PostgresLedger) -> list[Figure]:
    """Everything is forgotten, in parts, while another connection writes."""
    quiet, done = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().call_later(5.0, quiet.set)
    alone = await waits(writer, quiet)
    writing = asyncio.create_task(waits(writer, done))
    began, gone = time.perf_counter(), 0
    while part := await ledger.prune(CLUSTER, FIRST_DAY + (DAYS + 1) * DAY):
        gone += part
        await asyncio.sleep(0.05)
    seconds = time.perf_counter() - began
    done.set()
    beside = await writing
    say(f"PostgreSQL: pruned {gone:,} rows in {seconds:.1f} s")
    return [
        Figure(figure="PostgreSQL: rows pruned in parts", value=round(gone / seconds), unit="per s"),
        Figure(
            figure="PostgreSQL: a write, nothing beside it, median", value=round(alone[len(alone) // 2], 1), unit="ms"
        ),
        Figure(
            figure="PostgreSQL: a write while rows are pruned, median",
            value=round(beside[len(beside) // 2], 1),
            unit="ms",
        ),
        Figure(figure="PostgreSQL: the longest write while rows are pruned", value=round(beside[-1], 1), unit="ms"),
    ]


async def main(arguments: list[str]) -> int:
    """Measure both engines and write the results."""
    small = "--small" in arguments
    scale = 20 if small else 1
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as folder:
        path = Path(folder) / "ledger.db"
        ledger = SqliteLedger(path)
        figures += await measure("SQLite", ledger, 1_000_000 // scale, with_goals=not small)
        await ledger.close()
        began = time.perf_counter()
        again = SqliteLedger(path)
        await again.cursor()
        seconds = round(time.perf_counter() - began, 2)
        figures.append(Figure(figure="SQLite: opening, every page checked", value=seconds, unit="s"))
        figures.append(await size_of("SQLite", again))
        await again.close()
        with Postgres() as server:
            version = server.sql("SHOW server_version")
            shared, writer = (PostgresLedger(url) for url in [server.new_database()] * 2)
            figures += await measure("PostgreSQL", shared, 300_000 // scale, with_goals=not small)
            figures.append(await size_of("PostgreSQL", shared))
            figures += await pruned(shared, writer)
            await writer.close()
            await shared.close()
        where = Path(folder) if small else results.FOLDER
        missed = results.write("ledger", figures, where, also={"postgresql": version})
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))

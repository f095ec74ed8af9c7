"""Schema versions: up and down without losing a row, and never with a newer one."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec import structs

from headroom.adapters.ledger import open_ledger, schema
from headroom.adapters.ledger.copying import copy
from headroom.adapters.ledger.encoding import BEFORE_ALL
from headroom.model.errors import Refused
from headroom.model.history import Entry
from headroom.model.retention import Reach, Retention, forgettable, looked
from headroom.model.usage import DAY, Ending, Heartbeat, PodDetails
from tests.adapters.ledger.conftest import SQL
from tests.adapters.ledger.rows import CLUSTER, TODAY, everything, row

both = pytest.mark.parametrize("url", SQL, indirect=True)
NEWER = rf"schema version {schema.LATEST + 1}, .* up to {schema.LATEST}; use the newer .*--to-version {schema.LATEST}"
KEPT = Retention(cluster=CLUSTER, known_since=2, own=Reach(window=7), spanning=Reach(window=6), looked_at=3)
ENTRY = Entry(cluster=CLUSTER, at=1, resource="GPUWorkloadBudget/a/b", reason="Over")


@both
async def test_rows_survive_all_versions(url: str) -> None:
    rows = [row(number, price=None if number % 2 else 1) for number in range(1, 100)]
    wanted = {each.key: each for each in rows}
    ledger = open_ledger(url)
    await ledger.write(rows, Heartbeat(cluster=CLUSTER, complete_until=5))
    await ledger.note([ENTRY])
    cursor = await ledger.cursor()
    for _ in range(2):
        await ledger.migrate(1)
        await ledger.close()
        older = open_ledger(url, read_only=True)
        info = await older.info()
        assert (info.version, info.rows) == (1, 99)
        assert await everything(older) == wanted
        assert await older.history(BEFORE_ALL, 10) == []
        await older.close()
        ledger = open_ledger(url)
        assert await everything(ledger) == wanted
        assert await ledger.cursor() == cursor
        assert await ledger.heartbeats() == {CLUSTER: 5}
        assert (await ledger.info()).version == schema.LATEST
        assert await ledger.history(BEFORE_ALL, 10) == [], "going below version 2 forgets the history"
        await ledger.note([ENTRY])
        assert await ledger.history(BEFORE_ALL, 10) == [ENTRY]
    await ledger.close()


@both
async def test_going_below_version_6_loses_the_details_of_rows_and_nothing_else(url: str) -> None:
    details = PodDetails("Job", "train", "u-1", 3_600_000, "p4d.24xlarge", (("gpu", "a100"),)).pairs()
    known = row(1, ended=TODAY + 9, evidence=3, ending=Ending.EVICTED, details=details)
    without = structs.replace(known, ending=Ending.UNKNOWN, details=())
    ledger = open_ledger(url)
    await ledger.write([known])
    await ledger.migrate(5)
    await ledger.close()
    older = open_ledger(url, read_only=True)
    assert await everything(older) == {known.key: without}
    assert (await older.changes(0))[0] == [without]
    await older.close()
    ledger = open_ledger(url)
    assert await everything(ledger) == {known.key: without}
    await ledger.write([known])
    assert await everything(ledger) == {known.key: known}
    await ledger.close()


@both
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_newer_ledger_is_refused_with_what_to_do(url: str, read_only: bool) -> None:
    ledger = open_ledger(url)
    await ledger.write([row(1)])
    await ledger.run(
        "x", lambda connection: connection.execute(f"UPDATE schema_version SET version = {schema.LATEST + 1}")
    )
    await ledger.close()
    ledger = open_ledger(url, read_only=read_only)
    with pytest.raises(Refused, match=NEWER):
        await ledger.cursor()
    await ledger.close()


@both
async def test_going_back_a_version_loses_what_must_be_kept_but_no_row_and_nothing_is_forgotten_for_a_week(
    url: str,
) -> None:
    ledger = open_ledger(url)
    await ledger.write([row(1, observed=7), row(2, observed=5)], Heartbeat(cluster=CLUSTER, complete_until=9))
    await ledger.write([], Heartbeat(cluster="quiet", complete_until=8))
    assert await ledger.retentions() == {}
    await ledger.retain(
        Retention(cluster=CLUSTER, known_since=1, own=Reach(window=90 * DAY), looked_at=9, prune_from=3)
    )
    await ledger.migrate(2)
    await ledger.close()
    older = open_ledger(url, read_only=True)
    assert len(await everything(older)) == 2
    assert await older.retentions() == {}
    await older.close()
    ledger = open_ledger(url)
    assert len(await everything(ledger)) == 2
    found = await ledger.retentions()
    assert found == {
        CLUSTER: Retention(cluster=CLUSTER, known_since=5),
        "quiet": Retention(cluster="quiet", known_since=8),
    }, "known from the first row on"
    now = 10**9 * 2000
    assert forgettable({CLUSTER: looked(found[CLUSTER], DAY, 0, now)}, CLUSTER, now + 7 * DAY - 1) is None
    await ledger.close()


@both
async def test_two_that_open_a_new_ledger_at_once(url: str) -> None:
    ledgers = [open_ledger(url) for _ in range(1 if url.startswith("sqlite") else 4)]
    await asyncio.gather(*(ledger.write([row(number)]) for number, ledger in enumerate(ledgers)))
    assert len(await everything(ledgers[0])) == len(ledgers)
    for ledger in ledgers:
        await ledger.close()


async def test_a_backup_restored_beside_a_later_ledger_leaves_a_hole(tmp_path: Path) -> None:
    backup, anew = (open_ledger(f"{tmp_path}/{name}.db") for name in ("backup", "anew"))
    begun = 90 * DAY
    await backup.write([row(1)], Heartbeat(cluster=CLUSTER, complete_until=30 * DAY))
    await backup.retain(KEPT)
    await anew.write([row(2)], Heartbeat(cluster=CLUSTER, complete_until=begun + 5))
    await anew.retain(Retention(cluster=CLUSTER, known_since=begun, looked_at=begun))
    await copy(backup, anew)
    assert (await anew.retentions())[CLUSTER].known_since == begun
    await backup.close()
    await anew.close()


@both
async def test_a_copy_into_the_other_kind_and_back_is_the_same(url: str, tmp_path: Path) -> None:
    rows = [row(number, ended=number, evidence=1) for number in range(1, 300)]
    source, other = open_ledger(url), open_ledger(f"{tmp_path}/other.db")
    await source.write(rows, Heartbeat(cluster=CLUSTER, complete_until=5))
    await source.note([ENTRY])
    await source.retain(KEPT)
    heard: list[int] = []
    assert (await copy(source, other, heard.append)).new == 299
    assert heard == [299]
    assert await everything(other) == await everything(source)
    assert await other.heartbeats() == {CLUSTER: 5}
    assert await other.history(0, 10) == [ENTRY]
    assert await other.retentions() == {CLUSTER: KEPT}
    await source.write([row(1, ended=1, evidence=3)], Heartbeat(cluster=CLUSTER, complete_until=9))
    await source.retain(structs.replace(KEPT, own=Reach(window=3), known_since=4, looked_at=5))
    back = await copy(other, source)
    assert (back.rows, back.new) == (299, 0), "a copy that is older takes nothing away"
    assert (await everything(source))[row(1).key].evidence == 3
    assert await source.heartbeats() == {CLUSTER: 9}, "a copy takes no word back"
    assert await source.retentions() == {CLUSTER: structs.replace(KEPT, looked_at=5)}, "the longer of both"
    await source.close()
    await other.close()


@pytest.mark.parametrize("dialect", [schema.SQLITE, schema.POSTGRES])
def test_every_step_has_a_way_back(dialect: schema.Dialect) -> None:
    assert all(step.up and step.down for step in schema.steps(dialect))
    assert schema.way(dialect, 2, 2) == ["UPDATE schema_version SET version = 2"]


def test_all_steps_down_leave_nothing() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(schema.VERSION_TABLE)
    for statement in schema.way(schema.SQLITE, 0, schema.LATEST) + schema.way(schema.SQLITE, schema.LATEST, 0):
        connection.execute(statement)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("schema_version",)]
    connection.close()

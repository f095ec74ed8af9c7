"""The SQLite file when things go wrong: no room, a kill, a cut, damage, and two who want to write."""

import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headroom.adapters.ledger import copying, open_ledger
from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.model.errors import Misconfigured, Refused, Unavailable
from headroom.model.usage import Heartbeat
from tests.adapters.ledger import writer
from tests.adapters.ledger.rows import CLUSTER, everything, row, uid

ROOT = Path(__file__).parent.parent.parent.parent


async def uids(path: Path) -> set[str]:
    ledger = SqliteLedger(path)
    try:
        return {each.uid for each in (await everything(ledger)).values()}
    finally:
        await ledger.close()


async def filled(path: Path, count: int = 2000) -> None:
    ledger = SqliteLedger(path)
    await ledger.write([row(number, labels=(("n", str(number)),)) for number in range(1, count + 1)])
    await ledger.close()


def contents(folder: Path) -> dict[str, bytes]:
    """All files but those that only lock or index."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith((".lock", "-shm"))}


def start_writer(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.adapters.ledger.writer", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def of_batches(numbers: list[int]) -> set[str]:
    return {uid(each) for number in numbers for each in writer.batch(number)}


@pytest.mark.parametrize("acknowledged", [1, 5, 30])
async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path, acknowledged: int) -> None:
    path = tmp_path / "ledger.db"
    with start_writer(path) as child:
        assert child.stdout is not None
        heard = [int(child.stdout.readline()) for _ in range(acknowledged)]
        child.kill()
        heard += [int(line) for line in child.stdout]
    reader = SqliteLedger(path, read_only=True)
    await copying.backup(reader, tmp_path / "copy.db")
    await reader.close()
    assert await uids(tmp_path / "copy.db") >= of_batches(heard), "a backup right after the crash"
    found = await uids(path)
    assert found >= of_batches(heard)
    # A write that was not acknowledged is there as a whole or not at all.
    assert found in (of_batches(heard), of_batches([*heard, len(heard)]))


async def test_a_write_that_the_system_refuses_is_unavailable_until_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with start_writer(path, 200_000) as child:
        assert child.stdout is not None
        *heard, said, last = child.stdout.read().splitlines()
    assert child.returncode == 0
    assert said.startswith(f"writing to the ledger {path}: ")
    assert "check the disk" in said
    assert len(heard) > 3
    assert await uids(path) == of_batches([int(each) for each in [*heard, last]])


async def test_a_full_disk_is_named_and_earlier_rows_stay(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    await ledger.write([row(1)])
    pages = await ledger.run("x", lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    await ledger.run("x", lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 1}").fetchall())
    with pytest.raises(Unavailable, match="the disk is full; free some space"):
        await ledger.write([row(number) for number in range(2, 2000)], Heartbeat(cluster=CLUSTER, complete_until=1))
    assert {each.uid for each in (await everything(ledger)).values()} == {uid(1)}
    assert await ledger.heartbeats() == {}
    # The failed connection was dropped, and its limit with it: there is room again.
    await ledger.write([row(number) for number in range(2, 2000)])
    assert len(await everything(ledger)) == 1999
    await ledger.close()


async def test_a_write_cut_short_at_any_length_leaves_all_transactions_before_it(tmp_path: Path) -> None:
    path, wal = tmp_path / "ledger.db", tmp_path / "ledger.db-wal"
    ledger = SqliteLedger(path)
    await ledger.cursor()
    ends = [wal.stat().st_size]
    for number in range(1, 6):
        await ledger.write([row(number * 10 + each) for each in range(3)])
        ends.append(wal.stat().st_size)
    assert ends == sorted(set(ends)), "each write made the file longer"
    whole, main = wal.read_bytes(), path.read_bytes()
    await ledger.close()
    cuts = {*range(0, len(whole), 509), *ends, *(end - 1 for end in ends if end), *(end + 1 for end in ends)}
    for cut in sorted(each for each in cuts if each <= len(whole)):
        copy, copied_wal = tmp_path / "copy" / "ledger.db", tmp_path / "copy" / "ledger.db-wal"
        copy.parent.mkdir()
        copy.write_bytes(main)
        copied_wal.write_bytes(whole[:cut])
        done = sum(end <= cut for end in ends[1:])
        wanted = {uid(number * 10 + each) for number in range(1, done + 1) for each in range(3)}
        assert await uids(copy) == wanted, f"cut at {cut} of {len(whole)}"
        shutil.rmtree(copy.parent)


def damage_header(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def damage_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xa5" * 20_000)


def cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lose_main_file(path: Path) -> None:
    path.rename(f"{path}-wal")


@pytest.mark.parametrize("harm", [damage_header, damage_middle, cut_in_half, empty, lose_main_file])
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_damaged_file_is_refused_and_never_becomes_an_empty_ledger(
    tmp_path: Path, harm: object, read_only: bool
) -> None:
    path = tmp_path / "ledger.db"
    await filled(path)
    assert callable(harm)
    harm(path)
    before = contents(tmp_path)
    ledger = SqliteLedger(path, read_only=read_only)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            await ledger.cursor()
        assert str(path) in str(refused.value)
        assert "restore a backup" in str(refused.value)
    await ledger.close()
    assert contents(tmp_path).items() >= before.items(), "whoever comes to help finds what there was"


async def test_another_sqlite_file_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for read_only in (False, True):
        ledger = SqliteLedger(path, read_only=read_only)
        with pytest.raises(Refused, match="not a ledger of Headroom"):
            await ledger.cursor()
        await ledger.close()


async def test_two_cannot_write_to_one_file_but_a_backup_can_be_made(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with start_writer(path) as child:
        assert child.stdout is not None
        heard = [int(child.stdout.readline())]
        second = SqliteLedger(path)
        with pytest.raises(Refused, match="another process has it open for writing; stop that one first"):
            await second.write([row(1)])
        reader = SqliteLedger(path, read_only=True)
        await copying.backup(reader, copy)
        assert await uids(copy) >= of_batches(heard)
        with pytest.raises(Unavailable, match="readonly"):
            await reader.write([row(1)])
        await reader.close()
        child.kill()
    # The lock ended with its process; the second one needs no help.
    await second.write([row(1)])
    await second.close()


async def test_a_backup_is_one_file_and_never_replaces_another(tmp_path: Path) -> None:
    await filled(tmp_path / "ledger.db", 10)
    ledger = SqliteLedger(tmp_path / "ledger.db", read_only=True)
    target = tmp_path / "out" / "copy.db"
    target.parent.mkdir()
    await copying.backup(ledger, target)
    assert [file.name for file in target.parent.iterdir()] == ["copy.db"]
    with pytest.raises(Refused, match="the file exists"):
        await copying.backup(ledger, target)
    with pytest.raises(Refused, match="No such file or directory; name another file"):
        await copying.backup(ledger, tmp_path / "nowhere" / "copy.db")
    await ledger.close()


async def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "a" / "b" / "ledger.db")
    await ledger.write([row(1)])
    for file in ledger.path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    await ledger.close()


async def test_a_ledger_that_is_only_read_must_be_there(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "none.db", read_only=True)
    with pytest.raises(Refused, match="there is no such file"):
        await ledger.cursor()
    await ledger.close()
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    "url", ["", "mysql://u:hush@h/d", "sqlite://", "sqlite:///", "sqlite://relative.db", "folder/", "postgresql://h"]
)
def test_a_url_of_another_form_is_told_the_right_ones(url: str) -> None:
    with pytest.raises(Misconfigured, match="sqlite:///PATH") as said:
        open_ledger(url)
    assert "hush" not in str(said.value)


def test_urls_name_their_ledger() -> None:
    assert open_ledger("sqlite:///var/lib/x.db").place == "/var/lib/x.db"
    assert open_ledger("data/x.db").place == "data/x.db"
    for scheme in ("postgres", "postgresql"):
        url = f"{scheme}://me:hush@db.example.com:5433/usage?sslmode=require"
        assert open_ledger(url).place == "postgresql://db.example.com:5433/usage"

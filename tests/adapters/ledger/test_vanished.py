"""The file of an open SQLite ledger is deleted or replaced: noticed at once, and never begun anew behind anybody's back."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.model.errors import Refused
from tests.adapters.ledger.rows import everything, row


def delete_all(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        if not each.name.endswith(".lock"):
            each.unlink()


def delete_main(path: Path) -> None:
    path.unlink()


def delete_wal(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.endswith(("-wal", "-shm")))


@pytest.mark.parametrize("harm", [delete_all, delete_main, delete_wal, replace, move_away])
async def test_the_next_write_fails_and_says_why_and_so_does_every_later_one(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    await ledger.write([row(1)])
    harm(ledger.path)
    left = names(tmp_path)
    for number in (2, 3):
        with pytest.raises(Refused, match=r"was deleted or replaced while in use; stop Headroom, .* restore a backup"):
            await ledger.write([row(number)])
    with pytest.raises(Refused, match="deleted or replaced"):
        await ledger.cursor()
    await ledger.close()
    assert names(tmp_path) == left


async def test_a_file_that_was_put_back_is_taken_up_at_the_next_start(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "ledger.db", tmp_path / "elsewhere"
    ledger = SqliteLedger(path)
    await ledger.write([row(1)])
    path.rename(elsewhere)
    with pytest.raises(Refused, match="deleted or replaced"):
        await ledger.write([row(2)])
    await ledger.close()
    elsewhere.rename(path)
    again = SqliteLedger(path)
    assert (await everything(again)).keys() == {row(1).key}
    await again.close()


async def test_closing_and_failing_are_no_loss(tmp_path: Path) -> None:
    """SQLite removes and makes the file beside it by itself; that is no harm."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    await ledger.write([row(1)])
    with pytest.raises(Refused, match="cannot store this"):
        await ledger.write([row(2, seen_until=2**63)])
    await ledger.write([row(3)])
    await ledger.close()
    again = SqliteLedger(tmp_path / "ledger.db")
    await again.write([row(4)])
    assert len(await everything(again)) == 3
    await again.close()


async def test_a_file_that_went_while_it_was_not_open_is_not_made_anew(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    await ledger.write([row(1)])
    with pytest.raises(Refused, match="cannot store this"):  # which closes it
        await ledger.write([row(2, seen_until=2**63)])
    delete_all(ledger.path)
    for number in (3, 4):
        with pytest.raises(Refused, match="deleted or replaced"):
            await ledger.write([row(number)])
    await ledger.close()
    assert not ledger.path.exists()

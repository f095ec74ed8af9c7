"""Files with what a cluster holds are for nobody but who wrote them."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from headroom.cli import private
from tests.cli.conftest import Headroom


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture(autouse=True)
def _generous() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_new_file_is_ours_alone(tmp_path: Path) -> None:
    private.write(tmp_path / "world.json", b"{}")
    assert (mode(tmp_path / "world.json"), (tmp_path / "world.json").read_bytes()) == (0o600, b"{}")
    assert [each.name for each in tmp_path.iterdir()] == ["world.json"]


def test_one_that_others_could_read_is_not_read_by_them_any_more(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_text("old")
    file.chmod(0o644)
    with file.open() as others:
        private.write(file, b"new")
        assert others.read() == "old"
    assert (mode(file), file.read_text()) == (0o600, "new")


def test_a_link_leads_to_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "world.json")
    private.write(tmp_path / "link", b"{}")
    assert (tmp_path / "link").is_symlink()
    assert mode(tmp_path / "world.json") == 0o600


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = list[bytes]()
    reading = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reading.start()
    private.write(tmp_path / "pipe", b"{}")
    reading.join(20)
    assert found == [b"{}"]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        private.write(tmp_path / "no" / "world.json", b"{}")
    assert not list(tmp_path.iterdir())


def test_every_command_that_writes_a_file_of_a_cluster_writes_it_so() -> None:
    """The commands write files in one way only: a new one that does not would be readable by everybody."""
    source = Path(private.__file__).parent
    writing = {
        file.name
        for file in source.glob("*.py")
        if any(
            call in file.read_text().replace("formatter.write_text(", "") for call in (".write_bytes(", ".write_text(")
        )
    }
    # The dashboard's page, which leads a browser to it, is in a folder of its own that only we can enter.
    assert writing == {"private.py", "dashboard.py"}


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--from", "none.json", "--html"),
        ("snapshot", "--kubeconfig", "none", "-o"),
        ("demo", "--for", "60", "--snapshot"),
    ],
)
@pytest.mark.parametrize(("place", "why"), [("gone/report", "No such file or directory"), ("", "Is a directory")])
def test_an_output_that_cannot_be_written_is_said_before_the_work(
    headroom: Headroom, tmp_path: Path, command: tuple[str, ...], place: str, why: str
) -> None:
    file = tmp_path / place
    done = headroom(*command, file)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"headroom: writing {file}: {why}; make its folder, or give another file\n"


def test_an_output_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    private.prepare(tmp_path / "old.json")
    private.prepare(tmp_path / "new.json")
    assert [each.name for each in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "old"

"""Progress on long work: seen on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

WORK = """
from headroom.cli import progress
with progress.shown("reading", "objects", 40) as told:
    for number in range(41):
        told(number)
print("done")
"""


def on_a_terminal(folder: Path) -> tuple[bytes, bytes]:
    """What stands on standard output, and what a terminal shows of standard error."""
    leader, follower = pty.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        command = [sys.executable, "-c", WORK]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, env=environment, cwd=folder, check=True)
        os.close(follower)
        shown = b""
        while chunk := _read(leader):
            shown += chunk
        return done.stdout, shown
    finally:
        os.close(leader)


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # nobody writes to it any more
        return b""


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    out, shown = on_a_terminal(tmp_path)
    assert out == b"done\n"
    assert b"reading" in shown


def test_a_pipe_gets_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, cwd=tmp_path, check=True)
    assert (done.stdout, done.stderr) == (b"done\n", b"")

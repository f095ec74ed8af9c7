"""Programs on a terminal of their own, and what a person sees there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.cli.stage import ROOT
from tests.cli.test_behaviour import ENVIRONMENT, PROGRAM
from tests.processes import PATIENCE_SECONDS

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|(\r)|(\n)")


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process, self._ours, self.screen = process, ours, ""

    def until(self, there: Callable[[str], bool]) -> str:
        """What was shown so far, once it is so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not there(self.screen):
            assert time.monotonic() < deadline, self.screen[-3000:]
            assert self.process.poll() is None, self.screen[-3000:]
            if select.select([self._ours], [], [], 0.2)[0]:
                try:
                    self.screen += os.read(self._ours, 65536).decode("utf-8", "replace")
                except OSError:  # it has ended
                    assert there(self.screen), self.screen[-3000:]
        return self.screen

    def seen(self) -> list[str]:
        """The lines that a person sees: what was written over is gone. The terminal does not scroll back."""
        lines, row, column, after = [""], 0, 0, 0
        for each in _CONTROL.finditer(f"{self.screen}\n"):
            text, after = self.screen[after : each.start()], each.end()
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
            arguments, control, returns, breaks = each.groups()
            if returns:
                column = 0
            elif breaks or control == "B":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif control == "A":
                row -= int(arguments or 1)
            elif control == "K":
                lines[row] = ""
        return lines

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def ended(self) -> int:
        """Its exit code, once it is over."""
        while self.process.poll() is None:
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.screen += os.read(self._ours, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def on_a_terminal(*words: object, columns: int = 120, lines: int = 44, **more: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {name: each for name, each in ENVIRONMENT.items() if name not in ("COLUMNS", "LINES")}
    command = [*PROGRAM, *map(str, words)]
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment | {"TERM": "xterm"} | more, cwd=ROOT
    )
    try:
        yield Terminal(process, ours)
        assert termios.tcgetattr(theirs) == before, "the terminal is left as it was"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)

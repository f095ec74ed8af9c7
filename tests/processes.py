"""Child processes that never outlive the tests, and loopback ports that they can have."""

import contextlib
import fcntl
import functools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

PATIENCE_SECONDS: Final = 300.0
"""For whatever comes by itself: only a failure takes so long, and two cores may be shared by many."""

# Above 32767 the kernel takes ports for outgoing connections, and a server there fails now and then.
PORTS = range(20000, 32768)

# Kills what is still alive when the tests are gone, however they went: its standard input then ends.
GUARD = """
import os, shutil, signal, sys
alive = set()
for line in sys.stdin:
    pid = int(line)
    alive.add(pid) if pid > 0 else alive.discard(-pid)
for pid in alive:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
if alive:
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


class NotReady(Exception):
    """A process ended, or did not answer in time; the end of its log is in the message."""


class Guard:
    """Watches the processes of one folder, which it also removes if the tests die."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", GUARD, str(folder)]
        self._watcher = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)

    def add(self, pid: int) -> None:
        self._tell(pid)

    def remove(self, pid: int) -> None:
        self._tell(-pid)

    def close(self) -> None:
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait(PATIENCE_SECONDS)

    def _tell(self, number: int) -> None:
        assert self._watcher.stdin is not None
        self._watcher.stdin.write(f"{number}\n")
        self._watcher.stdin.flush()


class Process:
    """One program with its log file."""

    def __init__(self, command: Sequence[str], log: Path, guard: Guard, environment: dict[str, str]) -> None:
        self.name = Path(command[0]).name
        self.log = log
        self._guard = guard
        with log.open("ab") as output:
            # A session of its own: Ctrl-C must not reach the parts at once, because their order of ending matters.
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )
        guard.add(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    def running(self) -> bool:
        return self._child.poll() is None

    def stop(self, timeout: float = 60) -> None:
        """Asks it to end, and kills it if it does not."""
        self._end(signal.SIGTERM)
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)
            self._child.wait(timeout)
        self._guard.remove(self.pid)

    def kill(self) -> None:
        self._end(signal.SIGKILL)
        self._child.wait(PATIENCE_SECONDS)
        self._guard.remove(self.pid)

    def wait_ready(self, ready: Callable[[], bool], timeout: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running():
                raise NotReady(f"{self.name} ended with {self._child.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise NotReady(f"{self.name} not ready after {timeout:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _end(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)


def cpu_seconds(pid: int) -> float:
    """How far a process has come, on a busy machine as on a quiet one."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> list[int]:
    """Distinct free loopback ports, for as long as this process lives: no other process of tests is given one of them meanwhile."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if port in _ours or not _reserved(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free loopback port")


def _reserved(port: int) -> bool:
    """Locks the byte of this number in a file that all processes of tests share; the kernel lets go when this process ends."""
    try:
        fcntl.lockf(_shared_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _ours.add(port)
    return True


@functools.cache
def _shared_file() -> BinaryIO:
    return (Path(tempfile.gettempdir()) / f"headroom-ports-{os.getuid()}").open("ab")


_ours: set[int] = set()

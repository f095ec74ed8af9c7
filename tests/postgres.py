"""A real PostgreSQL on a loopback port, for tests and benchmarks; its files are in a folder of its own.

with Postgres() as server:
    url = server.new_database()
"""

import atexit
import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tests.processes import Guard, NotReady, Process, free_ports

PASSWORD = "s3cret/of@the:tests"
FOLDERS = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt/postgresql")
START_SECONDS = 60


def find_binaries() -> Path | None:
    """The folder with initdb and postgres, the newest version there is; None where it is not installed."""
    found = [folder for root in FOLDERS for folder in (Path(root) / "bin", *Path(root).glob("*/bin"))]
    if initdb := shutil.which("initdb"):
        found.append(Path(initdb).resolve().parent)
    whole = [folder for folder in found if (folder / "initdb").exists() and (folder / "postgres").exists()]
    return max(whole, key=lambda folder: [int(digits) for digits in re.findall(r"\d+", str(folder))], default=None)


def lacking() -> str:
    """Why PostgreSQL cannot be started; empty if it can."""
    return "" if find_binaries() else "PostgreSQL is not installed (tools/setup dev)"


def _family(pid: int) -> list[int]:
    """A process and all that it has started."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [pid]
    for each in found:
        found += [child for child, parent in pairs if parent == each]
    return found


class Postgres:
    """One server. `kill` and `start` again at will: it keeps its port and its data."""

    def __init__(self) -> None:
        binaries = find_binaries()
        if binaries is None:
            raise FileNotFoundError(lacking())
        self._binaries = binaries
        self._process: Process | None = None
        self._numbers = itertools.count(1)
        self._guard: Guard | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="headroom-postgres-"))
        self._guard = Guard(self.folder)
        atexit.register(self.stop)
        try:
            self._make_data()
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, database: str, password: str = PASSWORD) -> str:
        """The URL of one database."""
        return f"postgresql://postgres:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a database that nobody else uses."""
        name = f"ledger_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the server's owner; what psql prints."""
        command = [
            str(self._binaries / "psql"),
            "-X",
            "-q",
            "-t",
            "-A",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            self.url(database),
        ]
        done = subprocess.run([*command, "-c", statement], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self) -> None:
        """Start it, on the port that it had, and wait until it answers."""
        assert self._guard is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.port = self.port or free_ports(1)[0]
            flags = ["-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.folder), "-D", str(self.folder / "data")]
            command = [*self._as_owner(), str(self._binaries / "postgres"), *flags]
            self._process = Process(command, self.folder / "log", self._guard, dict(os.environ))
            try:
                self._process.wait_ready(self._answers)
            except NotReady as failure:
                # What a killed server left behind may live a moment longer, and refuses the next one.
                self._process.kill()
                if time.monotonic() > deadline or "still in use" not in str(failure):
                    raise
                time.sleep(0.2)
            else:
                return

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All its processes stand still, as behind a network that drops everything."""
        assert self._process is not None
        processes = _family(self._process.pid)
        for each in processes:
            os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in processes:
                with suppress(ProcessLookupError):  # one that was told to end meanwhile
                    os.kill(each, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a loss of power would, without a word to anybody."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def stop(self) -> None:
        """End it and remove its files. Harmless when repeated."""
        if self._guard is None:
            return
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._guard.close()
        self._guard = None
        atexit.unregister(self.stop)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_data(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            for path in (self.folder, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        flags = ["-D", str(self.folder / "data"), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        command = [
            *self._as_owner(),
            str(self._binaries / "initdb"),
            *flags,
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_owner(self) -> list[str]:
        """PostgreSQL refuses to run as root, so root lends it the user that its package made."""
        if os.getuid() != 0:
            return []
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--no-new-privs"]

    def _answers(self) -> bool:
        command = [str(self._binaries / "psql"), "-X", "-d", self.url("postgres"), "-c", "SELECT 1"]
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0

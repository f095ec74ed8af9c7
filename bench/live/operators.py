"""`headroom run` as a process of its own, with what the kernel says it costs."""

import itertools
import os
import sys
from pathlib import Path

from tests.control_plane import ControlPlane
from tests.processes import Guard, Process

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Operators:
    """Operators one after the other, with one ledger; each has a name of its own, as pods of a Deployment do."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane, self._folder = plane, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._guard = Guard(folder)
        self._numbers = itertools.count(1)
        self._process: Process | None = None

    def start(self) -> None:
        """Start the next one; its log is beside the ledger."""
        assert self._process is None, "the last one still runs"
        identity = f"operator-{next(self._numbers)}"
        command = [sys.executable, "-m", "headroom", "run", "--identity", identity]
        command += ["--kubeconfig", str(self._plane.kubeconfig()), "--metrics-address", "", "--health-address", ""]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        environment["HEADROOM_LEDGER_URL"] = f"sqlite://{self._folder / 'ledger.sqlite'}"
        self._process = Process(command, self._folder / f"{identity}.log", self._guard, environment)

    def kill(self) -> None:
        """End it without a word of warning."""
        self.running().kill()
        self._process = None

    def stop(self) -> None:
        """End it in good order, if it runs."""
        if self._process is not None:
            self._process.stop(timeout=30)
            self._process = None

    def close(self) -> None:
        """End everything."""
        self.stop()
        self._guard.close()

    def running(self) -> Process:
        """The process. Raises if it ended by itself, with the end of its log."""
        assert self._process is not None, "no operator runs"
        if not self._process.running():
            raise RuntimeError(f"the operator ended by itself:\n{self._process.tail()}")
        return self._process

    def cpu_seconds(self) -> float:
        """What it has used, in all its threads."""
        stat = Path(f"/proc/{self.running().pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS_PER_SECOND

    def peak_mib(self) -> float:
        """The most memory that it ever had."""
        lines = Path(f"/proc/{self.running().pid}/status").read_text().splitlines()
        [peak] = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
        return peak / 1024

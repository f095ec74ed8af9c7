"""Starts attackers as processes of their own, and counts the connections that they make."""

import subprocess
import sys
from pathlib import Path

from bench.results import ROOT
from tests.control_plane import wait_until


class Attackers:
    """Each kind as a process of its own, for as long as somebody measures."""

    def __init__(self, folder: Path, *given: tuple[str, int, int]) -> None:
        self._given = given
        self._said = [folder / f"attack-{number}" for number, _ in enumerate(given)]
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Until every one of them has made as many connections as it wants to hold."""
        for said, each in zip(self._said, self._given, strict=True):
            command = (sys.executable, "-m", "bench.live.attackers", *map(str, each))
            with said.open("wb") as out:
                self._started.append(subprocess.Popen(command, cwd=ROOT, stdout=out))
        wait_until(self._are_there, "the attackers are there", 120)

    def close(self) -> None:
        """End them."""
        for process in self._started:
            process.kill()
            process.wait()

    def _are_there(self) -> bool:
        return all(made >= count for made, (_, _, count) in zip(self.made(), self._given, strict=True))

    def made(self) -> list[int]:
        """How many connections each has made."""
        return [int((said.read_text().split() or ["0"])[-1]) for said in self._said]

"""Ports that several processes of tests take at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

FEW = range(21000, 21060)
OTHER = f"""
import json
from tests import processes
processes.PORTS = {FEW!r}
print(json.dumps(processes.free_ports(20)), flush=True)
input()
"""


def test_no_port_is_given_to_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server listens a while after its port was chosen, and one that restarts leaves it free in between."""
    monkeypatch.setattr(processes, "PORTS", FEW)
    command = [sys.executable, "-c", OTHER]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as other:
        assert other.stdout is not None
        theirs = json.loads(other.stdout.readline())
        ours = [*processes.free_ports(10), *processes.free_ports(10)]
        other.communicate("\n")
    assert len({*theirs, *ours}) == 40

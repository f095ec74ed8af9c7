"""The real Karpenter beside a control plane of the tests, and a market of machines that sell out, fail, and change their price.

    market = Market(folder)
    market.put("g5.xlarge", "us-east-1a", 0.4)
    lab = KarpenterLab(plane, folder, market)

What the market says, Karpenter's cloud does (tools/karpenter/lab), and the operator is told of it (tests/integration/offering.py).
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane import ControlPlane
from tests.integration.accounts import GPU, Document, fetched
from tests.processes import Guard, Process, free_ports

REGION = "us-east-1"
MILLION = 1_000_000
GIVES_UP = "6s"
"""After how long Karpenter gives up a claim that is not launched, in place of five minutes."""


def find_lab() -> Path | None:
    """The folder with the program and Karpenter's kinds, or None where they are not built."""
    script = Path(__file__).parent.parent / "tools" / "karpenter" / "build"
    where = subprocess.run([script, "--where"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(where) if where else None


def lab_is_lacking() -> str:
    """Why Karpenter cannot be started; empty if it can."""
    return "" if find_lab() else "Karpenter is not built (tools/karpenter/build)"


def definitions() -> list[Document]:
    """The kinds of Karpenter and of its KWOK provider."""
    lab = find_lab()
    assert lab is not None
    return [yaml.safe_load(file.read_text()) for file in sorted((lab / "kinds").iterdir())]


# --- the market -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sold:
    """One machine type in one zone, as it is sold."""

    kind: str
    zone: str
    dollars: float
    capacity_type: str = "spot"
    gpus: int = 1
    mode: str = ""
    """What becomes of launches, in the words of the lab."""
    seconds: float = 0
    told: bool = True
    """The operator knows of it."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it another one."""
        return self.kind, self.zone, self.capacity_type

    @property
    def offer(self) -> Document:
        """As the operator is told of it."""
        return {
            "name": "/".join(self.key),
            "provider": "aws",
            "region": REGION,
            "zone": self.zone,
            "zoneId": f"use1-az{self.zone[-1]}",
            "instanceType": self.kind,
            "arch": "amd64",
            "vendor": "nvidia",
            "gpus": self.gpus * MILLION,
            "capacityType": self.capacity_type,
            "pricePerHour": round(self.dollars * MILLION),
        }


class Market:
    """All that is sold, in two files: one for Karpenter's cloud, one for the operator."""

    def __init__(self, folder: Path) -> None:
        self.machines, self.offers = folder / "machines.json", folder / "offers.json"
        self._sold: dict[tuple[str, str, str], Sold] = {}
        self._write()

    def put(self, kind: str, zone: str, dollars: float, **more: Any) -> None:
        """Something is sold from now on, or sold differently."""
        sold = Sold(kind=kind, zone=zone, dollars=dollars, **more)
        self._sold[sold.key] = sold
        self._write()

    def show(self, every: Iterable[Sold]) -> None:
        """All that is sold from now on, at once."""
        self._sold = {each.key: each for each in every}
        self._write()

    def change(self, kind: str, zone: str, capacity_type: str = "spot", **fields: Any) -> None:
        """Some of that changes, and all the rest stays."""
        key = (kind, zone, capacity_type)
        self._sold[key] = replace(self._sold[key], **fields)
        self._write()

    def _write(self) -> None:
        told = [each.offer for each in self._sold.values() if each.told]
        for file, content in ((self.machines, self._machines()), (self.offers, told)):
            aside = file.with_suffix(".new")
            aside.write_text(json.dumps(content))
            aside.replace(file)

    def _machines(self) -> list[Document]:
        every: dict[str, Document] = {}
        for each in self._sold.values():
            resources = {"cpu": "16", "memory": "64Gi", GPU: str(each.gpus)}
            found = every.setdefault(
                each.kind, {"name": each.kind, "arch": "amd64", "resources": resources, "offers": []}
            )
            offer = {"zone": each.zone, "capacityType": each.capacity_type, "price": each.dollars}
            found["offers"].append(offer | {"mode": each.mode, "seconds": each.seconds})
        return list(every.values())


# --- Karpenter --------------------------------------------------------------------------------------------------------------------


class KarpenterLab:
    """Karpenter as a process; its ports are open to this machine's network, since it knows no other way."""

    def __init__(self, plane: ControlPlane, folder: Path, market: Market) -> None:
        self._plane, self._market, self.folder = plane, market, folder / "karpenter"
        self.folder.mkdir()
        self._guard = Guard(self.folder)
        self._process: Process | None = None
        self.gates = ""
        """Feature gates that are not as usual, such as NodeOverlay=true."""

    def start(self) -> None:
        """Start it, and wait until it is at work."""
        assert self._process is None, "it runs already"
        lab = find_lab()
        assert lab is not None
        metrics, health = free_ports(2)
        environment = {
            "KUBECONFIG": str(self._plane.kubeconfig()),
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(metrics),
            "HEALTH_PROBE_PORT": str(health),
            "BATCH_IDLE_DURATION": "500ms",
            "LAB_FILE": str(self._market.machines),
            "LAB_LAUNCH_TIMEOUT": GIVES_UP,
            "HOME": str(self.folder),
        }
        environment |= {"FEATURE_GATES": self.gates} if self.gates else {}
        self._process = Process([str(lab / "karpenter-lab")], self.folder / "log", self._guard, environment)
        self._process.wait_ready(lambda: bool(fetched(f"http://127.0.0.1:{health}/readyz")))

    def hang(self) -> None:
        """It answers nobody any more, and is not gone."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """As if nothing had been."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a lost machine does."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def close(self) -> None:
        """End it however it is."""
        self.kill()
        self._guard.close()

    @property
    def log(self) -> str:
        """What it wrote in all its lives."""
        return (self.folder / "log").read_text(errors="replace")

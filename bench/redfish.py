"""What it costs to ask a BMC for its power: our own client through the egress guard, against the sushy library.

    make bench NAME=redfish

Both ask the same emulated BMC over TLS for the power of one system, with a fresh connection for each question, as a guard wants that
checks the address each time; sushy reads the root of the service first, as it always does. The BMC's own time is in both; the CPU time is the client's alone. A client that is made inside sushy opens
connections by itself, so nothing can hold it to a checked address.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from bench import results
from bench.listwatch import peers_python
from bench.results import ROOT, Row
from headroom.adapters.egress import Guard, entries
from headroom.adapters.power import Power
from headroom.adapters.power.orders import order_of
from headroom.runtime.clock import RealClock
from tests.adapters.power.stage import Vault, a_pool
from tests.certificates import Authority
from tests.power_service import Bmcs

QUESTIONS = 100
MACHINE = "metal-1"
OURS = ROOT / "src" / "headroom" / "adapters" / "power" / "redfish.py"


class Found(NamedTuple):
    """What one client costs."""

    ms: float
    cpu_ms: float


async def ours(bmcs: Bmcs, authority: str) -> Found:
    """Ask by the production switches."""
    how = {
        "address": bmcs.url,
        "system": bmcs.systems[MACHINE],
        "credentialsSecretRef": {"name": "bmc"},
    }
    order = order_of(a_pool({"name": MACHINE, "gpuCount": 8, "redfish": how}), MACHINE)
    vault = Vault(bmc={"username": bmcs.USER, "password": bmcs.PASSWORD, "ca.crt": authority})
    vault.usable_by = f"PowerPool/rack@{bmcs.url}"
    switches = Power(Guard(entries(bmcs.url)), vault, RealClock(), random.Random(1))
    times = []
    used = time.process_time()
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        assert await switches._ask(order) == "Off"
        times.append(time.perf_counter() - began)
    return Found(statistics.median(times) * 1000, (time.process_time() - used) * 1000 / QUESTIONS)


def peer(bmcs: Bmcs, authority: Path) -> tuple[Found, dict[str, Any]]:
    """Ask by sushy, in the environment of the peers."""
    where = (bmcs.url, bmcs.systems[MACHINE], str(authority), bmcs.USER, bmcs.PASSWORD, str(QUESTIONS))
    command = [peers_python(), "-m", "bench.readers.sushy_reader", *where]
    told: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return Found(statistics.median(told["times"]) * 1000, told["cpu"] * 1000 / QUESTIONS), told


def new_packages(told: dict[str, Any]) -> dict[str, int]:
    """Those of the peer's packages that Headroom does not run with anyway, and their sizes."""
    locked = (ROOT / "requirements" / "run.txt").read_text()
    return {name: size for name, size in told["packages"].items() if f"\n{name}==" not in locked}


def rows(mine: Found, theirs: Found, told: dict[str, Any]) -> list[Row]:
    def row(figure: str, value: float, peer_value: float, unit: str, goal: float | None = None) -> Row:
        return Row(figure=figure, value=value, unit=unit, goal=goal, peer="sushy", peer_value=peer_value)

    more = new_packages(told)
    lines = len(OURS.read_text().splitlines())
    ratio = theirs.cpu_ms / mine.cpu_ms
    return [
        row("one question, median", round(mine.ms, 1), round(theirs.ms, 1), "ms"),
        row("CPU time of one question", round(mine.cpu_ms, 2), round(theirs.cpu_ms, 2), "ms"),
        Row(figure="the same, sushy / ours", value=round(ratio, 1), unit="x", goal=1, sense="min"),
        row("packages that Headroom would need beside its own", 0, len(more), "packages", goal=0),
        row("their size on disk", 0, round(sum(more.values()) / 1e6, 1), "MB"),
        Row(figure="our client", value=lines, unit="lines", goal=250),
    ]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        with Bmcs(Path(folder), [MACHINE], authority.server("bmc"), authority.file) as bmcs:
            mine = asyncio.run(ours(bmcs, authority.file.read_text()))
            theirs, told = peer(bmcs, authority.file)
    versions = {"sushy": told["version"]}
    try:
        versions["sushy-tools"] = distribution("sushy-tools").version
    except PackageNotFoundError:
        versions["sushy-tools"] = "unknown"
    return 1 if results.write("redfish", rows(mine, theirs, told), also=versions) else 0


if __name__ == "__main__":
    sys.exit(main())

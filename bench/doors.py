"""What clients can take from the operator: 2,000 slow ones and a crowd in a hurry, on a loop, a thread or a process for the pages.

    make bench NAME=doors    (about four minutes)

First, where pages are best served. A round of deciding, some milliseconds of plain Python twenty times a second, is timed while 2,000
connections hold half a request and 32 clients make TLS connections as fast as they can: with the pages on the same loop, on a thread with
a loop of its own, and in a process of its own. Then `headroom run` on a real API server, before the attack and during it: the longest time
between two renewals of its lease, how long after the end of a pod its budget says so, descriptors and memory, and whether the probes are answered. The
attacked operator is also asked for pages by somebody in a hurry, and its health by 500 slow clients.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench import results
from bench.live.attacking import Attackers
from bench.live.fleet import a_pod, running, succeeded
from bench.live.server import STRATEGIC, Server
from bench.results import ROOT, Row
from headroom.api.resources import API_VERSION
from headroom.cli import front
from headroom.cli.fronts import Fronts
from headroom.model.times import HOUR
from headroom.runtime.logs import Silent
from headroom.runtime.settings import Settings
from headroom.web import certificate
from headroom.web.addresses import bound
from headroom.web.link import Begin, LinkQuestion, LinkServer
from headroom.web.listening import Servers
from headroom.web.server import main_app
from headroom.web.source import Local
from headroom.web.wire import Link
from tests.builders import a_used_world
from tests.control_plane import ControlPlane, wait_until
from tests.core.stage import a_budget
from tests.core.stage import running as a_running
from tests.processes import Guard, Process, free_ports
from tests.web.showing import Made

SLOW, HASTY, SLOW_ON_HEALTH = 2_000, 32, 500
ROUND_SECONDS, WORK = 0.05, 20_000
MEASURE_SECONDS, WARM_SECONDS = 15.0, 5.0
CHANGES = 20
RENEWAL_GOAL, MEMORY_GOAL = 10.0, 300
LEASE = "/apis/coordination.k8s.io/v1/namespaces/headroom-system/leases/headroom"
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nobody",
    "contexts": [{"name": "nobody", "context": {"cluster": "nobody", "user": "nobody"}}],
    "clusters": [{"name": "nobody", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "nobody", "user": {"token": "none"}}],
}


def say(text: str) -> None:
    """A line of progress."""
    print(f"doors: {text}", file=sys.stderr, flush=True)


# --- where pages are served --------------------------------------------------------------------------------------------------


def work() -> int:
    """A round of deciding, as far as the interpreter is concerned."""
    return sum(number * number for number in range(WORK))


class Rounds(NamedTuple):
    """Rounds of deciding for a while."""

    took: list[float]
    """Milliseconds of each, the wait for its turn included."""
    cores: float
    """What this process has used of the machine, its rounds included."""


async def rounds(seconds: float) -> Rounds:
    """Decide for so long."""
    found, ends = [], time.perf_counter() + seconds
    begun, used = time.perf_counter(), time.process_time()
    while time.perf_counter() < ends:
        began = time.perf_counter()
        await asyncio.sleep(ROUND_SECONDS)
        work()
        found.append((time.perf_counter() - began - ROUND_SECONDS) * 1000)
    return Rounds(found, round((time.process_time() - used) / (time.perf_counter() - begun), 3))


@contextlib.asynccontextmanager
async def on_the_loop(made: Made, port: int, _: Path) -> AsyncIterator[None]:
    """The pages on the loop that decides."""
    servers = Servers()
    tls = certificate.context("", "", ())
    await servers.listen(main_app(Local(made.showing()), None), f"127.0.0.1:{port}", "x", tls)
    yield
    await servers.close()


@contextlib.asynccontextmanager
async def on_a_thread(made: Made, port: int, kubeconfig: Path) -> AsyncIterator[None]:
    """The pages on a thread with a loop of its own."""
    listening = bound(f"127.0.0.1:{port}", "x")
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=lambda: asyncio.run(front.serve(theirs, listening)), daemon=True)
    thread.start()
    link: Link[LinkQuestion] = await Link.over(ours, LinkQuestion)
    link.say(Begin(Settings(kubeconfig=str(kubeconfig))))
    serving = asyncio.create_task(LinkServer(Local(made.showing()), lambda _: None).serve(link))
    yield
    link.close()
    await serving
    await asyncio.to_thread(thread.join, 10)


@contextlib.asynccontextmanager
async def in_a_process(made: Made, port: int, kubeconfig: Path) -> AsyncIterator[None]:
    """The pages in a process of their own, as `headroom run` serves them."""
    settings = Settings(kubeconfig=str(kubeconfig), metrics_address=f"127.0.0.1:{port}", health_address="")
    fronts = Fronts(settings, made.showing(), Silent())
    fronts.start()
    yield
    await fronts.close()


async def compared(folder: Path) -> list[Row]:
    """Rounds of deciding by where pages are served."""
    kubeconfig = folder / "nobody.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    made = Made(a_used_world(a_budget(), pods=[a_running("p", HOUR)]))
    quiet = await rounds(MEASURE_SECONDS)
    found, made_by = {}, {}
    for name, where in (("loop", on_the_loop), ("thread", on_a_thread), ("process", in_a_process)):
        [port] = free_ports(1)
        async with where(made, port, kubeconfig):
            say(f"deciding under attack, pages served by a {name}")
            await asyncio.to_thread(answers, port)
            attackers = Attackers(folder, ("slow", port, SLOW), ("hasty", port, HASTY))
            with contextlib.closing(attackers):
                await asyncio.to_thread(attackers.start)
                before = sum(attackers.made())
                found[name] = await rounds(MEASURE_SECONDS)
                made_by[name] = round((sum(attackers.made()) - before) / MEASURE_SECONDS)
    of = "a round of deciding under attack, pages"
    was = "nobody there"
    rows = []
    for name, words in (("loop", "on its loop"), ("thread", "on a thread"), ("process", "in a process")):
        took = found[name].took
        for part, text in ((0.5, "median"), (0.95, "95 of 100")):
            peer = share(quiet.took, part)
            rows.append(
                Row(figure=f"{of} {words}, {text}", value=share(took, part), unit="ms", peer=was, peer_value=peer)
            )
        used = f"the operator's process under attack, pages {words}"
        rows.append(Row(figure=used, value=found[name].cores, unit="cores", peer=was, peer_value=quiet.cores))
        rows.append(Row(figure=f"connections of that attack, pages {words}", value=made_by[name], unit="a second"))
    return rows


def share(found: list[float], part: float) -> float:
    """The value that so large a part of them does not pass."""
    return round(sorted(found)[min(len(found) - 1, int(part * len(found)))], 1)


def answers(port: int) -> None:
    """Wait until somebody shakes hands there."""
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        # Nobody may listen there yet.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as plain:
            anyone.wrap_socket(plain).close()
            return
        time.sleep(0.1)
    raise TimeoutError("nobody serves the pages")


# --- the operator itself -----------------------------------------------------------------------------------------------------


class Operator:
    """`headroom run` on a real API server, and what it has taken."""

    def __init__(self, plane: ControlPlane, folder: Path, guard: Guard) -> None:
        self.dashboard, self.health = free_ports(2)
        command = [sys.executable, "-m", "headroom", "run", "--kubeconfig", str(plane.kubeconfig())]
        command += ["--metrics-address", f"127.0.0.1:{self.dashboard}", "--health-address", f"127.0.0.1:{self.health}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        environment["HEADROOM_LEDGER_URL"] = f"sqlite://{folder / 'ledger.sqlite'}"
        self._process = Process(command, folder / "operator.log", guard, environment)

    def is_well(self, path: str = "/readyz") -> bool:
        """Whether a probe is answered with yes, within the second that a kubelet waits by default."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def taken(self) -> tuple[int, int, int]:
        """Descriptors and MB of the operator, and MB of the processes that it started."""
        pid = self._process.pid
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return descriptors, megabytes(pid), sum(map(megabytes, children))

    def stop(self) -> None:
        """End it."""
        self._process.stop(timeout=30)


def megabytes(pid: int) -> int:
    """Of memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


class Measured:
    """What one stretch of time showed."""

    def __init__(self) -> None:
        self.renewals: list[float] = []
        self.lags: list[float] = []
        self.probes: list[bool] = []
        self.taken: list[tuple[int, int, int]] = []


async def watched(server: Server, operator: Operator, numbers: range) -> Measured:
    """End one pod after the other and time the budget; meanwhile look at the lease, the probes and the memory."""
    found, done = Measured(), asyncio.Event()

    async def lease() -> None:
        last, at = "", time.monotonic()
        while not done.is_set():
            renewed = (await server.ask("GET", LEASE))["spec"]["renewTime"]
            if renewed != last:
                found.renewals.append(time.monotonic() - at)
                last, at = renewed, time.monotonic()
            await asyncio.sleep(0.1)

    async def probes() -> None:
        while not done.is_set():
            found.probes.append(await asyncio.to_thread(operator.is_well, "/healthz"))
            found.taken.append(operator.taken())
            await asyncio.sleep(1)

    beside = [asyncio.create_task(each()) for each in (lease, probes)]
    for number in numbers:
        found.lags.append(await lag(server, number))
    done.set()
    await asyncio.gather(*beside)
    return found


async def lag(server: Server, number: int) -> float:
    """Milliseconds from the end of a pod until its budget says that less runs."""
    base = "/api/v1/namespaces/team/pods"
    budget = f"/apis/{API_VERSION}/namespaces/team/gpuworkloadbudgets/budget"
    before = (await server.ask("GET", budget))["status"]["burnRateGpus"]
    await server.ask("PATCH", f"{base}/train-{number:05d}/status", succeeded(), STRATEGIC)
    began = time.monotonic()
    while (await server.ask("GET", budget))["status"]["burnRateGpus"] == before:  # noqa: ASYNC110  as any client looks
        await asyncio.sleep(0.02)
    passed = (time.monotonic() - began) * 1000
    await asyncio.sleep(0.5)
    return passed


async def make(server: Server) -> None:
    """One team with a budget and its pods."""
    await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "train"}}, "enforcement": {"action": "AlertOnly"}}
    spec["quota"] = {"gpuHours": "1000", "windowHours": 24}
    body = {"apiVersion": API_VERSION, "kind": "GPUWorkloadBudget", "metadata": {"name": "budget"}, "spec": spec}
    await server.ask("POST", f"/apis/{API_VERSION}/namespaces/team/gpuworkloadbudgets", body)
    for number in range(2 * CHANGES + 10):
        made = a_pod(f"train-{number:05d}")
        made["spec"]["nodeName"] = "node"
        await server.ask("POST", "/api/v1/namespaces/team/pods", made)
        await server.ask("PATCH", f"/api/v1/namespaces/team/pods/train-{number:05d}/status", running(), STRATEGIC)


async def attacked(plane: ControlPlane, folder: Path, guard: Guard) -> list[Row]:
    """The operator before an attack and during it."""
    async with Server(plane) as server:
        await make(server)
        operator = Operator(plane, folder, guard)
        try:
            await asyncio.to_thread(wait_until, operator.is_well, "the operator is ready", 120)
            await asyncio.to_thread(answers, operator.dashboard)
            await asyncio.sleep(WARM_SECONDS)
            say("the operator, nobody there")
            before = await watched(server, operator, range(CHANGES))
            crowd = (("slow", operator.dashboard, SLOW), ("hasty", operator.dashboard, HASTY))
            attackers = Attackers(folder, *crowd, ("slow", operator.health, SLOW_ON_HEALTH))
            with contextlib.closing(attackers):
                await asyncio.to_thread(attackers.start)
                say(f"the operator, {SLOW:,} slow connections and {HASTY} clients in a hurry")
                during = await watched(server, operator, range(CHANGES, 2 * CHANGES))
        finally:
            operator.stop()
    return [
        *rows_of(before, during),
        Row(figure="connections that were made to it", value=sum(attackers.made()), unit=""),
    ]


def rows_of(before: Measured, during: Measured) -> list[Row]:
    """Before and during, side by side."""
    was = "before the attack"
    old, new = (max(each.renewals[1:]) for each in (before, during))
    renewals = Row(
        figure="longest time between two renewals of the lease",
        value=round(new, 1),
        unit="s",
        goal=RENEWAL_GOAL,
        peer=was,
        peer_value=round(old, 1),
    )
    rows = [renewals]
    for part, text in ((0.5, "median"), (0.95, "95 of 100")):
        value, peer = share(during.lags, part), share(before.lags, part)
        rows.append(
            Row(figure=f"end of a pod to its budget, {text}", value=value, unit="ms", peer=was, peer_value=peer)
        )
    for index, (what, unit) in enumerate(
        (
            ("descriptors of the operator", ""),
            ("memory of the operator", "MB"),
            ("memory of its pages and health", "MB"),
        )
    ):
        value, peer = (max(taken[index] for taken in each.taken) for each in (during, before))
        goal = peer + 20 if index == 0 else MEMORY_GOAL
        rows.append(Row(figure=f"{what}, most", value=value, unit=unit, goal=goal, peer=was, peer_value=peer))
    missed = (sum(not each for each in measured.probes) for measured in (during, before))
    rows.append(
        Row(
            figure="probes of health not answered in a second",
            value=next(missed),
            unit=f"of {len(during.probes)}",
            goal=0,
            peer=was,
            peer_value=next(missed),
        )
    )
    return rows


def main() -> int:
    """Measure, print, keep."""
    with tempfile.TemporaryDirectory() as name:
        folder, guard = Path(name), Guard(Path(name))
        rows = asyncio.run(compared(folder))
        with ControlPlane(components=()) as plane:
            for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
                plane.apply(yaml.safe_load(file.read_text()))
            plane.kubectl("create", "namespace", "headroom-system")
            wait_until(lambda: "gpuworkloadbudgets" in plane.kubectl("api-resources"), "the kinds are served")
            try:
                rows += asyncio.run(attacked(plane, folder, guard))
            finally:
                guard.close()
    return 1 if results.write("doors", rows) else 0


if __name__ == "__main__":
    sys.exit(main())

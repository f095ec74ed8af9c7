"""How fast the dashboard is: the first view, and a change until it stands on the page, with 10,000 pods and 500 budgets.

    make bench NAME=dashboard    (about four minutes, most of them to make the pods)

The operator is `headroom run` on a real API server, and the pages are drawn by headless Chromium. First view: from the navigation
until the screen is painted with its tiles and budgets, in a fresh browser profile with nothing cached; when all 500 rows of the table are
there, further down, is told beside it. Live update: a pod ends; the time from the end of
the tick that decided on its budget until the page is painted with the new number. The goal is for that; how long it takes from the API
server's answer to the paint, the loop's pace included, is told beside it. The peer is the same page without patches: everything
fetched and parsed again, which is not drawn yet.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from playwright.async_api import Browser, Page, async_playwright

from bench import results
from bench.live.fleet import a_pod, running, succeeded
from bench.live.operators import TICKS_PER_SECOND
from bench.live.server import STRATEGIC, Server
from bench.results import ROOT, Row
from headroom.api.resources import API_VERSION
from tests.browser.chromium import EXECUTABLE, FLAGS
from tests.control_plane import ControlPlane, wait_until
from tests.processes import Guard, Process, free_ports

PODS, BUDGETS, NODES = 10_000, 500, 1_250
VIEWS, CHANGES = 7, 30
FIRST_GOAL, UPDATE_GOAL = 1_000, 100
READY_SECONDS, REST_SECONDS = 180, 30
SETTLE_SECONDS = 30
"""After the start, until the first statuses of all budgets are written."""

VIEWED = """count => new Promise(done => {
  let first = 0;
  const look = () => {
    const rows = document.querySelectorAll("#budgets tbody tr").length;
    if (!rows || !document.querySelector(".tiles strong")) return;
    // A task of its own comes after the frame in which this was drawn.
    setTimeout(() => { first ||= performance.now(); if (rows >= count) done([first, performance.now()]); });
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
  look();
})"""
LISTEN = """() => {
  const Plain = window.EventSource;
  window.EventSource = class extends Plain {
    constructor(...given) {
      super(...given);
      this.addEventListener("patch", (event) => { window.decided = Number(event.lastEventId); });
    }
  };
}"""
WATCH = """([address, before]) => { window.painted = new Promise(done => {
  const cell = document.querySelector(`tr a[href="${address}"]`).closest("tr").querySelector('td[data-title="GPUs now"]');
  new MutationObserver((_, observer) => {
    if (cell.textContent === before) return;
    observer.disconnect();
    const decided = window.decided;
    requestAnimationFrame(() => setTimeout(() => done([performance.timeOrigin + performance.now(), decided])));
  }).observe(cell, { childList: true, characterData: true, subtree: true });
}); }"""
AGAIN = """async () => {
  const begun = performance.now();
  await (await fetch("api/overview")).json();
  return performance.now() - begun;
}"""


def say(text: str) -> None:
    """A line of progress."""
    print(f"dashboard: {text}", file=sys.stderr, flush=True)


# --- the fleet --------------------------------------------------------------------------------------------------------------


def team_of(number: int) -> str:
    """The namespace of a pod."""
    return f"team-{number % BUDGETS:03d}"


def a_budget(number: int) -> dict[str, Any]:
    """One team's budget."""
    spec = {
        "selector": {"matchLabels": {"app": "train"}},
        "quota": {"gpuHours": str(200 + number % 50), "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    }
    return {"apiVersion": API_VERSION, "kind": "GPUWorkloadBudget", "metadata": {"name": "budget"}, "spec": spec}


async def make(server: Server) -> None:
    """Nodes, and for each team a namespace, a budget and twenty pods that have run for an hour."""
    room = {"cpu": "96", "memory": "768Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]

    async def node(number: int) -> None:
        name = f"node-{number:04d}"
        await server.ask("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})
        status = {"status": {"capacity": room, "allocatable": room, "conditions": ready}}
        await server.ask("PATCH", f"/api/v1/nodes/{name}/status", status, STRATEGIC)

    async def team(number: int) -> None:
        await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": team_of(number)}})
        path = f"/apis/{API_VERSION}/namespaces/{team_of(number)}/gpuworkloadbudgets"
        await server.ask("POST", path, a_budget(number))

    async def pod(number: int) -> None:
        made = a_pod(f"train-{number:05d}")
        made["spec"]["nodeName"] = f"node-{number % NODES:04d}"
        path = f"/api/v1/namespaces/{team_of(number)}/pods"
        await server.ask("POST", path, made)
        await server.ask("PATCH", f"{path}/train-{number:05d}/status", running(), STRATEGIC)

    say(f"making {NODES:,} nodes, {BUDGETS} budgets and {PODS:,} pods on a real API server")
    await server.each(node, range(NODES))
    await server.each(team, range(BUDGETS))
    await server.each(pod, range(PODS))


class Operator:
    """`headroom run`, with its pages on the loopback."""

    def __init__(self, plane: ControlPlane, folder: Path, guard: Guard) -> None:
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "headroom", "run", "--kubeconfig", str(plane.kubeconfig())]
        command += ["--metrics-address", f"127.0.0.1:{port}", "--metrics-plain", "--health-address", ""]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        environment["HEADROOM_LEDGER_URL"] = f"sqlite://{folder / 'ledger.sqlite'}"
        self._process = Process(command, folder / "operator.log", guard, environment)

    def overview(self) -> bytes:
        """The first page as data."""
        with urllib.request.urlopen(f"{self.url}/api/overview", timeout=30) as reply:
            found: bytes = reply.read()
            return found

    def has_counted(self) -> bool:
        """Whether every budget has been counted."""
        try:
            budgets: dict[str, dict[str, Any]] = json.loads(self.overview())["budgets"]
        except OSError:
            return False
        counted = [each for each in budgets.values() if each.get("burnRateGpus") == str(PODS // BUDGETS)]
        return len(counted) == BUDGETS

    def cpu_seconds(self) -> float:
        """What it has used."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS_PER_SECOND

    def stop(self) -> None:
        """End it."""
        self._process.stop(timeout=30)


# --- measuring --------------------------------------------------------------------------------------------------------------


async def first_views(browser: Browser, url: str) -> list[tuple[float, float]]:
    """Milliseconds from the navigation until the screen is painted, and until all budgets are there; in fresh profiles."""
    found = []
    for _ in range(VIEWS):
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        page = await context.new_page()
        await page.goto(url, wait_until="commit")
        first, whole = await page.evaluate(VIEWED, BUDGETS)
        found.append((float(first), float(whole)))
        await context.close()
    return found


async def updates(page: Page, server: Server) -> list[tuple[float, float]]:
    """For one change after the other: milliseconds until it was painted, from the decision and from the API server's answer."""
    found = []
    for number in range(CHANGES):
        address = f"#/budgets/{team_of(number)}/budget"
        cell = page.locator(f'tr:has(a[href="{address}"]) td[data-title="GPUs now"]')
        await page.evaluate(WATCH, [address, await cell.inner_text()])
        path = f"/api/v1/namespaces/{team_of(number)}/pods/train-{number:05d}/status"
        await server.ask("PATCH", path, succeeded(), STRATEGIC)
        ended = time.time() * 1000
        painted, decided = await page.evaluate("window.painted")
        found.append((painted - decided, painted - ended))
        await asyncio.sleep(0.7)  # an isolated change, not the next one of a burst
    return found


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with a profile of its own."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=EXECUTABLE, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


async def measure(plane: ControlPlane, folder: Path, guard: Guard) -> list[Row]:
    """Everything, and what it comes to."""
    async with Server(plane) as server, chromium() as browser:
        await make(server)
        operator = Operator(plane, folder, guard)
        try:
            wait_until(operator.has_counted, "every budget is counted", timeout=READY_SECONDS)
            await asyncio.sleep(SETTLE_SECONDS)
            say("looking at it")
            views = await first_views(browser, operator.url)
            page = await browser.new_page()
            await page.add_init_script(f"({LISTEN})()")
            await page.goto(operator.url, wait_until="commit")
            await page.evaluate(VIEWED, BUDGETS)
            changes = await updates(page, server)
            again = [float(await page.evaluate(AGAIN)) for _ in range(VIEWS)]
            busy = await at_rest(operator)
            size = len(operator.overview())
        finally:
            operator.stop()
    return [
        *rows_of(views, changes, statistics.median(again)),
        Row(figure="the whole first page, unpacked", value=round(size / 1000, 1), unit="kB"),
        Row(figure="operator with one viewer, nothing happening", value=round(busy, 3), unit="cores"),
    ]


async def at_rest(operator: Operator) -> float:
    """Cores that the operator takes while somebody looks and nothing happens."""
    cpu, wall = operator.cpu_seconds(), time.monotonic()
    await asyncio.sleep(REST_SECONDS)
    return (operator.cpu_seconds() - cpu) / (time.monotonic() - wall)


def rows_of(views: list[tuple[float, float]], changes: list[tuple[float, float]], again: float) -> list[Row]:
    """The figures with their goals."""
    of = f"{PODS:,} pods, {BUDGETS} budgets"
    first, whole = [each for each, _ in views], [each for _, each in views]
    decided, ended = sorted(each for each, _ in changes), sorted(each for _, each in changes)
    peer: dict[str, Any] = {"peer": "the whole page fetched and parsed, not drawn", "peer_value": round(again, 1)}
    shown: tuple[tuple[str, float, int | None, dict[str, Any]], ...] = (
        (f"first view, {of}, median of {VIEWS}", statistics.median(first), FIRST_GOAL, {}),
        (f"first view, {of}, worst of {VIEWS}", max(first), FIRST_GOAL, {}),
        (f"all {BUDGETS} rows of the table, median of {VIEWS}", statistics.median(whole), None, {}),
        (f"live update, decision to paint, median of {CHANGES}", statistics.median(decided), UPDATE_GOAL, peer),
        ("live update, decision to paint, 90 of 100", decided[int(0.9 * len(decided))], UPDATE_GOAL, {}),
        (f"live update, decision to paint, worst of {CHANGES}", decided[-1], None, {}),
        (f"live update, API server to paint, median of {CHANGES}", statistics.median(ended), None, {}),
        (f"live update, API server to paint, worst of {CHANGES}", ended[-1], None, {}),
    )
    return [Row(figure=what, value=round(value, 1), unit="ms", goal=goal, **more) for what, value, goal, more in shown]


def main() -> int:
    """Measure, print, keep."""
    version = subprocess.run([EXECUTABLE, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name, ControlPlane(components=()) as plane:
        folder, guard = Path(name), Guard(Path(name))
        for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
            plane.apply(yaml.safe_load(file.read_text()))
        plane.kubectl("create", "namespace", "headroom-system")
        wait_until(lambda: "gpuworkloadbudgets" in plane.kubectl("api-resources"), "the kinds are served")
        try:
            rows = asyncio.run(measure(plane, folder, guard))
        finally:
            guard.close()
    return 1 if results.write("dashboard", rows, also={"chromium": version}) else 0


if __name__ == "__main__":
    sys.exit(main())

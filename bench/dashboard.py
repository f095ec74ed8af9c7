"""How fast the dashboard is: the first view, and a change until it stands on the page, with 10,000 pods and 500 budgets.

    make bench NAME=dashboard

The operator runs as a process of its own over a simulated API server (the production port, loop and web server, in real time),
and the pages are drawn by headless Chromium. First view: from the navigation until all budgets stand on the page, in a fresh
browser profile with nothing cached. Live update: one pod ends at the API server; the time from the decision on its budget until
the page is painted with the new number. The goal is for that; the way from the API server to the decision, which the loop paces, is
told beside it. What the same change would cost without patches, the whole page fetched and parsed again, is the peer.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from aiohttp import web
from playwright.sync_api import Browser, Page, sync_playwright

from bench import results
from bench.results import Row
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.resources import API_VERSION
from headroom.model import times
from headroom.model.decisions import Decision, Ref
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from headroom.sim.operators import SimulatedProcess
from headroom.web.server import Servers, main_app
from headroom.web.view import Showing, View
from tests.browser.chromium import EXECUTABLE, FLAGS

PODS, BUDGETS, NODES = 10_000, 500, 1_250
VIEWS, CHANGES = 7, 30
GPU = "nvidia.com/gpu"
FIRST_GOAL, UPDATE_GOAL = 1_000, 100
READY_SECONDS = 180

FIRST_VIEW = """count => new Promise(done => {
  const look = () => document.querySelectorAll("#budgets tbody tr").length >= count
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now()))) : requestAnimationFrame(look);
  look();
})"""
WATCH = """([address, before]) => { window.painted = new Promise(done => {
  const cell = document.querySelector(`a[href="${address}"]`).closest("tr").querySelector('td[data-title="GPUs now"]');
  const look = () => cell.textContent !== before
    ? setTimeout(() => done(performance.timeOrigin + performance.now())) : requestAnimationFrame(look);
  look();
}); }"""


# --- the operator's process -------------------------------------------------------------------------------------------------


def documents(now: int) -> Iterator[dict[str, Any]]:
    """The cluster: every budget has a namespace of its own and twenty pods that have run for some hours."""
    room = {"cpu": "96", "memory": "768Gi", "pods": "110", GPU: "8"}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": times.text(now - times.HOUR)}]
    for number in range(NODES):
        status = {"capacity": room, "allocatable": room, "conditions": ready}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n-{number}"}, "status": status}
    for number in range(BUDGETS):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}"}}
        spec = {
            "selector": {"matchLabels": {"team": "a"}},
            "quota": {"gpuHours": str(200 + number % 50), "windowHours": 24},
            "enforcement": {"action": "AlertOnly"},
        }
        metadata = {"name": "budget", "namespace": f"team-{number}"}
        yield {"apiVersion": API_VERSION, "kind": "GPUWorkloadBudget", "metadata": metadata, "spec": spec}
    for number in range(PODS):
        yield pod(number, now - (1 + number % 12) * times.HOUR)


def pod(number: int, began: int) -> dict[str, Any]:
    """One pod that runs."""
    started = times.text(began - began % times.SECOND)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name_of(number), "namespace": f"team-{number % BUDGETS}", "labels": {"team": "a"}},
        "spec": {
            "nodeName": f"n-{number % NODES}",
            "containers": [{"name": "main", "image": "train", "resources": {"limits": {GPU: "1"}}}],
        },
        "status": {
            "phase": "Running",
            "startTime": started,
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": started}}}],
        },
    }


def name_of(number: int) -> str:
    """The pod of a number."""
    return f"train-{number}"


def burn_of(decision: Decision) -> str:
    """The GPUs that a budget holds."""
    assert isinstance(decision.status, GPUWorkloadBudgetStatus)
    return decision.status.burn_rate_gpus


class Stage:
    """The simulated cluster, the operator over it, and what the benchmark does to them."""

    def __init__(self) -> None:
        now = int(time.time() * 1000)
        self.server = ApiServer(SimClock(now, 1.0), random.Random(1))
        for document in documents(now):
            self.server.put(document)
        self.process = SimulatedProcess(
            self.server.transport("headroom"), self.server.clock, random.Random(2), "dashboard-bench"
        )

    def view(self) -> View:
        """What the pages look at."""
        made = self.process
        return View(
            port=made.port,
            loop=made.operator.loop,
            gate=made.leader,
            clock=self.server.clock,
            journal=made.recorder.journal,
        )

    async def end(self, request: web.Request) -> web.Response:
        """End a pod, and say when that happened and when it was decided on."""
        number = int(request.query["pod"])
        loop, ref = self.process.operator.loop, Ref("GPUWorkloadBudget", f"team-{number % BUDGETS}", "budget")
        before = burn_of(loop.decisions[ref])
        now = times.text(self.server.clock.now() // 1000 * 1000)
        state = {"terminated": {"exitCode": 0, "finishedAt": now, "startedAt": now}}
        status = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": state}]}
        path = f"/api/v1/namespaces/{ref.namespace}/pods/{name_of(number)}/status"
        began = time.time()
        self.server.do("PATCH", path, {"status": status})
        while burn_of(loop.decisions[ref]) == before:
            await loop.bell.wait(loop.bell.rings, 1.0)
        return web.json_response({"ended": began, "decided": time.time(), "cpu": time.process_time()})

    async def is_ready(self, _: web.Request) -> web.Response:
        """Whether every budget is counted."""
        statuses = [each.status for each in self.process.operator.loop.decisions.values()]
        counted = sum(bool(getattr(each, "as_of", "")) for each in statuses)
        return web.json_response({"counted": counted, "cpu": time.process_time()})


async def serve() -> None:
    """Run the operator and its dashboard, and print the two ports."""
    stage, servers = Stage(), Servers()
    running = asyncio.create_task(stage.process.run())
    app = main_app(Showing(view=stage.view(), metrics=stage.process.around.metrics), None)
    control = web.Application()
    control.add_routes([web.get("/end", stage.end), web.get("/ready", stage.is_ready)])
    ports = [await servers.listen(each, "127.0.0.1:0", "port") for each in (app, control)]
    print(*ports, flush=True)
    await running


# --- measuring --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def operator() -> Iterator[tuple[str, str]]:
    """The operator as a process; the addresses of its dashboard and of its control."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.dashboard", "--serve"], stdout=subprocess.PIPE, text=True, cwd=results.ROOT
    )
    try:
        assert child.stdout is not None
        shown, control = (f"http://127.0.0.1:{port}" for port in child.stdout.readline().split())
        deadline = time.monotonic() + READY_SECONDS
        while asked(f"{control}/ready")["counted"] < BUDGETS:
            if time.monotonic() > deadline:
                raise SystemExit("the operator did not count every budget in time")
            time.sleep(0.5)
        yield shown, control
    finally:
        child.kill()
        child.wait()


def asked(url: str) -> dict[str, Any]:
    """The JSON at an address."""
    with urllib.request.urlopen(url, timeout=60) as reply:
        found: dict[str, Any] = json.load(reply)
        return found


def first_views(browser: Browser, shown: str) -> list[float]:
    """Milliseconds from the navigation until all budgets are on the page, each in a fresh profile."""
    found = []
    for _ in range(VIEWS):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(shown, wait_until="commit")
        found.append(float(page.evaluate(FIRST_VIEW, BUDGETS)))
        context.close()
    return found


def updates(page: Page, control: str) -> list[dict[str, float]]:
    """What became of one change after the other: milliseconds from the end and from the decision until it was painted."""
    found = []
    for number in range(CHANGES):
        address = f"#/budgets/team-{number}/budget"
        cell = page.locator(f'tr:has(a[href="{address}"]) td[data-title="GPUs now"]')
        page.evaluate(WATCH, [address, cell.inner_text()])
        told = asked(f"{control}/end?pod={number}")
        painted = float(page.evaluate("window.painted")) / 1000
        found.append({"decided": (painted - told["decided"]) * 1000, "ended": (painted - told["ended"]) * 1000})
    return found


def whole(page: Page) -> float:
    """Milliseconds to fetch and parse the whole page again, the median."""
    script = "async () => { const at = performance.now(); await (await fetch('api/overview')).json(); return performance.now() - at }"
    return statistics.median(float(page.evaluate(script)) for _ in range(VIEWS))


def measure() -> list[Row]:
    """Everything, and what it comes to."""
    with operator() as (shown, control), sync_playwright() as playwright:
        with tempfile.TemporaryDirectory() as profile:
            browser = playwright.chromium.launch(
                executable_path=EXECUTABLE, args=FLAGS, env={**os.environ, "HOME": profile}
            )
            views = first_views(browser, shown)
            page = browser.new_page()
            page.goto(shown, wait_until="commit")
            page.evaluate(FIRST_VIEW, BUDGETS)
            changes = updates(page, control)
            again = whole(page)
            cpu, wall = asked(f"{control}/ready")["cpu"], time.monotonic()
            time.sleep(20)
            busy = (asked(f"{control}/ready")["cpu"] - cpu) / (time.monotonic() - wall)
            browser.close()
        size = len(urllib.request.urlopen(f"{shown}/api/overview", timeout=60).read())
    decided = sorted(each["decided"] for each in changes)
    ended = sorted(each["ended"] for each in changes)
    of = f"{PODS:,} pods, {BUDGETS} budgets"
    return [
        Row(
            figure=f"first view, {of}, median of {VIEWS}",
            value=round(statistics.median(views)),
            unit="ms",
            goal=FIRST_GOAL,
        ),
        Row(figure=f"first view, {of}, worst of {VIEWS}", value=round(max(views)), unit="ms", goal=FIRST_GOAL),
        Row(
            figure=f"live update, decision to paint, median of {CHANGES}",
            value=round(statistics.median(decided), 1),
            unit="ms",
            goal=UPDATE_GOAL,
            peer="the whole page fetched and parsed, not drawn",
            peer_value=round(again, 1),
        ),
        Row(
            figure=f"live update, decision to paint, 90th percentile of {CHANGES}",
            value=round(decided[int(0.9 * len(decided))], 1),
            unit="ms",
            goal=UPDATE_GOAL,
        ),
        Row(
            figure=f"live update, pod's end at the API server to paint, median of {CHANGES}",
            value=round(statistics.median(ended), 1),
            unit="ms",
        ),
        Row(figure="the whole first page", value=round(size / 1000, 1), unit="kB"),
        Row(figure="operator with one viewer, nothing happening", value=round(busy, 3), unit="cores"),
    ]


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="be the operator's process")
    if parser.parse_args().serve:
        asyncio.run(serve())
        return 0
    chromium = subprocess.run([EXECUTABLE, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return 1 if results.write("dashboard", measure(), also={"chromium": chromium}) else 0


if __name__ == "__main__":
    sys.exit(main())

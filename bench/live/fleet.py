"""A fleet of running pods under overlapping budgets on a real API server, and what the operator costs and how late it is."""

import asyncio
import math
import re
import time
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from bench.live.operators import Operators
from bench.live.server import STRATEGIC, Document, Server, cancelled
from headroom.api.resources import API_VERSION
from tests.control_plane import ControlPlane

NAMESPACE = "bench-fleet"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BUDGETS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/gpuworkloadbudgets"
BUDGET_COUNT = 20
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 15.0
"""After the start, until what that took is over."""
STATUS_WRITES = re.compile(r"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)


class Sizes(Struct, frozen=True, kw_only=True):
    """How much is measured."""

    pods: int = 10_000
    seconds: float = 60.0
    ends_per_second: int = 100
    probes_at_rest: int = 10
    probes_under_load: int = 25

    @property
    def ends(self) -> int:
        """How many pods end."""
        return min(self.pods, round(self.seconds * self.ends_per_second))


class Figures(Struct, kw_only=True):
    """What was measured."""

    first_status: float = 0.0
    all_statuses: float = 0.0
    cpu_at_rest: float = 0.0
    writes_at_rest: float = 0.0
    cpu_under_load: float = 0.0
    writes_under_load: float = 0.0
    ends_per_second: float = 0.0
    peak_mib: float = 0.0
    lags_at_rest: list[float] = []
    lags_under_load: list[float] = []


def ago(seconds: float) -> str:
    """A moment in the past, as the API writes it."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_pod(name: str) -> Document:
    """A pod on a node that nobody looks after, so that its status is ours to write."""
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "train", "team": f"team-{len(name) % 7}"}},
        "spec": {
            "nodeName": "nowhere",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "example.com/train:1", "resources": resources}],
        },
    }


def a_budget(number: int) -> Document:
    """One of many budgets that all count the same pods, each for a reason of its own."""
    expressions = [{"key": f"example.com/not-{number}", "operator": "DoesNotExist"}]
    spec = {
        "selector": {"matchLabels": {"app": "train"}, "matchExpressions": expressions},
        "quota": {"gpuHours": "1000000", "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    }
    metadata = {"name": f"budget-{number:02d}"}
    return {"apiVersion": API_VERSION, "kind": "GPUWorkloadBudget", "metadata": metadata, "spec": spec}


def a_status(phase: str, state: Document) -> Document:
    """The status that a kubelet would write."""
    container = {"name": "main", "image": "example.com/train:1", "imageID": "", "ready": phase == "Running"}
    container |= {"restartCount": 0, "state": state}
    return {"status": {"phase": phase, "startTime": ago(3600), "containerStatuses": [container]}}


def running() -> Document:
    """For an hour already."""
    return a_status("Running", {"running": {"startedAt": ago(3600)}})


def succeeded() -> Document:
    """After an hour, two seconds ago."""
    times = {"startedAt": ago(3600), "finishedAt": ago(2)}
    return a_status("Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed", **times}})


class Fleet:
    """The pods, the budgets as a watch shows them, and one operator."""

    def __init__(self, plane: ControlPlane, server: Server, operators: Operators, sizes: Sizes) -> None:
        self._plane, self._server, self._operators, self._sizes = plane, server, operators, sizes
        self._tracked: dict[str, int] = {}
        self._news = asyncio.Event()
        self._probe = 0
        self.figures = Figures()

    async def measure(self) -> Figures:
        """Everything, in the order in which it was promised."""
        await self._make()
        watching = asyncio.create_task(self._watch())
        try:
            await self._start()
            await asyncio.sleep(PAUSE_SECONDS)
            await self._rest()
            self.figures.lags_at_rest = await self._probes(self._sizes.probes_at_rest, 2.0)
            await self._load()
            self.figures.peak_mib = self._operators.peak_mib()
        finally:
            await cancelled(watching)
        return self.figures

    async def _make(self) -> None:
        await self._server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for number in range(BUDGET_COUNT):
            await self._server.ask("POST", BUDGETS, a_budget(number))
        probes = self._sizes.probes_at_rest + self._sizes.probes_under_load

        async def one(number: int) -> None:
            await self._server.ask("POST", PODS, a_pod(f"train-{number:05d}"))
            await self._server.ask("PATCH", f"{PODS}/train-{number:05d}/status", running(), STRATEGIC)

        async def probe(number: int) -> None:
            await self._server.ask("POST", PODS, a_pod(f"probe-{number:05d}"))

        await self._server.each(one, range(self._sizes.pods))
        await self._server.each(probe, range(probes))

    async def _watch(self) -> None:
        """Know how many pods each budget tracks, as soon as its status says so."""
        async for _, budget in self._server.events(BUDGETS):
            tracked = budget.get("status", {}).get("trackedPods")
            if tracked is not None:
                self._tracked[budget["metadata"]["name"]] = tracked
                self._news.set()

    async def _start(self) -> None:
        began = time.monotonic()
        self._operators.start()
        while len(self._tracked) < BUDGET_COUNT:
            await self._hear("every budget has a status", began)
            if self._tracked and not self.figures.first_status:
                self.figures.first_status = time.monotonic() - began
        self.figures.all_statuses = time.monotonic() - began
        while min(self._tracked.values()) < self._sizes.pods:
            await self._hear("every budget counts every pod", began)

    async def _rest(self) -> None:
        cpu, writes, began = self._operators.cpu_seconds(), self._status_writes(), time.monotonic()
        await asyncio.sleep(self._sizes.seconds)
        minutes = (time.monotonic() - began) / 60
        self.figures.cpu_at_rest = (self._operators.cpu_seconds() - cpu) / minutes
        self.figures.writes_at_rest = (self._status_writes() - writes) / minutes

    async def _load(self) -> None:
        cpu, writes, began = self._operators.cpu_seconds(), self._status_writes(), time.monotonic()

        async def end(number: int) -> None:
            await asyncio.sleep(max(0.0, began + number / self._sizes.ends_per_second - time.monotonic()))
            await self._server.ask("PATCH", f"{PODS}/train-{number:05d}/status", succeeded(), STRATEGIC)

        apart = self._sizes.seconds / (self._sizes.probes_under_load + 1)
        probing = asyncio.create_task(self._probes(self._sizes.probes_under_load, apart, began + self._sizes.seconds))
        await self._server.each(end, range(self._sizes.ends))
        minutes = (time.monotonic() - began) / 60
        self.figures.cpu_under_load = (self._operators.cpu_seconds() - cpu) / minutes
        self.figures.writes_under_load = (self._status_writes() - writes) / minutes
        self.figures.ends_per_second = self._sizes.ends / minutes / 60
        self.figures.lags_under_load = await probing

    async def _probes(self, count: int, apart: float, until: float = math.inf) -> list[float]:
        """For some pods that never ran and now have ended: seconds until the last budget says that it tracks one more."""
        lags: list[float] = []
        while len(lags) < count and time.monotonic() < until:
            due = time.monotonic() + apart
            wanted = {name: tracked + 1 for name, tracked in self._tracked.items()}
            path = f"{PODS}/probe-{self._probe:05d}/status"
            self._probe += 1
            await self._server.ask("PATCH", path, succeeded(), STRATEGIC)
            answered = time.monotonic()
            while any(self._tracked[name] < tracked for name, tracked in wanted.items()):
                await self._hear("every budget tracks the probe", answered)
            lags.append(time.monotonic() - answered)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        return lags

    async def _hear(self, what: str, began: float) -> None:
        """Wait for news of any budget."""
        self._operators.running()
        left = began + PATIENCE_SECONDS - time.monotonic()
        try:
            await asyncio.wait_for(self._news.wait(), left)
        except TimeoutError:
            log = self._operators.running().tail()
            raise RuntimeError(f"not so after {PATIENCE_SECONDS:.0f} s: {what}; {self._tracked}\n{log}") from None
        self._news.clear()

    def _status_writes(self) -> float:
        """Writes of our status that the API server has counted."""
        return sum(
            float(count)
            for labels, count in STATUS_WRITES.findall(self._plane.metrics())
            if 'resource="gpuworkloadbudgets"' in labels
            and 'subresource="status"' in labels
            and re.search(r'verb="(PUT|PATCH|APPLY)"', labels)
        )

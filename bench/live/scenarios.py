"""Scenarios of usage on a real API server: pods that come and end by a timetable, an operator that is killed, snapshots of a budget."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.live import truth
from bench.live.operators import Operators
from bench.live.server import Document, Server, cancelled
from headroom.api.resources import API_VERSION
from headroom.cli.bench import BenchWorkload, expected
from tests.control_plane import ControlPlane

RESOURCE = "cpu"
"""The API server refuses fractions of GPUs, and the seed's own benchmark counts cpu for the same reason."""
GPUS = "100m"
MICRO_GPUS = 100_000
WINDOW_HOURS = 24
PATIENCE_SECONDS = 60
ROUNDING = Fraction(1, 10**12)
"""A status has twelve decimals."""
OUR_PREFIX = "headroom.dev/"


class Wave(Struct, frozen=True, kw_only=True):
    """Pods that come one after the other, seconds after the scenario began."""

    prefix: str
    runtime: float
    count: int = 50
    rate: float = 10
    after: float = 0


class Scenario(Struct, frozen=True, kw_only=True):
    """What happens, in seconds after the first pod was made."""

    name: str
    waves: tuple[Wave, ...]
    snapshots: tuple[float, ...]
    killed: float | None = None
    back: float = 0
    deletes: bool = False
    """Every pod is deleted as soon as its end is seen."""
    exact: bool = False


class Snapshot(Struct, frozen=True, kw_only=True):
    """A budget's newest status at one moment, with the truth and the timetable beside it. Amounts are GPU-hours."""

    scenario: str
    seconds: float
    age: float
    """How old the status was: its `asOf` is the moment that the truth is told for."""
    alive: bool
    """Whether an operator ran."""
    tracked: int
    consumed: Fraction
    upper: Fraction
    truth: Fraction
    timetable: Fraction

    @property
    def ratio(self) -> float | None:
        """Consumed by truth, however large; None if there is nothing to compare with."""
        if self.truth:
            return float(self.consumed / self.truth)
        return None if self.consumed else 1.0

    @property
    def error(self) -> float:
        """How far the ratio is from 1."""
        return abs(1 - self.ratio) if self.ratio is not None else 1.0

    @property
    def bounded(self) -> bool:
        """Whether the truth lies within the bounds, but for what a status rounds away."""
        return self.consumed - ROUNDING <= self.truth <= self.upper + ROUNDING


class _Reading(Struct, frozen=True, kw_only=True):
    seconds: float
    at: int
    alive: bool
    status: Document


class Run:
    """One scenario, in a namespace and with a ledger of its own."""

    def __init__(self, plane: ControlPlane, server: Server, folder: Path, scenario: Scenario) -> None:
        self._plane, self._server, self._scenario = plane, server, scenario
        self.namespace = f"bench-{scenario.name}"
        self._operators = Operators(plane, folder / scenario.name)
        self._alive = False
        self._pods: dict[str, Document] = {}
        self._first = asyncio.Event()
        self._readings: list[_Reading] = []
        self.left_over = 0
        """Pods that were deleted but are still there at the end."""

    async def run(self) -> list[Snapshot]:
        """Play it, and compare."""
        watching = asyncio.create_task(self._watch())
        try:
            await self._prepare()
            await self._play()
            await asyncio.sleep(1)  # for the watch to hear the last of it
            self.left_over = await self._deleted_and_still_there()
            return [self._compared(reading) for reading in self._readings]
        finally:
            self._operators.close()
            await cancelled(watching)

    async def _prepare(self) -> None:
        await self._server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await self._server.ask("POST", self._budgets, self._budget())
        self._operators.start()
        self._alive = True
        await self._until(self._has_status(), "the budget has a status")
        if self._scenario.exact:
            await self._until(self._pods_are_held(), "new pods get the finalizer")

    async def _play(self) -> None:
        scenario = self._scenario
        async with asyncio.TaskGroup() as tasks:
            for wave in scenario.waves:
                if not wave.after:
                    tasks.create_task(self._make(wave))
            await asyncio.wait_for(self._first.wait(), PATIENCE_SECONDS)
            self._began = time.monotonic()
            for wave in scenario.waves:
                if wave.after:
                    tasks.create_task(self._at(wave.after, self._make(wave)))
            for seconds in scenario.snapshots:
                tasks.create_task(self._at(seconds, self._read(seconds)))
            if scenario.killed is not None:
                tasks.create_task(self._at(scenario.killed, self._kill()))
                tasks.create_task(self._at(scenario.back, self._start_again()))

    async def _at(self, seconds: float, what: Awaitable[None]) -> None:
        await asyncio.sleep(max(0.0, self._began + seconds - time.monotonic()))
        await what

    async def _make(self, wave: Wave) -> None:
        command = [sys.executable, "-m", "headroom", "bench", "workload", "--kwok"]
        flags = {
            "--kubeconfig": str(self._plane.kubeconfig()),
            "--namespace": self.namespace,
            "--count": str(wave.count),
            "--rate": f"{wave.rate:g}",
            "--runtime": f"{round(wave.runtime * 1000)}ms",
            "--gpus": GPUS,
            "--gpu-resource": RESOURCE,
            "--prefix": f"{wave.prefix}-",
        }
        words = [word for pair in flags.items() for word in pair]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        process = await asyncio.create_subprocess_exec(
            *command, *words, stdout=asyncio.subprocess.DEVNULL, env=environment
        )
        if await process.wait():
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")

    async def _watch(self) -> None:
        """Keep the last state of every pod that ever was, and delete those that ended, if that is the scenario."""
        async for _, pod in self._server.events(f"/api/v1/namespaces/{self.namespace}/pods"):
            self._first.set()
            metadata = pod["metadata"]
            self._pods[metadata["uid"]] = pod
            ended = pod["status"]["phase"] in truth.ENDED
            if self._scenario.deletes and ended and "deletionTimestamp" not in metadata:
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
                path = f"/api/v1/namespaces/{self.namespace}/pods/{metadata['name']}"
                await self._server.ask("DELETE", path, options)

    async def _kill(self) -> None:
        self._operators.kill()
        self._alive = False

    async def _start_again(self) -> None:
        self._operators.start()
        self._alive = True

    async def _read(self, seconds: float) -> None:
        if self._alive:
            self._operators.running()  # raises if it ended by itself
        budget = await self._server.ask("GET", f"{self._budgets}/bench")
        at = round(time.time() * 1000)
        self._readings.append(_Reading(seconds=seconds, at=at, alive=self._alive, status=budget.get("status", {})))

    def _compared(self, reading: _Reading) -> Snapshot:
        status = reading.status
        as_of = truth.moment(status["asOf"])
        holders = [each for pod in self._pods.values() if (each := truth.held(pod, RESOURCE))]
        window = WINDOW_HOURS * 3_600_000
        return Snapshot(
            scenario=self._scenario.name,
            seconds=reading.seconds,
            age=(reading.at - as_of) / 1000,
            alive=reading.alive,
            tracked=status["trackedPods"],
            consumed=Fraction(status["consumedGpuHours"]),
            upper=Fraction(status["upperGpuHours"]),
            truth=Fraction(truth.used(holders, as_of, window), truth.MICRO_MS_PER_GPU_HOUR),
            timetable=sum((_planned(wave, reading.seconds) for wave in self._scenario.waves), Fraction(0)),
        )

    # Small things

    @property
    def _budgets(self) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/gpuworkloadbudgets"

    def _budget(self) -> Document:
        spec: dict[str, Any] = {
            "selector": {"matchLabels": {"app": "headroom-bench"}},
            "quota": {"gpuHours": "1", "windowHours": WINDOW_HOURS},
            "enforcement": {"action": "AlertOnly", "gracePeriodSeconds": 30},
            "gpuResourceName": RESOURCE,
        }
        if self._scenario.exact:
            spec["accounting"] = "Exact"
        return {"apiVersion": API_VERSION, "kind": "GPUWorkloadBudget", "metadata": {"name": "bench"}, "spec": spec}

    async def _has_status(self) -> None:
        while "asOf" not in (await self._server.ask("GET", f"{self._budgets}/bench")).get("status", {}):
            self._operators.running()
            await asyncio.sleep(0.2)

    async def _pods_are_held(self) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {RESOURCE: GPUS}}}
        metadata = {"name": "dry", "labels": {"app": "headroom-bench"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        while True:
            made = await self._server.ask("POST", f"/api/v1/namespaces/{self.namespace}/pods?dryRun=All", pod)
            if any(each.startswith(OUR_PREFIX) for each in made["metadata"].get("finalizers", ())):
                return
            await asyncio.sleep(0.2)

    async def _until(self, what: Awaitable[None], words: str) -> None:
        try:
            await asyncio.wait_for(what, PATIENCE_SECONDS)
        except TimeoutError:
            tail = self._operators.running().tail()
            raise RuntimeError(f"not so after {PATIENCE_SECONDS} s: {words}; the operator's log:\n{tail}") from None

    async def _deleted_and_still_there(self) -> int:
        page = await self._server.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        return sum("deletionTimestamp" in pod["metadata"] for pod in page["items"])


def _planned(wave: Wave, seconds: float) -> Fraction:
    """The seed's formula: as if every pod started when it was to be made."""
    workload = BenchWorkload(
        count=wave.count, rate=Fraction(str(wave.rate)), runtime=round(wave.runtime * 1000), micro_gpus=MICRO_GPUS
    )
    return expected(workload, max(0, round((seconds - wave.after) * 1000)))

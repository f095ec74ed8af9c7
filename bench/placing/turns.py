"""One turn: pods of one way, released all at once, placed by a kube-scheduler that waits for them."""

import asyncio
import contextlib
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from bench.live.server import MERGE, Document
from bench.placing import policies, ways
from bench.placing.extender import extender
from bench.placing.stage import NODES, PODS, Bound, Stage
from bench.placing.ways import CLAIMS, DRA, Way
from headroom.api.bandwidth_config import EXTENDER

QUIET = 2.0
"""Seconds between the last pod that is made and the release of the first: the making must not be what is measured."""
RESIDENTS = 400
"""Pods that are bound before, so that no way starts in an empty cluster."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn gave."""

    way: str
    rate: float
    nodes_per_group: float
    cores: Mapping[str, float]
    """Of each process, on average."""


class Fleet:
    """So many nodes, on which turns are taken."""

    def __init__(self, stage: Stage, nodes: int) -> None:
        self.stage, self.nodes = stage, nodes
        self._offers: Mapping[str, int] = {}
        self._has_nics = False

    async def prepare(self) -> None:
        """Install the policies, and make the nodes."""
        await policies.install(self.stage)
        await self.stage.make(NODES, [ways.node(number) for number in range(self.nodes)])

    async def turn(self, way: Way, count: int) -> Turn:
        """Place so many pods in this way, and clear away."""
        await self._dress(way)
        await policies.set_mode(self.stage, way.mode)
        try:
            bound = await self._placed(way, count)
            near = nodes_per_group(await self.stage.pods())
            return Turn(way=way.name, rate=bound.rate, nodes_per_group=near, cores=bound.cores)
        finally:
            await self.stage.clear()
            if way.is_claimed:
                await self._drop_claims(count)

    async def _placed(self, way: Way, count: int) -> Bound:
        pids = self.stage.plane.pids
        with contextlib.ExitStack() as processes:
            settings: dict[str, Any] = dict(way.settings)
            if way.mode == EXTENDER:
                process, asked = processes.enter_context(extender(self.stage))
                settings["extenders"], pids["extender"] = [asked], process.pid
            pids["kube-scheduler"] = processes.enter_context(self.stage.scheduler(settings)).pid
            await self._make_pods(way, count)
            version = await self.stage.version()
            await asyncio.sleep(QUIET)
            counting = asyncio.create_task(self.stage.binds(count, version, pids))
            await asyncio.gather(counting, self.stage.release([f"p-{number:05d}" for number in range(count)]))
            return counting.result()

    async def _make_pods(self, way: Way, count: int) -> None:
        """Those that are bound already, and those that wait."""
        alike = structs.replace(way, one_in=1)
        residents = [ways.pod(alike, number, "r", f"node-{number % self.nodes:05d}") for number in range(RESIDENTS)]
        await self.stage.make(PODS, residents)
        if way.is_claimed:
            await self.stage.make(CLAIMS, [ways.claim(number) for number in range(count)])
        await self.stage.make(PODS, [ways.pod(way, number) for number in range(count)])

    async def _dress(self, way: Way) -> None:
        """Let nodes offer what the way asks for, and nothing else of that kind."""
        if way.offers != self._offers:
            offers = dict.fromkeys(self._offers) | {key: str(value) for key, value in way.offers.items()}
            status = {"status": {"capacity": offers, "allocatable": offers}}
            paths = [f"{NODES}/node-{number:05d}/status" for number in range(self.nodes)]
            await self._each("PATCH", paths, status)
            self._offers = way.offers
        if way.is_claimed and not self._has_nics:
            await self.stage.make(f"/apis/{DRA}/deviceclasses", [ways.device_class()])
            await self.stage.make(f"/apis/{DRA}/resourceslices", [ways.nic(number) for number in range(self.nodes)])
            self._has_nics = True

    async def _drop_claims(self, count: int) -> None:
        """With the finalizer that the controller would take off."""
        paths = [f"{CLAIMS}/p-{number:05d}" for number in range(count)]
        await self._each("PATCH", [f"{path}/status" for path in paths], {"status": None})
        await self._each("PATCH", paths, {"metadata": {"finalizers": None}})
        await self.stage.server.ask("DELETE", CLAIMS)

    async def _each(self, method: str, paths: list[str], body: Document) -> None:
        async def one(number: int) -> None:
            await self.stage.server.ask(method, paths[number], body, MERGE)

        await self.stage.server.each(one, range(len(paths)))


def nodes_per_group(pods: Iterable[Document]) -> float:
    """On how many nodes the pods of one owner are, on average."""
    found = defaultdict(set)
    for each in pods:
        if each["metadata"]["name"].startswith("p-"):
            found[each["metadata"]["labels"]["group"]].add(each["spec"]["nodeName"])
    return statistics.mean(map(len, found.values()))

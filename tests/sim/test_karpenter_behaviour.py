"""The simulated Karpenter does what the real one does: the side that needs no cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, VirtualLoop
from headroom.sim.karpenter import Karpenter
from headroom.sim.kubelet import PodLifecycle
from tests.builders import NOON
from tests.karpenter_behaviour import ZONE, Behaviour
from tests.karpenter_stage import CLASS, a_gpu_pod, a_node_pool, an_offer

__all__ = ["TestSimulated"]


class Simulated:
    """A `Side` in memory; nothing moves but while somebody waits."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._clock = SimClock(NOON)
        runner.run(self._begin())

    async def _begin(self) -> None:
        self._server = ApiServer(self._clock, random.Random(1))
        cluster = PodLifecycle(self._server)
        karpenter = Karpenter(self._server, cluster)
        self._server.put(CLASS)
        karpenter.begin()
        cluster.start()

    def _put(self, document: dict[str, object]) -> None:
        async def put() -> None:
            self._server.put(document)

        self._runner.run(put())

    def sell(self, kind: str, dollars: float, *, sold_out: bool = False) -> None:
        self._put(an_offer(kind, ZONE, str(dollars), sold_out=sold_out))

    def pool(self, name: str, kind: str, *, weight: int, gpus: int = 10) -> None:
        self._put(a_node_pool(name, [kind], weight=weight, gpus=gpus))

    def pod(self, name: str) -> None:
        self._put(a_gpu_pod(name))

    def node_of(self, pod: str) -> str:
        body = self._server.object("Pod", "lab", pod)
        is_running = body is not None and body["status"].get("phase") == "Running"
        return str(body["spec"]["nodeName"]) if body is not None and is_running else ""

    def pool_of(self, pod: str) -> str:
        node = self._server.object("Node", "", self.node_of(pod)) if self.node_of(pod) else None
        return str(node["metadata"]["labels"]["karpenter.sh/nodepool"]) if node else ""

    def until(self, holds: Callable[[], bool], what: str) -> None:
        for _ in range(120):
            if holds():
                return
            self._runner.run(self._clock.sleep(5))
        pytest.fail(what)

    def is_marked(self, node: str) -> bool:
        return self._server.object("Node", "", node) is None  # it replaces without a word


@pytest.fixture
def side() -> Iterator[Simulated]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield Simulated(runner)


class TestSimulated(Behaviour):
    """Every test of the suite."""

"""A simulated API server with a port on it, on a clock that does not wait."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any, Self

from headroom.adapters.kube import parse
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.store import KubePort
from headroom.api.kinds import AnyResource
from headroom.api.resources import API_VERSION
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual
from tests.builders import NOON, a_document


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test on a virtual loop: an hour of waiting takes no time."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        run_virtual(lambda: test(*args, **named))

    return run


class Cluster:
    """The server, and Headroom's view of it."""

    def __init__(self, *, on_failure: Callable[[BaseException], None] | None = None, **transport: Any) -> None:
        self.clock = SimClock(NOON)
        self.server = ApiServer(self.clock, random.Random(1))
        self.server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        self.transport = self.server.transport("headroom", **transport)
        self.kube = Kube(self.transport, self.clock)
        self.events = Events(self.kube, self.clock)
        self.port = KubePort(self.kube, self.events, clock=self.clock, rng=random.Random(2), on_failure=on_failure)

    async def __aenter__(self) -> Self:
        await self.port.start()
        assert await self.port.synced(10)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.port.stop()
        await self.transport.close()

    async def settle(self, seconds: float = 0.01) -> None:
        """Let the watches hear what happened."""
        await self.clock.sleep(seconds)

    def pod(self, name: str = "train-0", *, node: str = "", **more: Any) -> dict[str, Any]:
        """Make or change a pod, and say what is stored."""
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team-a"} | more.pop("metadata", {}),
            "spec": spec | ({"nodeName": node} if node else {}) | more.pop("spec", {}),
        }
        self.server.put(document | more)
        return self.stored("Pod", "team-a", name)

    def node(self, name: str = "n1", **spec: Any) -> dict[str, Any]:
        """Make or change a node, and say what is stored."""
        self.server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec})
        return self.stored("Node", "", name)

    def resource(self, kind: str = "GPUWorkloadBudget", name: str = "one", **spec: Any) -> AnyResource:
        """Make or change one of our resources, and read it as it is stored."""
        document = a_document(kind, name, **spec)
        self.server.put(document)
        return self.read(kind, document["metadata"].get("namespace", ""), name)

    def read(self, kind: str, namespace: str, name: str) -> AnyResource:
        """One of our resources as it is stored."""
        return parse.resource({"apiVersion": API_VERSION, "kind": kind} | self.stored(kind, namespace, name))

    def stored(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """An object as it is stored."""
        found = self.server.object(kind, namespace, name)
        assert found is not None, f"there is no {kind} {namespace}/{name}"
        return found

    def writes(self) -> int:
        """How many requests other than reads Headroom has sent."""
        return len(self.server.trace.by("headroom"))

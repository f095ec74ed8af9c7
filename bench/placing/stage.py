"""A real API server with nodes and pods, and a real kube-scheduler that is started for one measurement.

No kubelet and no controller runs beside them: a pod that is bound stays as it is, and costs nothing.
"""

import asyncio
import contextlib
import json
import os
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from bench.live.server import MERGE, Document, Server
from tests.control_plane import CLIENT_CERTIFICATE_USER, COLLECTED_LATER, ControlPlane
from tests.processes import Guard, Process, free_ports

NAMESPACE = "bench-placing"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = "/api/v1/nodes"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
SERVER_FLAGS = ("--disable-admission-plugins=TaintNodesByCondition", "--delete-collection-workers=8")
"""Nodes are ready at once: nobody is there to take the taint of a new one off."""
CLIENT_RATE = {"qps": 5000, "burst": 5000}
"""kube-scheduler's own limit must not be what is measured; by default it binds 50 pods a second."""
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 240.0


class Bound(msgspec.Struct, frozen=True):
    """When so many pods were bound, one moment for each, in order."""

    moments: Sequence[float]
    cpu: Mapping[str, float]
    """Seconds of processor time that each process took from the first pod to the last."""

    @property
    def rate(self) -> float:
        """Pods per second after the first tenth, when everything is warm."""
        first = len(self.moments) // 10
        return (len(self.moments) - 1 - first) / (self.moments[-1] - self.moments[first])

    @property
    def cores(self) -> dict[str, float]:
        """Of each process."""
        seconds = self.moments[-1] - self.moments[0]
        return {name: used / seconds for name, used in self.cpu.items()}


class Stage:
    """The API server, its nodes and its pods."""

    def __init__(self, plane: ControlPlane, server: Server) -> None:
        self.plane, self.server = plane, server
        self.guard = Guard(plane.folder)

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls) -> AsyncIterator[Self]:
        """With a control plane of its own, which ends with it."""
        with ControlPlane(components=(), apiserver_flags=SERVER_FLAGS) as plane:
            async with Server(plane) as server:
                stage = cls(plane, server)
                for name in (NAMESPACE, "headroom-system"):
                    await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
                try:
                    yield stage
                finally:
                    stage.guard.close()

    async def make(self, path: str, documents: Sequence[Document]) -> None:
        """Create them all, in about this order."""

        async def one(number: int) -> None:
            await self.server.ask("POST", path, documents[number])

        await self.server.each(one, range(len(documents)))

    async def release(self, names: Sequence[str]) -> None:
        """Lift the gate of each, in this order, as fast as the API server takes it."""

        async def one(number: int) -> None:
            await self.server.ask("PATCH", f"{PODS}/{names[number]}", {"spec": {"schedulingGates": None}}, MERGE)

        await self.server.each(one, range(len(names)))

    async def clear(self) -> None:
        """No pod is left, nor what was told of any."""
        now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for path in (PODS, EVENTS):
            await self.server.ask("DELETE", path, now)

    async def drop(self, names: Sequence[str]) -> None:
        """Delete these pods at once."""

        async def one(number: int) -> None:
            await self.server.ask("DELETE", f"{PODS}/{names[number]}?gracePeriodSeconds=0")

        await self.server.each(one, range(len(names)))

    async def pods(self) -> list[Document]:
        """All of them, as they are."""
        return list((await self.server.ask("GET", PODS))["items"])

    def start(self, name: str, command: Sequence[str], ready: Callable[[], bool]) -> Process:
        """A process beside the API server."""
        environment = {"HOME": str(self.plane.folder), "PATH": "/usr/bin:/bin", **COLLECTED_LATER}
        process = Process([*command], self.plane.folder / f"{name}.log", self.guard, environment)
        process.wait_ready(ready, timeout=90)
        return process

    @contextlib.contextmanager
    def scheduler(self, settings: Mapping[str, Any]) -> Iterator[Process]:
        """kube-scheduler with these settings beside what every scheduler here has; yields its process."""
        port = free_ports(1)[0]
        credentials = {"kubeconfig": str(self.plane.kubeconfig(CLIENT_CERTIFICATE_USER)), **CLIENT_RATE}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": credentials,
            "leaderElection": {"leaderElect": False},
            **settings,
        }
        file = self.plane.folder / "placing-scheduler.yaml"
        file.write_text(json.dumps(document))
        certificate, key = self.plane.serving_certificate
        flags = [f"--config={file}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
        # With a streamed list kube-scheduler would take the pods that it finds in no order at all, and no group together.
        flags += ["--feature-gates=WatchListClient=false"]
        flags += [f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]
        command = [str(self.plane.assets / "kube-scheduler"), *flags]
        process = self.start("placing-scheduler", command, lambda: self.answers(f"https://127.0.0.1:{port}/healthz"))
        try:
            yield process
        finally:
            process.kill()

    def answers(self, url: str) -> bool:
        """Whether something serves there."""
        context = ssl.create_default_context(cafile=self.plane.ca_file)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.plane.admin_token}"})
        with contextlib.suppress(OSError), opener.open(request, timeout=5):
            return True
        return False

    async def binds(self, count: int, version: str, pids: Mapping[str, int]) -> Bound:
        """Wait until so many more pods are bound. Reads as little of each as can be."""
        moments: list[float] = []
        before: dict[str, float] = {}
        async with asyncio.timeout(PATIENCE):
            while len(moments) < count:  # the API server ends a watch that it finds slow
                query = f"{PODS}?watch=true&fieldSelector=spec.nodeName!%3D&resourceVersion={version}"
                async for line in self.server.lines(query):
                    if line.startswith(b'{"type":"ADDED"'):
                        before = before or used_by(pids)
                        moments.append(time.monotonic())
                        last = line
                    if len(moments) == count:
                        break
                else:
                    version = json.loads(last)["object"]["metadata"]["resourceVersion"] if moments else version
        return Bound(moments, {name: used - before[name] for name, used in used_by(pids).items()})

    async def version(self) -> str:
        """The state of the API server that holds everything written so far."""
        found: str = (await self.server.ask("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        return found


def used_by(pids: Mapping[str, int]) -> dict[str, float]:
    """Seconds of processor time that each process has used."""
    return {name: _cpu_seconds(pid) for name, pid in pids.items()}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS

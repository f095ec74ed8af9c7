"""The trace replayed on a real kube-scheduler: each step's pods go and come, and the next begins when each new one is bound or refused."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bench.live.server import MERGE, Document, cancelled
from bench.placing import policies
from bench.placing.extender import extender
from bench.placing.policies import OFF
from bench.placing.stage import NODES, PODS, Stage
from bench.placing.trace import Books, Instance, Machine, Step
from headroom.api.bandwidth_config import EXTENDED, EXTENDER, NATIVE

GBPS = 1_000
"""Mbps in one percent of a NIC of 100 Gbit/s."""
LOCAL = 400 * GBPS
SOON = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
"""Time is compressed: whoever was refused must not wait for days of the trace before the next try."""
PATIENCE = 120.0


class Replayed(msgspec.Struct, frozen=True):
    """One replay."""

    books: Books
    seconds: float
    refused: int
    """Of the steps, the pods that had no place at once."""


class Replay:
    """The nodes, and what kube-scheduler has said of each pod."""

    def __init__(self, stage: Stage, plan: Sequence[Step], nodes: Mapping[str, Machine]) -> None:
        self._stage, self._plan, self._nodes = stage, plan, nodes
        self._where: dict[str, tuple[str, int]] = {}
        self._refused: set[str] = set()
        self._gone: set[str] = set()
        """Of which a word may still be on its way."""
        self._news = asyncio.Event()

    async def prepare(self) -> None:
        """Install the policies, and make the nodes."""
        await policies.install(self._stage)
        await self._stage.make(NODES, [node(name, kind) for name, kind in self._nodes.items()])

    async def play(self, mode: str) -> Replayed:
        """All steps, in one way."""
        await self._dress(mode)
        await policies.set_mode(self._stage, mode)
        self._where, self._refused, self._gone = {}, set(), set()
        books, began, refused = Books(self._plan), time.monotonic(), 0
        watching = asyncio.create_task(self._watch())
        try:
            with contextlib.ExitStack() as processes:
                settings: dict[str, Any] = {**SOON}
                if mode == EXTENDER:
                    settings["extenders"] = [processes.enter_context(extender(self._stage))[1]]
                processes.enter_context(self._stage.scheduler(settings))
                for step in self._plan:
                    await self._take(step, watching)
                    refused += sum(each.name in self._refused for each in step.comes)
                    books.note(step, self._where)
        finally:
            await cancelled(watching)
            await self._stage.clear()
        return Replayed(books, time.monotonic() - began, refused)

    async def _take(self, step: Step, watching: "asyncio.Task[None]") -> None:
        await self._stage.drop([each.name for each in step.goes])
        for each in step.goes:
            self._gone.add(each.name)
            self._where.pop(each.name, None)
            self._refused.discard(each.name)
        await self._stage.make(PODS, [pod(each) for each in step.comes])
        names = {each.name for each in step.comes}
        async with asyncio.timeout(PATIENCE):
            while not names <= self._where.keys() | self._refused:
                self._news.clear()
                hearing = asyncio.create_task(self._news.wait())
                await asyncio.wait([hearing, watching], return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()

    async def _watch(self) -> None:
        async for kind, each in self._stage.server.events(PODS):
            name = each["metadata"]["name"]
            if kind != "DELETED" and name not in self._gone:
                self._hear(name, each)
                self._news.set()

    def _hear(self, name: str, each: Document) -> None:
        if host := each["spec"].get("nodeName"):
            rdma = int(each["metadata"]["labels"]["rdma"])
            self._where[name] = (host, rdma)
            self._refused.discard(name)
        elif any(told["status"] == "False" for told in each["status"].get("conditions", ())):
            self._refused.add(name)

    async def _dress(self, mode: str) -> None:
        """Let the nodes offer their links as resources, or not."""
        amounts = {key: LOCAL if "local" in key else 100 * GBPS for key in EXTENDED}
        offers = {key: str(amount) if mode == NATIVE else None for key, amount in amounts.items()}
        names = [*self._nodes]

        async def one(number: int) -> None:
            status = {"status": {"capacity": offers, "allocatable": offers}}
            await self._stage.server.ask("PATCH", f"{NODES}/{names[number]}/status", status, MERGE)

        await self._stage.server.each(one, range(len(names)))


WAYS = {"plain": OFF, "native": NATIVE, "extender": EXTENDER}
"""And the modes in which our policies are meanwhile."""


def node(name: str, kind: Machine) -> Document:
    """A node of that kind."""
    capacity = {"cpu": str(kind.has["cpu"]), "memory": f"{kind.has['memory']}Gi", "pods": "110"}
    capacity |= {"nvidia.com/gpu": str(kind.has["gpu"])} if kind.has["gpu"] else {}
    labels = {"kubernetes.io/hostname": name, "role": kind.role}
    links = {"network-bandwidth": "100G", "local-bandwidth": f"{LOCAL}M"}
    annotations = {f"headroom.dev/{key}": value for key, value in links.items()}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def pod(each: Instance) -> Document:
    """The instance; where nothing knows of bandwidth, its annotations are mere words."""
    needs = each.needs
    requests = {"cpu": str(needs["cpu"]), "memory": f"{needs['memory']}Gi"}
    extended = {"nvidia.com/gpu": str(needs["gpu"])} if needs["gpu"] else {}
    container = {"name": "main", "image": "example.com/serve:1"}
    resources = {"resources": {"requests": requests | extended, "limits": extended}}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": each.app, "uid": each.app, "controller": True}
    bandwidth = f"{needs['rdma']}G"
    metadata = {
        "name": each.name,
        "labels": {"app": each.app, "rdma": str(needs["rdma"])},
        "annotations": {f"kubernetes.io/{link}-bandwidth": bandwidth for link in ("egress", "ingress")},
        "ownerReferences": [owner],
    }
    spec = {"nodeSelector": {"role": each.role}, "containers": [container | resources], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

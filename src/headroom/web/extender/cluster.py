"""The part of a cluster that the extender watches: nodes, pods and Bandwidths, kept as no more than its answers need."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from msgspec import Struct

from headroom.adapters.kube import decode, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.listwatch import Decoder, Identity, Sink
from headroom.adapters.kube.node_links import Edited, NodeLinks, decoder
from headroom.adapters.kube.sinks import is_older
from headroom.adapters.kube.watch import Reflector
from headroom.core.bandwidth import FourRates, MachineTypes, PodAsk, Touching, ask_of, capacity_of
from headroom.model.bandwidth import ENDED, MEGABIT, BandwidthRules, Rates
from headroom.model.facts import Node, Pod
from headroom.model.ports import Clock
from headroom.model.world import World

KIND: Final = "Bandwidth"
UNFINISHED: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""A pod that ends is told as one that was deleted."""

Fact = TypeVar("Fact")


class _Known(Struct, gc=False):
    """What must be known of a pod to know it again."""

    namespace: str
    name: str
    resource_version: str
    uid: str


class PlacementSink:
    """Tells the placement of every pod on a node, and of those without one that ask for bandwidth."""

    def __init__(self, touching: Touching, rules: BandwidthRules, now: Callable[[], int]) -> None:
        self._placement, self._touching, self._rules, self._now = touching.placement, touching, rules, now
        self._known: dict[str, _Known] = {}
        self._edited: dict[str, dict[str, Edited]] = {}
        """By node and uid."""

    def key(self, fact: Pod) -> str:
        """The uid: a pod of the same name is another pod."""
        return fact.uid

    def keys(self) -> Iterable[str]:
        """All uids."""
        return self._known.keys()

    def identity(self, key: str) -> Identity | None:
        """Which pod it is."""
        known = self._known.get(key)
        return None if known is None else Identity(known.namespace, known.name, key)

    def key_of(self, uid: str) -> str:
        """How people name the pod; empty if it is not known."""
        known = self._known.get(uid)
        return f"{known.namespace}/{known.name}" if known is not None else ""

    def edited(self, node: str, found: Iterable[Edited]) -> None:
        """What pods of a node asked for when they were bound, by the operator's status: we may not have seen them before the edit."""
        by_uid = {each.pod_uid: each for each in found}
        if by_uid:
            self._edited[node] = by_uid
        else:
            self._edited.pop(node, None)
        for each in by_uid.values():
            if (ask := self._placement.ask_of_bound(each.pod_uid)) is not None:
                self._placement.was_bound_with(self._as_bound(ask, each))

    def _as_bound(self, ask: PodAsk, said: Edited) -> PodAsk:
        return ask._replace(up=said.up, down=said.down, siblings_only=said.siblings or self._rules.siblings)

    def put(self, fact: Pod, *, listed: bool = False) -> None:
        """Take in a pod."""
        known = self._known.get(fact.uid)
        if known is not None and not listed and is_older(fact, known):
            return
        ask = ask_of(fact, self._rules)
        # One with a gate is nowhere yet, and nobody is binding it.
        if fact.phase in ENDED or not (fact.node or ((ask.up or ask.down) and not fact.gates)):
            self._forget(fact.uid)
            return
        # Names that many pods share are kept once, and for as long as one of these does.
        ask = ask._replace(group=sys.intern(ask.group))
        self._known[fact.uid] = _Known(sys.intern(fact.namespace), fact.name, fact.resource_version, fact.uid)
        if fact.node:
            said = self._edited.get(fact.node, {}).get(fact.uid)
            self._placement.bound(ask if said is None else self._as_bound(ask, said), sys.intern(fact.node))
            self._touching.forget(fact.uid)
        else:
            self._placement.unbound(ask, self._now(), fact.nominated_node)

    def remove(self, key: str, _last: Pod | None, _seen_until: int) -> None:
        """The pod is gone, or has ended."""
        self._forget(key)

    def _forget(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._placement.gone(uid)
        self._touching.forget(uid)

    def listed(self) -> None:
        """All pods are known."""


class CapacitySink:
    """Keeps nodes, or the Bandwidths named like them, and tells the name of each that says something new."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.found: dict[str, Any] = {}
        self._changed = changed

    def key(self, fact: Node | NodeLinks) -> str:
        """The name."""
        return fact.name

    def keys(self) -> Iterable[str]:
        """All names."""
        return self.found.keys()

    def identity(self, key: str) -> Identity | None:
        """Which object it is."""
        fact = self.found.get(key)
        return None if fact is None else Identity("", key, fact.uid)

    def put(self, fact: Node | NodeLinks, *, listed: bool = False) -> None:
        """Take in an object."""
        known = self.found.get(fact.name)
        if known is None or listed or not is_older(fact, known):
            self.found[fact.name] = fact
            self._changed(fact.name)

    def remove(self, key: str, _last: Node | NodeLinks | None, _seen_until: int) -> None:
        """The object is gone."""
        if self.found.pop(key, None) is not None:
            self._changed(key)

    def listed(self) -> None:
        """All of them are known."""


class WatchedCluster:
    """Three watches that keep a placement up to date."""

    def __init__(
        self,
        kube: Kube,
        touching: Touching,
        rules: BandwidthRules,
        *,
        clock: Clock,
        rng: random.Random,
        now: Callable[[], int],
    ) -> None:
        """`now` is the clock of the holds."""
        placement = touching.placement
        self._placement, self._rules = placement, rules
        self._kube, self._clock, self._rng = kube, clock, rng
        self.pods = PlacementSink(touching, rules, now)
        self.nodes, self._bandwidths = CapacitySink(self._size), CapacitySink(self._learn)
        self._world = World(now=0, bandwidth=rules)
        self._reflectors: list[Reflector[Any]] = []
        self._pods = self._watch(paths.pods(), decode.pods(), self.pods, UNFINISHED)
        self._watch(paths.nodes(), decode.nodes(), self.nodes)
        self._watch(paths.collection(KIND), decoder(), self._bandwidths, optional=True)
        self._tasks: list[asyncio.Task[None]] = []

    def _watch(
        self,
        path: str,
        decoder: Decoder[Fact],
        sink: Sink[Fact],
        query: dict[str, str] | None = None,
        *,
        optional: bool = False,
    ) -> Reflector[Fact]:
        found = Reflector(
            self._kube, path, decoder, sink, clock=self._clock, rng=self._rng, query=query, optional=optional
        )
        self._reflectors.append(found)
        return found

    def _size(self, name: str) -> None:
        """What the links of a node can carry may be another amount now, or the node is gone."""
        node: Node | None = self.nodes.found.get(name)
        if node is None:
            self._placement.remove_node(name)
        else:
            self._placement.set_node(name, four(node, self._bandwidths.found.get(name), self._world))

    def _learn(self, name: str) -> None:
        """A Bandwidth says what the links carry, and what pods asked for when they were bound."""
        said: NodeLinks | None = self._bandwidths.found.get(name)
        self.pods.edited(name, said.edited if said is not None else ())
        self._size(name)

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Begin to watch; a watch that ends by a mistake of ours is told."""
        for each in self._reflectors:
            task = asyncio.create_task(each.run())
            task.add_done_callback(lambda ended: self._ended(ended, failed))
            self._tasks.append(task)

    @staticmethod
    def _ended(task: asyncio.Task[None], failed: Callable[[BaseException], None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failed(error)

    async def stop(self) -> None:
        """End all watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def counted(self) -> dict[str, int]:
        """How much is known, for the log."""
        return {"pods": len(list(self.pods.keys())), "nodes": len(self.nodes.found)}

    def heard(self) -> float:
        """When the watch of pods last said something, in seconds of the monotonic clock."""
        return self._pods.heard

    def unseen(self) -> str:
        """Why not all pods and nodes are known; empty if they are."""
        return next((each.cause for each in self._reflectors if not (each.seen or each.absent)), "")


def four(node: Node, said: NodeLinks | None, world: World) -> FourRates:
    """The capacity of a node's links, by the rules of the accounting."""
    found = capacity_of(world, node, said.spec if said is not None else None, MachineTypes(world))
    local, network = found.links.local, found.links.network
    # Who reads no offers takes from the operator's status what it knows by them.
    if said is not None and said.offered is not None and found.network_from in ("Settings", "InstanceType"):
        network = Rates(said.offered.ul_mbps * MEGABIT, said.offered.dl_mbps * MEGABIT)
    return (local.up, local.down, network.up, network.down)

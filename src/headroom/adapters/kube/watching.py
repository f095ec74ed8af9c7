"""The cluster as the watches see it: all that decisions need, or a part of it. They keep tables up to date and tell what is new.

Everything here runs in one event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypedDict, TypeVar, Unpack

from headroom.adapters.kube import admission, decode, device_sinks, paths, raw, sinks
from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config_maps import PriceSink, SettingsSink
from headroom.adapters.kube.karpenter_sinks import NodeClaimSink
from headroom.adapters.kube.listwatch import Decoder, Sink
from headroom.adapters.kube.sinks import FactSink, NodeSink, PodSink, ResourceSink
from headroom.adapters.kube.sources import SOURCES
from headroom.adapters.kube.watch import Reflector
from headroom.api.kinds import KINDS
from headroom.model.changes import Changes, Topic
from headroom.model.devices import DeviceTable
from headroom.model.errors import HeadroomError
from headroom.model.pace import Pace
from headroom.model.ports import SETTLE_MS, Beside, Clock, Recording
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import Caps

Fact = TypeVar("Fact")


class WatchSelection(NamedTuple):
    """What of a cluster is watched."""

    kinds: frozenset[str] | None = None
    """As `kubectl` names them, such as `nodes` or `nodeclaims.karpenter.sh`; None: all that decisions need."""
    pods: str = ""
    """Only pods that this field selector matches."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.kinds is None

    def has(self, path: str) -> bool:
        """Whether a collection is watched."""
        return self.kinds is None or paths.spoken(path) in self.kinds


ALL: Final = WatchSelection()
NODES_AND_BOUND_PODS: Final = WatchSelection(frozenset({"pods", "nodes"}), pods="spec.nodeName!=")
"""What it takes to know where there is room, and no more."""


class Options(TypedDict, total=False):
    """What may be said beside what must be."""

    namespace: str
    """Where the operator runs."""
    cluster: str
    """The cluster's id; it is read from the cluster if it is not given."""
    on_failure: Callable[[BaseException], None] | None
    """Told of a watch that ended by a mistake of ours: the view will never be complete again."""
    part: WatchSelection
    pace: Pace
    caps: Caps
    """Of a view: how far enforcement goes."""
    beside: Beside
    """Of a view: what is called beside the API server."""
    pool_namespaces: Mapping[str, tuple[str, ...]]
    """Of a view: whose pods Spotpools may serve beside those of their own namespace."""
    end_orphans: bool
    """Of a view: machines of this cluster that no Spotpool owns may be ended."""


class Watching:
    """Watches a real cluster, or a simulated API server."""

    def __init__(
        self,
        kube: Kube,
        *,
        clock: Clock,
        rng: random.Random,
        recording: Recording | None = None,
        **more: Unpack[Options],
    ) -> None:
        """`recording` hears of everything that happens to pods."""
        self._kube, self._clock, self._rng, self._cluster = kube, clock, rng, more.get("cluster", "")
        self._namespace, self._part = more.get("namespace", "headroom-system"), more.get("part", ALL)
        self._on_failure, self._pace = more.get("on_failure"), more.get("pace", Pace())
        self._settled, self._cluster_problem = 0, ""
        self._changes = Subscriptions()
        self._pods, self._nodes, self._devices = PodTable(), NodeTable(), DeviceTable()
        self._resources = ResourceTable()
        self._settings, self._prices = SettingsSink(self._changes), PriceSink(self._changes)
        self._sinks = {kind: ResourceSink(kind, self._resources, self._changes) for kind in KINDS}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pod_sink = PodSink(self._pods, self._changes, recording, clock.now)
        self.note_refusal = self._pod_sink.note_refusal
        self._indexes = sinks.indexes(self._changes)
        self._facts: dict[str, dict[str, Any]] = {}
        """The facts of each field of the World that has a source."""
        self._node_claims = NodeClaimSink(self._changes, self._facts, clock.now)
        self._policies = {plural: sinks.policies(self._changes) for plural in admission.KINDS}
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._watch_all()

    def _watch_all(self) -> None:
        bound = {"fieldSelector": self._part.pods} if self._part.pods else None
        self._reflect(paths.pods(), decode.pods(), self._pod_sink, query=bound)
        self._reflect(paths.nodes(), decode.nodes(), NodeSink(self._nodes, self._changes, self._clock.now))
        for kind, sink in self._sinks.items():
            self._reflect(paths.collection(kind), decode.resources(kind), sink, optional=True)
        self._reflect(paths.budget_index(), decode.indexes(), self._indexes, optional=True)
        for each in (self._settings, self._prices):
            self._reflect(paths.configmaps(self._namespace), decode.settings(), each, name=each.NAME)
        own = self._own_sinks()
        for source in SOURCES:
            facts = own.get(source.kind) or sinks.facts(self._changes, source.field, self._facts, source.keeps)
            self._reflect(source.path(), source.decoder(), facts, query=source.query, optional=source.optional)
        labelled = {"labelSelector": admission.SELECTOR}
        for plural, policies in self._policies.items():
            self._reflect(paths.policies(plural), decode.policies(), policies, query=labelled, optional=True)

    def _own_sinks(self) -> dict[str, FactSink[Any]]:
        """Of kinds whose news concern more than themselves."""
        changes, table = self._changes, self._devices
        return {
            "ResourceClaim": device_sinks.claims(changes, self._pod_sink, self._facts.setdefault("claims", {})),
            "ResourceClaimTemplate": device_sinks.claim_templates(changes, table),
            "DeviceClass": device_sinks.device_classes(changes, table),
            "ResourceSlice": device_sinks.device_slices(changes, table),
            "NodeClaim": self._node_claims,
        }

    def _reflect(
        self,
        path: str,
        decoder: Decoder[Fact],
        sink: Sink[Fact],
        *,
        name: str = "",
        query: Mapping[str, str] | None = None,
        optional: bool = False,
    ) -> None:
        """Watch a collection, or only the object of that name in it, or what a query is about; nothing if it is not to be watched.

        A cluster may lack a kind that is `optional`. If it is not Headroom's own either, only what needs it waits while it is not seen.
        """
        if not self._part.has(path):
            return
        place = f"{path}/{name}" if name else path
        self._reflectors[place] = Reflector(
            self._kube,
            path,
            decoder,
            sink,
            clock=self._clock,
            rng=self._rng,
            pace=self._pace,
            query={"fieldSelector": f"metadata.name={name}"} if name else query,
            optional=optional,
            turned=partial(self._changes.fact, Topic.SIGHT),
        )

    # Living

    async def start(self) -> None:
        """Begin to watch; `synced` says when all is known."""
        for path, reflector in self._reflectors.items():
            self._tasks[path] = asyncio.create_task(reflector.run(), name=f"watch {path}")
        if not self._cluster and self._part.is_all:
            self._tasks["cluster"] = asyncio.create_task(self._learn_cluster(), name="cluster id")
        for task in self._tasks.values():
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and self._on_failure:
            self._on_failure(error)

    async def stop(self) -> None:
        """End all watches."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def synced(self, timeout: float) -> bool:
        """Wait until the whole cluster is known; False if that takes longer than `timeout` seconds."""
        deadline = self._clock.monotonic() + timeout
        while not self.complete:
            if self._clock.monotonic() >= deadline:
                return False
            await self._clock.sleep(min(0.05, timeout))  # reflectors sync one by one, and tell nobody
        return True

    async def _learn_cluster(self) -> None:
        """The cluster's id is the uid of its oldest namespace, which nobody can delete."""
        while not self._cluster:
            try:
                found = raw.read(await self._kube.get(paths.namespace("kube-system")), raw.Object).metadata
                self._cluster = (found.uid if found else None) or ""
                self._cluster_problem = "" if self._cluster else "reading the cluster's id: kube-system has no uid"
            except HeadroomError as problem:
                self._cluster_problem = f"{problem}; it is the cluster's id, which --cluster-id can give instead"
            if not self._cluster:
                await self._clock.sleep(self._rng.uniform(1.0, 5.0))  # many replicas ask at the same time
        self._changes.fact(Topic.SETTINGS)

    # How well we see

    @property
    def complete(self) -> bool:
        """Whether all that every decision needs is seen: every list was read to its end and every watch is open, or was just now."""
        alive = all(path in self._tasks and not self._tasks[path].done() for path in self._reflectors)
        seen = all(each.seen or each.absent for each in self._reflectors.values() if each.is_needed)
        # The first look at what others made takes a moment, and is no reason to decide without it.
        named = bool(self._cluster) or not self._part.is_all
        return named and alive and seen and all(each.tried for each in self._reflectors.values())

    def unseen(self) -> dict[str, str]:
        """The kinds that are not seen now, as `kubectl` names them, each with the cause."""
        return {paths.spoken(path): cause for path, each in self._reflectors.items() if (cause := each.cause)}

    def watched(self) -> dict[str, bool]:
        """Every kind that the cluster has, or should have, and whether it is seen now."""
        return {paths.spoken(path): not each.cause for path, each in self._reflectors.items() if not each.absent}

    def age_seconds(self) -> float:
        """How long the most silent watch has been silent."""
        return max(self._clock.monotonic() - each.heard for each in self._reflectors.values() if not each.absent)

    def problems(self) -> list[str]:
        """Why the view is not complete, one sentence for each cause."""
        waited_for = [each for each in self._reflectors.values() if each.is_needed or not each.tried]
        found = [self._cluster_problem, *(each.cause for each in waited_for)]
        for path, task in self._tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()):
                found.append(f"watching {paths.spoken(path)}: it ended because of a bug in Headroom: {error!r}")
        return [each for each in found if each]

    def heard_until(self, now: int) -> int:
        """When the pod watch last said anything at all, be it only that there is no news; never later than is settled."""
        pods = self._reflectors[paths.pods()]
        silent = round((self._clock.monotonic() - pods.heard) * 1000)
        return min(self.settled(now), now - silent if pods.established else pods.known_until)

    def missed_since(self, now: int) -> int:
        """Since when something may have happened to pods that was not heard as it happened: now, if nothing may."""
        pods = self._reflectors[paths.pods()]
        return now if pods.established else min(now, pods.known_until)

    def server_time(self) -> int | None:
        """What time it is by the API server's clock; None if it has not told."""
        return self._kube.server_time.now(self._clock.monotonic())

    def settled(self, now: int) -> int:
        """The moment up to which what happened to pods is surely known. It goes backwards only if the clock does; 0 where none are watched."""
        pods, latest = self._reflectors.get(paths.pods()), now - SETTLE_MS
        if pods is None:
            return 0
        known = latest if pods.established else min(latest, pods.known_until)
        self._settled = max(min(self._settled, latest), known)
        return self._settled

    def subscribe(self, plan: str, parts: frozenset[str], *, quiet: bool = False) -> None:
        """What `take_changes(plan)` will speak of: names of kinds, and topics."""
        self._changes.subscribe(plan, parts, quiet=quiet)

    def take_changes(self, plan: str) -> Changes:
        """What is new since this plan last asked."""
        return self._changes.take(plan)

    async def changed(self, besides: Collection[str] = ()) -> None:
        """Returns once something is new that some plan has not been told of; see `Port`."""
        await self._changes.changed(besides)

    def tell(self, topic: Topic, name: str = "") -> None:
        """Whoever keeps other facts, such as machines and usage, says here that some are new."""
        self._changes.fact(topic, name)

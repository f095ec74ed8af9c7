"""The cluster as the loop sees it: watches keep tables up to date, and the World is a view of them.

Everything here runs in one event loop. A watch never replaces a fact by an older one, so that our own writes, which are taken from
the server's answer at once, are not undone by a watch that is still behind. A list does: it is never older than a write that was
answered before it, and after the cluster's restore from a backup all its versions are lower.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from msgspec import structs

from headroom.adapters.kube import decode, parse, paths, raw
from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects import Effects
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.parse import Settings
from headroom.adapters.kube.watch import Decoder, Reflector, Sink
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import Status
from headroom.model.actions import Action
from headroom.model.decisions import Ref, status_wire
from headroom.model.errors import HeadroomError
from headroom.model.facts import Node, Pod
from headroom.model.ports import Clock
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import Changes, World, ref_of

SETTINGS: Final = "headroom"
"""The ConfigMap with the cluster-wide settings, in the operator's namespace."""
NOT_STOPPED: Final = ("", "false", "no", "off", "0")
OLDEST_SECONDS: Final = 120.0
"""A watch that was silent for longer may hide anything; a bookmark comes about every minute."""

Fact = TypeVar("Fact")


class Versioned(Protocol):
    """Anything that was read from an object in some version."""

    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


def is_older(found: Versioned, known: Versioned) -> bool:
    """Whether `found` is the same object as `known` in an earlier version; False where versions cannot be compared."""
    new, old = found.resource_version, known.resource_version
    return found.uid == known.uid and new.isdecimal() and old.isdecimal() and int(new) < int(old)


# --- where the watches put what they hear --------------------------------------------------------------------------------------


class PodSink:
    """Keeps the table of pods."""

    def __init__(self, table: PodTable, changes: Subscriptions) -> None:
        self._table, self._changes = table, changes

    def key(self, fact: Pod) -> str:
        """The uid: a pod of the same name is another pod."""
        return fact.uid

    def keys(self) -> Iterable[str]:
        """All uids."""
        return self._table.uids()

    def put(self, fact: Pod, *, listed: bool = False) -> None:
        """Take in a pod; plans hear of it if more than its version is new."""
        before = self._table.get(fact.uid)
        if before is not None and not listed and is_older(fact, before):
            return
        unbound = before is not None and fact.uid in self._table.unbound
        if self._table.put(fact):
            unbound = unbound or fact.uid in self._table.unbound
            nodes = {each.node for each in (before, fact) if each is not None and each.node}
            self._changes.pod(fact.uid, unbound=unbound, nodes=nodes)

    def remove(self, key: str) -> None:
        """The pod is gone."""
        before = self._table.get(key)
        if before is not None:
            unbound = key in self._table.unbound
            self._table.remove(key)
            self._changes.pod(key, unbound=unbound, nodes=(before.node,) if before.node else ())

    def listed(self) -> None:
        """All pods are known."""
        self._changes.listed("pods", "unbound")


class NodeSink:
    """Keeps the table of nodes."""

    def __init__(self, table: NodeTable, changes: Subscriptions) -> None:
        self._table, self._changes = table, changes

    def key(self, fact: Node) -> str:
        """The name: plans and pods know nodes by it."""
        return fact.name

    def keys(self) -> Iterable[str]:
        """All names."""
        return self._table.names()

    def put(self, fact: Node, *, listed: bool = False) -> None:
        """Take in a node; plans hear of it if more than its version is new."""
        before = self._table.get(fact.name)
        if (before is None or listed or not is_older(fact, before)) and self._table.put(fact):
            self._changes.node(fact.name)

    def remove(self, key: str) -> None:
        """The node is gone."""
        if self._table.remove(key):
            self._changes.node(key)

    def listed(self) -> None:
        """All nodes are known."""
        self._changes.listed("nodes")


class ResourceSink:
    """Keeps the resources of one kind, in a mapping that all kinds share."""

    def __init__(self, kind: str, resources: dict[Ref, AnyResource], changes: Subscriptions) -> None:
        self._kind, self._resources, self._changes = kind, resources, changes
        self._refs: dict[str, Ref] = {}

    def key(self, fact: AnyResource) -> str:
        """The uid: a resource of the same name is another resource."""
        return fact.uid

    def keys(self) -> Iterable[str]:
        """All uids."""
        return self._refs.keys()

    def put(self, fact: AnyResource, *, listed: bool = False) -> None:
        """Take in a resource; plans hear of it if more than its version is new."""
        ref = ref_of(fact)
        before = self._resources.get(ref)
        if before is not None:
            if not listed and is_older(fact, before):
                return
            self._refs.pop(before.uid, None)
        self._refs[fact.uid] = ref
        self._resources[ref] = fact
        if before is None or structs.replace(fact, resource_version=before.resource_version) != before:
            self._changes.resource(ref)

    def confirm(self, fact: AnyResource) -> None:
        """Take in the answer to a write of ours, unless the resource is gone by now: an answer cannot bring it back."""
        if fact.uid in self._refs:
            self.put(fact)

    def remove(self, key: str) -> None:
        """The resource is gone."""
        ref = self._refs.pop(key, None)
        if ref is not None:
            del self._resources[ref]
            self._changes.resource(ref)

    def listed(self) -> None:
        """All resources of the kind are known."""
        self._changes.listed(self._kind)


class SettingsSink:
    """Keeps the cluster-wide settings."""

    def __init__(self, changes: Subscriptions) -> None:
        self.current: Settings | None = None
        self._changes = changes

    @property
    def stopped(self) -> bool:
        """Whether the kill switch is thrown: whoever writes anything there but a clear no wants it to be."""
        return self.current is not None and self.current.data.get("stop", "").strip().lower() not in NOT_STOPPED

    def key(self, fact: Settings) -> str:
        """The uid."""
        return fact.uid

    def keys(self) -> Iterable[str]:
        """The uid of the one ConfigMap, if it exists."""
        return [self.current.uid] if self.current else []

    def put(self, fact: Settings, *, listed: bool = False) -> None:
        """Take in the settings."""
        if fact.name != SETTINGS or (self.current and not listed and is_older(fact, self.current)):
            return
        before, self.current = self.current, fact
        if before is None or before.data != fact.data:
            self._changes.outside("settings")

    def remove(self, key: str) -> None:
        """The ConfigMap is gone: every setting has its default again."""
        if self.current is not None and self.current.uid == key:
            self.current = None
            self._changes.outside("settings")

    def listed(self) -> None:
        """Whether there are settings is known."""


# --- the port ------------------------------------------------------------------------------------------------------------------


class KubePort:
    """A real cluster, or a simulated API server, as the loop's port."""

    def __init__(  # noqa: PLR0913  two things to connect, time and chance, and three settings
        self,
        kube: Kube,
        events: Events,
        *,
        clock: Clock,
        rng: random.Random,
        namespace: str = "headroom-system",
        cluster: str = "",
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`on_failure` is told of a watch that ended by a mistake of ours: the view will never be complete again."""
        self._kube, self._clock, self._rng, self._cluster = kube, clock, rng, cluster
        self._on_failure = on_failure
        self._cluster_problem = ""
        self._changes = Subscriptions()
        self._pods, self._nodes = PodTable(), NodeTable()
        self._resources: dict[Ref, AnyResource] = {}
        self._resources_view: Mapping[Ref, AnyResource] = MappingProxyType(self._resources)
        self._settings = SettingsSink(self._changes)
        self._sinks = {kind: ResourceSink(kind, self._resources, self._changes) for kind in KINDS}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._effects = Effects(kube, events, clock=clock, view=self)
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._reflect(paths.pods(), decode.pods(), PodSink(self._pods, self._changes))
        self._reflect(paths.nodes(), decode.nodes(), NodeSink(self._nodes, self._changes))
        for kind, sink in self._sinks.items():
            self._reflect(paths.collection(kind), decode.resources(kind), sink, optional=True)
        only = {"fieldSelector": f"metadata.name={SETTINGS}"}
        self._reflect(paths.configmaps(namespace), decode.settings(), self._settings, query=only)

    def _reflect(self, path: str, decoder: Decoder[Fact], sink: Sink[Fact], **more: Any) -> None:
        self._reflectors[path] = Reflector(self._kube, path, decoder, sink, clock=self._clock, rng=self._rng, **more)

    # Living

    async def start(self) -> None:
        """Begin to watch; `synced` says when all is known."""
        for path, reflector in self._reflectors.items():
            self._tasks[path] = asyncio.create_task(reflector.run(), name=f"watch {path}")
        if not self._cluster:
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
            await self._clock.sleep(min(0.05, timeout))
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
                await self._clock.sleep(self._rng.uniform(1.0, 5.0))
        self._changes.outside("settings")

    # How well we see

    @property
    def complete(self) -> bool:
        """Whether every list was read to its end and every watch was heard from lately."""
        alive = all(path in self._tasks and not self._tasks[path].done() for path in self._reflectors)
        # A kind whose definition was taken away has no resources; the other capabilities go on.
        synced = all(each.synced or each.absent for each in self._reflectors.values())
        return bool(self._cluster) and alive and synced and self.age_seconds() <= OLDEST_SECONDS

    def age_seconds(self) -> float:
        """How long the most silent watch has been silent."""
        return max(self._clock.monotonic() - each.heard for each in self._reflectors.values() if not each.absent)

    def problems(self) -> list[str]:
        """Why the view is not complete, one sentence for each cause."""
        found = [self._cluster_problem, *(each.problem for each in self._reflectors.values())]
        for path, task in self._tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()):
                found.append(f"watching {paths.spoken(path)}: it ended by a mistake in Headroom: {error!r}")
        return [each for each in found if each]

    # The port

    def world(self, now: int) -> World:
        """The view at this instant; good until the next `await`."""
        return World(
            now=now,
            cluster=self._cluster,
            stopped=self._settings.stopped,
            complete=self.complete,
            resources=self._resources_view,
            pods=self._pods,
            nodes=self._nodes,
        )

    def subscribe(self, plan: str, parts: frozenset[str]) -> None:
        """What `take_changes(plan)` will speak of: names of kinds, pods, nodes, unbound, outside."""
        self._changes.subscribe(plan, parts)

    def take_changes(self, plan: str) -> Changes:
        """What is new since this plan last asked."""
        return self._changes.take(plan)

    async def changed(self) -> None:
        """Returns once something is new that some plan has not been told of."""
        await self._changes.changed()

    def outside_changed(self, what: str) -> None:
        """Whoever keeps other facts (instances, offers, machines, usage) says here that some are new."""
        self._changes.outside(what)

    async def write_status(self, resource: AnyResource, status: Status) -> None:
        """Write a status. Raises `Conflict` if the resource is no longer the one, in the version, that was decided on.

        The version is the guard: in a merge patch of a status the API server does not look at the uid.
        """
        known = self._resources.get(ref_of(resource), resource)
        answer = await self._kube.patch_status(
            paths.status(resource.kind, resource.namespace, resource.name),
            status_patch(known.status, status),
            uid=resource.uid,
            resource_version=resource.resource_version,
        )
        self._sinks[resource.kind].confirm(parse.resource(raw.plain(answer)))

    async def perform(self, action: Action, resource: AnyResource) -> None:
        """Carry out one action that a decision on `resource` asked for."""
        await self._effects.perform(action, resource)


# --- statuses ------------------------------------------------------------------------------------------------------------------


def status_patch(before: Status, after: Status) -> dict[str, Any]:
    """The merge patch that makes a status equal to `after`: what `after` does not have is null, which removes it."""
    wanted = status_wire(after)
    # By the type's own fields, not only by those of `before`: our view may be behind, or unreadable.
    gone: dict[str, Any] = {name: None for name in after.__struct_encode_fields__ if name not in wanted}
    return gone | _patch(status_wire(before), wanted)


def _patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        was = before.get(name)
        out[name] = _patch(was if isinstance(was, dict) else {}, value) if isinstance(value, dict) else _clean(value)
    return out


def _clean(value: Any) -> Any:
    """A value inside a list is taken as it is, so a null there would be stored; it means absent."""
    if isinstance(value, dict):
        return {name: _clean(each) for name, each in value.items() if each is not None}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value

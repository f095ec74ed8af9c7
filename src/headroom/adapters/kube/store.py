"""The cluster as the loop sees it: watches keep tables up to date, and the World is a view of them.

Everything here runs in one event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from headroom.adapters.kube import admission, decode, device_sinks, devices, karpenter, parse, paths, raw, sinks
from headroom.adapters.kube.budget_holds import HoldOf
from headroom.adapters.kube.budget_index import IndexOf
from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config_maps import PriceSink, SettingsSink
from headroom.adapters.kube.effects import Effects
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.listwatch import Decoder, Sink
from headroom.adapters.kube.sinks import NodeSink, PodSink, ResourceSink
from headroom.adapters.kube.watch import Reflector
from headroom.api import marks
from headroom.api.budget_index import INDEX_NAME
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import Status
from headroom.model.actions import Action
from headroom.model.decisions import Ref, status_wire
from headroom.model.devices import DeviceTable
from headroom.model.errors import HeadroomError
from headroom.model.facts import Pod, Price, Workload
from headroom.model.ports import SETTLE_MS, Clock, Recording, Switches
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage_table import UsageTable
from headroom.model.world import Caps, Changes, LedgerState, World, ref_of

Fact = TypeVar("Fact")
_NO_LEDGER: Final = LedgerState()
_NEVER: Final = 2**63
_CAPS: Final = Caps()


class KubePort:
    """A real cluster, or a simulated API server, as the loop's port."""

    def __init__(  # noqa: PLR0913  three things to connect, time and chance, three settings, and four that wait for news
        self,
        kube: Kube,
        events: Events,
        *,
        clock: Clock,
        rng: random.Random,
        namespace: str = "headroom-system",
        cluster: str = "",
        on_failure: Callable[[BaseException], None] | None = None,
        recording: Recording | None = None,
        index_of: IndexOf | None = None,
        hold_of: HoldOf | None = None,
        caps: Caps = _CAPS,
        switches: Switches | None = None,
    ) -> None:
        """`on_failure` is told of a watch that ended by a mistake of ours: the view will never be complete again.

        `recording` keeps the usage and hears of everything that happens to pods; `index_of` and `hold_of` say what the BudgetIndex
        and a budget's BudgetHold should be. `switches` wakes machines; without it none is, and nothing is known of their power.
        """
        self._kube, self._clock, self._rng, self._cluster = kube, clock, rng, cluster
        self._namespace, self._on_failure, self._recording, self._caps = namespace, on_failure, recording, caps
        self._switches = switches
        self.enforced: Callable[[str, AnyResource], None] = lambda _reason, _resource: None
        """Told of what was really done for a resource, as one word."""
        self._no_usage = UsageTable()
        self._settled, self._acting_since, self._cluster_problem = 0, _NEVER, ""
        self._more_prices: tuple[Price, ...] = ()
        self._known_prices: tuple[Any, tuple[Price, ...]] = ((), ())
        self._changes = Subscriptions()
        self._pods, self._nodes = PodTable(), NodeTable()
        self._resources: dict[Ref, AnyResource] = {}
        self._resources_view: Mapping[Ref, AnyResource] = MappingProxyType(self._resources)
        self._settings, self._prices = SettingsSink(self._changes), PriceSink(self._changes)
        self._sinks = {kind: ResourceSink(kind, self._resources, self._changes) for kind in KINDS}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pod_sink = PodSink(self._pods, self._changes, recording, clock.now)
        self.note_refusal = self._pod_sink.note_refusal
        self._namespaces = sinks.namespaces(self._changes)
        self._claims, self._devices = device_sinks.claims(self._changes, self._pod_sink), DeviceTable()
        self._indexes, self._holds = sinks.indexes(self._changes), sinks.holds(self._changes)
        self._workloads: dict[str, Workload] = {}
        self._workloads_view: Mapping[str, Workload] = MappingProxyType(self._workloads)
        self._node_pools, self._node_claims = sinks.node_pools(self._changes), sinks.node_claims(self._changes)
        self._policies = {plural: sinks.policies(self._changes) for plural in admission.KINDS}
        lent: dict[str, Any] = {"index_of": index_of, "hold_of": hold_of, "switches": switches, "told": self._told}
        self._effects = Effects(kube, events, clock=clock, view=self, **lent)
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._watch_all()

    def _watch_all(self) -> None:
        self._reflect(paths.pods(), decode.pods(), self._pod_sink)
        self._reflect(paths.nodes(), decode.nodes(), NodeSink(self._nodes, self._changes, self._clock.now))
        for kind, sink in self._sinks.items():
            self._reflect(paths.collection(kind), decode.resources(kind), sink, optional=True)
        self._reflect(paths.namespaces(), decode.namespaces(), self._namespaces)
        self._watch_devices()
        self._reflect(paths.budget_index(), decode.indexes(), self._indexes, optional=True)
        self._reflect(paths.budget_hold(), decode.holds(), self._holds, optional=True)
        for each in (self._settings, self._prices):
            self._reflect(paths.configmaps(self._namespace), decode.settings(), each, name=each.NAME)
        self._watch_owners()
        self._watch_karpenter()
        for plural, policies in self._policies.items():
            self._reflect(paths.policies(plural), decode.policies(), policies, labels=admission.SELECTOR, optional=True)

    def _watch_devices(self) -> None:
        table = self._devices
        watched: dict[str, tuple[Any, Any]] = {
            "ResourceClaim": (decode.claims(), self._claims),
            "ResourceClaimTemplate": (decode.claim_templates(), device_sinks.claim_templates(self._changes, table)),
            "DeviceClass": (decode.device_classes(), device_sinks.device_classes(self._changes, table)),
            "ResourceSlice": (decode.device_slices(), device_sinks.device_slices(self._changes, table)),
        }
        for kind, (decoder, sink) in watched.items():
            self._reflect(paths.devices(devices.KINDS[kind]), decoder, sink, optional=True)

    def _watch_owners(self) -> None:
        """Those that we have suspended, and every Workload of Kueue: it alone knows which of them wait."""
        kinds = (("Job", decode.jobs()), ("JobSet", decode.job_sets()), ("Workload", decode.kueue_workloads()))
        for kind, decoder in kinds:
            sink = sinks.workloads(self._changes, self._workloads)
            labels = "" if kind == "Workload" else marks.SUSPENDED
            # Jobs are in every cluster, so their absence proves nothing.
            self._reflect(paths.owner(kind), decoder, sink, labels=labels, optional=kind != "Job")

    def _watch_karpenter(self) -> None:
        pools, claims = (paths.karpenter(plural) for plural in karpenter.KINDS.values())
        self._reflect(pools, decode.node_pools(), self._node_pools, optional=True)
        self._reflect(claims, decode.node_claims(), self._node_claims, optional=True)

    def _reflect(
        self,
        path: str,
        decoder: Decoder[Fact],
        sink: Sink[Fact],
        *,
        name: str = "",
        labels: str = "",
        optional: bool = False,
    ) -> None:
        """Watch a collection, or only the object of that name in it, or those with these labels.

        A cluster may lack a kind that is `optional`. If it is not Headroom's own either, only what needs it waits while it is not seen.
        """
        query = {"fieldSelector": f"metadata.name={name}"} if name else {"labelSelector": labels} if labels else {}
        place = f"{path}/{name}" if name else path
        self._reflectors[place] = Reflector(
            self._kube,
            path,
            decoder,
            sink,
            clock=self._clock,
            rng=self._rng,
            query=query,
            optional=optional,
            turned=partial(self._changes.outside, "sight"),
        )

    def _told(self, reason: str, resource: AnyResource) -> None:
        self.enforced(reason, resource)

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
        """Whether all that every decision needs is seen: every list was read to its end and every watch is open, or was just now."""
        alive = all(path in self._tasks and not self._tasks[path].done() for path in self._reflectors)
        seen = all(each.seen or each.absent for each in self._reflectors.values() if each.is_needed)
        # The first look at what others made takes a moment, and is no reason to decide without it.
        return bool(self._cluster) and alive and seen and all(each.tried for each in self._reflectors.values())

    def unseen(self) -> dict[str, str]:
        """The kinds that are not seen now, as `kubectl` names them, each with the cause."""
        return {paths.spoken(path): each.cause for path, each in self._reflectors.items() if each.cause}

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
                found.append(f"watching {paths.spoken(path)}: it ended by a mistake in Headroom: {error!r}")
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
        """The moment up to which what happened to pods is surely known. It goes backwards only if the clock does."""
        pods, latest = self._reflectors[paths.pods()], now - SETTLE_MS
        known = latest if pods.established else min(latest, pods.known_until)
        self._settled = max(min(self._settled, latest), known)
        return self._settled

    def add_prices(self, prices: tuple[Price, ...]) -> None:
        """Prices from elsewhere, in place of those given before; where the ConfigMap says as much of a node, it counts."""
        if prices != self._more_prices:
            self._more_prices = prices
            self.outside_changed("prices")

    @property
    def _book(self) -> tuple[Price, ...]:
        """One object for as long as it says the same: whoever looks prices up remembers it."""
        known = (self._prices.book, self._more_prices)
        if known != self._known_prices[0]:
            self._known_prices = known, known[0] + known[1]
        return self._known_prices[1]

    @property
    def price_problems(self) -> list[str]:
        """Why entries of the price book are left out, one sentence for each."""
        return self._prices.problems

    # The port

    def world(self, now: int) -> World:
        """The view at this instant; good until the next `await`."""
        recording, index, switches = self._recording, self._indexes.facts.get(INDEX_NAME), self._switches
        complete, ledger = self.complete, recording.state() if recording else _NO_LEDGER
        return World(
            now=now,
            settled=self.settled(now),
            cluster=self._cluster,
            own_namespace=self._namespace,
            stopped=self._settings.stopped,
            complete=complete,
            acting_since=self._able_since(now, can_act=complete and ledger.trusted and not self._settings.stopped),
            unseen=self.unseen(),
            resources=self._resources_view,
            pods=self._pods,
            nodes=self._nodes,
            machines=switches.machines if switches else {},
            calls=switches.calls if switches else {},
            node_pools=self._node_pools.facts,
            node_claims=self._node_claims.facts,
            namespaces=self._namespaces.facts,
            claims=self._claims.facts,
            devices=self._devices,
            prices=self._book,
            usage=recording.table if recording else self._no_usage,
            ledger=ledger,
            index=index.budgets if index else None,
            holds=self._holds.facts,
            workloads=self._workloads_view,
            kueue=self._reflectors[paths.owner("Workload")].is_served,
            hold_problem=self._hold_problem(),
            caps=self._caps,
        )

    def _able_since(self, now: int, *, can_act: bool) -> int:
        # A clock that was set back must not make it a moment that is yet to come.
        self._acting_since = min(self._acting_since, now) if can_act else _NEVER
        return min(self._acting_since, now)

    def _hold_problem(self) -> str:
        watched = {plural: self._reflectors[paths.policies(plural)] for plural in admission.KINDS}
        unread = {
            plural: each.cause or admission.unserved(plural) for plural, each in watched.items() if not each.is_served
        }
        return admission.problem({plural: sink.facts for plural, sink in self._policies.items()}, unread)

    def pod_with_finalizer(self, key: str) -> Pod | None:
        """The pod called `namespace/name`, if it has a finalizer of ours."""
        return self._pod_sink.with_finalizer(key)

    def subscribe(self, plan: str, parts: frozenset[str], *, quiet: bool = False) -> None:
        """What `take_changes(plan)` will speak of: names of kinds, pods, nodes, unbound, outside."""
        self._changes.subscribe(plan, parts, quiet=quiet)

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

"""What is done to machines: woken, emptied and sent to sleep.

Nothing is switched off on the word of a view: just before, the node must be cordoned by the very pool that asks, and a list that the
API server answers from its storage must show that no pod is left there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Literal

from headroom.adapters.kube import errors, parse, paths, raw
from headroom.adapters.kube.changing import meta, notes, read
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects_pods import ENDED, untouchable
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.telling import ClusterView
from headroom.adapters.power import status_of
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.power import PowerPoolSpec
from headroom.api.spot_pools import SpotpoolSpec
from headroom.model import actions
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.gangs import keeps_machine_on
from headroom.model.gpus import has_gpus
from headroom.model.handlers import carries_out
from headroom.model.ports import Clock, Switches
from headroom.model.world import World, ref_of

Command = Literal["Wake", "Sleep"]
INTENT: Final = {"Wake": "Booting", "Sleep": "Sleeping"}
"""What the pool's status says of a machine before a command is sent to it."""


class _Pods(raw.RawPart):
    metadata: raw.ListMeta | None = None
    items: list[raw.RawPod] | None = None


class PowerEffects:
    """Switches machines, and evicts what may be evicted from them."""

    def __init__(self, kube: Kube, events: Events, clock: Clock, view: ClusterView, switches: Switches | None) -> None:
        self._kube, self._events, self._clock, self._view, self._switches = kube, events, clock, view, switches

    @carries_out(actions.WakeMachine)
    async def wake(self, action: actions.WakeMachine, resource: AnyResource) -> None:
        """Switch it on."""
        await self._switch("Wake", action, resource)

    @carries_out(actions.SleepMachine)
    async def sleep(self, action: actions.SleepMachine, resource: AnyResource) -> None:
        """Switch it off, if nothing runs there and nothing can come."""
        await self._switch("Sleep", action, resource)

    async def _switch(self, command: Command, action: actions.OnMachine, resource: AnyResource) -> None:
        if self._switches is None:
            raise Refused(f"switching machine {action.machine}: this process does not switch machines")
        try:
            pool = self._pool(command, action, resource)
            if command == "Sleep":
                await self._look(action.machine, pool)
        except (HeadroomError, asyncio.CancelledError) as problem:
            # The plan waits for what comes of the command that its status speaks of: nothing will.
            why = str(problem).removeprefix(f"{_doing(command, action.machine)}: ")
            self._switches.refused(action.machine, command, why or "there was no time to look at its node")
            raise
        await (self._switches.wake if command == "Wake" else self._switches.sleep)(pool, action.machine)

    def _pool(self, command: Command, action: actions.OnMachine, resource: AnyResource) -> AnyResource:
        """The pool as it stands now, with the intent in its status. Raises `Refused` if it wants something else by now."""
        doing = _doing(command, action.machine)
        pool = self._world().resources.get(ref_of(resource))
        if resource.kind != "PowerPool" or resource.name != action.pool:
            raise Refused(f"{doing}: {ref_of(resource)} is not pool {action.pool}")
        if pool is None or pool.uid != resource.uid or pool.deleting:
            raise Refused(f"{doing}: PowerPool {action.pool} is gone")
        if not isinstance(pool.spec, PowerPoolSpec):
            raise Refused(f"{doing}: PowerPool {action.pool} cannot be read")
        if pool.spec.paused:
            raise Refused(f"{doing}: PowerPool {action.pool} is paused")
        if all(each.name != action.machine for each in pool.spec.machines):
            raise Refused(f"{doing}: PowerPool {action.pool} has no such machine")
        known = status_of(pool, action.machine)
        if known is None or known.state != INTENT[command]:
            state = known.state if known else "Unknown"
            raise Refused(f"{doing}: it is now {state}, not {INTENT[command]}")
        return pool

    async def _look(self, machine: str, pool: AnyResource) -> None:
        """Raise `Refused` unless the machine's node is cordoned for this pool and empty."""
        doing = _doing("Sleep", machine)
        node = await read(self._kube, paths.node(machine), raw.RawNode)
        if node is not None:
            _check_cordon(doing, node, pool)
        # Also where the node is not ready, or gone: its pods may run on behind a broken network.
        left = [pod for pod in await pods_on(self._kube, machine) if keeps_on(pod, gpus_of(pool))]
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise Refused(f"{doing}: pod {_key(left[0])} is there{more}")

    @carries_out(actions.DrainNode)
    async def drain(self, action: actions.DrainNode, resource: AnyResource) -> None:
        """Evict what a controller recreates elsewhere, all of it or none; disruption budgets have the last word on each pod."""
        doing = f"draining node {action.node}"
        node = await read(self._kube, paths.node(action.node), raw.RawNode)
        if node is None or (action.uid and meta(node).uid != action.uid):
            raise Refused(f"{doing}: it is gone")
        _check_cordon(doing, node, resource)
        pods = [pod for pod in await pods_on(self._kube, action.node) if keeps_on(pod, gpus_of(resource))]
        if isinstance(resource.spec, SpotpoolSpec):
            # The machine ends whoever is there: whoever can be asked is asked, with GPUs or without, and the others go with it.
            own = self._world().own_namespace
            pods = [pod for pod in pods if not untouchable(pod, own)]
        for pod in pods:
            if why := self._stays(pod, resource):
                raise Refused(f"{doing}: pod {_key(pod)} stays: {why}")
        blocked = []
        for pod in pods:
            try:
                await self._evict(pod, action.node, resource)
            except errors.DisruptionBlocked:
                blocked.append(_key(pod))
        if blocked:
            more = f" and {len(blocked) - 1} more" if len(blocked) > 1 else ""
            raise Unavailable(f"{doing}: a PodDisruptionBudget refuses the eviction of pod {blocked[0]}{more} now")

    def _stays(self, pod: raw.RawPod, resource: AnyResource) -> str:
        """Why a pod must not be evicted to let a machine sleep; empty if it may be."""
        if isinstance(resource.spec, SpotpoolSpec):
            return ""
        fact, own = parse.pod_of(pod), self._world().own_namespace
        gpus = gpus_of(resource)
        if why := untouchable(pod, own):
            return why
        if has_gpus(fact.shape.requests, gpus) or fact.has_claims:
            return "it has GPUs or other devices"
        return "" if fact.owner else "no controller would recreate it"

    async def _evict(self, pod: raw.RawPod, node: str, resource: AnyResource) -> None:
        found = meta(pod)
        if found.deletion_timestamp:
            return
        namespace, name = found.namespace or "", found.name or ""
        with suppress(errors.NotFound):  # gone is as good as evicted
            await self._kube.evict(namespace, name, uid=found.uid or "", resource_version=found.resource_version or "")
            reference = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": found.uid}
            with suppress(HeadroomError):  # the effect stands whoever hears of it
                message = _why_drained(resource, node)
                await self._events.emit(reference, "Normal", "Drained", message)

    def _world(self) -> World:
        return self._view.world(self._clock.now())


async def pods_on(kube: Kube, node: str) -> list[raw.RawPod]:
    """All pods bound to a node. Without a resource version the API server answers from its storage, not from a cache."""
    found: list[raw.RawPod] = []
    async for body in kube.pages(paths.pods(), query={"fieldSelector": f"spec.nodeName={node}"}):
        page = raw.read(body, _Pods)
        if page.metadata is None or not page.metadata.resource_version or page.items is None:
            raise Unavailable(
                f"listing the pods on node {node}: the API server answered with something that is not a list"
            )
        found += page.items
    return found


def gpus_of(pool: AnyResource) -> str:
    """The resource by which pods ask for the GPUs of a pool's machines."""
    if isinstance(pool.spec, SpotpoolSpec):
        return pool.spec.template.gpu_resource_name
    return pool.spec.gpu_resource_name if isinstance(pool.spec, PowerPoolSpec) else ""


def _why_drained(pool: AnyResource, node: str) -> str:
    if isinstance(pool.spec, SpotpoolSpec):
        return f"Spotpool {pool.namespace}/{pool.name} ends the machine of node {node}."
    return f"PowerPool {pool.name} puts machine {node} to sleep; its controller recreates the pod elsewhere."


def keeps_on(pod: raw.RawPod, gpus: str) -> bool:
    """Whether a pod keeps its machine on, as the plan judges it."""
    if pod.status and pod.status.phase in ENDED:
        return False
    return keeps_machine_on(parse.pod_of(pod), gpus)


def _check_cordon(doing: str, node: raw.RawNode, pool: AnyResource) -> None:
    by = notes(node).get(marks.CORDONED_BY, "")
    if not (node.spec and node.spec.unschedulable):
        raise Refused(f"{doing}: its node is not cordoned")
    if by != str(ref_of(pool)):
        raise Refused(f"{doing}: its node was cordoned by {by or 'somebody else'}")


def _doing(command: Command, machine: str) -> str:
    return f"waking machine {machine}" if command == "Wake" else f"putting machine {machine} to sleep"


def _key(pod: raw.RawPod) -> str:
    return f"{meta(pod).namespace}/{meta(pod).name}"

"""Carries out actions on the cluster. Every one is safe to repeat: what is done already stays done, once.

An action looks at its target just before it acts, and the write is tied to what it saw (uid, version), so it can never hit another
object of the same name. A target that is gone needs no undoing and no eviction; anything else that is asked of it is refused. Only
what the resource itself did is undone for it: each such change names its author in an annotation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from headroom.adapters.kube import finalizers, paths
from headroom.adapters.kube.budget_check import check_gone
from headroom.adapters.kube.changing import remove_finalizers
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects_bandwidth import BandwidthEffects
from headroom.adapters.kube.effects_budgets import BudgetEffects
from headroom.adapters.kube.effects_clouds import CloudEffects, check_empty
from headroom.adapters.kube.effects_karpenter import KarpenterEffects
from headroom.adapters.kube.effects_nodes import NodeEffects
from headroom.adapters.kube.effects_owners import OwnerEffects
from headroom.adapters.kube.effects_pods import PodEffects
from headroom.adapters.kube.effects_power import PowerEffects
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.gangs import Gangs
from headroom.adapters.kube.telling import CHORES, ClusterView, Telling, Told
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.releases import ReleaseRequest
from headroom.api.resources import API_VERSION
from headroom.api.spot_pools import Spotpool
from headroom.model import actions, facts
from headroom.model.actions import Action
from headroom.model.decisions import Ref
from headroom.model.errors import Refused
from headroom.model.handlers import carries_out, handlers_of
from headroom.model.ports import Beside, Clock
from headroom.model.tables import PodTable
from headroom.model.world import ref_of

Handler = Callable[[Any, AnyResource], Awaitable[None]]


class Effects:
    """Does what a decision asks for, one action at a time."""

    def __init__(
        self,
        kube: Kube,
        events: Events,
        *,
        clock: Clock,
        view: ClusterView,
        beside: Beside | None = None,
        told: Told = lambda _reason, _resource: None,
    ) -> None:
        """`told` hears what was done."""
        self._kube, self._events, self._clock, self._view = kube, events, clock, view
        beside = beside or Beside()
        telling = Telling(events, clock, view, told)
        pods = PodEffects(kube, clock, view, telling, Gangs(kube, clock, view))
        nodes, owners = NodeEffects(kube), OwnerEffects(kube, clock, view, telling)
        power = PowerEffects(kube, events, clock, view, beside.switches)
        budgets = BudgetEffects(kube, clock, view, told)
        spot = CloudEffects(kube, beside.clouds)
        pools = KarpenterEffects(kube, clock, view)
        self._handlers: dict[type[Action], Handler] = handlers_of(
            pods, nodes, owners, power, budgets, spot, pools, BandwidthEffects(kube), self
        )

    async def perform(self, action: Action, resource: AnyResource) -> None:
        """Carry out one action that a decision on `resource` asked for; returns only when it is done."""
        handler = self._handlers.get(type(action))
        if handler is None:
            raise Refused(f"{type(action).__name__}: this version of Headroom cannot do that yet")
        if resource.kind == CHORES:
            await check_gone(self._kube, self._view.world(self._clock.now()), action)
        if resource.kind == ReleaseRequest.kind.name:
            self._check_not_cancelled(resource)
        await handler(action, resource)

    def _check_not_cancelled(self, request: AnyResource) -> None:
        """Raise for a request that was deleted meanwhile: deleting it cancels what has not been done."""
        found = self._view.world(self._clock.now()).resources.get(ref_of(request))
        if found is None or found.uid != request.uid or found.deleting:
            raise Refused(f"carrying out {ref_of(request)}: it has been deleted")

    @carries_out(actions.RemoveFinalizer)
    async def _remove_finalizer(self, action: actions.RemoveFinalizer, resource: AnyResource) -> None:
        target = _ref(action.object)
        if target.kind != "Pod" and target.kind not in KINDS:
            raise Refused(f"removing the finalizer of {action.object}: Headroom sets none on objects of that kind")
        if target.kind == "Pod":
            if pod := self._view.pod_with_finalizer(f"{target.namespace}/{target.name}"):
                await finalizers.remove_from_pod(self._kube, pod)
            return
        if target.kind == Spotpool.kind.name:
            await check_empty(self._kube, target.namespace, target.name)
        uid = resource.uid if target == ref_of(resource) else ""
        await remove_finalizers(self._kube, paths.resource(*_parts(target)), uid=uid)

    @carries_out(actions.EmitEvent)
    async def _emit(self, action: actions.EmitEvent, resource: AnyResource) -> None:
        target = _ref(action.object)
        api_version, uid = self._identity(target, resource)
        reference = {
            "apiVersion": api_version,
            "kind": target.kind,
            "namespace": target.namespace,
            "name": target.name,
            "uid": uid,
        }
        said = {name: value for name, value in reference.items() if value}
        # The same for an event that is asked for again after a lost reply, another one when the same happens again.
        once = action.since or f"{resource.uid}@{resource.resource_version}"
        await self._events.emit(said, action.event_type, action.reason, action.message, once=once)

    def _identity(self, target: Ref, resource: AnyResource) -> tuple[str, str]:
        """The API version and the uid of an object."""
        world = self._view.world(self._clock.now())
        if target == ref_of(resource):
            return API_VERSION, resource.uid
        if target.kind in KINDS:
            known = world.resources.get(target)
            return API_VERSION, known.uid if known else ""
        if target.kind == "Pod":
            pod = find_pod(world.pods, target.namespace, target.name)
            return "v1", pod.uid if pod else ""
        if target.kind == "Node":
            node = world.nodes.get(target.name)
            return "v1", node.uid if node else ""
        if target.kind in paths.OWNERS:
            group, version, _ = paths.OWNERS[target.kind]
            owner = world.workloads.get(str(target))
            return f"{group}/{version}", owner.uid if owner else ""
        raise Refused(f"recording an event on {target}: Headroom knows no such kind")


# --- small things -------------------------------------------------------------------------------------------------------------


def find_pod(table: PodTable, namespace: str, name: str) -> facts.Pod | None:
    """The pod of that name. There is no index by name, so this is for rare questions only."""
    number = table.names.number(namespace)
    rows = np.flatnonzero(table.column("namespace") == number) if number >= 0 else ()
    return next((pod for row in rows if (pod := table.at(int(row))).name == name), None)


def _ref(text: str) -> Ref:
    """`Kind/namespace/name` or `Kind/name`."""
    kind, *rest = text.split("/")
    if len(rest) not in (1, 2) or not all(rest):
        raise Refused(f"{text}: must be written Kind/namespace/name or Kind/name")
    return Ref(kind, rest[0] if len(rest) == 2 else "", rest[-1])


def _parts(ref: Ref) -> tuple[str, str, str]:
    return ref.kind, ref.namespace, ref.name

"""What is done for Spotpools: machines are launched and ended, gateways get them as targets, and the pool itself stays until they are gone.
A LeftoverNodePool that is to take its NodePools along stays as well.

Money is spent and machines end on the word of the pool as it stands at that moment in the API server, never on that of a view: the
intent must still be there. So whoever decided earlier, or on an older view, finds that it is not.
"""

from __future__ import annotations

from typing import Final

from headroom.adapters.kube import errors, parse, paths, raw
from headroom.adapters.kube.changing import ChangeOutcome, Patch, change, meta
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects_power import gpus_of, keeps_on, pods_on
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.offers import LeftoverNodePool
from headroom.api.spot_pools import Spotpool, SpotpoolSpec
from headroom.api.spot_pools_status import SpotpoolStatus
from headroom.model import actions
from headroom.model.errors import Refused
from headroom.model.handlers import carries_out
from headroom.model.ports import Clouds
from headroom.model.world import ref_of

KIND: Final = Spotpool.kind.name
FINALIZERS: Final = {KIND: marks.POOL_FINALIZER, LeftoverNodePool.kind.name: marks.LEFTOVER_FINALIZER}
"""By which an object stays until what it owns is gone."""


class CloudEffects:
    """Buys and gives back machines for Spotpools."""

    def __init__(self, kube: Kube, clouds: Clouds | None) -> None:
        self._kube, self._given = kube, clouds

    @carries_out(actions.AddFinalizer)
    async def add_finalizer(self, action: actions.AddFinalizer, resource: AnyResource) -> None:
        """Keep a Spotpool until its machines have ended, or a LeftoverNodePool until its NodePools are gone."""
        doing = f"adding the finalizer of {action.object}"
        ours = FINALIZERS.get(resource.kind)
        if ours is None or action.object != str(ref_of(resource)):
            raise Refused(f"{doing}: Headroom sets none on this kind")

        def kept(found: raw.Object) -> Patch | None:
            there = meta(found).finalizers or []
            if ours in there:
                return None
            if meta(found).deletion_timestamp:
                raise Refused(f"{doing}: it is being deleted")
            return {"metadata": {"finalizers": [*there, ours]}}

        path = paths.resource(resource.kind, resource.namespace, resource.name)
        outcome, _ = await change(self._kube, path, raw.Object, kept, uid=resource.uid)
        if outcome is ChangeOutcome.GONE:
            raise Refused(f"{doing}: it is gone")

    @carries_out(actions.LaunchInstance)
    async def launch(self, action: actions.LaunchInstance, resource: AnyResource) -> None:
        """Buy a machine, if the pool still means to."""
        doing = f"launching a machine for Spotpool {action.pool}"
        pool, spec, status = await self._pool(doing, action.pool, resource)
        if pool.deleting:
            raise Refused(f"{doing}: the pool is being deleted")
        if spec.paused:
            raise Refused(f"{doing}: the pool is paused")
        if marks.POOL_FINALIZER not in pool.finalizers:
            raise Refused(f"{doing}: the pool has no finalizer yet and could be deleted before its machine")
        meant = (action.slot, action.token, action.instance_type, action.zone)
        known = ((it.slot, it.token, it.instance_type, it.zone) for it in status.slots if it.state == "Launching")
        if meant not in known:
            raise Refused(f"{doing}: slot {action.slot} no longer needs it")
        await self._clouds(doing).launch(pool, action)

    @carries_out(actions.TerminateInstance)
    async def terminate(self, action: actions.TerminateInstance, resource: AnyResource) -> None:
        """End a machine, if the pool still means to."""
        doing = f"ending machine {action.instance} of Spotpool {action.pool}"
        pool, spec, status = await self._pool(doing, action.pool, resource)
        if spec.paused:
            raise Refused(f"{doing}: the pool is paused")
        ending = {it.instance_id for it in status.slots if it.state == "Ending"}
        claim = status.claim_on(action.instance)
        if claim == "Slot" and action.instance not in ending:
            raise Refused(f"{doing}: the pool no longer needs it")
        for it in status.slots:
            # One that was idle is ended only if nothing has come since; any other was drained for as long as the pool gives.
            if it.instance_id == action.instance and it.cause == "Idle" and it.node:
                await self._check_idle(doing, it.node, pool)
        await self._clouds(doing).terminate(pool, action.instance, claim)

    async def _check_idle(self, doing: str, node: str, pool: AnyResource) -> None:
        there = [pod for pod in await pods_on(self._kube, node) if keeps_on(pod, gpus_of(pool))]
        if there:
            raise Refused(f"{doing}: pod {meta(there[0]).namespace}/{meta(there[0]).name} is there")

    @carries_out(actions.AddGatewayTarget)
    async def add_target(self, action: actions.AddGatewayTarget, resource: AnyResource) -> None:
        """Let requests go to a machine."""
        doing = f"adding target {action.gateway_target} of Spotpool {action.pool}"
        pool, _, _ = await self._pool(doing, action.pool, resource)
        await self._clouds(doing).add_target(pool, action.gateway_target)

    @carries_out(actions.RemoveGatewayTarget)
    async def remove_target(self, action: actions.RemoveGatewayTarget, resource: AnyResource) -> None:
        """Let no more requests go to a machine."""
        doing = f"removing target {action.gateway_target} of Spotpool {action.pool}"
        pool, _, _ = await self._pool(doing, action.pool, resource)
        await self._clouds(doing).remove_target(pool, action.gateway_target)

    def _clouds(self, doing: str) -> Clouds:
        if self._given is None:
            raise Refused(f"{doing}: this process does not call clouds")
        return self._given

    async def _pool(
        self, doing: str, named: str, resource: AnyResource
    ) -> tuple[AnyResource, SpotpoolSpec, SpotpoolStatus]:
        """The pool as it stands now. Raises `Refused` if it is another one, or cannot be read."""
        if resource.kind != KIND or named != f"{resource.namespace}/{resource.name}":
            raise Refused(f"{doing}: {ref_of(resource)} is not that pool")
        pool = await pool_of(self._kube, resource.namespace, resource.name)
        if pool is None or pool.uid != resource.uid:
            raise Refused(f"{doing}: the pool is gone")
        if not isinstance(pool.spec, SpotpoolSpec) or not isinstance(pool.status, SpotpoolStatus):
            raise Refused(f"{doing}: the pool cannot be read")
        return pool, pool.spec, pool.status


async def pool_of(kube: Kube, namespace: str, name: str) -> AnyResource | None:
    """A Spotpool as it stands in the API server; None if there is none."""
    try:
        return parse.resource(raw.plain(await kube.get(paths.resource(KIND, namespace, name))))
    except errors.NotFound:
        return None


async def check_empty(kube: Kube, namespace: str, name: str) -> None:
    """Raise `Refused` unless a Spotpool may lose its finalizer: it is being deleted, and nothing of it is left or may yet appear."""
    pool = await pool_of(kube, namespace, name)
    if pool is None:
        return
    doing = f"removing the finalizer of Spotpool {namespace}/{name}"
    if not pool.deleting:
        raise Refused(f"{doing}: it is not being deleted")
    if not isinstance(pool.spec, SpotpoolSpec) or not isinstance(pool.status, SpotpoolStatus):
        raise Refused(f"{doing}: the pool cannot be read")
    stays = pool.spec.deletion_policy == "Retain"
    if any(not stays or it.state in ("Launching", "Cancelling") for it in pool.status.slots):
        raise Refused(f"{doing}: some of its machines may not have ended")

"""What is done for LeftoverNodePools: NodePools and node classes of Karpenter are written and deleted.

A NodePool is written by server-side apply, under Headroom's name and never by force: fields that somebody else manages stay theirs, and
the API server's answer says whose they are. Each object is read just before. One that Headroom did not make is left alone, but for the
limits of the one that the original made; and none is deleted while it has nodes, unless that is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from msgspec import structs

from headroom.adapters.kube import errors, karpenter, paths, raw
from headroom.adapters.kube.changing import labels, meta, read
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.telling import CHORES, ClusterView
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.cloud_facts import PoolWrite
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.handlers import carries_out
from headroom.model.node_pool_specs import spec_digest
from headroom.model.ports import Clock
from headroom.model.world import ref_of

KIND: Final = "LeftoverNodePool"
ORIGINAL: Final = "leftover"
"""How the original marked its NodePool, and began its name."""
MAY_BE_WRITTEN: Final = frozenset({"limits"})
"""Of a NodePool of the original."""
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class _ClassRef(raw.RawPart):
    kind: str | None = None
    name: str | None = None


class _TemplateSpec(raw.RawPart):
    node_class_ref: _ClassRef | None = None


class _Template(raw.RawPart):
    spec: _TemplateSpec | None = None


class _PoolSpec(raw.RawPart):
    template: _Template | None = None


class _Pool(raw.Object):
    spec: _PoolSpec | None = None


class _Pools(raw.RawPart):
    items: list[_Pool] | None = None


class _Claims(raw.RawPart):
    items: list[raw.Object] | None = None


class KarpenterEffects:
    """Writes NodePools and node classes, and tells the view what could not be written."""

    def __init__(self, kube: Kube, clock: Clock, view: ClusterView) -> None:
        self._kube, self._clock, self._view = kube, clock, view

    @carries_out(actions.ApplyNodePool)
    async def apply_pool(self, action: actions.ApplyNodePool, resource: AnyResource) -> None:
        """Make a NodePool, or bring the one that was decided on to what it should say."""
        doing = f"writing NodePool {action.node_pool}"
        async with self._told(f"NodePool/{action.node_pool}", action):
            self._check_wanted(doing, resource)
            found = await self._pool(action.node_pool)
            if found is None:
                if action.uid:
                    raise Refused(f"{doing}: it is gone")
                await self._apply(doing, action, resource)
                return
            if not action.uid:
                _check_made(doing, found, action, resource)
                return
            _check_same(doing, found, action.uid)
            if not is_ours(found, resource):
                _check_original(doing, found, action, resource)
            elif action.only:
                # What is not applied any more would be taken away, so the rest is applied as it stands.
                parts = {part: action.spec[part] for part in action.only}
                action = structs.replace(action, spec={**(found.spec or {}), **parts}, only=())
            await self._apply(doing, action, resource)

    async def _apply(self, doing: str, action: actions.ApplyNodePool, resource: AnyResource) -> None:
        metadata: dict[str, Any] = {"name": action.node_pool} | ({"uid": action.uid} if action.uid else {})
        if not action.only:
            metadata["labels"] = _labels(resource)
        spec = {part: value for part, value in action.spec.items() if not action.only or part in action.only}
        body = {"apiVersion": f"{karpenter.GROUP}/v1", "kind": "NodePool", "metadata": metadata, "spec": spec}
        try:
            answer = await self._kube.apply(paths.karpenter("nodepools", action.node_pool), body)
        except errors.Conflict as conflict:
            if not conflict.causes:
                raise  # it is now another object: the next look tells
            whose = "; ".join(f"{field}: {why}" for field, why in conflict.causes)
            raise Refused(f"{doing}: other managers own these fields, so nothing was written: {whose}") from None
        made = raw.read(answer, karpenter.NodePoolWire)
        written = PoolWrite(
            node_pool=action.node_pool,
            uid=meta(made).uid or "",
            at=self._clock.now(),
            asked=spec_digest(action.spec),
            made=spec_digest(made.spec or {}),
        )
        self._view.note_pool(written)

    @carries_out(actions.DeleteNodePool)
    async def delete_pool(self, action: actions.DeleteNodePool, resource: AnyResource) -> None:
        """Delete a NodePool of ours that has no nodes, or with all its nodes where that is asked for."""
        doing = f"deleting NodePool {action.node_pool}"
        async with self._told(f"NodePool/{action.node_pool}", action):
            found = await self._pool(action.node_pool)
            if found is None or (action.uid and meta(found).uid != action.uid):
                return  # it is gone; another one of the same name is none of ours
            if not is_ours(found, resource) and not _is_original(found, resource):
                raise Refused(f"{doing}: Headroom did not create it for {ref_of(resource)}")
            if meta(found).deletion_timestamp:
                return
            if not action.with_nodes:
                await self._check_empty(doing, action.node_pool)
            path, version = paths.karpenter("nodepools", action.node_pool), meta(found).resource_version or ""
            with suppress(errors.NotFound):  # this very version: whoever takes our label away has the last word
                await self._kube.delete(path, uid=meta(found).uid or "", resource_version=version)

    async def _check_empty(self, doing: str, pool: str) -> None:
        query = {"labelSelector": f"{karpenter.NODE_POOL}={pool}", "limit": "1"}
        claims = raw.read(await self._kube.get(paths.karpenter("nodeclaims"), query=query), _Claims).items or []
        if claims:
            raise Refused(f"{doing}: NodeClaim {meta(claims[0]).name} is there")

    @carries_out(actions.ApplyNodeClass)
    async def make_class(self, action: actions.ApplyNodeClass, resource: AnyResource) -> None:
        """Make a node class. One of ours with that name is that one already: its name is made from what it says."""
        doing = f"making {action.kind} {action.node_class}"
        async with self._told(f"{action.kind}/{action.node_class}", action):
            self._check_wanted(doing, resource)
            group, version, plural = _class_address(doing, action.kind)
            body = {
                "apiVersion": f"{group}/{version}",
                "kind": action.kind,
                "metadata": {"name": action.node_class, "labels": _labels(resource)},
                "spec": action.spec,
            }
            try:
                await self._kube.create(paths.of(group, version, plural), body)
            except errors.AlreadyExists:
                found = await read(self._kube, paths.of(group, version, plural, name=action.node_class), raw.Object)
                if found is None or not is_ours(found, resource):
                    raise Refused(
                        f"{doing}: one of this name exists that Headroom did not create for {ref_of(resource)}"
                    ) from None

    @carries_out(actions.DeleteNodeClass)
    async def delete_class(self, action: actions.DeleteNodeClass, resource: AnyResource) -> None:
        """Delete a node class of ours that no NodePool names any more."""
        doing = f"deleting {action.kind} {action.node_class}"
        async with self._told(f"{action.kind}/{action.node_class}", action):
            path = paths.of(*_class_address(doing, action.kind), name=action.node_class)
            found = await read(self._kube, path, raw.Object)
            if found is None or (action.uid and meta(found).uid != action.uid) or meta(found).deletion_timestamp:
                return
            if not is_ours(found, resource):
                raise Refused(f"{doing}: Headroom did not create it for {ref_of(resource)}")
            async for page in self._kube.pages(paths.karpenter("nodepools")):
                for pool in raw.read(page, _Pools).items or []:
                    if _names(pool, action.kind, action.node_class):
                        raise Refused(f"{doing}: NodePool {meta(pool).name} names it")
            with suppress(errors.NotFound):
                await self._kube.delete(path, uid=meta(found).uid or "")

    async def _pool(self, name: str) -> karpenter.NodePoolWire | None:
        return await read(self._kube, paths.karpenter("nodepools", name), karpenter.NodePoolWire)

    @asynccontextmanager
    async def _told(self, object_: str, action: actions.Action) -> AsyncIterator[None]:
        """The view hears how it went, so that the next decision can say so."""
        name = type(action).__name__
        try:
            yield
        except (HeadroomError, asyncio.CancelledError) as problem:
            self._view.note_write(object_, name, str(problem) or f"{name} {object_}: there was no answer in time")
            raise
        self._view.note_write(object_, name, "")

    def _check_wanted(self, doing: str, resource: AnyResource) -> None:
        """Raise `Refused` where the resource as it stands now asks for nothing any more."""
        known = self._view.world(self._clock.now()).resources.get(ref_of(resource))
        if resource.kind != KIND or known is None or known.uid != resource.uid:
            raise Refused(f"{doing}: {ref_of(resource)} is gone")
        if known.spec is None or known.spec.paused:
            raise Refused(f"{doing}: {ref_of(resource)} is paused, or cannot be read")


# --- whose it is ---------------------------------------------------------------------------------------------------------------


def is_ours(found: raw.Object, resource: AnyResource) -> bool:
    """Whether Headroom made it for this resource; once none asks for it any more, whether Headroom made it at all."""
    owner = labels(found).get(marks.LEFTOVER, "")
    return bool(owner) and (resource.kind == CHORES or owner == resource.name)


def _is_original(found: raw.Object, resource: AnyResource) -> bool:
    """Whether the original made it, for the resource of that name."""
    named = resource.kind == CHORES or meta(found).name == f"{ORIGINAL}-{resource.name}"
    return named and labels(found).get(karpenter.MANAGED_BY) == ORIGINAL


def _check_made(
    doing: str, found: karpenter.NodePoolWire, action: actions.ApplyNodePool, resource: AnyResource
) -> None:
    """Raise unless what stands there instead of nothing is what was to be made: an answer that was lost."""
    if not is_ours(found, resource):
        raise Refused(f"{doing}: a NodePool of this name exists that Headroom did not create for {ref_of(resource)}")
    if spec_digest(found.spec or {}) != spec_digest(action.spec):
        raise Unavailable(f"{doing}: it already exists with another spec; it is read again")


def _check_same(doing: str, found: raw.Object, uid: str) -> None:
    if meta(found).uid != uid:
        raise Refused(f"{doing}: it is now another object")
    if meta(found).deletion_timestamp:
        raise Refused(f"{doing}: it is being deleted")


def _check_original(doing: str, found: raw.Object, action: actions.ApplyNodePool, resource: AnyResource) -> None:
    """Raise unless it is the original's, and only such parts of it are written as may be."""
    if not _is_original(found, resource):
        raise Refused(f"{doing}: Headroom did not create it for {ref_of(resource)}")
    if not action.only or not MAY_BE_WRITTEN.issuperset(action.only):
        raise Refused(
            f"{doing}: only {', '.join(sorted(MAY_BE_WRITTEN))} of a NodePool of the original controller may be written"
        )


def _labels(resource: AnyResource) -> dict[str, str]:
    return {marks.LEFTOVER: resource.name, _MANAGED_BY: "headroom"}


def _names(pool: _Pool, kind: str, name: str) -> bool:
    template = pool.spec.template if pool.spec else None
    ref = template.spec.node_class_ref if template and template.spec else None
    return ref is not None and (ref.kind, ref.name) == (kind, name)


def _class_address(doing: str, kind: str) -> tuple[str, str, str]:
    if kind not in karpenter.NODE_CLASSES:
        raise Refused(f"{doing}: Headroom knows no such kind of node class")
    return karpenter.NODE_CLASSES[kind]

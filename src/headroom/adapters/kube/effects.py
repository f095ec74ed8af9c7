"""Carries out actions on the cluster. Every one is safe to repeat: what is done already stays done, once.

An action looks at its target just before it acts, and the write is tied to what it saw (uid, version), so it can never hit another
object of the same name. A target that is gone needs no undoing and no eviction; anything else that is asked of it is refused. Only
what the resource itself did is undone for it: each such change names its author in an annotation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from headroom.adapters.kube import budget_index, errors, finalizers, paths, raw
from headroom.adapters.kube.budget_index import IndexOf
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.parse import OURS
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import API_VERSION
from headroom.model import actions, conditions, facts, times
from headroom.model.actions import Action
from headroom.model.decisions import Ref
from headroom.model.errors import Refused
from headroom.model.ports import Clock
from headroom.model.tables import PodTable
from headroom.model.world import World, ref_of

GATE: Final = f"{OURS}budget"
PAUSED_AT: Final = f"{OURS}paused-at"
PAUSED_BY: Final = f"{OURS}paused-by"
TOUCHED_AT: Final = f"{OURS}touched-at"
CORDONED_BY: Final = f"{OURS}cordoned-by"
SUSPENDED_BY: Final = f"{OURS}suspended-by"

TRIES: Final = 4
"""How often a change is worked out anew when somebody else changes the object at the same moment."""

Wire = TypeVar("Wire", bound=raw.Object)
Patch = dict[str, Any]
Handler = Callable[[Any, AnyResource], Awaitable[None]]


class View(Protocol):
    """Whoever knows the cluster."""

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def pod_with_finalizer(self, key: str) -> facts.Pod | None:
        """The pod called `namespace/name`, if it has a finalizer of ours."""
        ...


class Effects:
    """Does what a decision asks for, one action at a time."""

    def __init__(
        self, kube: Kube, events: Events, *, clock: Clock, view: View, index_of: IndexOf | None = None
    ) -> None:
        self._kube, self._events, self._clock, self._view, self._index_of = kube, events, clock, view, index_of
        self._handlers: dict[type[Action], Handler] = {
            actions.EvictPod: self._evict,
            actions.PausePod: self._pause,
            actions.ResumePod: self._resume,
            actions.ReleasePod: self._release,
            actions.TouchPod: self._touch,
            actions.CordonNode: self._cordon,
            actions.UncordonNode: self._uncordon,
            actions.TaintNode: self._taint,
            actions.UntaintNode: self._untaint,
            actions.SuspendOwner: self._suspend,
            actions.ResumeOwner: self._resume_owner,
            actions.RemoveFinalizer: self._remove_finalizer,
            actions.ApplyBudgetIndex: self._apply_index,
            actions.EmitEvent: self._emit,
        }

    async def perform(self, action: Action, resource: AnyResource) -> None:
        """Carry out one action that a decision on `resource` asked for; returns only when it is done."""
        handler = self._handlers.get(type(action))
        if handler is None:
            raise Refused(f"{type(action).__name__}: this version of Headroom cannot do that yet")
        await handler(action, resource)

    # Pods

    async def _evict(self, action: actions.EvictPod, _resource: AnyResource) -> None:
        pod = await self._pod(action)
        if pod is None or _meta(pod).deletion_timestamp:
            return  # the effect is there: it may have been ours, and only its reply was lost
        if pod.status and pod.status.phase in ("Succeeded", "Failed"):
            raise Refused(f"evicting pod {action.pod}: it has ended already")
        with suppress(errors.NotFound):
            await self._kube.evict(
                *_split(action.pod),
                uid=action.uid,
                resource_version=action.resource_version or _meta(pod).resource_version or "",
                grace_seconds=action.grace_seconds,
            )

    async def _pause(self, action: actions.PausePod, resource: AnyResource) -> None:
        def change(pod: raw.Pod) -> Patch | None:
            if PAUSED_AT in _annotations(pod):
                return None  # the first pause counts; its moment and author stay
            return _annotate({PAUSED_AT: times.text(self._clock.now()), PAUSED_BY: str(ref_of(resource))})

        await self._change_pod(action, "pausing", change)

    async def _resume(self, action: actions.ResumePod, resource: AnyResource) -> None:
        def change(pod: raw.Pod) -> Patch | None:
            ours = _annotations(pod).get(PAUSED_BY) == str(ref_of(resource))
            return _annotate({PAUSED_AT: None, PAUSED_BY: None}) if ours else None

        await self._change_pod(action, "", change)

    async def _touch(self, action: actions.TouchPod, _resource: AnyResource) -> None:
        stamp = {TOUCHED_AT: times.text(self._clock.now())}
        await self._change_pod(action, "touching", lambda _pod: _annotate(stamp))

    async def _change_pod(self, action: actions.OnPod, doing: str, change: Callable[[raw.Pod], Patch | None]) -> None:
        """Patch exactly this pod. `doing` is empty for what needs no doing when the pod is gone."""
        namespace, name = _split(action.pod)
        if not await _change(self._kube, paths.pod(namespace, name), raw.Pod, change, uid=action.uid) and doing:
            raise Refused(f"{doing} pod {action.pod}: it is gone")

    async def _release(self, action: actions.ReleasePod, _resource: AnyResource) -> None:
        """Lift our gate and no other: whoever set those will lift them."""
        for left in reversed(range(TRIES)):
            pod = await self._pod(action)
            gates = [gate.name for gate in (pod.spec.scheduling_gates or ())] if pod and pod.spec else []
            if GATE not in gates:
                return
            place = f"/spec/schedulingGates/{gates.index(GATE)}"
            operations: list[Patch] = [
                {"op": "test", "path": "/metadata/uid", "value": action.uid},
                {"op": "test", "path": f"{place}/name", "value": GATE},
                {"op": "remove", "path": place},
            ]
            try:
                await self._kube.json_patch(paths.pod(*_split(action.pod)), operations)
            except errors.NotFound:
                return
            except (errors.Invalid, errors.Conflict):
                if not left:
                    raise
            else:
                return

    async def _pod(self, action: actions.OnPod) -> raw.Pod | None:
        """The pod as it is now; None if it is gone, even if another one has its name."""
        found = await _read(self._kube, paths.pod(*_split(action.pod)), raw.Pod)
        return found if found is not None and _meta(found).uid == action.uid else None

    # Nodes

    async def _cordon(self, action: actions.CordonNode, resource: AnyResource) -> None:
        def change(node: raw.Node) -> Patch | None:
            if node.spec and node.spec.unschedulable:
                return None  # ours already, or somebody else's, which is not ours to undo later
            return _annotate({CORDONED_BY: str(ref_of(resource))}) | {"spec": {"unschedulable": True}}

        if not await _change(self._kube, paths.node(action.node), raw.Node, change):
            raise Refused(f"cordoning node {action.node}: it is gone")

    async def _uncordon(self, action: actions.UncordonNode, resource: AnyResource) -> None:
        def change(node: raw.Node) -> Patch | None:
            by, cordoned = _annotations(node).get(CORDONED_BY), bool(node.spec and node.spec.unschedulable)
            ours = by == str(ref_of(resource))
            if cordoned and not ours:
                raise Refused(f"uncordoning node {action.node}: it was {by or 'not Headroom'} that cordoned it")
            return _annotate({CORDONED_BY: None}) | {"spec": {"unschedulable": None}} if ours else None

        await _change(self._kube, paths.node(action.node), raw.Node, change)

    async def _taint(self, action: actions.TaintNode, _resource: AnyResource) -> None:
        taint = _taint_of(action.taint)

        def change(node: _Tainted) -> Patch | None:
            if any(_same_taint(each, taint) for each in node.taints):
                return None
            others = [
                each for each in node.taints if (each.get("key"), each.get("effect")) != (taint.key, taint.effect)
            ]
            if len(others) < len(node.taints) and not taint.key.startswith(OURS):
                raise Refused(f"tainting node {action.node} with {action.taint}: it has that taint with another value")
            value = {"value": taint.value} if taint.value else {}
            return {"spec": {"taints": [*others, {"key": taint.key, "effect": taint.effect, **value}]}}

        if not await _change(self._kube, paths.node(action.node), _Tainted, change):
            raise Refused(f"tainting node {action.node}: it is gone")

    async def _untaint(self, action: actions.UntaintNode, _resource: AnyResource) -> None:
        taint = _taint_of(action.taint)

        def change(node: _Tainted) -> Patch | None:
            kept = [each for each in node.taints if not _same_taint(each, taint)]
            return {"spec": {"taints": kept or None}} if len(kept) < len(node.taints) else None

        await _change(self._kube, paths.node(action.node), _Tainted, change)

    # Owners, finalizers, events

    async def _suspend(self, action: actions.SuspendOwner, resource: AnyResource) -> None:
        def change(job: raw.Job) -> Patch | None:
            if job.spec and job.spec.suspend:
                return None
            return _annotate({SUSPENDED_BY: str(ref_of(resource))}) | {"spec": {"suspend": True}}

        if not await _change(self._kube, _owner_path(action), raw.Job, change):
            raise Refused(f"suspending {action.kind} {action.object}: it is gone")

    async def _resume_owner(self, action: actions.ResumeOwner, resource: AnyResource) -> None:
        def change(job: raw.Job) -> Patch | None:
            by, suspended = _annotations(job).get(SUSPENDED_BY), bool(job.spec and job.spec.suspend)
            ours = by == str(ref_of(resource))
            if suspended and not ours:
                who = by or "not Headroom"
                raise Refused(f"resuming {action.kind} {action.object}: it was {who} that suspended it")
            return _annotate({SUSPENDED_BY: None}) | {"spec": {"suspend": False}} if ours else None

        await _change(self._kube, _owner_path(action), raw.Job, change)

    async def _remove_finalizer(self, action: actions.RemoveFinalizer, resource: AnyResource) -> None:
        target = _ref(action.object)
        if target.kind != "Pod" and target.kind not in KINDS:
            raise Refused(f"removing the finalizer of {action.object}: Headroom sets none on objects of that kind")
        if target.kind == "Pod":
            if pod := self._view.pod_with_finalizer(f"{target.namespace}/{target.name}"):
                await finalizers.remove_from_pod(self._kube, pod)
            return
        uid = resource.uid if target == ref_of(resource) else ""
        await remove_finalizers(self._kube, paths.resource(*_parts(target)), uid=uid)

    async def _apply_index(self, _action: actions.ApplyBudgetIndex, _resource: AnyResource) -> None:
        if self._index_of is None:
            raise Refused("ApplyBudgetIndex: nobody says here what should stand in it")
        await budget_index.apply(self._kube, self._index_of(self._view.world(self._clock.now())))

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
        once = self._occurrence(action, resource)
        await self._events.emit(said, action.event_type, action.reason, action.message, once=once)

    def _occurrence(self, action: actions.EmitEvent, resource: AnyResource) -> str:
        """The same for an event that is asked for again after a lost reply, another one when the same happens again."""
        # As it stands now: the resource that was decided on does not have the turn yet that the event speaks of.
        current = self._view.world(self._clock.now()).resources.get(ref_of(resource), resource)
        ready = conditions.find(current.status.conditions, "Ready")
        if ready is not None and (ready.reason, ready.message) == (action.reason, action.message):
            return ready.last_transition_time
        return f"{resource.uid}@{resource.resource_version}"

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
        if target.kind == "Job":
            return "batch/v1", ""
        raise Refused(f"recording an event on {target}: Headroom knows no such kind")


# --- reading and changing -----------------------------------------------------------------------------------------------------


async def _read(kube: Kube, path: str, kind: type[Wire]) -> Wire | None:
    try:
        return raw.read(await kube.get(path), kind)
    except errors.NotFound:
        return None


async def _change(
    kube: Kube, path: str, kind: type[Wire], change: Callable[[Wire], Patch | None], *, uid: str = ""
) -> bool:
    """Read the object and patch that very version of it; False if it is gone."""
    for left in reversed(range(TRIES)):
        found = await _read(kube, path, kind)
        if found is None or (uid and _meta(found).uid != uid):
            return False
        patch = change(found)
        if patch is None:
            return True
        meta = {"uid": _meta(found).uid, "resourceVersion": _meta(found).resource_version}
        tied = patch | {"metadata": patch.get("metadata", {}) | meta}
        try:
            await kube.merge_patch(path, tied)
        except errors.NotFound:
            return False
        except errors.Conflict:
            if not left:
                raise
        else:
            return True
    return False


async def remove_finalizers(kube: Kube, path: str, *, uid: str = "") -> None:
    """Ours go, all others stay, whoever else changes the object at the same moment."""

    def change(found: raw.Object) -> Patch | None:
        there = _meta(found).finalizers or []
        kept = [each for each in there if not each.startswith(OURS)]
        return {"metadata": {"finalizers": kept}} if len(kept) < len(there) else None

    await _change(kube, path, raw.Object, change, uid=uid)


# --- small things -------------------------------------------------------------------------------------------------------------


class _TaintList(raw.Part):
    # As they are, since the list is written back as a whole and nothing of it may be lost.
    taints: list[dict[str, Any]] | None = None


class _Tainted(raw.Object):
    spec: _TaintList | None = None

    @property
    def taints(self) -> list[dict[str, Any]]:
        return (self.spec.taints if self.spec else None) or []


def find_pod(table: PodTable, namespace: str, name: str) -> facts.Pod | None:
    """The pod of that name. There is no index by name, so this is for rare questions only."""
    number = table.names.number(namespace)
    rows = np.flatnonzero(table.column("namespace") == number) if number >= 0 else ()
    return next((pod for row in rows if (pod := table.at(int(row))).name == name), None)


def _meta(found: raw.Object) -> raw.ObjectMeta:
    return found.metadata or raw.ObjectMeta()


def _annotations(found: raw.Object) -> dict[str, str]:
    return _meta(found).annotations or {}


def _annotate(annotations: dict[str, Any]) -> Patch:
    return {"metadata": {"annotations": annotations}}


def _split(pod: str) -> tuple[str, str]:
    namespace, _, name = pod.partition("/")
    return namespace, name


def _ref(text: str) -> Ref:
    """`Kind/namespace/name` or `Kind/name`."""
    kind, *rest = text.split("/")
    if len(rest) not in (1, 2) or not all(rest):
        raise Refused(f"{text}: must be written Kind/namespace/name or Kind/name")
    return Ref(kind, rest[0] if len(rest) == 2 else "", rest[-1])


def _parts(ref: Ref) -> tuple[str, str, str]:
    return ref.kind, ref.namespace, ref.name


def _owner_path(action: actions.OnOwner) -> str:
    if action.kind != "Job":
        raise Refused(f"{type(action).__name__} {action.kind} {action.object}: only Jobs can be suspended so far")
    return paths.of("batch", "v1", "jobs", *_split(action.object))


def _taint_of(text: str) -> facts.Taint:
    """`key=value:Effect` or `key:Effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise Refused(f"taint {text}: must be written key=value:Effect, with a known effect")
    return facts.Taint(key, value, effect)


def _same_taint(found: dict[str, Any], taint: facts.Taint) -> bool:
    return (found.get("key"), found.get("value") or "", found.get("effect")) == (taint.key, taint.value, taint.effect)

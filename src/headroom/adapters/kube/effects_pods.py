"""What is done to pods: evicted, paused, released, touched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headroom.adapters.kube import errors, parse, paths, raw, values
from headroom.adapters.kube.budget_check import check_unchanged
from headroom.adapters.kube.changing import ChangeOutcome, Patch, annotated, change, meta, notes, read, split
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.gangs import REFUSALS, Gangs, Stops, in_our_words
from headroom.adapters.kube.telling import CHORES, ClusterView, Telling, may_undo
from headroom.adapters.kube.values import OURS
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model import actions, times
from headroom.model.errors import Refused
from headroom.model.facts import EvictionRefusal
from headroom.model.gangs import MIRROR, belongs_to_node
from headroom.model.handlers import carries_out
from headroom.model.ports import Clock
from headroom.model.world import ref_of

TOUCHED_AT: Final = f"{OURS}touched-at"
SYSTEM: Final = "kube-system"
DELETER_ROLE: Final = "headroom-pod-deleter"
ENDED: Final = ("Succeeded", "Failed")
"""The phases of a pod of which nothing runs any more."""


class PodEffects:
    """Changes pods, and says so on them."""

    def __init__(self, kube: Kube, clock: Clock, view: ClusterView, telling: Telling, gangs: Gangs) -> None:
        self._kube, self._clock, self._view, self._telling, self._gangs = kube, clock, view, telling, gangs

    @carries_out(actions.EvictPod)
    async def evict(self, action: actions.EvictPod, resource: AnyResource) -> None:
        """Through policy/v1 only: whoever must not be disturbed is not deleted instead, and no gang is torn apart."""
        pod = await self._target(action)
        if pod is None:
            return
        try:
            await self._gangs.check(action, resource)
            await self._ask(action, pod, f"evicting pod {action.pod}", resource)
        except REFUSALS as problem:
            by = await self._gangs.refusing(action, parse.pod_of(pod), problem)
            self._view.note_refusal(action.uid, EvictionRefusal(self._clock.now(), by))
            raise in_our_words(action.pod, problem, by) from problem
        self._gangs.begun(action, resource)
        await self._tell(pod, "Evicted", resource)

    @carries_out(actions.DeletePod)
    async def delete(self, action: actions.DeletePod, resource: AnyResource) -> None:
        """What disruption budgets have kept for longer than its budget allows; if they let it go by now, it is evicted."""
        pod = await self._target(action)
        if pod is None:
            return
        doing = f"deleting pod {action.pod}"
        try:
            await self._ask(action, pod, doing, resource)
        except REFUSALS:
            # The eviction that was refused may have taken its time.
            await check_unchanged(self._kube, resource, doing)
            version = action.resource_version or meta(pod).resource_version or ""
            path, grace = paths.pod(*split(action.pod)), action.grace_seconds
            try:
                await self._kube.delete(path, uid=action.uid, resource_version=version, grace_seconds=grace)
            except errors.NotFound:
                pass
            except errors.Forbidden as problem:
                # A right of its own, since most budgets never need it.
                raise Refused(
                    f"{problem}; bind the ClusterRole {DELETER_ROLE} to the operator's ServiceAccount"
                ) from problem
            self._view.note_refusal(action.uid, None)
        self._gangs.begun(action, resource)
        await self._tell(pod, "Deleted", resource)

    async def _target(self, action: Stops) -> raw.RawPod | None:
        """The pod, if it may be stopped; None if it is gone, or goes already."""
        pod = await self._pod(action)
        if pod is None or self._is_leaving(pod):
            return None  # the effect is there: it may have been ours, and only its reply was lost
        if why := untouchable(pod, self._own_namespace):
            raise Refused(f"evicting pod {action.pod}: {why}")
        return pod

    async def _ask(self, action: Stops, pod: raw.RawPod, doing: str, resource: AnyResource) -> None:
        await check_unchanged(self._kube, resource, doing)
        with suppress(errors.NotFound):  # it is gone, as it should be
            await self._kube.evict(
                *split(action.pod),
                uid=action.uid,
                resource_version=action.resource_version or meta(pod).resource_version or "",
                grace_seconds=action.grace_seconds,
            )

    def _is_leaving(self, pod: raw.RawPod) -> bool:
        """Whether a pod ends as soon as an eviction would have it end. Whoever deletes one may give it years."""
        end = values.moment(meta(pod).deletion_timestamp)
        return end is not None and end <= self._clock.now() + actions.MOST_GRACE_SECONDS * times.SECOND

    @property
    def _own_namespace(self) -> str:
        return self._view.world(self._clock.now()).own_namespace

    @carries_out(actions.PausePod)
    async def pause(self, action: actions.PausePod, resource: AnyResource) -> None:
        """Only annotations, for a controller that cooperates."""

        def paused(pod: raw.RawPod) -> Patch | None:
            if marks.PAUSED_AT in notes(pod):
                return None  # the first pause counts; its moment and author stay
            at = times.text(self._clock.now())
            return annotated({marks.PAUSED_AT: at, marks.PAUSED_BY: str(ref_of(resource))})

        if await self._change(action, paused, "Paused", resource) is ChangeOutcome.GONE:
            raise Refused(f"pausing pod {action.pod}: it is gone")

    @carries_out(actions.ResumePod)
    async def resume(self, action: actions.ResumePod, resource: AnyResource) -> None:
        """Take the annotations away again."""

        def resumed(pod: raw.RawPod) -> Patch | None:
            ours = may_undo(resource, notes(pod).get(marks.PAUSED_BY, ""))
            gone: tuple[str, ...] = (marks.PAUSED_AT, marks.PAUSED_BY) if ours else ()
            # Chores: the plan has judged that the mark of its release is of no use any more.
            gone += (marks.RELEASED_AT,) if resource.kind == CHORES else ()
            patch = {key: None for key in gone if key in notes(pod)}
            return annotated(patch) if patch else None

        path = paths.pod(*split(action.pod))
        outcome, before = await change(self._kube, path, raw.RawPod, resumed, uid=action.uid)
        if outcome is ChangeOutcome.CHANGED and before is not None and marks.PAUSED_BY in notes(before):
            await self._tell(before, "Resumed", resource)

    @carries_out(actions.ReleasePod)
    async def release(self, action: actions.ReleasePod, resource: AnyResource) -> None:
        """Lift our gate and no other: whoever set those will lift them, and may do so from now on."""
        at = times.text(self._clock.now())
        await self._change(action, lambda pod: released(pod, at), "Released", resource)

    @carries_out(actions.TouchPod)
    async def touch(self, action: actions.TouchPod, _resource: AnyResource) -> None:
        """Make kube-scheduler look at the pod again."""
        stamp = annotated({TOUCHED_AT: times.text(self._clock.now())})
        path = paths.pod(*split(action.pod))
        outcome, _ = await change(self._kube, path, raw.RawPod, lambda _pod: stamp, uid=action.uid)
        if outcome is ChangeOutcome.GONE:
            raise Refused(f"touching pod {action.pod}: it is gone")

    async def _change(
        self,
        action: actions.OnPod,
        patch_of: Callable[[raw.RawPod], Patch | None],
        reason: str,
        resource: AnyResource,
    ) -> ChangeOutcome:
        """Patch exactly this pod, and say so on it if that changed anything."""
        path = paths.pod(*split(action.pod))
        outcome, pod = await change(self._kube, path, raw.RawPod, patch_of, uid=action.uid)
        if outcome is ChangeOutcome.CHANGED and pod is not None:
            await self._tell(pod, reason, resource)
        return outcome

    async def _tell(self, pod: raw.RawPod, reason: str, resource: AnyResource) -> None:
        await self._telling.tell(pod, "v1", "Pod", reason, resource)

    async def _pod(self, action: actions.OnPod) -> raw.RawPod | None:
        """The pod as it is now; None if it is gone, even if another one has its name."""
        found = await read(self._kube, paths.pod(*split(action.pod)), raw.RawPod)
        return found if found is not None and meta(found).uid == action.uid else None


def released(pod: raw.RawPod, at: str) -> Patch | None:
    """The patch that lifts our gate, and says when; None where nothing keeps it or it was released before.

    A pod behind gates of others only gets the mark, without which a hold lets nobody lift the last of them.
    """
    gates = (pod.spec.scheduling_gates if pod.spec else None) or []
    left = [{"name": gate.name} for gate in gates if gate.name != marks.GATE]
    if not gates or (len(left) == len(gates) and marks.RELEASED_AT in notes(pod)):
        return None
    # Who made it stays: what was judged for its controller is used by this pod, even if somebody takes its owner away.
    dropped = (marks.HELD_BY, marks.HELD_BECAUSE)
    marked = annotated({marks.RELEASED_AT: at} | dict.fromkeys(dropped))
    return marked if len(left) == len(gates) else marked | {"spec": {"schedulingGates": left or None}}


def untouchable(pod: raw.RawPod, own_namespace: str) -> str:
    """Why a pod is not evicted, whatever any budget says; empty if it may be."""
    found = meta(pod)
    if pod.status and pod.status.phase in ENDED:
        return "it has already ended"
    if found.namespace == SYSTEM:
        return "it belongs to the cluster itself"
    if found.namespace == own_namespace:
        return "it is in Headroom's own namespace"
    if MIRROR in notes(pod):
        return "only its kubelet can end it"
    if notes(pod).get(marks.PROTECTED, "").lower() not in ("", "false", "no"):
        return f"it is protected by the annotation {marks.PROTECTED}"
    if belongs_to_node(parse.pod_of(pod)):
        return "its DaemonSet would recreate it at once"
    return ""

"""Says on a pod or its owner what was done to it, for which budget, and with what numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, Protocol

from headroom.adapters.kube import raw
from headroom.adapters.kube.changing import meta
from headroom.adapters.kube.events import Events
from headroom.api.kinds import AnyResource
from headroom.api.releases import ReleaseRequest
from headroom.model import conditions, facts
from headroom.model.cloud_facts import PoolWrite
from headroom.model.errors import HeadroomError
from headroom.model.ports import Clock
from headroom.model.world import World, ref_of

Told = Callable[[str, AnyResource], None]
"""Hears what was really done, as one word, and for which resource."""
CHORES: Final = "Chores"
"""The kind of what is no resource: it stands for a plan that has judged that no budget wants the effect."""
_UNDONE: Final = ("Resumed", "Released")


class ClusterView(Protocol):
    """Whoever knows the cluster."""

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def note_refusal(self, uid: str, refusal: facts.EvictionRefusal | None) -> None:
        """An eviction was refused; None: the pod was deleted in its place."""
        ...

    def note_index(self, problem: str) -> None:
        """Why the index of budgets cannot be written, as a sentence; empty once it is."""
        ...

    def note_write(self, object_: str, action: str, problem: str) -> None:
        """Why an action on one of Karpenter's objects, Kind/name, failed, as a sentence; empty once it is done."""
        ...

    def note_pool(self, written: PoolWrite) -> None:
        """A NodePool was written."""
        ...

    def pod_with_finalizer(self, key: str) -> facts.Pod | None:
        """The pod called `namespace/name`, if it has a finalizer of ours."""
        ...


def may_undo(resource: AnyResource, author: str) -> bool:
    """Whether what `author` did may be undone for a resource: its own doing, or anybody's once no budget wants it."""
    return bool(author) and (resource.kind == CHORES or author == str(ref_of(resource)))


class Telling:
    """Records events on what was changed."""

    def __init__(self, events: Events, clock: Clock, view: ClusterView, told: Told) -> None:
        self._events, self._clock, self._view, self._told = events, clock, view, told

    async def tell(self, target: raw.Object, api_version: str, kind: str, reason: str, resource: AnyResource) -> None:
        """Record that `reason` happened to the target for a resource."""
        self._told(reason, resource)
        found = meta(target)
        reference = {
            "apiVersion": api_version,
            "kind": kind,
            "namespace": found.namespace or "",
            "name": found.name or "",
            "uid": found.uid or "",
        }
        type_: Literal["Normal", "Warning"] = "Normal" if reason in _UNDONE else "Warning"
        with suppress(HeadroomError):  # the effect stands whoever hears of it, and must not be told as failed
            await self._events.emit(reference, type_, reason, self._message(resource))

    def _message(self, resource: AnyResource) -> str:
        if resource.kind == CHORES:
            return "No budget queues it any more."
        if resource.kind == ReleaseRequest.kind.name:
            asked = resource.spec
            because = f" ({asked.reason})" if asked.reason else ""
            return f"Released by request of {asked.requested_by}{because}."
        # As it stands now: the resource that was decided on does not have the newest numbers yet.
        current = self._view.world(self._clock.now()).resources.get(ref_of(resource), resource)
        exceeded = conditions.find(current.status.conditions, "QuotaExceeded")
        named = f"{resource.kind} {resource.namespace}/{resource.name}"
        return f"{named}: {exceeded.message}" if exceeded else named

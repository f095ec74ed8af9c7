"""Resources of a room of which neither a request nor a node tells all: what a capability adds to demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headroom.core.demand.units import Room
from headroom.model.facts import Amounts, Pod, Shape


class RoomResources(Protocol):
    """What pods ask for of a kind of resource, and what rooms have of it."""

    @property
    def names(self) -> frozenset[str]:
        """The resources. Where no pod asks for any, no room is asked either."""
        ...

    @property
    def unneeded(self) -> frozenset[str]:
        """Resources that pods request and no room must have."""
        ...

    def asked(self, pod: Pod) -> Amounts:
        """What a pod asks for beside its requests."""
        ...

    def furnish(self, room: Room, *, emptied: bool = False) -> Room:
        """A room with what it has, or will have, of them; twice is as good as once. `emptied`: as if nobody were there."""
        ...

    def told_by_overlay(self, shape: Shape) -> Amounts:
        """What Karpenter must have been told that machines have of them, or it brings none for such a pod."""
        ...

    def lacking(self, shape: Shape, rooms: Sequence[Room]) -> tuple[str, str] | None:
        """Why none of these rooms holds such a pod though it would but for these resources, as one word and a sentence; None if that is not why."""
        ...

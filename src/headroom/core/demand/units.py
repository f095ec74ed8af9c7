"""The words of demand: pods that want a place, what must start as one, and the rooms they could go to."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from headroom.model.facts import Amounts, Pairs, Shape, Taint


class Part(Struct, frozen=True, kw_only=True):
    """Waiting pods that are alike."""

    shape: Shape
    digest: str
    """Names the shape for as long as it means the same, also after a restart."""
    pods: tuple[str, ...]
    """Their uids, the oldest first, then by name."""

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.pods)


class Unit(Struct, frozen=True, kw_only=True):
    """What is served together: all or none of a gang, or any number of equal pods of one priority."""

    gang: str = ""
    """Kind/namespace/name of the gang; empty where each pod does without the others."""
    priority: int
    oldest: int
    """When the oldest of them was created."""
    first: str
    """One of them, the oldest, as namespace/name."""
    parts: tuple[Part, ...]
    """One for each shape; exactly one where it is no gang."""

    @property
    def count(self) -> int:
        """How many pods they are."""
        return sum(part.count for part in self.parts)


class LeftOut(Struct, frozen=True, kw_only=True):
    """Why a pod that waits needs no machine."""

    reason: str
    """One word: Gated, Nominated, OtherScheduler, BudgetExhausted, NoGpu, DaemonSet, NotYetSeen, GangIncomplete."""
    message: str
    """A sentence."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Everything that waits for a place."""

    units: tuple[Unit, ...] = ()
    """By priority, then age, then name."""
    left_out: dict[str, LeftOut] = {}
    """By uid."""


class Room(Struct, frozen=True, kw_only=True):
    """Something that can hold pods: a node, or one to come."""

    name: str
    """Of the node, or that it will have."""
    source: Literal["Node", "Machine", "NodeClaim", "Launch"] = "Node"
    labels: Pairs = ()
    taints: tuple[Taint, ...] = ()
    free: Amounts = ()
    """What is left of it. A resource that is not named here is not there, unless `partly_known`."""
    partly_known: bool = False
    """Only what `free` names is limited: of a machine that is off often nothing but its GPUs is known."""
    ready_since: int | None = None
    """Of a node that is there."""


class Verdict(Struct, frozen=True, kw_only=True):
    """kube-scheduler's word against ours: pods that we would place, and it does not."""

    digest: str
    pod: str
    """One of them, namespace/name."""
    rooms: tuple[str, ...]
    """Where we would have placed it."""
    message: str
    """What kube-scheduler says."""


class Placed(Struct, frozen=True, kw_only=True):
    """Who goes where, and what is left."""

    into: dict[str, tuple[str, ...]] = {}
    """Room to the uids of the waiting pods that it will hold; only rooms that hold some."""
    rest: tuple[Unit, ...] = ()
    """What found no place, in the same order; a unit that is no gang may be here with fewer pods."""
    verdicts: dict[str, Verdict] = {}
    """Shapes, by digest, that kube-scheduler judges differently."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A room that could be opened, and what that costs."""

    room: Room
    cost: tuple[int, ...]
    """Added up over all that are opened and compared from left to right, for example (GPUs,) or (watts, GPUs)."""


class Chosen(Struct, frozen=True, kw_only=True):
    """What to open."""

    rooms: tuple[str, ...] = ()
    """Names, sorted."""
    into: dict[str, tuple[str, ...]] = {}
    """As in Placed."""
    rest: tuple[Unit, ...] = ()
    impossible: dict[str, str] = {}
    """Shapes, by digest, that no candidate could hold even alone, with the sentence why not."""

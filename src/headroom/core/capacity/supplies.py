"""The words between a round and those who supply machines: what a supply offers and on what terms, and what the round makes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from headroom.core.demand import Candidate, Room, Unit
from headroom.model.decisions import Decision, Ref

if TYPE_CHECKING:
    from headroom.core.capacity.rounds import CapacityRound


class RoomStage(Enum):
    """How far a room is."""

    READY = "Ready"
    """Pods can go there in a moment, though its node does not say so yet."""
    LEAVING = "Leaving"
    """It is about to close, or was kept from that a moment ago; it stays if pods need it."""
    COMING = "Coming"
    """It will be ready, or has been for a moment only."""
    CLOSED = "Closed"
    """It could be opened."""


class Trial(Struct, frozen=True, kw_only=True):
    """A room that was opened for pods which kube-scheduler judges differently, and what came of it."""

    shape: str
    """Of the pods, as a digest."""
    room: str
    at: int
    """When it was opened."""
    in_vain: int = 0
    """How often a room was no help to such pods."""
    refused_at: int = 0
    """When they were last seen to be refused beside a room."""
    until: int = 0
    """Before when no other one is tried."""
    placed: bool = False
    """Others like them found a place since: only those that were refused are meant."""
    rooms: frozenset[str] = frozenset()
    """The rooms that were opened for it and are open or coming, while its outcome is not known; for a gang there may be several."""
    here_since: int | None = None
    """Since when its room is open."""
    is_full: bool = False
    """Others use it."""


class Ration(NamedTuple):
    """How many pods of a namespace are served."""

    pods: int
    gangs: bool
    """A gang that is larger is served too, if nobody was before it."""
    until: int | None = None
    """When there may be more, if now there are none."""


class SupplyTerms(Struct, frozen=True, kw_only=True):
    """On what terms a supply opens rooms."""

    order: int = 0
    """Who is asked first; then by kind and name."""
    gpu_resource: str
    device_classes: tuple[str, ...] = ()
    """By which pods may ask for the same GPUs with claims."""
    schedulers: tuple[str, ...] = ()
    """Of these it is known that they place pods here."""
    lead_ms: int = 0
    """How long a room takes from being opened to being ready: so long before they start, announced pods are served."""
    halted: str = ""
    """Why nothing may be opened, as one word: Stopped, Paused, Deleting."""
    priority_floor: int = -(2**31)
    """Pods of less are not served."""
    over_quota: bool = False
    """Pods of budgets that are over quota are served."""
    beside_karpenter: bool = False
    """Pods that Karpenter could serve are served."""
    namespaces: frozenset[str] | None = None
    """Whose pods are served; None for all."""
    unheeded: frozenset[str] = frozenset()
    """Namespaces whose announced pods did not come, several times: nothing is opened or kept for what they announce, only for pods that are there."""
    rations: Mapping[str, Ration] = {}
    """Of some namespaces only so many pods are served, those whose turn comes first."""
    floor_gap: int = 0
    """So many are opened anyway, whoever needs them."""
    at_most: int | None = None
    """More are never opened: other pods pass on to the next supply."""
    at_once: int | None = None
    """More are not opened now: other pods wait."""
    trials: tuple[Trial, ...] = ()
    """What it remembers of rooms on trial."""


class OpenedRoom(NamedTuple):
    """A room that is opened, or kept from closing."""

    candidate: Candidate
    pods: tuple[str, ...]
    """Uids of the pods it is for."""
    assigned: Mapping[str, int]
    """How many of each shape, by digest: to be remembered while it comes."""
    on_trial: str = ""
    """The pod for which it is tried, namespace/name; empty if it is no trial."""

    @property
    def name(self) -> str:
        """Of the room."""
        return self.candidate.room.name


class SupplyOutcome(Struct, frozen=True, kw_only=True):
    """What a round means for one supply."""

    opened: tuple[OpenedRoom, ...]
    kept: tuple[OpenedRoom, ...]
    """Rooms that were leaving and must stay."""
    into: Mapping[str, tuple[str, ...]]
    """Every room, of whomever, to the uids of the pods it will hold."""
    used: Collection[str]
    """Rooms that somebody needs, and not only shares."""
    needed: Collection[str]
    """Rooms that must not close:"""
    reserved: Collection[str]
    """those that are on trial or where somebody is nominated, and those that hold pods which are pending."""
    unserved: tuple[tuple[Unit, str], ...]
    """Pods for which nobody opens a room, each with the reason why this supply does not, as one word; empty for want of room.

    Those that could never be its own, for their GPUs or their namespace, are left out.
    """
    waiting: tuple[Unit, ...]
    """Pods whose room waits, since no more may be opened at once."""
    passed: tuple[tuple[Unit, str], ...]
    """Pods for which nobody opens a room and that may yet share one, with the reason."""
    trials: tuple[Trial, ...]
    """To be remembered."""
    recheck_at: int | None
    """When the clock alone may change who is served."""
    round: CapacityRound
    """Everything else that was found."""


class PodAnswer(NamedTuple):
    """What is done for a pending pod."""

    state: str
    """In one word: Waking, Booting, Placed, a reason why nothing comes, or why it needs nothing."""
    sentence: str
    machine: str = ""
    """The machine or node that it will go to."""
    details: tuple[str, ...] = ()


class Why(NamedTuple):
    """Why a supply opens nothing, as one word and as a sentence."""

    reason: str
    message: str


class Supply(Protocol):
    """One resource that can bring machines."""

    @property
    def ref(self) -> Ref:
        """Whose it is."""
        ...

    @property
    def terms(self) -> SupplyTerms:
        """On what terms."""
        ...

    def nodes(self) -> Mapping[str, int | None]:
        """Nodes that are its own: since when pods could use each as it is, None if they cannot. All other nodes are anybody's."""
        ...

    def rooms(self, stage: RoomStage, ready: Mapping[str, Room]) -> Iterable[Candidate]:
        """What it has at a stage; asked only while pods are pending. `ready` are the rooms of nodes that pods can use."""
        ...

    def settle(self, outcome: SupplyOutcome) -> Decision:
        """Open, keep and close what follows from a round."""
        ...

    def why(self, unit: Unit, reason: str) -> Why:
        """Why it opens nothing for pods, once it has settled; the round's reason is refined."""
        ...


class SupplyFailed(Exception):
    """A supply raised."""

    def __init__(self, ref: Ref, error: Exception) -> None:
        super().__init__(f"{ref}: {type(error).__name__}: {error}")
        self.ref, self.error = ref, error

"""The words of demand: pods that want a place, what must start as one, and the rooms they could go to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from msgspec import Struct, structs

from headroom.model.facts import Amounts, Pairs, Shape, Taint
from headroom.model.times import MINUTE

OF_GANGS: Final = "gang-"
"""How the digests of gangs' shapes begin."""
VERDICT_MS: Final = MINUTE
"""kube-scheduler tries again within seconds what it could not place; what it refuses for so long, it means."""


class Apart(Struct, frozen=True, kw_only=True):
    """A group whose pods keep apart by host, as far as it is known."""

    name: str
    """Of the resource that this is of a room: equal for all pods that keep apart from one another."""
    here: dict[str, int] = {}
    """How many pods of the group are on each node."""
    changed: int = 0
    """When one of them last started."""
    max_skew: int | None = None
    """None: one pod on each host. Else so many more than on the host with the fewest,"""
    hosts: dict[str, int] = {}
    """of these, each with how many it may come to have,"""
    min_domains: int = 0
    """unless they are fewer than this: then the fewest are none."""


class PendingPods(Struct, frozen=True, gc=False, kw_only=True):
    """Waiting pods that are alike."""

    shape: Shape
    digest: str
    """Names the shape for as long as it means the same, also after a restart."""
    pods: tuple[str, ...]
    """Their uids, the oldest first, then by name."""
    names: tuple[str, ...]
    """Their names as namespace/name, in the same order."""
    apart: tuple[Apart, ...] = ()
    """Groups that they belong to and keep apart from."""
    added: Amounts = ()
    """What of their shape's requests their own spec does not say: they ask for it by claims, or by annotations."""

    @property
    def key(self) -> str:
        """Tells parts of one shape from another whose pods keep apart from others."""
        if not self.apart and not self.added:
            return self.digest
        added = (f"{name}={amount}" for name, amount in self.added)
        return " ".join((self.digest, *(each.name for each in self.apart), *added))

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.pods)

    def without(self, served: int) -> PendingPods:
        """What is left once the first of them have a place."""
        return structs.replace(self, pods=self.pods[served:], names=self.names[served:])


class Unit(Struct, frozen=True, gc=False, kw_only=True):
    """What is served together: all or none of a gang, or any number of equal pods of one priority."""

    gang: str = ""
    """Kind/namespace/name of the gang; empty where each pod does without the others."""
    priority: int
    oldest: int
    """When the oldest of them was created; it stands when that one has a place, so that the others keep their age."""
    first: str
    """One of them, the oldest, as namespace/name."""
    parts: tuple[PendingPods, ...]
    """One for each shape; exactly one where it is no gang."""
    due_at: int = 0
    """When they are expected to start, where they are only announced; 0 if they are pending."""

    @property
    def count(self) -> int:
        """How many pods they are."""
        parts = self.parts
        return len(parts[0].pods) if len(parts) == 1 else sum(part.count for part in parts)

    @property
    def queue_position(self) -> tuple[int, int, int, str]:
        """Whose turn it is: who is pending first, then by priority, age and name."""
        return self.due_at, -self.priority, self.oldest, self.first

    def one(self) -> Unit:
        """The first pod of a unit that is no gang."""
        [part] = self.parts
        return structs.replace(self, parts=(structs.replace(part, pods=part.pods[:1], names=part.names[:1]),))

    def without(self, served: int) -> Unit:
        """What is left of a unit that is no gang once some of its pods have a place."""
        rest = self.parts[0].without(served)
        return structs.replace(self, parts=(rest,), first=rest.names[0])

    def only(self, uids: Collection[str]) -> Unit | None:
        """The part of a unit that these pods are; None if none of them is in it."""
        parts = []
        for part in self.parts:
            kept = [place for place, uid in enumerate(part.pods) if uid in uids]
            if kept:
                pods, names = tuple(part.pods[each] for each in kept), tuple(part.names[each] for each in kept)
                parts.append(structs.replace(part, pods=pods, names=names))
        return structs.replace(self, parts=tuple(parts), first=parts[0].names[0]) if parts else None


class Announcer(NamedTuple):
    """Who makes pods, and when."""

    of: str
    """Kind/namespace/name."""
    uid: str
    due_at: int
    is_own_word: bool
    """It is no budget's estimate: if no pods come, their namespace answers for it."""

    @property
    def namespace(self) -> str:
        """Where its pods will be."""
        return self.of.split("/")[1]


class LeftOut(Struct, frozen=True, gc=False, kw_only=True):
    """Why a pending pod needs no machine."""

    reason: str
    """One word: Gated, Nominated, OtherScheduler, BudgetExhausted, NoGpu, DeviceClaims, DaemonSet, NotYetSeen, NoNodeHelps, GangIncomplete."""
    message: str
    """A sentence."""
    resource: str = ""
    """The GPUs that it would count for if a pool named its device classes."""
    classes: tuple[str, ...] = ()
    """Those, where nobody names them."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Everything that waits for a place."""

    units: tuple[Unit, ...] = ()
    """By priority, then age, then name."""
    exhausted: tuple[Unit, ...] = ()
    """Those whose budget is over quota, in the same order. They take any place that is free, but nothing is opened for them."""
    announced: tuple[Unit, ...] = ()
    """Those that are queued and start soon, and those that somebody will make."""
    announcers: dict[str, Announcer] = {}
    """Who will make pods that are not there yet, by their uids; some of them are in `exhausted`."""
    left_out: dict[str, LeftOut] = {}
    """By uid; pods of `exhausted` and `announced` are here too."""
    apart: dict[str, tuple[str, ...]] = {}
    """The groups from which pods keep apart, by uid; only of pods that do."""
    unnamed: dict[str, tuple[str, ...]] = {}
    """Resource to the uids of pods for which no node was found and that claim such GPUs by a class that no pool names."""
    recheck_at: int | None = None
    """When the clock alone makes a difference next; None if it does not."""

    @property
    def parts(self) -> Iterator[PendingPods]:
        """All kinds of pods among them."""
        return (part for unit in (*self.units, *self.exhausted, *self.announced) for part in unit.parts)


class Room(Struct, frozen=True, gc=False, kw_only=True):
    """Something that can hold pods: a node, or one to come."""

    name: str
    """Of the node, or that it will have."""
    source: Literal["Node", "Machine", "NodeClaim", "Launch"] = "Node"
    labels: Pairs = ()
    taints: tuple[Taint, ...] = ()
    free: Amounts = ()
    """What is left of it. A resource that is not named here is not there, unless `partly_known`."""
    partly_known: bool = False
    """Of a machine that is off often nothing but its GPUs is known: CPU, memory, storage and pods are no limit unless named."""
    ready_since: int | None = None
    """Of a node that is there: since when kube-scheduler could have used it as it is."""
    apart: tuple[tuple[str, int], ...] = ()
    """How many pods of each group that keeps apart will be there beside those that are: who was placed in it."""
    freed: tuple[tuple[int, Amounts], ...] = ()
    """What of it became free in the last minute, and when, as far as that shows: kube-scheduler may not have tried it yet."""


class SchedulerVerdict(Struct, frozen=True, kw_only=True):
    """A scheduler's word against ours: pods that we would place, and it does not."""

    digest: str
    scheduler: str = "kube-scheduler"
    """Whose word it is."""
    pod: str
    """One of them, namespace/name."""
    rooms: tuple[str, ...]
    """Where we would have placed it."""
    message: str
    """What the scheduler says."""


class Placed(Struct, frozen=True, kw_only=True):
    """Who goes where, and what is left."""

    into: dict[str, tuple[str, ...]] = {}
    """Room to the uids of the waiting pods that it will hold; only rooms that hold some."""
    rest: tuple[Unit, ...] = ()
    """What found no place, in the same order; a unit that is no gang may be here with fewer pods."""
    verdicts: dict[str, SchedulerVerdict] = {}
    """Shapes, by digest, that kube-scheduler judges differently."""
    recheck_at: int | None = None
    """When the clock alone may make a difference next, since kube-scheduler has had time to look; None if it cannot."""


class Candidate(Struct, frozen=True, gc=False, kw_only=True):
    """A room that could be opened, and what that costs."""

    room: Room
    cost: tuple[int, ...] = ()
    """Added up over all that are opened and compared from left to right, for example (GPUs,) or (watts, GPUs)."""
    count: int = 1
    """So many of them could be opened, one as good as the other."""
    failed: bool = False
    """It did not do what it was told last: asked after all others."""
    opened_at: int = 0
    """When it was last opened; 0 if never."""
    assigned: Mapping[str, int] = {}
    """Of a room that is coming: for how many pods of each shape, by digest, it was opened."""


class Chosen(Struct, frozen=True, kw_only=True):
    """What to open."""

    rooms: tuple[str, ...] = ()
    """Names of candidates, sorted. The second of a candidate with a count is called `name#2`."""
    into: dict[str, tuple[str, ...]] = {}
    """As in Placed; rooms that were open before are here too."""
    rest: tuple[Unit, ...] = ()

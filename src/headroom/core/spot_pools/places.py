"""Pools and their slots in one round: what is known of each machine, and what becomes of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct, field, structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.power_status import Expected, Unserved
from headroom.api.spot_pools import DEMAND, SpotpoolSpec
from headroom.api.spot_pools_status import Orphan, Slot, SlotCause, SlotState, SoldOut, SpotpoolStatus
from headroom.core.capacity import Trial
from headroom.model import times
from headroom.model.actions import Action
from headroom.model.cloud_facts import Instance, Listing
from headroom.model.decisions import Ref
from headroom.model.facts import Node
from headroom.model.world import World

KIND: Final = "Spotpool"
LAG_MS: Final = 35 * times.MINUTE
"""What exists for longer than this shows in every full list."""
LEAD_MS: Final = 5 * times.MINUTE
"""From a launch until pods can use the machine."""
NOT_FOUND: Final = "NOT_FOUND"
TAINT: Final = "headroom.dev/spotpool"
"""Keeps pods of other namespaces off the nodes of a pool."""
GONE: Final = ("STOPPING", "STOPPED", "SHUTDOWN", "TERMINATING", "LAUNCH_FAILED")
"""States of a machine that is none any more: its slot is free."""
LEFT: Final = ("STOPPED", "LAUNCH_FAILED")
"""Those in which it still lies about, and is ended."""
UNRESOLVED: Final = ("Launching", "Cancelling")

_moment: Final = lru_cache(maxsize=1 << 17)(times.moment)
_text: Final = lru_cache(maxsize=1 << 14)(times.text)


def when(text: str, now: int) -> int | None:
    """A moment that was written down. None of them lies ahead: a clock that was turned back must not make anything wait for it."""
    moment = _moment(text) if text else None
    return None if moment is None else min(moment, now)


def ahead(text: str, now: int, longest: int) -> int | None:
    """A moment until which something rests; None if that is over. It is never further ahead than such a rest lasts."""
    moment = _moment(text) if text else None
    return None if moment is None or moment <= now else min(moment, now + longest)


def told(moment: int | None) -> str:
    """A moment as it is written down."""
    return "" if moment is None else _text(moment)


class SpotTransition(Struct, frozen=True):
    """A turn of a pool or a machine, to be told as an event."""

    kind: Literal["Normal", "Warning"]
    reason: str
    machine: str
    message: str


class PoolSlot(Struct, kw_only=True, eq=False):
    """One slot: a machine, or the intent to launch one."""

    slot: Slot
    instance: Instance | None = None
    """Its machine, as far as anybody saw it."""
    node: Node | None = None
    absent: bool = False
    """It should have a machine, and no list shows it, nor does the cloud know it by id."""
    is_ours: bool = True
    """Its machine carries the tags by which it may be ended."""
    busy: bool = False
    """Pods are on its node that it must not be ended under."""
    is_new: bool = False
    """Launched in this decision."""

    @property
    def state(self) -> SlotState:
        """What it is doing."""
        return self.slot.state

    @property
    def number(self) -> int:
        """Of the slot."""
        return self.slot.slot

    @property
    def name(self) -> str:
        """How people know it: by its machine's id, else by its slot."""
        return self.slot.instance_id or f"slot {self.slot.slot}"

    @property
    def is_others(self) -> bool:
        """Its machine carries the tag of another owner, as after a backup was restored: one without tags may yet get ours."""
        return not self.is_ours and self.instance is not None and bool(self.instance.tags.get(marks.OWNER_TAG))

    @property
    def is_reclaimed(self) -> bool:
        """The cloud said that it takes it back."""
        return bool(self.slot.reclaim_at)

    @property
    def joined(self) -> bool:
        """Its node was ready once."""
        return bool(self.slot.joined_at)

    def change(self, **fields: object) -> None:
        """Other fields in the status."""
        self.slot = structs.replace(self.slot, **fields)

    def become(self, state: SlotState, now: int, cause: SlotCause = "") -> None:
        """Turn."""
        if state != self.slot.state:
            self.change(state=state, since=told(now), cause=cause)


class SpotPoolState(Struct, kw_only=True, eq=False):
    """One pool."""

    ref: Ref
    resource: AnyResource
    spec: SpotpoolSpec
    world: World
    key: str
    """Namespace/name."""
    listing: Listing | None
    listed_at: int
    """When the last full list began; 0 if there is none."""
    halted: str = ""
    """Why nothing may turn here, as one word; empty if it may."""
    account: str = ""
    """The cloud's account that its slots are in, as far as the cloud tells one."""
    elsewhere: bool = False
    """Its keys are of another account, where nobody knows its machines: what that account says is no evidence."""
    unlisted: str = ""
    """Why nothing is launched or ended for want of a list, as one word,"""
    unlisted_says: str = ""
    """and as a sentence."""
    places: list[PoolSlot] = field(default_factory=list)
    left: list[Instance] = field(default_factory=list)
    """Its machines that are none any more and still lie about."""
    closing: int = 0
    """Nodes that look ready although it has ended their machines: counted while the pool is being deleted."""
    alive: int = 0
    """Its machines that exist, whether a slot has them or not."""
    bought: dict[int, int] = field(default_factory=dict)
    """Machines bought in the last hour, by minute."""
    rests: dict[tuple[str, str], SoldOut] = field(default_factory=dict)
    """Types and zones that could not be had, by type and zone."""
    expected: dict[str, Expected] = field(default_factory=dict)
    """Runs that a machine was launched or kept for and that have not come yet, by who announced them."""
    missed: dict[str, list[int]] = field(default_factory=dict)
    """When such a run did not come, in the last day, by namespace."""
    never_joined: int = 0
    """Machines in a row."""
    breaker_until: int | None = None
    braked: str = ""
    """Why nothing is launched or ended, as a sentence."""
    orphans: list[Orphan] = field(default_factory=list)
    orphan_count: int = 0
    unserved: list[Unserved] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    wants: int = 0
    """Machines that are missing and could not be launched,"""
    wants_why: str = ""
    """why, as one word,"""
    wants_says: str = ""
    """and as a sentence."""
    recheck: list[int] = field(default_factory=list)
    """When the clock alone may change something."""
    news: list[SpotTransition] = field(default_factory=list)
    due: list[Action] = field(default_factory=list)

    @property
    def now(self) -> int:
        """The moment of the round."""
        return self.world.now

    @property
    def text_now(self) -> str:
        """It as it is written down."""
        return told(self.world.now)

    @property
    def before(self) -> SpotpoolStatus:
        """The status as it stands."""
        status: SpotpoolStatus = self.resource.status
        return status

    @property
    def on_demand(self) -> bool:
        """Pending pods say how many machines there are."""
        return self.spec.desired == DEMAND

    @property
    def least(self) -> int:
        """Machines that there are at least."""
        wanted = self.spec.desired
        if isinstance(wanted, int):
            return min(max(wanted, self.spec.minimum), self.spec.maximum)
        return self.spec.minimum

    @property
    def most(self) -> int:
        """Machines that there are at most, but for those that are being replaced."""
        return self.least if isinstance(self.spec.desired, int) else self.spec.maximum

    @property
    def ceiling(self) -> int:
        """Machines and unresolved launches that there are at most, with those that are being replaced."""
        return self.spec.maximum + self.spec.max_surge

    @property
    def may_act(self) -> bool:
        """Machines may be launched and ended."""
        return not (self.halted in ("Stopped", "Paused") or self.unlisted or self.braked)

    def are(self, *states: SlotState) -> list[PoolSlot]:
        """The slots in one of these states."""
        return [each for each in self.places if each.slot.state in states]

    def counted(self) -> int:
        """Machines and intents that count for the minimum; those that the cloud takes back do not."""
        return sum(
            (each.slot.state in UNRESOLVED and each.slot.cause != "Refused")
            or (each.slot.state == "Running" and not each.is_reclaimed)
            for each in self.places
        )

    def tell(self, reason: str, message: str, machine: str = "", *, warns: bool = False) -> None:
        """An event."""
        self.news.append(SpotTransition("Warning" if warns else "Normal", reason, machine, message))


def cordoned_by(node: Node | None, ref: Ref) -> bool:
    """Whether our cordon, or what is left of it, is on a node."""
    return node is not None and bool(node.annotations) and (marks.CORDONED_BY, str(ref)) in node.annotations

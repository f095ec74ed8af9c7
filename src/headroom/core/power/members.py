"""Pools and their machines in one round: what is known of each machine, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final

from msgspec import Struct, field

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.power import MachineSpec, PowerPolicy, PowerPoolSpec
from headroom.api.power_status import (
    MOST_SHAPES,
    Assigned,
    Cause,
    Expected,
    MachineStatus,
    PowerPoolStatus,
    State,
    Unserved,
)
from headroom.core import demand
from headroom.core.capacity import Ration, Trial
from headroom.core.demand import Room
from headroom.core.power.news import MachineTransition, TransitionReason
from headroom.model import times
from headroom.model.actions import Action
from headroom.model.decisions import Ref
from headroom.model.facts import Machine as Power
from headroom.model.facts import Node, SwitchCall

KIND: Final = "PowerPool"
UNIT: Final = 1_000_000
"""Amounts are told in millionths."""
NO_NETWORK: Final = "node.kubernetes.io/network-unavailable"
_ITS_STATE: Final = "node.kubernetes.io/"
CHANGING: Final = ("Booting", "Draining", "Sleeping")
LONGEST_REASON: Final = 1024
LONGEST_RETRY_MS: Final = 24 * times.HOUR

_moment: Final = lru_cache(maxsize=65536)(times.moment)
_text: Final = lru_cache(maxsize=65536)(times.text)


class Cordon(Enum):
    """Who keeps new pods away from a node."""

    NOBODY = 0
    OURS = 1
    LIFTED = 2
    """We did, and somebody let them in again by hand."""
    FOREIGN = 3


class PoolMachine(Struct, kw_only=True, eq=False):
    """One machine of a pool."""

    spec: MachineSpec
    name: str
    """Of the machine, and of its node."""
    before: MachineStatus | None
    """What is remembered of it; None at first sight."""
    node: Node | None
    power: Power | None
    """What its status endpoint or BMC says."""
    call: SwitchCall | None
    cordon: Cordon
    gpus_shown: int
    """GPUs that its node offers now."""
    state: State = "Unknown"
    since: int = 0
    reason: str = ""
    """For people, as it was told before; what is decided by it is the cause."""
    cause: Cause = ""
    why: MachineTransition | None = None
    """Its reason, if this round has found another one."""
    idle_since: int | None = None
    busy: bool = False
    """A pod keeps it on."""
    woken_at: int | None = None
    tried_for: tuple[str, ...] = ()
    """Digests of the shapes for which it was then woken on trial."""
    woken_for: tuple[str, ...] = ()
    """Namespaces of the pods it was woken for, until it was of use."""
    kept_for: tuple[str, ...] = ()
    """Namespaces of refused pods for which it was kept on though it was idle, until it was of use,"""
    kept_since: int | None = None
    """and since when, also while it drains."""
    resent_at: int | None = None
    """When its wake was last sent again."""
    is_untaken: bool = False
    """Its wake demonstrably did not happen, and is due to be sent again."""
    slept_at: int | None = None
    drained_at: int | None = None
    """When it last began to drain."""
    failures: int = 0
    retry_after: int | None = None
    toggles: tuple[int, ...] = ()
    """When it was switched in the hour before it was last switched."""
    assigned: dict[str, int] = field(default_factory=dict)
    """Pods for which it boots or was kept on, by digest of their shape."""
    shares_switch: str = ""
    """Another machine that would go off with it, since both have the same switch."""
    held: str = ""
    """Why it stays on though it has been idle for long enough."""
    wanted_until: int = 0
    """Until when it stays on for pods that kube-scheduler refuses though they would fit on it."""
    bound: str = ""
    """A pod that is bound to its node, which is not ready, and that may still run there."""
    leaves: bool = False
    """It never joined, and is cordoned to be sent to sleep."""
    evictable_pods: tuple[str, ...] = ()
    """Pods on it that keep it on unless they are evicted, which its pool allows."""
    news: list[MachineTransition] = field(default_factory=list)
    due: list[Action] = field(default_factory=list)

    @property
    def gpus(self) -> int:
        """GPUs in it."""
        return self.spec.gpu_count

    @property
    def was(self) -> State | None:
        """Its remembered state."""
        return self.before.state if self.before else None

    @property
    def is_up(self) -> bool:
        """Its node says that it is ready."""
        return self.node is not None and self.node.ready

    @property
    def starts(self) -> str:
        """The taint by which something that runs on every node says that it has not started on this one; empty if nothing does."""
        given = () if self.node is None else self.node.taints
        if not given:
            return ""
        # The others of Kubernetes' own come and go with what the node says of itself, and with cordons.
        telling = tuple(each for each in given if each.key == NO_NETWORK or not each.key.startswith(_ITS_STATE))
        gone = set(telling) - set(demand.started(telling))
        return min((each.key for each in gone), default="")

    @property
    def power_is(self) -> str:
        """On, Off or PoweringOff, where somebody knows; else empty."""
        return self.power.power if self.power is not None and self.power.power != "Unknown" else ""

    def failed_call(self, command: str, since: int | None) -> SwitchCall | None:
        """The call for what it was told then, if nothing will come of it."""
        call = self.call
        if call is None or call.command != command or call.outcome != "Failed" or call.at < (since or 0):
            return None
        return call

    def become(self, state: State, now: int, why: MachineTransition | None = None, cause: Cause = "") -> None:
        """Turn, or stay as it is with another reason."""
        if state != self.state:
            self.state, self.since = state, now
        self.reason, self.why, self.cause = "", why, cause

    def new(
        self, state: State, cause: TransitionReason, *, at: int | None = None, count: int = 0, text: str = ""
    ) -> MachineTransition:
        """A turn of it."""
        return MachineTransition(machine=self.name, state=state, cause=cause, at=at, count=count, text=text)

    def tell(self, cause: TransitionReason, *, at: int | None = None, count: int = 0) -> None:
        """An event about a turn that it has made; what is seen for the first time has not turned."""
        self.news.append(self.new(self.state, cause, at=at, count=count))

    def lately(self, now: int) -> tuple[int, ...]:
        """When it was switched in the last hour."""
        return tuple(each for each in self.toggles if each > now - times.HOUR)

    def switch(self, now: int) -> None:
        """Its wake or sleep command is sent."""
        self.toggles = (*self.lately(now), now)

    def put_off(self, now: int, pause: int) -> None:
        """It did not do what it was told: once more, but not before a pause."""
        self.failures += 1
        self.retry_after = now + pause

    def status(self, reason: str) -> MachineStatus:
        """What is remembered of it from now on."""
        return MachineStatus(
            name=self.name,
            state=self.state,
            since=_text(self.since),
            reason=reason[:LONGEST_REASON],
            cause=self.cause,
            idle_since=told(self.idle_since),
            busy=True if self.busy else None,
            woken_at=told(self.woken_at),
            tried_for=self.tried_for,
            woken_for=self.woken_for,
            kept_for=self.kept_for,
            kept_since=told(self.kept_since),
            resent_at=told(self.resent_at),
            slept_at=told(self.slept_at),
            drained_at=told(self.drained_at),
            failures=self.failures,
            retry_after=told(self.retry_after),
            toggles=tuple(map(_text, self.toggles)),
            assigned=tuple(
                Assigned(shape=shape, pods=many) for shape, many in sorted(self.assigned.items())[:MOST_SHAPES]
            )
            if self.assigned
            else (),
        )


class PowerPoolState(Struct, kw_only=True, eq=False):
    """One pool."""

    ref: Ref
    resource: AnyResource
    spec: PowerPoolSpec
    now: int
    members: list[PoolMachine] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Machines that it names and that belong to another pool, with that pool's name."""
    closed: dict[str, Room] = field(default_factory=dict)
    """Machines that may be woken, as they will be then, as far as anybody asked."""
    halted: str = ""
    """Why nothing may turn here, as one word; empty if it may."""
    floor: int = 0
    """Machines that stay on now."""
    floor_recheck_at: int | None = None
    busy: int = 0
    """Machines that pods keep on."""
    used: int = 0
    """The same with those that pods are about to."""
    peaks: list[tuple[int, int]] = field(default_factory=list)
    """Until when more machines were in use, and how many."""
    peak: int = 0
    """Machines that were in use at once lately."""
    warm_percent: int = 0
    spares: int = 0
    """Machines that stay on beyond the peak."""
    ahead: int = 0
    """So many of them are woken ahead."""
    braked: str = ""
    """Why no more machines begin to drain, as a sentence."""
    brake_ends_at: int | None = None
    boots_failed: int = 0
    """Boots in a row that brought no node."""
    breaker_until: int | None = None
    """Before when nothing is woken because of that."""
    fruitless: dict[str, list[int]] = field(default_factory=dict)
    """When machines went to sleep that were of no use, by the namespace they were woken for."""
    rations: dict[str, Ration] = field(default_factory=dict)
    """For so many pods of a namespace machines may wake now because of that; of any other namespace for all."""
    keeps: dict[str, int] = field(default_factory=dict)
    """So many idle machines are kept on for refused pods of a namespace because of that."""
    ration_ends_at: int | None = None
    expected: dict[str, Expected] = field(default_factory=dict)
    """Announced pods for which a machine was woken or kept on, and that have not come, by who makes them."""
    shared: set[str] = field(default_factory=set)
    """NodePools of Karpenter's that could serve pods which wait."""
    wants: bool = False
    """Pods wait, or too few machines are on, and more would be woken if they could be."""
    unserved: list[Unserved] = field(default_factory=list)
    """The first of them."""
    unserved_pods: int = 0
    trials: list[Trial] = field(default_factory=list)
    due: list[Action] = field(default_factory=list)
    """What is due for no machine of its own."""

    @property
    def policy(self) -> PowerPolicy:
        """When machines may turn."""
        return self.spec.policy

    @property
    def before(self) -> PowerPoolStatus:
        """The status as it stands."""
        status: PowerPoolStatus = self.resource.status
        return status

    @property
    def boot_ms(self) -> int:
        """How long a boot, and a shutdown, may take."""
        return self.policy.boot_timeout_seconds * times.SECOND

    def are(self, *states: State) -> list[PoolMachine]:
        """The machines in one of these states."""
        return [each for each in self.members if each.state in states]

    def actions(self) -> Iterator[Action]:
        """What is due, in the order of the machines."""
        yield from self.due
        for each in self.members:
            yield from each.due


def when(text: str, now: int) -> int | None:
    """A moment that was written down. None of them lies ahead: a clock that was turned back must not make anything wait for it."""
    moment = _moment(text) if text else None
    return None if moment is None else min(moment, now)


def moment_of(text: str) -> int | None:
    """A moment that was written down, as it stands there."""
    return _moment(text) if text else None


def told(moment: int | None) -> str:
    """A moment as it is written down."""
    return "" if moment is None else _text(moment)


def remember(member: PoolMachine, now: int) -> None:
    """Take up what is remembered of a machine."""
    before = member.before
    if before is None:
        member.since = now
        return
    member.state, member.failures = before.state, before.failures
    member.reason, member.cause = before.reason, before.cause
    member.since = when(before.since, now) or 0
    member.idle_since = when(before.idle_since, now)
    member.woken_at, member.slept_at = when(before.woken_at, now), when(before.slept_at, now)
    member.resent_at, member.drained_at = when(before.resent_at, now), when(before.drained_at, now)
    retry = _moment(before.retry_after) if before.retry_after else None
    member.retry_after = None if retry is None else min(retry, now + LONGEST_RETRY_MS)
    member.woken_for, member.kept_for = before.woken_for, before.kept_for
    member.tried_for = before.tried_for
    member.kept_since = when(before.kept_since, now)
    member.assigned = {each.shape: each.pods for each in before.assigned}
    member.toggles = tuple(each for text in before.toggles if (each := when(text, now)) is not None)


def cordon_of(node: Node | None, ref: Ref) -> Cordon:
    """Who keeps new pods away from a node, as the pool sees it."""
    if node is None or not (node.unschedulable or node.annotations):
        return Cordon.NOBODY
    is_ours = (marks.CORDONED_BY, str(ref)) in node.annotations
    if node.unschedulable:
        return Cordon.OURS if is_ours else Cordon.FOREIGN
    return Cordon.LIFTED if is_ours else Cordon.NOBODY

"""What waits for budgets: pods behind our gate, and owners that Headroom suspended, each unit with what it would use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import Stopped, Victim
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount, budget_named, declared_length, is_frozen
from headroom.core.budgets.units import Queued, is_alive, is_exempt, names_of, note, pending, unit_of
from headroom.core.budgets.unseen import is_unclear, knows
from headroom.core.usage import PodDevices
from headroom.model import times
from headroom.model.facts import Amounts, Pairs, Pod, Workload, WorkloadPart
from headroom.model.world import World

FORMING_MS: Final = 5_000
"""A gang whose newest pod is younger than this may still be growing."""
RETURN_MS: Final = 120_000
"""For so long a released owner may take to make its pods."""
SKEW_MS: Final = 5_000
"""Clocks of other machines may be ahead by so much."""


class Demand(NamedTuple):
    """What a unit would hold of one budget."""

    account: str
    rate: int
    """Millionths of a GPU."""
    price: int
    """Millionths of a dollar an hour."""
    length: int
    """How long it is taken to run."""
    is_declared: bool


class WaitingUnit(NamedTuple):
    """A unit that waits."""

    unit: str
    pods: tuple[Pod, ...]
    """Those behind our gate, or behind another gate that a hold keeps."""
    owners: tuple[Workload, ...]
    """Those that Headroom suspended."""
    since: int
    demands: tuple[Demand, ...]
    """For every budget that acts and counts it, by name; none if there is no such budget any more."""
    is_ready: bool
    """Whether it can be released at all now."""
    is_clear: bool = True
    """Nothing about it is unclear, though it may still be growing."""
    is_free: bool = False
    """It was judged before, when its owner was released, so it need not wait again."""
    grown_at: int = 0
    """When a gang is taken to have all its pods."""


class Matcher:
    """Which budgets count a pod, each with the rate; like pods are judged once."""

    def __init__(self, world: World, accounts: Sequence[BudgetAccount]) -> None:
        self.world, self.accounts = world, accounts
        self._view = usage.view_of(world)
        self._plain: dict[tuple[Amounts, str], PodDevices] = {}
        self._known: dict[tuple[str, Pairs, PodDevices], tuple[tuple[BudgetAccount, int], ...]] = {}
        self._pending: dict[str, list[Pod]] | None = None
        self._first: dict[tuple[str, str, tuple[tuple[BudgetAccount, int], ...]], int] = {}

    @cached_property
    def barred(self) -> frozenset[str]:
        """Budgets of which nothing is released here, since another cluster decides on them and holds or is not heard of."""
        return frozenset(
            each.key for each in self.accounts if each.followed is not None and not each.followed.lets_release
        )

    @property
    def longest_horizon(self) -> int:
        """The longest of all budgets; 0 where there is none."""
        return max((each.horizon for each in self.accounts), default=0)

    def _matched(self, namespace: str, labels: Pairs, asked: PodDevices) -> tuple[tuple[BudgetAccount, int], ...]:
        key = (namespace, labels, asked)
        if key not in self._known:
            held = () if is_exempt(self.world, namespace) else self.accounts
            covering = [each for each in held if each.covers(namespace, labels)]
            rates = [(each, usage.asked_rate(asked, each.scope.weights)) for each in covering]
            self._known[key] = tuple((each, rate) for each, rate in rates if rate)
        return self._known[key]

    def of_pod(self, pod: Pod, without: Collection[str] = ()) -> tuple[tuple[BudgetAccount, int], ...]:
        """Every budget that counts a pod, each with the rate; claims in `without` are somebody else's."""
        return self._matched(pod.namespace, pod.labels, self._asked(pod, without))

    def _asked(self, pod: Pod, without: Collection[str] = ()) -> PodDevices:
        if pod.has_claims:
            return usage.asked_by(pod, self._view, without)
        key = (pod.shape.requests, pod.node)
        if key not in self._plain:
            self._plain[key] = usage.asked_by(pod, self._view)
        return self._plain[key]

    def of_part(self, namespace: str, part: WorkloadPart) -> tuple[tuple[BudgetAccount, int], ...]:
        """Every budget that counts the pods of an owner, each with the rate of all of them together."""
        own, shared = usage.asked_by_part(namespace, part, self._view)
        rates: dict[str, tuple[BudgetAccount, int]] = {}
        for asked, count in ((own, part.count), (shared, min(part.count, 1))):
            for account, rate in self._matched(namespace, part.labels, asked):
                rates[account.key] = account, rates.get(account.key, (account, 0))[1] + rate * count
        return tuple(rates[key] for key in sorted(rates))

    def pending_of(self, account: BudgetAccount) -> Sequence[Pod]:
        """The pods that a budget counts and that have not started. All are matched once, however many budgets ask."""
        if self._pending is None:
            self._pending = {}
            for pod in pending(self.world):
                for each, _ in self.of_pod(pod):
                    self._pending.setdefault(each.key, []).append(pod)
        return self._pending.get(account.key, ())

    def first_rank(self, pod: Pod) -> int:
        """When the first pod in view was made that has the same owner, and of the same budgets as much. All ranks are looked at once."""
        assert pod.owner is not None
        matched, pods = self.of_pod(pod), self.world.pods
        key = (pod.namespace, pod.owner.uid, matched)
        if key not in self._first:
            ranks = (rank for uid in pods.by_owner[pod.owner.uid] if (rank := pods.get(uid)) is not None)
            like = (each for each in ranks if each.namespace == pod.namespace and self.of_pod(each) == matched)
            self._first[key] = min((each.created for each in like), default=pod.created)
        return self._first[key]

    def is_known(self, pod: Pod) -> bool:
        """Whether everything is there that says what a pod asks for."""
        return self._asked(pod).is_known

    def is_known_part(self, namespace: str, part: WorkloadPart) -> bool:
        """The same of the pods of an owner."""
        return all(asked.is_known for asked in usage.asked_by_part(namespace, part, self._view))


def held_back(world: World, matcher: Matcher) -> list[Pod]:
    """The queued pods, each for itself or with its gang. What Kueue has not started waits as its Workload."""
    queued, found = Queued(world), []
    # Only a hold keeps pods behind another gate.
    for uid in world.pods.unbound if world.holds else world.pods.queued:
        pod = world.pods.get(uid)
        if pod is not None and is_alive(pod) and not queued.is_first(pod) and is_held(matcher, pod):
            found.append(pod)
    return found


def is_held(matcher: Matcher, pod: Pod) -> bool:
    """Whether a pod is behind our gate, or kept behind somebody else's."""
    return marks.GATE in pod.gates or is_kept(matcher, pod)


def waiting(
    world: World,
    matcher: Matcher,
    suspending: frozenset[str],
    held: Iterable[Pod] | None = None,
    free: frozenset[str] = frozenset(),
) -> list[WaitingUnit]:
    """All that waits, the oldest first, with the pods that are `held` back.

    `suspending` are the budgets, by reference, that let nothing of theirs resume now; `free` the uids of pods that need not be judged.
    """
    pods: dict[tuple[str, bool], list[Pod]] = {}
    for pod in held_back(world, matcher) if held is None else held:
        pods.setdefault((unit_of(pod), pod.uid in free), []).append(pod)
    owners = {(key, False): each for key, each in world.workloads.items() if each.suspended and each.suspended_by}
    found = []
    for key in pods.keys() | owners.keys():
        unit, is_free = key
        mine = tuple(sorted(pods.get(key, ()), key=lambda pod: pod.key))
        each = _unit(world, matcher, (unit, mine), owners.get(key), suspending)
        # What was judged as a whole starts pod by pod, as its pods come.
        found.append(each._replace(is_free=True, is_ready=each.is_clear, grown_at=0) if is_free else each)
    return sorted(found, key=lambda each: (each.since, each.unit, not each.is_free))


def is_kept(matcher: Matcher, pod: Pod) -> bool:
    """Whether a hold keeps a pod behind another gate, where it was before the hold.

    Nobody can set a gate later, and the API server refuses to lift its last one until it is released.
    """
    notes, is_ours = dict(pod.annotations), is_exempt(matcher.world, pod.namespace)
    if not pod.gates or not matcher.world.holds or is_ours or marks.PROTECTED in notes or marks.RELEASED_AT in notes:
        return False
    return any(True for _ in usage.holds_over(matcher.world, pod))


def was_let_go(world: World, unit: str, within: int) -> bool:
    """Whether the owner of a unit was released lately."""
    owner = world.workloads.get(unit)
    return owner is not None and is_fresh(world, owner, within)


def is_fresh(world: World, owner: Workload, within: int) -> bool:
    """Whether an owner was released lately; its mark counts only where the API server guards it."""
    if owner.released_at is None or world.hold_problem:
        return False
    return 0 <= world.now - owner.released_at + SKEW_MS < within + SKEW_MS


def _unit(
    world: World,
    matcher: Matcher,
    gated: tuple[str, tuple[Pod, ...]],
    owner: Workload | None,
    suspending: frozenset[str],
) -> WaitingUnit:
    unit, pods = gated
    gang = not unit.startswith("Pod/")
    owners = () if owner is None else (owner,)
    newest = max((pod.created for pod in pods), default=0)
    grown = newest + FORMING_MS if gang and pods else 0
    kept = (
        any(is_unclear(world, pod) or any(is_frozen(world, by) for by in _held_by(world, pod)) for pod in pods)
        or any(each.suspended_by in suspending or is_frozen(world, each.suspended_by) for each in owners)
        or not all(knows(world, each.kind) for each in owners)
    )
    # Nothing can place a pod without its claims, so nothing is lost by waiting for what they say.
    is_known = all(matcher.is_known(pod) for pod in pods) and all(
        matcher.is_known_part(each.namespace, part) for each in owners for part in each.parts
    )
    demands = demands_of(matcher, pods, owners)
    # Nothing starts here on a budget that another cluster decides on, before that one says so.
    kept = kept or any(each.account in matcher.barred for each in demands)
    since = _since(matcher, pods, owner, gang=gang)
    return WaitingUnit(
        unit,
        pods,
        owners,
        since,
        demands,
        is_ready=grown <= world.now and not kept and is_known,
        is_clear=not kept and is_known,
        grown_at=grown,
    )


def _held_by(world: World, pod: Pod) -> Iterator[str]:
    """The budgets that make a pod wait, as far as it is known: by its mark, or where it has none, by their holds."""
    if marks.GATE in pod.gates:
        yield note(pod, marks.HELD_BY)
    else:
        yield from (spec.budget for spec in usage.holds_over(world, pod))


def _since(matcher: Matcher, pods: tuple[Pod, ...], owner: Workload | None, *, gang: bool) -> int:
    """Since when a unit waits: since the last of its pods does, so that no label lets a new pod into an old place.

    A rank that failed and was recreated waits since its owner's first one that is in view, and an owner's pods since it does itself.
    """
    moments = [] if owner is None else [_queued_since(matcher.world, owner)]
    for pod in pods:
        controller = pod.owner.uid if gang and pod.owner is not None else ""
        if owner is not None and controller == owner.uid:
            continue
        # Anybody names any owner: only what its controller made is a rank.
        is_rank = bool(controller) and pod.maker == controller
        moments.append(min(pod.created, matcher.first_rank(pod)) if is_rank else pod.created)
    return max(moments)


def _queued_since(world: World, owner: Workload) -> int:
    """Since it was made; but what has run and was suspended by a step waits since then, as if it were new: it has run already."""
    budget, names = budget_named(world, owner.suspended_by), names_of(owner)
    if budget is None:
        return owner.created
    status: GPUWorkloadBudgetStatus = budget.status
    stops: list[Victim | Stopped] = [each for each in status.stopped if each.outcome == "Stopped"]
    stops += [] if status.victim is None else [status.victim]
    moments = (
        times.moment(each.at) or 0
        for each in stops
        if each.action == "Suspend" and not names.isdisjoint({each.unit, each.owner})
    )
    return max([owner.created, *moments])


def demands_of(matcher: Matcher, pods: tuple[Pod, ...], owners: tuple[Workload, ...]) -> tuple[Demand, ...]:
    """What pods, and the pods that owners would make, come to for every budget that counts them."""
    rates: dict[str, int] = {}
    lengths: dict[str, list[int | None]] = {}
    accounts: dict[str, BudgetAccount] = {}
    asked, shared = [], set[str]()
    for pod in pods:
        length = declared_length(matcher.world, pod)
        asked.append((matcher.of_pod(pod, shared), length))
        if pod.claims:
            # A claim that several of them share is given once, and each of them may be the one that keeps it longest.
            asked.append((tuple((account, 0) for account, _ in matcher.of_pod(pod)), length))
            shared |= pod.claim_keys
    for owner in owners:
        asked += [(matcher.of_part(owner.namespace, part), part.deadline) for part in owner.parts]
    for matched, length in asked:
        for account, rate in matched:
            accounts[account.key] = account
            rates[account.key] = rates.get(account.key, 0) + rate
            lengths.setdefault(account.key, []).append(length)
    return tuple(
        Demand(
            account=key,
            rate=rates[key],
            price=accounts[key].price(rates[key]),
            length=_longest(lengths[key], accounts[key].horizon),
            is_declared=None not in lengths[key],
        )
        for key in sorted(rates)
    )


def _longest(lengths: list[int | None], horizon: int) -> int:
    return max(horizon if each is None else each for each in lengths)

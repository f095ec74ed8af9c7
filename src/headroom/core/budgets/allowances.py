"""Allowances: what was judged when something was released. So much of it starts without waiting again, and no more.

It is one rule whether it was its turn or somebody asked for it. An owner that was released makes its pods only then, and recreates a failed one; they find the gate of a hold that still stands.
What was judged is a rate for a time: pods of that owner go free while all of them together stay within the rate and, where lengths are
declared, end within the time. A pod that has ended gives its part back; one that is on its way out does not, since it may run on for as
long as it likes. All else is new demand and waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field, structs

from headroom.api import marks
from headroom.api.enforcement import Released
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount, declared_length
from headroom.core.budgets.numbers import decimal
from headroom.core.budgets.records import (
    MICRO_DOLLAR,
    asked_for,
    being_released,
    controller_of,
    judged,
    record,
    records_of,
)
from headroom.core.budgets.units import ENDED, Queued, goes_on, is_protected, note, of_namespaces, owner_of
from headroom.core.budgets.waiting import RETURN_MS, SKEW_MS, Matcher, WaitingUnit, demands_of, is_fresh
from headroom.core.budgets.wording import nano_of
from headroom.model import times
from headroom.model.facts import Pod
from headroom.model.world import World

MOST: Final = 200
"""So many are remembered, the last ones; what is forgotten waits again."""
MOST_GROWING: Final = 2000
"""So many beside those whose claims may still be swapped for larger ones, which would then go unseen."""
_INDIRECT: Final = ("JobSet", "Workload")
"""Owners that are not the controllers of their pods."""
_PARTED: Final = ""
"""In the place of an owner: pods that no longer name the controller that made them."""


class _Grant(NamedTuple):
    """What one budget judged of one release."""

    record: Released
    rate: int
    price: int
    at: int
    until: int

    def is_for(self, world: World, pod: Pod) -> bool:
        """Whether a pod that starts now is over when what was judged is."""
        length = declared_length(world, pod) if self.record.declared else 0
        return length is not None and world.now + length <= self.until


class _Use(Struct):
    """What the pods of an owner have that were released and have not ended."""

    rates: dict[str, int] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)
    """Those that several pods share count once."""


class Allowances:
    """All that was released lately and may still be used, over all budgets that act."""

    def __init__(self, world: World, matcher: Matcher, waiting: Sequence[Pod]) -> None:
        """`waiting` are the pods that may not start yet."""
        self._world, self._matcher, self._queued = world, matcher, Queued(world)
        self._waiting = {pod.uid for pod in waiting}
        self._grants: dict[str, dict[str, list[_Grant]]] = {}
        """By uid of the owner, then by budget."""
        self._owners: dict[str, str] = {}
        """Their names, by uid."""
        asked, known = asked_for(world), being_released(world)
        for account in matcher.accounts:
            for each in [*records_of(account, asked), *self._resumed(account, known)]:
                self._grant(account, each)
        self._used: dict[str, _Use] = {}
        self._new: dict[str, tuple[tuple[str, Released], ...]] = {}
        """What is judged now, by unit."""
        self._indirect: dict[str, dict[str, list[str]]] = {}
        """By namespace."""
        self.free = frozenset(
            pod.uid for pod in sorted(waiting, key=lambda pod: (pod.created, pod.key)) if self._take(pod)
        )
        """The pods that go free now."""

    def _grant(self, account: BudgetAccount, each: Released) -> None:
        at, until = times.moment(each.at), times.moment(each.until)
        if at is None or until is None:
            return
        owner = self._world.workloads.get(each.owner)
        if owner is not None and owner.uid == each.uid and owner.suspended and self._world.now - at >= RETURN_MS:
            return  # it was stopped since, and waits to be judged again
        grant = _Grant(each, nano_of(each.gpus) // 1000, nano_of(each.usd_per_hour) // 1000, at, until)
        self._grants.setdefault(each.uid, {}).setdefault(account.key, []).append(grant)
        self._owners[each.uid] = each.owner

    def _resumed(self, account: BudgetAccount, requested: frozenset[str]) -> Iterator[Released]:
        """Owners that somebody with the right to release has just released by hand, as they were then."""
        known = {each.uid for each in account.status.released} | requested
        for each in self._world.workloads.values():
            if is_fresh(self._world, each, RETURN_MS) and each.is_as_released and each.uid not in known:
                demand = next(
                    (one for one in demands_of(self._matcher, (), (each,)) if one.account == account.key), None
                )
                if demand is not None:
                    yield record(account, (each.key, each.uid), demand, each.released_at or 0)

    # --- whose pod it is --------------------------------------------------------------------------------------------------

    def _uids(self, pod: Pod) -> Iterator[str]:
        """Whose allowance a pod may use. Its labels give it none: the owner must have its uid, or Kueue must have a Workload for it."""
        yield pod.uid
        if (owner := controller_of(pod)) is not None:
            yield owner.uid
            whole = self._world.workloads.get(owner_of(pod))
            if whole is not None and whole.kind == "JobSet":
                yield whole.uid
        if (workload := self._queued.of(pod)) is not None:
            yield workload.uid

    def _members(self, uid: str) -> Iterable[Pod]:
        """The pods that were made for an owner, whomever they name now: anybody may take that reference away, or a label."""
        pods = self._world.pods
        kind, namespace, _ = self._owners[uid].split("/", 2)
        members = {uid, *pods.by_owner[uid], *pods.by_maker[uid]}
        if kind in _INDIRECT:
            own = self._indirect_in(namespace)
            # Of a pod that is parted from its maker nobody can say whose it was: it counts for each that it may be of.
            members |= {*own.get(uid, ()), *own.get(_PARTED, ())}
            makers = {pod.maker for each in own.get(uid, ()) if (pod := pods.get(each)) is not None and pod.maker}
            members |= {each for maker in makers for each in pods.by_maker[maker]}
        return [pod for each in members if (pod := pods.get(each)) is not None]

    def _indirect_in(self, namespace: str) -> dict[str, list[str]]:
        """The pods of a namespace by those who may have made them, where no owner reference says so; and those without their maker."""
        if namespace not in self._indirect:
            self._indirect[namespace] = found = dict[str, list[str]]()
            for pod in of_namespaces(self._world, {namespace}):
                parted = (_PARTED,) if pod.maker and (pod.owner is None or pod.owner.uid != pod.maker) else ()
                for each in (*self._uids(pod), *parted):
                    found.setdefault(each, []).append(pod.uid)
        return self._indirect[namespace]

    def _use(self, uid: str) -> _Use:
        if uid not in self._used:
            self._used[uid] = use = _Use()
            for pod in sorted(self._members(uid), key=lambda pod: (pod.created, pod.key)):
                if pod.phase not in ENDED and pod.uid not in self._waiting:
                    self._add(use, pod)
        return self._used[uid]

    def _add(self, use: _Use, pod: Pod) -> None:
        for account, rate in self._matcher.of_pod(pod, use.claims):
            use.rates[account.key] = use.rates.get(account.key, 0) + rate
        use.claims |= pod.claim_keys

    # --- what goes free ---------------------------------------------------------------------------------------------------

    def _take(self, pod: Pod) -> bool:
        """Whether a pod goes free; if so, its part is taken."""
        for uid in self._uids(pod) if self._grants else ():
            if uid in self._grants and self._is_proven(uid, pod) and self._has_room(uid, pod):
                self._add(self._use(uid), pod)
                return True
        return False

    def _is_proven(self, uid: str, pod: Pod) -> bool:
        """Whether a pod is of whom it says, if not itself: its controller made it, or Kueue has a Workload for this very pod."""
        if uid == pod.uid or pod.owner is None or pod.maker == pod.owner.uid:
            return True
        workload = self._queued.of(pod)
        return workload is not None and workload.uid == uid and pod.uid in workload.owner_uids

    def _has_room(self, uid: str, pod: Pod) -> bool:
        use, grants = self._use(uid), self._grants[uid]
        more = dict(self._matcher.of_pod(pod, use.claims))
        return all(
            self._fits(account, use.rates.get(account.key, 0) + more.get(account, 0), self._for(grants, account, pod))
            for account, _ in self._matcher.of_pod(pod)
        )

    def _for(self, grants: dict[str, list[_Grant]], account: BudgetAccount, pod: Pod) -> list[_Grant]:
        return [each for each in grants.get(account.key, ()) if each.is_for(self._world, pod)]

    def _fits(self, account: BudgetAccount, rate: int, grants: Sequence[_Grant]) -> bool:
        return rate <= sum(each.rate for each in grants) and account.price(rate) <= sum(each.price for each in grants)

    # --- what is left of it -----------------------------------------------------------------------------------------------

    def coming(self, account: BudgetAccount) -> Iterator[tuple[int, int | None]]:
        """What was released a moment ago and is not there yet: the rate, and when it will be over, None if it may run on."""
        for uid, grants in self._grants.items():
            mine = grants.get(account.key, [])
            young = [each for each in mine if self._is_awaited(each)]
            rest = sum(each.rate for each in mine) - self._use(uid).rates.get(account.key, 0)
            for each in young:
                rate = min(each.rate, rest)
                if rate > 0:
                    yield rate, each.until if each.record.declared else None
                rest -= rate

    def _is_awaited(self, grant: _Grant) -> bool:
        owner = self._world.workloads.get(grant.record.owner)
        is_counted = owner is not None and owner.kind == "Workload" and not owner.admitted  # by its own parts
        is_pod = grant.record.owner.startswith("Pod/")
        return not is_pod and not is_counted and self._world.now - grant.at < RETURN_MS

    def overgrown(self, account: BudgetAccount) -> list[Pod]:
        """Released pods that go back, since their owner asks for more by now than was judged: what grew first, then the newest.

        Claims can be swapped for larger ones until a pod is placed, and kube-scheduler is quick: one that runs goes back too if its
        claim was made after its release.
        """
        found = []
        for uid, grants in self._grants.items():
            if account.key not in grants:
                continue
            most = sum(each.rate for each in grants[account.key])
            pods = [pod for pod in self._released(uid) if goes_on(pod, self._world.now)]
            use = _Use()
            for pod in pods if any(pod.has_claims for pod in pods) else ():
                self._add(use, pod)
            used = use.rates.get(account.key, 0)
            if used <= most:
                continue
            for pod in sorted(pods, key=lambda pod: (not self._is_swapped(pod), -pod.created, pod.key)):
                if used > most and self._may_go_back(pod):
                    found.append(pod)
                    used -= dict(self._matcher.of_pod(pod)).get(account, 0)
        return found

    def _released(self, uid: str) -> Iterator[Pod]:
        """The pods of an owner that Headroom released and that have not ended; what started before any hold is not among them."""
        for pod in self._members(uid):
            if pod.phase not in ENDED and pod.uid not in self._waiting and note(pod, marks.RELEASED_AT):
                yield pod

    def _may_go_back(self, pod: Pod) -> bool:
        is_free_to_go = pod.has_claims and pod.deleting is None and not is_protected(self._world, pod)
        return is_free_to_go and (pod.started is None or self._is_swapped(pod))

    def _is_swapped(self, pod: Pod) -> bool:
        """Whether a claim of a pod was made after its release, as far as clocks tell."""
        at = times.moment(note(pod, marks.RELEASED_AT)) or 0
        claims = (self._world.claims.get(f"{pod.namespace}/{name}") for name in pod.claims)
        return any(each is not None and each.created + SKEW_MS >= at for each in claims)

    def _may_grow(self, uid: str) -> bool:
        """Whether a pod of an owner may still be given larger claims."""
        return uid not in self._owners or any(
            pod.has_claims and pod.started is None and pod.phase not in ENDED for pod in self._members(uid)
        )

    # --- what is remembered -----------------------------------------------------------------------------------------------

    def remembered(self, account: BudgetAccount, released: Iterable[WaitingUnit]) -> tuple[Released, ...]:
        """What stands in the status from now on, with what is released now."""
        released = tuple(released)
        new = [each for waiting in released for key, each in self._judged(waiting) if key == account.key]
        again = {owner.uid for waiting in released for owner in waiting.owners}
        old = [
            structs.replace(each.record, used_gpus=decimal(self._use(uid).rates.get(account.key, 0), usage.MICRO))
            for uid, grants in self._grants.items()
            for each in grants.get(account.key, ())
            if uid not in again and (self._world.now <= each.until or self._may_grow(uid))
        ]
        every = sorted([*new, *old], key=_order, reverse=True)
        if len(every) <= MOST:
            return tuple(every)
        growing = [each for each in every if self._may_grow(each.uid)][:MOST_GROWING]
        kept = [*growing, *[each for each in every if each not in growing][:MOST]]
        return tuple(sorted(kept, key=_order, reverse=True))

    def _judged(self, waiting: WaitingUnit) -> tuple[tuple[str, Released], ...]:
        if waiting.unit not in self._new:
            self._new[waiting.unit] = tuple(judged(self._matcher, waiting))
        return self._new[waiting.unit]

    def settled(self, key: str, each: Released, *, is_owner: bool) -> Released | None:
        """What a budget gives for a release that was asked for, beside what it gave before for the same; None if that is nothing.

        Two may have asked for the same pods, or their turn came just then: what was released is given once.
        """
        account = next((account for account in self._matcher.accounts if account.key == key), None)
        if account is None:
            return each
        self._owners.setdefault(each.uid, each.owner)
        given = sum(grant.rate for grant in self._grants.get(each.uid, {}).get(key, ()))
        rate = asked = nano_of(each.gpus) // 1000
        if not is_owner:
            use = _Use()
            for pod in self._released(each.uid):
                self._add(use, pod)
            rate = min(asked, use.rates.get(key, 0) - given)
        elif given:
            rate = asked - given
        if rate <= 0:
            return None
        price = nano_of(each.usd_per_hour) // 1000 * rate // asked
        found = structs.replace(
            each,
            gpus=decimal(rate, usage.MICRO),
            usd_per_hour=decimal(price, MICRO_DOLLAR) if each.usd_per_hour else "",
        )
        self._grant(account, found)
        return found


def _order(each: Released) -> tuple[str, str]:
    return each.at, each.owner

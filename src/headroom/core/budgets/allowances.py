"""Allowances: what was judged when something was released. So much of it starts without waiting again, and no more.

An owner that was released makes its pods only then, and makes a failed one anew; they find the gate of a hold that still stands.
What was judged is a rate for a time: pods of that owner go free while all of them together stay within the rate and, where lengths are
declared, end within the time. A pod that has ended gives its part back; one that is on its way out does not, since it may run on for as
long as it likes. All else is new demand and waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field, structs

from headroom.api.enforcement import Released
from headroom.core import usage
from headroom.core.budgets.accounts import Account, declared_length
from headroom.core.budgets.numbers import decimal
from headroom.core.budgets.units import ENDED, SINGLE, Queued, of_namespaces, owner_of
from headroom.core.budgets.waiting import RETURN_MS, Demand, Matcher, Waiting, demands_of, is_fresh
from headroom.core.budgets.wording import nano_of
from headroom.model import times
from headroom.model.facts import Owner, Pod
from headroom.model.world import World

MOST: Final = 200
"""So many are remembered, the last ones; what is forgotten waits again."""
_MICRO_DOLLAR: Final = 1_000_000
_INDIRECT: Final = ("JobSet", "Workload")
"""Owners that are not the controllers of their pods."""


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
    """What the pods of an owner have that were let start and have not ended."""

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
        for account in matcher.accounts:
            for record in [*account.status.released, *self._resumed(account)]:
                self._grant(account, record)
        self._used: dict[str, _Use] = {}
        self._indirect: dict[str, dict[str, list[Pod]]] = {}
        """By namespace: the pods by those who may have made them, where no owner reference says so."""
        self.free = frozenset(
            pod.uid for pod in sorted(waiting, key=lambda pod: (pod.created, pod.key)) if self._take(pod)
        )
        """The pods that go free now."""

    def _grant(self, account: Account, record: Released) -> None:
        at, until = times.moment(record.at), times.moment(record.until)
        if at is None or until is None or self._world.now > until:
            return
        owner = self._world.workloads.get(record.owner)
        if owner is not None and owner.uid == record.uid and owner.suspended and self._world.now - at >= RETURN_MS:
            return  # it was stopped since, and waits to be judged again
        grant = _Grant(record, nano_of(record.gpus) // 1000, nano_of(record.usd_per_hour) // 1000, at, until)
        self._grants.setdefault(record.uid, {}).setdefault(account.key, []).append(grant)

    def _resumed(self, account: Account) -> Iterator[Released]:
        """Owners that somebody with the right to release has just let go by hand, as they were then."""
        known = {each.uid for each in account.status.released}
        for each in self._world.workloads.values():
            if is_fresh(self._world, each, RETURN_MS) and each.is_as_released and each.uid not in known:
                demand = next(
                    (one for one in demands_of(self._matcher, (), (each,)) if one.account == account.key), None
                )
                if demand is not None:
                    yield _record(account, (each.key, each.uid), demand, each.released_at or 0)

    # --- whose pod it is --------------------------------------------------------------------------------------------------

    def _uids(self, pod: Pod) -> Iterator[str]:
        """Whose allowance a pod may use. Its labels give it none: the owner must have its uid, or Kueue must have a Workload for it."""
        yield pod.uid
        if (owner := _controller(pod)) is not None:
            yield owner.uid
            whole = self._world.workloads.get(owner_of(pod))
            if whole is not None and whole.kind == "JobSet":
                yield whole.uid
        if (workload := self._queued.of(pod)) is not None:
            yield workload.uid

    def _members(self, uid: str) -> Iterable[Pod]:
        pods = self._world.pods
        kind, namespace, _ = next(iter(self._grants[uid].values()))[0].record.owner.split("/", 2)
        if kind not in _INDIRECT:
            return [pod for each in {uid, *pods.by_owner[uid]} if (pod := pods.get(each)) is not None]
        if namespace not in self._indirect:
            self._indirect[namespace] = found = dict[str, list[Pod]]()
            for pod in of_namespaces(self._world, {namespace}):
                for each in self._uids(pod):
                    found.setdefault(each, []).append(pod)
        return self._indirect[namespace].get(uid, ())

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
            if uid in self._grants and self._has_room(uid, pod):
                self._add(self._use(uid), pod)
                return True
        return False

    def _has_room(self, uid: str, pod: Pod) -> bool:
        use, grants = self._use(uid), self._grants[uid]
        more = dict(self._matcher.of_pod(pod, use.claims))
        return all(
            self._fits(account, use.rates.get(account.key, 0) + more.get(account, 0), self._for(grants, account, pod))
            for account, _ in self._matcher.of_pod(pod)
        )

    def _for(self, grants: dict[str, list[_Grant]], account: Account, pod: Pod) -> list[_Grant]:
        return [each for each in grants.get(account.key, ()) if each.is_for(self._world, pod)]

    def _fits(self, account: Account, rate: int, grants: Sequence[_Grant]) -> bool:
        return rate <= sum(each.rate for each in grants) and account.price(rate) <= sum(each.price for each in grants)

    # --- what is left of it -----------------------------------------------------------------------------------------------

    def coming(self, account: Account) -> Iterator[tuple[int, int | None]]:
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

    def overgrown(self, account: Account) -> list[Pod]:
        """Released pods that have not started and whose owner asks for more by now than was judged, the newest first.

        Claims can be swapped for larger ones until a pod is placed.
        """
        found = []
        for uid, grants in self._grants.items():
            most, used = (
                sum(each.rate for each in grants.get(account.key, ())),
                self._use(uid).rates.get(account.key, 0),
            )
            members = self._members(uid) if account.key in grants and used > most else ()
            for pod in sorted(members, key=lambda pod: (-pod.created, pod.key)):
                if used > most and pod.has_claims and _is_unplaced(pod) and pod.uid not in self._waiting:
                    found.append(pod)
                    used -= dict(self._matcher.of_pod(pod)).get(account, 0)
        return found

    # --- what is remembered -----------------------------------------------------------------------------------------------

    def remembered(self, account: Account, released: Iterable[Waiting]) -> tuple[Released, ...]:
        """What stands in the status from now on, with what is released now."""
        released = tuple(released)
        new = [each for waiting in released for each in self._judged(account, waiting)]
        again = {owner.uid for waiting in released for owner in waiting.owners}
        old = [
            structs.replace(each.record, used_gpus=decimal(self._use(uid).rates.get(account.key, 0), usage.MICRO))
            for uid, grants in self._grants.items()
            for each in grants.get(account.key, ())
            if uid not in again
        ]
        return tuple(sorted([*new, *old], key=lambda each: (each.at, each.owner), reverse=True)[:MOST])

    def _judged(self, account: Account, waiting: Waiting) -> Iterator[Released]:
        if waiting.owners:
            demand = next(each for each in waiting.demands if each.account == account.key)
            yield from (_record(account, (each.key, each.uid), demand, self._world.now) for each in waiting.owners)
            return
        for whose, pods in _by_controller(waiting.pods).items():
            for demand in demands_of(self._matcher, pods, ()):
                if demand.account == account.key:
                    yield _record(account, whose, demand, self._world.now)


def _record(account: Account, whose: tuple[str, str], demand: Demand, at: int) -> Released:
    name, uid = whose
    return Released(
        owner=name,
        uid=uid,
        at=times.text(at),
        until=times.text(min(times.LAST, at + demand.length + RETURN_MS)),
        declared=demand.is_declared,
        gpus=decimal(demand.rate, usage.MICRO),
        usd_per_hour=decimal(demand.price, _MICRO_DOLLAR) if account.quota.usd_ms is not None else "",
        used_gpus="0",
    )


def _controller(pod: Pod) -> Owner | None:
    """The controller that makes a pod anew together with the others of its gang."""
    return pod.owner if pod.owner is not None and pod.owner.kind not in SINGLE else None


def _is_unplaced(pod: Pod) -> bool:
    return pod.started is None and not pod.node and pod.deleting is None and pod.phase not in ENDED


def _by_controller(pods: Collection[Pod]) -> dict[tuple[str, str], tuple[Pod, ...]]:
    """The pods of each owner by its name and uid. Of pods that stand alone only those matter whose claims may yet change."""
    found: dict[tuple[str, str], tuple[Pod, ...]] = {}
    for pod in pods:
        owner = _controller(pod)
        if owner is not None:
            key = f"{owner.kind}/{pod.namespace}/{owner.name}", owner.uid
        elif pod.has_claims:
            key = f"Pod/{pod.key}", pod.uid
        else:
            continue
        found[key] = (*found.get(key, ()), pod)
    return found

"""Records of releases: what was judged when something was released, by its turn or because somebody asked for it.

A release by turn is recorded in the status of its budgets. One by request is recorded in the request's status before anything is
released, and the budgets take it over once it is done: the request may be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from headroom.api.enforcement import Released
from headroom.api.releases import ReleaseRequest
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.numbers import decimal
from headroom.core.budgets.units import SINGLE
from headroom.core.budgets.waiting import RETURN_MS, Demand, Matcher, WaitingUnit, demands_of
from headroom.model import times
from headroom.model.facts import Owner, Pod
from headroom.model.world import World

REQUEST: Final = ReleaseRequest.kind.name
MICRO_DOLLAR: Final = 1_000_000


def judged(matcher: Matcher, each: WaitingUnit) -> Iterator[tuple[str, Released]]:
    """What is judged of something that is released now: a record for each budget that counts it, and each owner of its pods."""
    accounts = {account.key: account for account in matcher.accounts}
    if each.owners:
        demands = demands_of(matcher, each.pods, each.owners)
        whose = [((owner.key, owner.uid), demands) for owner in each.owners]
    else:
        whose = [(who, demands_of(matcher, pods, ())) for who, pods in _by_controller(each.pods).items()]
    for who, demands in whose:
        for demand in demands:
            yield demand.account, record(accounts[demand.account], who, demand, matcher.world.now)


def record(account: BudgetAccount, whose: tuple[str, str], demand: Demand, at: int) -> Released:
    """What one budget judged of one owner, by its name and uid."""
    name, uid = whose
    return Released(
        owner=name,
        uid=uid,
        at=times.text(at),
        until=times.text(min(times.LAST, at + demand.length + RETURN_MS)),
        declared=demand.is_declared,
        gpus=decimal(demand.rate, usage.MICRO),
        usd_per_hour=decimal(demand.price, MICRO_DOLLAR) if account.quota.usd_ms is not None else "",
        used_gpus="0",
    )


def controller_of(pod: Pod) -> Owner | None:
    """The controller that recreates a pod together with the others of its gang."""
    return pod.owner if pod.owner is not None and pod.owner.kind not in SINGLE else None


def _by_controller(pods: Collection[Pod]) -> dict[tuple[str, str], tuple[Pod, ...]]:
    """The pods of each owner by its name and uid. Of pods that stand alone only those matter whose claims may yet change."""
    found: dict[tuple[str, str], tuple[Pod, ...]] = {}
    for pod in pods:
        owner = controller_of(pod)
        if owner is not None:
            key = f"{owner.kind}/{pod.namespace}/{owner.name}", owner.uid
        elif pod.has_claims:
            key = f"Pod/{pod.key}", pod.uid
        else:
            continue
        found[key] = (*found.get(key, ()), pod)
    return found


# --- what stands ------------------------------------------------------------------------------------------------------------------


def asked_for(world: World) -> dict[str, list[Released]]:
    """By budget: what requests released that are done."""
    found: dict[str, list[Released]] = {}
    for _, request in world.of_kind(REQUEST):
        for each in request.status.released if request.status.phase == "Done" else ():
            found.setdefault(each.budget, []).append(each.release)
    return found


def being_released(world: World) -> frozenset[str]:
    """Uids of owners and pods of which a request says what was judged."""
    every = (each for _, request in world.of_kind(REQUEST) for each in request.status.released)
    return frozenset(each.release.uid for each in every)


def records_of(account: BudgetAccount, asked: Mapping[str, Sequence[Released]]) -> Iterator[Released]:
    """All that was released from a budget: what its status says, and what it has yet to take over from requests."""
    known = set(map(key_of, account.status.released))
    yield from account.status.released
    yield from (each for each in asked.get(account.key, ()) if key_of(each) not in known)


def key_of(each: Released) -> tuple[str, str, str]:
    """Which release it is."""
    return each.uid, each.at, each.request

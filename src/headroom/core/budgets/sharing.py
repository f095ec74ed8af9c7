"""Pods that share a ResourceClaim: its devices are given back only when the last of them goes, so they are stopped together or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount

if TYPE_CHECKING:
    from headroom.core.budgets.stopping import StopCandidate


def joined(
    account: BudgetAccount, candidates: Sequence[StopCandidate], going: frozenset[str]
) -> list[tuple[StopCandidate, ...]]:
    """The candidates in groups that are stopped together, without those whose going gives nothing back."""
    shared = _shared(account, going)
    if not shared:
        return [(each,) for each in candidates]
    places = {run.uid: place for place, each in enumerate(candidates) for run in each.runs}
    kept = {claim for claim, holders in shared.items() if not holders <= places.keys()}
    useful = {place for place, each in enumerate(candidates) if _gives_back(account, each, kept)}
    groups = {place: {place} for place in useful}
    for claim, holders in sorted(shared.items()):
        if claim not in kept:
            together = set().union(*(groups[places[uid]] for uid in holders))
            groups |= dict.fromkeys(together, together)
    found = {id(group): tuple(candidates[place] for place in sorted(group)) for group in groups.values()}
    return list(found.values())


def _shared(account: BudgetAccount, going: frozenset[str]) -> Mapping[str, set[str]]:
    """The claims that several pods of a budget hold, each with the uids of these pods."""
    found: dict[str, set[str]] = {}
    for run in account.running:
        pod = account.world.pods.get(run.uid)
        if pod is None or run.uid in going:
            continue
        for key in pod.claim_keys:
            claim = account.world.claims.get(key)
            # Naming a claim proves nothing; that a pod holds it is the scheduler's word.
            if claim is not None and run.uid in claim.reserved_for:
                found.setdefault(key, set()).add(run.uid)
    return {key: holders for key, holders in found.items() if len(holders) > 1}


def _gives_back(account: BudgetAccount, each: StopCandidate, kept: set[str]) -> bool:
    """Whether something is free once a candidate is gone, though others keep these claims."""
    for run in each.runs:
        pod = account.world.pods.get(run.uid)
        if pod is None or not pod.claim_keys or not pod.claim_keys <= kept:
            return True
        if usage.counts(pod.shape.requests, account.scope.weights)[0]:
            return True
    return False

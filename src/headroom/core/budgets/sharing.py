"""Pods that share a ResourceClaim: its devices are given back only when the last of them goes, so they are stopped together or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headroom.core import usage
from headroom.core.budgets.accounts import Account
from headroom.core.budgets.units import unit_of

if TYPE_CHECKING:
    from headroom.core.budgets.stopping import Candidate


def joined(account: Account, candidates: Sequence[Candidate], going: frozenset[str]) -> list[tuple[Candidate, ...]]:
    """The candidates in groups that are stopped together, without those whose going gives nothing back."""
    shared = _shared(account, going)
    if not shared:
        return [(each,) for each in candidates]
    names = {each.unit.name for each in candidates}
    kept = {claim for claim, of_units in shared.items() if not of_units <= names}
    useful = {each.unit.name: each for each in candidates if _gives_back(account, each, kept)}
    groups = {name: {name} for name in useful}
    for claim, of_units in sorted(shared.items()):
        if claim in kept:
            continue
        together = set().union(*(groups[name] for name in of_units))
        groups |= dict.fromkeys(together, together)
    found = {id(group): tuple(useful[name] for name in sorted(group)) for group in groups.values()}
    return list(found.values())


def _shared(account: Account, going: frozenset[str]) -> Mapping[str, set[str]]:
    """The claims that several units of a budget hold, each with the units."""
    found: dict[str, set[str]] = {}
    for run in account.running:
        pod = account.world.pods.get(run.uid)
        if pod is None or run.uid in going:
            continue
        for key in pod.claim_keys:
            claim = account.world.claims.get(key)
            # Naming a claim proves nothing; that a pod holds it is the scheduler's word.
            if claim is not None and run.uid in claim.reserved_for:
                found.setdefault(key, set()).add(unit_of(pod))
    return {key: of_units for key, of_units in found.items() if len(of_units) > 1}


def _gives_back(account: Account, each: Candidate, kept: set[str]) -> bool:
    """Whether something is free once a candidate is gone, though others keep these claims."""
    for run in each.runs:
        pod = account.world.pods.get(run.uid)
        if pod is None or not pod.claim_keys or not pod.claim_keys <= kept:
            return True
        if usage.counts(pod.shape.requests, account.scope.weights)[0]:
            return True
    return False

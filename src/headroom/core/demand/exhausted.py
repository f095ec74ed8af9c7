"""Which waiting pods belong to a budget that is used up."""

from __future__ import annotations

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.usage import Asked, Ledgered, Scope
from headroom.model import conditions
from headroom.model.facts import Pairs, Pod
from headroom.model.times import HOUR
from headroom.model.world import World


class Exhausted:
    """The budgets that are used up; like pods are judged once."""

    def __init__(self, world: World) -> None:
        self._scopes: list[tuple[str, Scope]] = [
            (f"{each.namespace}/{each.name}", usage.scope_of(world, each))
            for each in usage.budgets_of(world)
            if _is_exhausted(world, each)
        ]
        self._view = usage.view_of(world)
        self._known: dict[tuple[str, Pairs, Asked], str] = {}

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def budget_of(self, pod: Pod) -> str:
        """The first by name of those that count a pod, as namespace/name; empty for none."""
        key = (pod.namespace, pod.labels, usage.asked_by(pod, self._view))
        if key not in self._known:
            self._known[key] = next((name for name, scope in self._scopes if _counts(scope, *key)), "")
        return self._known[key]


def _counts(scope: Scope, namespace: str, labels: Pairs, asked: Asked) -> bool:
    return scope.covers(namespace, labels) and usage.asked_rate(asked, scope.weights) > 0


def _is_exhausted(world: World, budget: AnyResource) -> bool:
    if budget.spec.paused or budget.deleting:
        return False
    if budget.status.conditions:
        return conditions.holds(budget.status.conditions, "QuotaExceeded")
    if not world.ledger.loaded or not usage.is_read(world, budget):
        return False
    # Nobody has judged it yet: it is new, or it comes from a file.
    usage.arrange(world, usage.budgets_of(world))
    rows = Ledgered(world, usage.scope_of(world, budget), budget.spec.quota.window_hours * HOUR)
    return bool(rows.reckoned(usage.quota_of(budget.spec)).exceeded)

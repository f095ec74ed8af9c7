"""Which pending pods belong to a budget that is over quota, or of which nobody knows yet since the ledger is being read."""

from __future__ import annotations

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.usage import BudgetScope, PodDevices
from headroom.model import conditions
from headroom.model.facts import Pairs, Pod
from headroom.model.world import World


class Exhausted:
    """The budgets that are over quota; like pods are judged once."""

    def __init__(self, world: World) -> None:
        # An operator that has just started does not know what its statuses will say in a moment. One whose ledger cannot be read
        # goes by them.
        self.is_starting = not world.ledger.loaded and not world.ledger.problem
        self._scopes: list[tuple[str, BudgetScope]] = [
            (f"{each.namespace}/{each.name}", usage.scope_of(world, each))
            for each in usage.budgets_of(world)
            if _may_act(each) and (self.is_starting or conditions.holds(each.status.conditions, "QuotaExceeded"))
        ]
        self._view = usage.view_of(world)
        self._known: dict[tuple[str, Pairs, PodDevices], str] = {}

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def says(self, budget: str) -> str:
        """Why pods of a budget need no machine, as a sentence."""
        return f"Its budget {budget} {'is still being counted' if self.is_starting else 'is over quota'}."

    def budget_of(self, pod: Pod) -> str:
        """The first by name of those that count a pod, as namespace/name; empty for none."""
        key = (pod.namespace, pod.labels, usage.asked_by(pod, self._view))
        if key not in self._known:
            self._known[key] = next((name for name, scope in self._scopes if _counts(scope, *key)), "")
        return self._known[key]


def _counts(scope: BudgetScope, namespace: str, labels: Pairs, asked: PodDevices) -> bool:
    return scope.covers(namespace, labels) and usage.asked_rate(asked, scope.weights) > 0


def _may_act(budget: AnyResource) -> bool:
    return not budget.spec.paused and not budget.deleting

"""Which BudgetHolds cover a pod: the API server puts new ones behind our gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.policies.cel import IMPLICIT
from headroom.api.resources import LabelSelector
from headroom.model.facts import Pod
from headroom.model.selectors import selects
from headroom.model.world import World


def holds_over(world: World, pod: Pod) -> Iterator[BudgetHoldSpec]:
    """The holds that cover a pod, as the policies see it: any claims count, whatever they are for."""
    for hold in world.holds.values():
        spec = hold.spec
        if spec is None or pod.namespace not in spec.namespaces:
            continue
        names = [name for name, _ in pod.shape.requests]
        asks = pod.has_claims or any(name.startswith(IMPLICIT) or _is_named(name, spec.resources) for name in names)
        selector = LabelSelector(match_labels=spec.match_labels, match_expressions=spec.match_expressions)
        if asks and selects(selector, pod.labels):
            yield spec


def _is_named(name: str, wanted: Iterable[str]) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in wanted)

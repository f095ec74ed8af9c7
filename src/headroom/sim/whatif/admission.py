"""What the API server's policies do to new pods while budgets hold: the rule of `sim/policies`, on facts instead of documents."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.resources import LabelSelector
from headroom.model.facts import Amounts, Hold, Pairs, Pod
from headroom.model.selectors import selects

SYSTEM = "kube-system"
_Kind = tuple[str, Pairs, Amounts]


class Gatekeeper:
    """Gives new pods the gate of the first budget, by name, that holds them; like pods are judged once."""

    def __init__(self) -> None:
        self._holds: tuple[BudgetHoldSpec, ...] = ()
        self._known: dict[_Kind, BudgetHoldSpec | None] = {}

    def admitted(self, pod: Pod, holds: Mapping[str, Hold]) -> Pod:
        """The pod as the API server would store it."""
        if not holds or pod.namespace == SYSTEM or any(key == marks.PROTECTED for key, _ in pod.annotations):
            return pod
        standing = tuple(sorted((each.spec for each in holds.values() if each.spec), key=lambda spec: spec.budget))
        if standing != self._holds:
            self._holds, self._known = standing, {}
        kind = (pod.namespace, pod.labels, pod.shape.requests)
        if kind not in self._known:
            self._known[kind] = next((spec for spec in standing if _covers(spec, kind)), None)
        spec = self._known[kind]
        if spec is None:
            return pod
        told = dict(pod.annotations) | {marks.HELD_BY: spec.budget, marks.HELD_BECAUSE: spec.because}
        if pod.owner is not None:
            told[marks.CONTROLLER_UID] = pod.owner.uid  # in a replay nobody but its controller makes a pod
        return structs.replace(pod, gates=(marks.GATE,), annotations=tuple(sorted(told.items())))


def _covers(spec: BudgetHoldSpec, kind: _Kind) -> bool:
    namespace, labels, requests = kind
    selector = LabelSelector(match_labels=spec.match_labels, match_expressions=spec.match_expressions)
    asks = any(_is_named(wanted, name) for wanted in spec.resources for name, _ in requests)
    return namespace in spec.namespaces and asks and selects(selector, labels)


def _is_named(wanted: str, name: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted

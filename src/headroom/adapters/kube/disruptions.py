"""PodDisruptionBudgets become facts here: which pods they select, and how many of them may go now."""

from __future__ import annotations

from typing import Any, Final, cast

from msgspec import Struct

from headroom.adapters.kube import raw
from headroom.api.resources import LabelSelector, SelectorRequirement
from headroom.model import facts
from headroom.model.selectors import selects

_OPERATORS: Final = {"In", "NotIn", "Exists", "DoesNotExist"}


class _Requirement(raw.RawPart):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Selector(raw.RawPart):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Requirement] | None = None


class _Spec(raw.RawPart):
    selector: _Selector | None = None


class _Status(raw.RawPart):
    disruptions_allowed: int | None = None


class RawDisruptionBudget(raw.Object):
    """A PodDisruptionBudget as it stands on the wire."""

    spec: _Spec | None = None
    status: _Status | None = None


class Disruption(Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    name: str
    resource_version: str = ""
    selector: LabelSelector | None = None
    """An empty one selects all pods of the namespace, none at all no pod."""
    allowed: int = 0
    """How many of its pods may be evicted now."""

    def selects(self, pod: facts.Pod) -> bool:
        """Whether a pod of its namespace is one of its pods."""
        return self.selector is not None and selects(self.selector, pod.labels)


def disruption_of(wire: RawDisruptionBudget) -> Disruption:
    """A PodDisruptionBudget; one of which nobody has counted the pods yet allows nothing."""
    meta, selector = wire.metadata or raw.RawObjectMeta(), wire.spec.selector if wire.spec else None
    return Disruption(
        name=meta.name or "",
        resource_version=meta.resource_version or "",
        selector=None if selector is None else _selector(selector),
        allowed=(wire.status.disruptions_allowed if wire.status else None) or 0,
    )


def _selector(wire: _Selector) -> LabelSelector:
    requirements = [
        SelectorRequirement(key=each.key or "", operator=cast("Any", each.operator), values=tuple(each.values or ()))
        for each in wire.match_expressions or ()
        if each.operator in _OPERATORS  # without one that nobody knows it selects more, which is the careful way
    ]
    return LabelSelector(match_labels=wire.match_labels or {}, match_expressions=tuple(requirements))

"""What is allowed and still hardly meant: said by `headroom check`, refused by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.api.budgets import GPUWorkloadBudgetSpec
from headroom.api.enforcement import HARMLESS, Step, percent
from headroom.api.kinds import AnyResource
from headroom.api.schema import Problem

STOPPING: Final = ("Suspend", "Evict")
OPERATORS_NAMESPACE: Final = "headroom-system"


def advice(resource: AnyResource) -> list[Problem]:
    """Everything that is dubious about a valid resource, in the order of its fields."""
    if not isinstance(resource.spec, GPUWorkloadBudgetSpec):
        return []
    return [*_namespaces(resource), *_ladder(resource.spec)]


def _namespaces(budget: AnyResource) -> Iterator[Problem]:
    if budget.spec.namespace_selector is not None and budget.namespace != OPERATORS_NAMESPACE:
        yield Problem(
            "spec.namespaceSelector",
            f"counts only for a budget in the operator's namespace, which is {OPERATORS_NAMESPACE} unless it was set",
        )


def _ladder(spec: GPUWorkloadBudgetSpec) -> Iterator[Problem]:
    enforcement, steps = spec.enforcement, spec.enforcement.ladder
    for number, step in enumerate(steps):
        where = f"spec.enforcement.steps[{number}]" if enforcement.steps else "spec.enforcement.action"
        yield from (Problem(where, said) for said in _step(steps, step))
    if enforcement.grace_period_seconds == 0 and any(step.action in STOPPING for step in steps):
        yield Problem(
            "spec.enforcement.gracePeriodSeconds",
            "is 0, so pods are stopped the moment their step is reached; 60 would let a short peak pass",
        )


def _step(steps: tuple[Step, ...], step: Step) -> Iterator[str]:
    below = [each for each in steps if percent(each.at) < percent(step.at)]
    if step.action == "Evict" and not any(each.action in ("Hold", "Suspend") for each in below):
        yield (
            "Evict has no Hold step below it, so whoever owns the pods makes them anew and they start at once; "
            "put a step with action Hold below it"
        )
    if step.action == HARMLESS and any(each.action in STOPPING for each in below):
        yield "AlertOnly above a step that stops pods warns nobody in time; put it below"
    if step.action != HARMLESS and any(each.action == step.action for each in below):
        yield f"{step.action} stands at a lower step already, so this one changes nothing; leave one of them out"

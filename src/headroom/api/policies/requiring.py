"""Namespaces in which every GPU pod needs a budget."""

from __future__ import annotations

from typing import Final

from headroom.api.budget_index import BudgetIndex
from headroom.api.marks import REQUIRE_BUDGET
from headroom.api.policies import cel
from headroom.api.resources import API_VERSION
from headroom.api.schema import Json

REQUIRE: Final = "headroom-require-budget"
GPU_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*")
"""What is a GPU although no budget may have said so."""
LONGEST_LIST: Final = 1000

NO_BUDGET: Final = (
    f"pod {{pod}} requests GPUs and no budget counts it, which namespace {{namespace}} requires by its label {REQUIRE_BUDGET}: "
    "{advice}"
)
UNCOUNTED: Final = f"in a namespace with the label {REQUIRE_BUDGET}, a budget must count every GPU pod"
ADVICE_LABELS: Final = "give it the labels and the GPUs that one of these budgets counts: "
ADVICE_BUDGET: Final = "no budget covers this namespace; have an administrator create one"

_BUDGETS: Final = "(has(params.spec.budgets) ? params.spec.budgets : [])"


def _uncounted() -> str:
    """A GPU pod that no budget counts. What a budget of the namespace counts is a GPU there, whatever its name."""
    gpus = f"[{', '.join(repr(each) for each in GPU_RESOURCES)}]"
    others = f"b.resources.filter(n, !(n in {gpus}))"
    is_gpu_pod = cel.either(
        cel.claims(),
        cel.ASKS_FOR_DEVICES,
        cel.among(gpus),
        # The entry of no budget has the names that device classes of GPUs go by.
        f"{_BUDGETS}.exists(b, b.budget == '' && {cel.ASKS})",
        f"{_BUDGETS}.exists(b, {cel.IN_SCOPE} && has(b.resources) && {cel.among(others)})",
    )
    counts_it = cel.both(cel.IN_SCOPE, cel.selected(), cel.either(cel.claims(), cel.ASKS_FOR_DEVICES, cel.ASKS))
    return cel.where_asked(cel.both(f"!{_BUDGETS}.exists(b, {counts_it})", is_gpu_pod))


def _listed() -> str:
    """The budgets of the namespace, each with what it wants of labels."""
    wanted = (
        "(has(b.matchLabels) ? b.matchLabels.map(k, k + '=' + b.matchLabels[k]) : []) + "
        "(has(b.matchExpressions) ? b.matchExpressions.map(e, e.key + ' ' + e.operator + "
        "(has(e.values) ? ' ' + e.values.join('|') : '')) : [])"
    )
    return f"{_BUDGETS}.filter(b, {cel.IN_SCOPE}).map(b, b.budget + ' (' + ({wanted}).join(', ') + ')').join('; ')"


def require_budget() -> dict[str, Json]:
    """In namespaces with our label a GPU pod that no budget counts is refused: it would be free of charge."""
    shortened = f"variables.budgets.size() > {LONGEST_LIST} ? variables.budgets.substring(0, {LONGEST_LIST}) + '...' : variables.budgets"
    advice = f"variables.budgets == '' ? '{ADVICE_BUDGET}' : '{ADVICE_LABELS}' + ({shortened})"
    words = cel.text(NO_BUDGET, pod=cel.POD, namespace="request.namespace", advice="variables.advice")
    return {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": API_VERSION, "kind": BudgetIndex.kind.name},
        "matchConstraints": cel.pods("CREATE", label=REQUIRE_BUDGET),
        # All else is asked below: a condition does not know the labels of the namespace.
        "matchConditions": [{"name": "no-mirror-pod", "expression": cel.NO_MIRROR_POD}],
        "variables": [{"name": "budgets", "expression": _listed()}, {"name": "advice", "expression": advice}],
        "validations": [
            {
                "expression": f"!({_uncounted()})",
                "message": UNCOUNTED,
                "messageExpression": words,
                "reason": "Forbidden",
            }
        ],
    }

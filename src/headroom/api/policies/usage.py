"""The finalizer of exact accounting: which pods get it at birth, and who may take it away."""

from __future__ import annotations

from typing import Final

from headroom.api.budget_index import INDEX_NAME, BudgetIndex
from headroom.api.policies import cel
from headroom.api.resources import API_VERSION, GROUP
from headroom.api.schema import Json

USAGE: Final = "headroom-usage"
USAGE_KEPT: Final = "headroom-usage-kept"
USAGE_FINALIZER: Final = f"{GROUP}/usage"
"""Keeps a pod of an Exact budget until its end is in the ledger."""
INDEX_OR_NOTHING: Final = {"name": INDEX_NAME, "parameterNotFoundAction": "Allow"}

_INDEXES: Final = BudgetIndex.kind.plural


def _counted_exactly(*, unless_missing: bool = False) -> str:
    # Most entries are not exact, and those cost next to nothing.
    here = cel.MAY_BE_HERE if unless_missing else cel.IN_SCOPE
    counts = cel.either(cel.claims(), cel.ASKS_FOR_DEVICES, cel.ASKS)
    fits = cel.both("b.exact", here, cel.selected(unless_missing=unless_missing), counts)
    return f"has(params.spec.budgets) && {cel.where_asked(f'params.spec.budgets.exists(b, {fits})')}"


def usage_finalizer() -> dict[str, Json]:
    """A pod that an Exact budget counts gets our finalizer at birth, also while no operator runs.

    Another policy or a webhook may give the pod the label that a budget selects by. The server asks again after that, but only the
    policies that it asked in the first round: hence the condition passes over missing labels, and the mutation does not. Nor does a
    condition know the labels of the namespace.
    """
    finalizers = f"Object{{metadata: Object.metadata{{finalizers: ['{USAGE_FINALIZER}']}}}}"
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "paramKind": {"apiVersion": API_VERSION, "kind": BudgetIndex.kind.name},
        "matchConstraints": cel.pods("CREATE"),
        "matchConditions": [
            {
                "name": "may-be-counted-exactly",
                "expression": cel.both(cel.NO_MIRROR_POD, _counted_exactly(unless_missing=True)),
            },
        ],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"{_counted_exactly()} ? {finalizers} : Object{{}}"},
            }
        ],
    }


def usage_finalizer_stays() -> dict[str, Json]:
    """Nobody but the operator and administrators takes that finalizer away.

    A policy that cannot be evaluated is ignored: then a pod's end may be known only within bounds, which is better than a pod
    that nobody can delete.
    """

    def carried(by: str) -> str:
        return f"(has({by}.metadata.finalizers) && '{USAGE_FINALIZER}' in {by}.metadata.finalizers)"

    return {
        "failurePolicy": "Ignore",
        # An update of the status may change the metadata too.
        "matchConstraints": cel.outside(cel.rule(["UPDATE"], ["pods", "pods/*"])),
        "matchConditions": [{"name": "removed", "expression": f"{carried('oldObject')} && !{carried('object')}"}],
        "validations": [
            {
                "expression": (
                    f"authorizer.group('{GROUP}').resource('{_INDEXES}').name('{INDEX_NAME}').check('update').allowed()"
                ),
                "messageExpression": cel.text(KEPT, pod=cel.POD),
                "reason": "Forbidden",
            }
        ],
    }


KEPT: Final = (
    f"the finalizer {USAGE_FINALIZER} of pod {{pod}} stays until the pod's usage is recorded; Headroom then removes it, and "
    f"before that only users who may update {_INDEXES}.{GROUP}; if Headroom is gone for good, an administrator runs headroom uninstall"
)

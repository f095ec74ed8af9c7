"""Who may write a budget that does more than warn."""

from __future__ import annotations

from typing import Final

from headroom.api.budgets import GPUWorkloadBudget
from headroom.api.enforcement import HARMLESS
from headroom.api.policies import cel
from headroom.api.resources import GROUP
from headroom.api.schema import Json

ENFORCE: Final = "headroom-enforce"
ENFORCER_ROLE: Final = "headroom-budget-enforcer"

_BUDGETS: Final = GPUWorkloadBudget.kind.plural


def who_may_enforce() -> dict[str, Json]:
    """Only who may `enforce` writes a budget that acts on pods. Others may still turn it into one that warns."""
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [cel.rule(["CREATE", "UPDATE"], [_BUDGETS], GROUP)]},
        "variables": [
            {
                "name": "actions",
                "expression": (
                    "(has(object.spec.enforcement.action) ? [object.spec.enforcement.action] : []) + "
                    "(has(object.spec.enforcement.steps) ? object.spec.enforcement.steps.map(s, s.action) : [])"
                ),
            },
            {"name": "enforcing", "expression": f"variables.actions.filter(action, action != '{HARMLESS}')"},
            {"name": "same", "expression": "request.operation == 'UPDATE' && object.spec == oldObject.spec"},
        ],
        "validations": [
            {
                "expression": (
                    "variables.enforcing.size() == 0 || variables.same || "
                    f"authorizer.group('{GROUP}').resource('{_BUDGETS}').namespace(request.namespace)"
                    ".name(request.name).check('enforce').allowed()"
                ),
                "messageExpression": (
                    "'a budget with the action ' + variables.enforcing.join(' and ') + ' is written only by users who may '"
                    f" + 'enforce {_BUDGETS}.{GROUP} in namespace ' + request.namespace + ', and '"
                    " + request.userInfo.username + ' may not: '"
                    f" + 'use {HARMLESS}, or have an administrator bind the ClusterRole {ENFORCER_ROLE}'"
                ),
                "reason": "Forbidden",
            }
        ],
    }

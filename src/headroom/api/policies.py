"""The admission policies: what the API server itself refuses and adds on our behalf, with no webhook to be down.

They are written in CEL. The server allows no variables in match conditions and knows no `let`, so an expression that is
needed at two places is put together here.
"""

from __future__ import annotations

from typing import Final

from headroom.api.budget_index import INDEX_NAME, BudgetIndex
from headroom.api.budgets import HARMLESS, GPUWorkloadBudget
from headroom.api.resources import API_VERSION, GROUP
from headroom.api.schema import Json

USAGE_FINALIZER: Final = f"{GROUP}/usage"
"""Keeps a pod of an Exact budget until its end is in the ledger."""
ENFORCE: Final = "headroom-enforce"
USAGE: Final = "headroom-usage"
USAGE_KEPT: Final = "headroom-usage-kept"
ENFORCER_ROLE: Final = "headroom-budget-enforcer"

_BUDGETS: Final = GPUWorkloadBudget.kind.plural
_INDEXES: Final = BudgetIndex.kind.plural
_ADMISSION: Final = "admissionregistration.k8s.io"
_VALIDATING, _MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"


def policies() -> list[dict[str, Json]]:
    """All policies, each followed by its binding."""
    return [
        *_bound(_VALIDATING, ENFORCE, _who_may_enforce(), {"validationActions": ["Deny"]}),
        *_bound(_MUTATING, USAGE, _usage_finalizer(), {"paramRef": _INDEX_OR_NOTHING}),
        *_bound(_VALIDATING, USAGE_KEPT, _usage_finalizer_stays(), {"validationActions": ["Deny"]}),
    ]


def policy_names() -> list[tuple[str, str]]:
    """The plural and the name of every object that `policies` makes, bindings first: without them a policy does nothing."""
    found = [(each["kind"], each["metadata"]["name"]) for each in policies()]
    bindings_first = sorted(found, key=lambda each: not each[0].endswith("Binding"))
    plurals = {kind: f"{kind.lower()}s".replace("policys", "policies") for kind, _ in found}
    return [(plurals[kind], name) for kind, name in bindings_first]


def _bound(kind: str, name: str, spec: dict[str, Json], binding: dict[str, Json]) -> list[dict[str, Json]]:
    def document(kind: str, spec: dict[str, Json]) -> dict[str, Json]:
        metadata = {"name": name, "labels": {"app.kubernetes.io/part-of": "headroom"}}
        return {"apiVersion": f"{_ADMISSION}/v1", "kind": kind, "metadata": metadata, "spec": spec}

    return [document(kind, spec), document(f"{kind}Binding", {"policyName": name, **binding})]


def _on(operations: list[str], resources: list[str], group: str = "") -> dict[str, Json]:
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources}
    return {"resourceRules": [rule]}


# --- who may write a budget that does more than warn ------------------------------------------------------------------------


def _who_may_enforce() -> dict[str, Json]:
    """Only who may `enforce` writes a budget that acts on pods. Others may still turn it into one that warns."""
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _on(["CREATE", "UPDATE"], [_BUDGETS], GROUP),
        "variables": [
            # One list of all actions: whatever else may hold one is added here.
            {
                "name": "actions",
                "expression": "has(object.spec.enforcement.action) ? [object.spec.enforcement.action] : []",
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
                    "'a budget with the action ' + variables.enforcing.join(' and ') + ' is written only by who may '"
                    f" + 'enforce {_BUDGETS}.{GROUP} in namespace ' + request.namespace + ', and '"
                    " + request.userInfo.username + ' may not: '"
                    f" + 'use {HARMLESS}, or have an administrator bind the ClusterRole {ENFORCER_ROLE}'"
                ),
                "reason": "Forbidden",
            }
        ],
    }


# --- the finalizer of exact accounting --------------------------------------------------------------------------------------

_INDEX_OR_NOTHING: Final = {"name": INDEX_NAME, "parameterNotFoundAction": "Allow"}

_LABELS: Final = "(has(object.metadata.labels) ? object.metadata.labels : {})"
_VALUE_IS_LISTED: Final = f"(e.key in {_LABELS} && {_LABELS}[e.key] in e.values)"
_SELECTED: Final = (
    f"(!has(b.matchLabels) || b.matchLabels.all(k, k in {_LABELS} && {_LABELS}[k] == b.matchLabels[k])) && "
    "(!has(b.matchExpressions) || b.matchExpressions.all(e, "
    f"e.operator == 'In' ? {_VALUE_IS_LISTED} : "
    f"e.operator == 'NotIn' ? !{_VALUE_IS_LISTED} : "
    f"e.operator == 'Exists' ? e.key in {_LABELS} : "
    f"e.operator == 'DoesNotExist' && !(e.key in {_LABELS})))"
)
_COUNTED: Final = (
    "b.resources.exists(n, n.endsWith('*') ? asked.exists(r, r.startsWith(n.substring(0, n.size() - 1))) : n in asked)"
)
_ASKED: Final = (
    "(has(x.resources) && ["
    "has(x.resources.requests) ? x.resources.requests : {}, has(x.resources.limits) ? x.resources.limits : {}"
    f"].exists(asked, {_COUNTED}))"
)
_ASKS: Final = (
    "(has(object.spec.resourceClaims) && object.spec.resourceClaims.size() > 0) || "
    f"(has(b.resources) && ([object.spec].exists(x, {_ASKED}) || object.spec.containers.exists(x, {_ASKED}) || "
    f"(has(object.spec.initContainers) && object.spec.initContainers.exists(x, {_ASKED}))))"
)
EXACT_ENTRY_MATCHES: Final = (
    "has(params.spec.budgets) && params.spec.budgets.exists(b, b.exact && "
    f"has(b.namespaces) && request.namespace in b.namespaces && {_SELECTED} && ({_ASKS}))"
)


def _usage_finalizer() -> dict[str, Json]:
    """A pod that an Exact budget counts gets our finalizer at birth, also while no operator runs."""
    no_mirror = "!has(object.metadata.annotations) || !('kubernetes.io/config.mirror' in object.metadata.annotations)"
    finalizers = f"Object{{metadata: Object.metadata{{finalizers: ['{USAGE_FINALIZER}']}}}}"
    return {
        "failurePolicy": "Ignore",
        # A webhook may give the pod the label that a budget selects by.
        "reinvocationPolicy": "IfNeeded",
        "paramKind": {"apiVersion": API_VERSION, "kind": BudgetIndex.kind.name},
        "matchConstraints": _on(["CREATE"], ["pods"]),
        "matchConditions": [
            {"name": "no-system-pod", "expression": "request.namespace != 'kube-system'"},
            # The kubelet makes these for the pods of its own folder, and no finalizer could keep those.
            {"name": "no-mirror-pod", "expression": no_mirror},
            {"name": "counted-exactly", "expression": EXACT_ENTRY_MATCHES},
        ],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": finalizers}}],
    }


def _usage_finalizer_stays() -> dict[str, Json]:
    """Nobody but the operator and administrators takes that finalizer away.

    A policy that cannot be evaluated is ignored: then a pod's end may be known only within bounds, which is better than a pod
    that nobody can delete.
    """

    def carried(by: str) -> str:
        return f"(has({by}.metadata.finalizers) && '{USAGE_FINALIZER}' in {by}.metadata.finalizers)"

    return {
        "failurePolicy": "Ignore",
        # An update of the status may change the metadata too.
        "matchConstraints": _on(["UPDATE"], ["pods", "pods/*"]),
        "matchConditions": [{"name": "removed", "expression": f"{carried('oldObject')} && !{carried('object')}"}],
        "validations": [
            {
                "expression": (
                    f"authorizer.group('{GROUP}').resource('{_INDEXES}').name('{INDEX_NAME}').check('update').allowed()"
                ),
                "messageExpression": (
                    f"'the finalizer {USAGE_FINALIZER} of pod ' + request.namespace + '/' + request.name"
                    " + ' stays until what the pod used is recorded; Headroom then removes it, and before that only who may '"
                    f" + 'update {_INDEXES}.{GROUP}; if Headroom is gone for good, an administrator runs headroom uninstall'"
                ),
                "reason": "Forbidden",
            }
        ],
    }

"""Pieces of CEL that several policies are put together from.

The server allows no variables in match conditions and knows no `let`, so an expression that is needed at two places is put together
here. `of` is the name of the pod in the expression, `object` or `oldObject`; `b` stands for what a budget covers, an entry of the
BudgetIndex or the spec of a BudgetHold. Every map and list is asked for with `has` first: an error would be a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter
from typing import Final

from headroom.api.resources import GROUP, OPERATORS_NAMESPACE
from headroom.api.schema import Json

MIRROR: Final = "kubernetes.io/config.mirror"
SYSTEM: Final = "kube-system"
EXEMPT_NAMESPACES: Final = (SYSTEM, OPERATORS_NAMESPACE)
"""Nothing in them is held or refused. Without the operator nobody would release what waits, the operator's successor included."""
POD: Final = "request.namespace + '/' + (has(object.metadata.name) ? object.metadata.name : '')"
MAY_RELEASE: Final = f"authorizer.group('{GROUP}').resource('budgetholds').check('release').allowed()"
"""Whoever may do that is exempt from what keeps pods waiting."""
EXEMPT: Final = {"name": "exempt", "expression": MAY_RELEASE}
CREATED: Final = "request.operation == 'CREATE'"


def rule(operations: Sequence[str], resources: Sequence[str], group: str = "") -> dict[str, Json]:
    """Operations on resources that a policy is asked about."""
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": [*operations], "resources": [*resources]}


def outside(*rules: Json, label: str = "") -> dict[str, Json]:
    """Outside the namespaces of the cluster and of Headroom, and if need be only in namespaces with a label.

    It stands here and not in a condition so that pods of the system are made even if the kind of the parameters is gone, which
    would be a refusal everywhere else.
    """
    selector: list[Json] = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*EXEMPT_NAMESPACES]}]
    selector += [{"key": label, "operator": "Exists"}] if label else []
    return {"resourceRules": [*rules], "namespaceSelector": {"matchExpressions": selector}}


def pods(*operations: str, label: str = "") -> dict[str, Json]:
    """Pods there."""
    return outside(rule(operations, ["pods"]), label=label)


def refusal(wrong: str, words: str, message: str) -> dict[str, Json]:
    """A validation that nobody passes who does wrong, unless exempt; `message` stands in where the words fail."""
    return {
        "expression": f"!({wrong}) || variables.exempt",
        "message": message,
        "messageExpression": words,
        "reason": "Forbidden",
    }


def both(*conditions: str) -> str:
    """All of these. The first false one ends it, which conditions of a policy that stand side by side do not do."""
    return " && ".join(f"({each})" for each in conditions)


def either(*conditions: str) -> str:
    """At least one of these."""
    return " || ".join(f"({each})" for each in conditions)


def text(template: str, **values: str) -> str:
    """A sentence with places for values, such as `pod {pod} waits`, as an expression."""
    parts = []
    for literal, name, _, _ in Formatter().parse(template):
        if literal:
            quoted = literal.replace("\\", "\\\\").replace("'", "\\'")
            parts.append(f"'{quoted}'")
        if name:
            parts.append(f"({values[name]})")
    return " + ".join(parts)


# --- pods ----------------------------------------------------------------------------------------------------------------------


def labels_of(of: str = "object") -> str:
    """Its labels."""
    return f"(has({of}.metadata.labels) ? {of}.metadata.labels : {{}})"


def annotations_of(of: str = "object") -> str:
    """Its annotations."""
    return f"(has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}})"


def annotated(key: str, of: str = "object") -> str:
    """It has the annotation."""
    return f"(has({of}.metadata.annotations) && '{key}' in {of}.metadata.annotations)"


def gated(gate: str, of: str = "object") -> str:
    """It has the scheduling gate."""
    return f"(has({of}.spec.schedulingGates) && {of}.spec.schedulingGates.exists(g, g.name == '{gate}'))"


def gates(of: str = "object") -> str:
    """It has a scheduling gate, whoever set it."""
    return f"(has({of}.spec.schedulingGates) && {of}.spec.schedulingGates.size() > 0)"


def gate_names(of: str = "object") -> str:
    """The names of its scheduling gates, as one text."""
    return f"(has({of}.spec.schedulingGates) ? {of}.spec.schedulingGates.map(g, g.name).join(' and ') : '')"


def lost(gate: str) -> str:
    """An update takes the scheduling gate away."""
    return both(gated(gate, "oldObject"), f"!{gated(gate)}")


def differs(key: str, new: str, old: str) -> str:
    """A key of a map was added, removed or given another value; `key` is an expression."""
    return f"(({key} in {new}) != ({key} in {old}) || ({key} in {new} && {new}[{key}] != {old}[{key}]))"


NO_MIRROR_POD: Final = f"!{annotated(MIRROR)}"
"""The kubelet makes mirror pods for the pods of its own folder; nothing here could keep those, and no other mirror pod ever runs."""
BOUND: Final = "has(object.spec.nodeName)"

# --- what a budget covers ------------------------------------------------------------------------------------------------------

HERE: Final = "has(b.namespaces) && request.namespace in b.namespaces"
"""The namespace is one that is named."""


def selected(of: str = "object", *, unless_missing: bool = False) -> str:
    """The selector matches; `unless_missing` passes over labels that the pod does not have (yet)."""
    return _matched("b", labels_of(of), unless_missing=unless_missing)


def _matched(selector: str, has: str, *, unless_missing: bool = False) -> str:
    """A selector matches labels."""
    listed = f"(e.key in {has} && {has}[e.key] in e.values)"
    equal, missing = f"k in {has} && {has}[k] == {selector}.matchLabels[k]", ""
    if unless_missing:
        equal, missing = f"!(k in {has}) || {has}[k] == {selector}.matchLabels[k]", f"!(e.key in {has}) || "
    return (
        f"(!has({selector}.matchLabels) || {selector}.matchLabels.all(k, {equal})) && "
        f"(!has({selector}.matchExpressions) || {selector}.matchExpressions.all(e, {missing}("
        f"e.operator == 'In' ? {listed} : "
        f"e.operator == 'NotIn' ? !{listed} : "
        f"e.operator == 'Exists' ? e.key in {has} : "
        f"e.operator == 'DoesNotExist' && !(e.key in {has}))))"
    )


MAY_BE_HERE: Final = f"(has(b.namespaceSelector) || ({HERE}))"
"""For conditions, in which the server does not know the labels of the namespace."""
IN_SCOPE: Final = (
    f"(has(b.namespaceSelector) ? {_matched('b.namespaceSelector', labels_of('namespaceObject'))} : {HERE})"
)
"""The namespace is one that an entry of the index covers, by its name or by its labels."""


def asked(of: str = "object") -> str:
    """The names of all resources that the pod and its containers ask for, as one text with spaces around each.

    One text is searched much faster than all containers once more for each budget.
    """

    def names(amounts: str) -> str:
        return f"(has({amounts}) ? {amounts}.map(r, r).join(' ') : '')"

    def of_each(holders: str) -> str:
        both_parts = f"{names('x.resources.requests')} + ' ' + {names('x.resources.limits')}"
        return f"{holders}.map(x, has(x.resources) ? {both_parts} : '').join(' ')"

    init = f"{of}.spec.initContainers"
    return " + ' ' + ".join(
        [
            "''",
            of_each(f"[{of}.spec]"),
            of_each(f"{of}.spec.containers"),
            f"(has({init}) ? {of_each(init)} : '')",
            "''",
        ]
    )


def among(names: str) -> str:
    """One of these resources is in the text `asked`; a name may end in *."""
    return (
        f"{names}.exists(n, n.endsWith('*') ? asked.contains(' ' + n.substring(0, n.size() - 1)) : "
        "asked.contains(' ' + n + ' '))"
    )


ASKS: Final = f"has(b.resources) && {among('b.resources')}"
"""The text `asked` has a resource that the budget counts."""


def claims(of: str = "object") -> str:
    """It has resource claims; which devices they are for is not told here, so every budget may count them."""
    return f"(has({of}.spec.resourceClaims) && {of}.spec.resourceClaims.size() > 0)"


IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Begins the names under which containers ask for devices of a class as for an extended resource."""
ASKS_FOR_DEVICES: Final = f"asked.contains(' {IMPLICIT}')"
"""The text `asked` has devices of some class. As with claims, which devices those are is not told here."""


def where_asked(expression: str, of: str = "object") -> str:
    """An expression that knows what the pod asks for as `asked`."""
    return f"[{asked(of)}].exists(asked, {expression})"


def counted(of: str = "object") -> str:
    """What it asks for is counted."""
    return either(claims(of), where_asked(either(ASKS_FOR_DEVICES, ASKS), of))


SELECTOR_KEYS: Final = (
    "((has(b.matchLabels) ? b.matchLabels.map(k, k) : []) + "
    "(has(b.matchExpressions) ? b.matchExpressions.map(e, e.key) : []))"
)
"""The labels that a selector looks at."""

"""What the operator's own account may change of objects of others: only what is Headroom's.

RBAC can grant `patch pods` or not; it cannot grant a part of a pod. This is that part, so that whoever gets hold of the account's
token gains no image, no label and no taint of anybody. It is about one account and looks at nobody else's writes.

Every object is compared as a whole, key by key, with what it was: what is not named here may not change, whatever it is. The extender's account, which may do less, is under the same rules.
"""

from __future__ import annotations

from typing import Final

from headroom.api.bandwidth_config import EXTENDED
from headroom.api.marks import (
    CHECKPOINTED_AT,
    CORDONED_BY,
    EXPECTED_DURATION,
    GATE,
    LEFTOVER_FINALIZER,
    POOL_FINALIZER,
    PROTECTED,
    SUSPENDED,
    SUSPENDED_BY,
)
from headroom.api.policies import cel
from headroom.api.resources import GROUP
from headroom.api.schema import Json

OPERATOR: Final = "headroom-operator"
ACCOUNT: Final = "system:serviceaccount:headroom-system:headroom"
"""The account of deploy/rbac.yaml."""
EXTENDER: Final = "-extender"
"""What the account of deploy/extender.yaml has at its end besides."""
COMPONENT: Final = "headroom"
"""Who reports our events."""
THEIRS: Final = (PROTECTED, EXPECTED_DURATION, CHECKPOINTED_AT)
"""Annotations of this prefix that users and their controllers write."""

_OURS: Final = f"k.startsWith('{GROUP}/') && !(k in {[*THEIRS]})"
_OWNERS: Final = ("jobs", "jobsets", "workloads")
_FINALIZERS: Final = {"spotpools": POOL_FINALIZER, "leftovernodepools": LEFTOVER_FINALIZER}
"""What keeps an object of ours until what it owns is gone."""
_MAY_CHANGE: Final = {
    "pods": ("schedulingGates",),
    "nodes": ("unschedulable", "taints"),
    "jobs": ("suspend",),
    "jobsets": ("suspend",),
    "workloads": ("active",),
    "events": ("count", "lastTimestamp"),
}
"""The fields of a spec, and of an event as a whole, that may change at all."""
_WRITTEN_BY_THE_SERVER: Final = ("managedFields", "resourceVersion", "generation")


def operator(account: str = ACCOUNT) -> dict[str, Json]:
    """The operator's account changes nothing of others but its own gate, finalizer, annotations, taints, cordons and suspensions."""
    both = ["CREATE", "UPDATE", "CONNECT"]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                cel.rule(both, ["pods", "pods/*", "nodes", "nodes/*"]),
                cel.rule(["CREATE", "UPDATE"], ["events", "events/*"]),
                cel.rule(["CREATE", "UPDATE"], ["jobs", "jobs/*"], "batch"),
                cel.rule(["CREATE", "UPDATE"], ["jobsets", "jobsets/*"], "jobset.x-k8s.io"),
                cel.rule(["CREATE", "UPDATE"], ["workloads", "workloads/*"], "kueue.x-k8s.io"),
                cel.rule(["CREATE", "UPDATE"], [*_FINALIZERS], GROUP),
            ]
        },
        "matchConditions": [
            {"name": "the-operator", "expression": cel.either(*map(_is, (account, account + EXTENDER)))}
        ],
        "variables": _variables(),
        "validations": [
            _always(_KIND_OF_REQUEST, "does not create or change such an object"),
            _always(
                f"variables.part != 'eviction' || !(request.namespace in {_spared(account)})",
                "does not evict pods of this namespace",
            ),
            _only(_whole(), "changes only its metadata and its spec"),
            _only(_spec(), "changes only its own switches in the spec"),
            _only(_metadata(), "does not change its owners or other metadata"),
            _only(
                _same("labels", f"variables.what in {[*_OWNERS]} && k == '{SUSPENDED}'"),
                "does not change labels of others",
            ),
            _only(_same("annotations", _OURS), "does not change annotations of others"),
            _only(
                _finalizers(), "removes no finalizer of others, and sets only those of Spotpools and LeftoverNodePools"
            ),
            _only(_of("pods", _gates()), f"removes no scheduling gate but {GATE}"),
            _only(_of("nodes", _taints()), f"changes only taints whose key begins with {GROUP}/"),
            _only(
                _of("nodes", _switched(_CORDONED, CORDONED_BY)),
                "cordons in its own name, and removes only its own cordons",
            ),
            _only(
                f"!(variables.what in {[*_OWNERS]}) || ({_switched(_STOPPED, SUSPENDED_BY)})",
                "suspends in its own name, and resumes only what it suspended",
            ),
            _only(_of("events", _own_event()), "does not change events of others"),
            _always(f"!({_SIZES}) || ({_sized()})", "changes only the bandwidth of the node"),
        ],
    }


def _is(account: str) -> str:
    return f"request.userInfo.username == '{account}'"


def _variables() -> list[Json]:
    """Lazy, so what a request has not got is never asked for."""
    spec = "(variables.what == 'events' ? {of} : has({of}.spec) ? {of}.spec : {{}})"
    found = {
        "what": "request.resource.resource",
        # A subresource of ours among them: an eviction.
        "part": "has(request.subResource) ? request.subResource : ''",
        "changes": "request.operation == 'UPDATE' && variables.part == ''",
        "new": spec.format(of="object"),
        "old": spec.format(of="oldObject"),
        "mayChange": " : ".join(
            [*(f"variables.what == '{kind}' ? {[*fields]}" for kind, fields in _MAY_CHANGE.items()), "[]"]
        ),
    }
    for part, empty in (("labels", "{}"), ("annotations", "{}"), ("finalizers", "[]")):
        for prefix, of in (("new", "object"), ("old", "oldObject")):
            found[f"{prefix}{part.title()}"] = f"has({of}.metadata.{part}) ? {of}.metadata.{part} : {empty}"
    return [{"name": name, "expression": expression} for name, expression in found.items()]


_SIZES: Final = "variables.what == 'nodes' && variables.part == 'status' && request.operation == 'UPDATE'"
"""An update of what a node has, which kube-scheduler counts."""
_KIND_OF_REQUEST: Final = cel.either(
    "variables.changes",
    _SIZES,
    "variables.what == 'pods' && variables.part == 'eviction' && request.operation == 'CREATE'",
    "variables.what == 'events' && variables.part == '' && request.operation == 'CREATE' && "
    f"has(object.reportingComponent) && object.reportingComponent == '{COMPONENT}'",
)


def _spared(account: str) -> list[str]:
    """The namespaces in which it never evicts: the cluster's, and its own."""
    own = account.split(":")[2:3] if account.startswith("system:serviceaccount:") else []
    return [cel.SYSTEM, *own]


def _only(right: str, words: str) -> dict[str, Json]:
    """Asked of changes alone."""
    return _always(f"!variables.changes || ({right})", words)


def _always(right: str, words: str) -> dict[str, Json]:
    return {
        "expression": right,
        "message": f"Headroom's operator {words}",
        "messageExpression": cel.text(
            "{what} {name}: Headroom's operator " + words,
            what="request.resource.resource + (variables.part == '' ? '' : '/' + variables.part)",
            name="(request.namespace == '' ? '' : request.namespace + '/') + request.name",
        ),
        "reason": "Forbidden",
    }


def _of(kind: str, right: str) -> str:
    return f"variables.what != '{kind}' || ({right})"


def _unchanged(new: str, old: str, unless: str) -> str:
    """Two maps have the same keys and values, but for some keys `k`."""
    return f"{new}.all(k, ({unless}) || (k in {old} && {new}[k] == {old}[k])) && {old}.all(k, ({unless}) || k in {new})"


def _whole() -> str:
    # Events have no spec: of them every field is compared below.
    return _of_others("events", _unchanged("object", "oldObject", "k in ['metadata', 'spec']"))


def _of_others(kind: str, right: str) -> str:
    return f"variables.what == '{kind}' || ({right})"


def _spec() -> str:
    is_metadata = "variables.what == 'events' && k == 'metadata'"
    # Of a kind that is stored in another version the server fills in defaults of the new object only.
    is_default = "variables.what == 'workloads' && !(k in variables.old) && variables.new[k] == ''"
    return _unchanged(
        "variables.new", "variables.old", f"k in variables.mayChange || ({is_metadata}) || ({is_default})"
    )


def _metadata() -> str:
    looked_at_below = [*_WRITTEN_BY_THE_SERVER, "labels", "annotations", "finalizers"]
    return _unchanged("object.metadata", "oldObject.metadata", f"k in {looked_at_below}")


def _same(part: str, unless: str) -> str:
    return _unchanged(f"variables.new{part.title()}", f"variables.old{part.title()}", unless)


def _finalizers() -> str:
    new, old = "variables.newFinalizers", "variables.oldFinalizers"
    sets = " || ".join(f"variables.what == '{kind}' && f == '{ours}'" for kind, ours in _FINALIZERS.items())
    takes = f"variables.what == 'pods' && f.startsWith('{GROUP}/')"
    return f"{new}.all(f, f in {old} || ({sets})) && {old}.all(f, f in {new} || ({takes}) || ({sets}))"


def _gates() -> str:
    new, old = (f"(has({of}.spec.schedulingGates) ? {of}.spec.schedulingGates : [])" for of in ("object", "oldObject"))
    return f"{new} == {old} || {new} == {old}.filter(g, g.name != '{GATE}')"


def _taints() -> str:
    new, old = (
        f"(has({of}.spec.taints) ? {of}.spec.taints.filter(t, !t.key.startsWith('{GROUP}/')) : [])"
        for of in ("object", "oldObject")
    )
    return f"{new} == {old}"


_CORDONED: Final = "(has({of}.spec.unschedulable) && {of}.spec.unschedulable)"
_STOPPED: Final = (
    "(variables.what == 'workloads' ? has({of}.spec.active) && !{of}.spec.active : "
    "has({of}.spec.suspend) && {of}.spec.suspend)"
)


def _switched(is_off: str, by: str) -> str:
    """Switched off by us, or on again after we had switched it off; or neither, and then our mark does not appear.

    Else one write could claim what somebody else has switched off, and the next one switch it on.
    """
    new, old = (is_off.format(of=of) for of in ("object", "oldObject"))
    is_marked, was_marked = cel.annotated(by), cel.annotated(by, "oldObject")
    return f"{new} == {old} ? !{is_marked} || {was_marked} : {new} ? {is_marked} : {was_marked}"


def _sized() -> str:
    """Nothing of a node's status changes but its extended resources of bandwidth."""
    parts = [_unchanged("object.metadata", "oldObject.metadata", f"k in {[*_WRITTEN_BY_THE_SERVER]}")]
    parts += [_unchanged("object.status", "oldObject.status", "k in ['capacity', 'allocatable']")]
    for part in ("capacity", "allocatable"):
        new, old = (f"(has({of}.status.{part}) ? {of}.status.{part} : {{}})" for of in ("object", "oldObject"))
        parts.append(_unchanged(new, old, f"k in {[*EXTENDED]}"))
    return cel.both("object.spec == oldObject.spec", *parts)


def _own_event() -> str:
    return f"has(oldObject.reportingComponent) && oldObject.reportingComponent == '{COMPONENT}'"

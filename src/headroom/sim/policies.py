"""Our admission policies as the simulated API server applies them to pods: the rules of `api/policies`, in Python.

A rule is in force only while its policy and its binding are stored, and it reads the BudgetHolds and the BudgetIndex that are stored.
`tests/contracts` and the fuzzed pods of `tests/integration` hold both against a real server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from headroom.api import durations, marks
from headroom.api.bandwidth_config import CONFIG_NAME, BandwidthConfig, BandwidthConfigSpec
from headroom.api.budget_hold import BudgetHold
from headroom.api.budget_index import INDEX_NAME, BudgetIndex
from headroom.api.policies import (
    BANDWIDTH,
    GUARD,
    HELD,
    HOLD,
    LENGTH,
    MARKS,
    OWNED,
    OWNERSHIP,
    RATES,
    REQUESTER,
    REQUESTS,
    REQUIRE,
    RESIZE,
    USAGE,
    USAGE_FINALIZER,
    USAGE_KEPT,
    guarding,
    holding,
    marking,
    owning,
    requiring,
    resizing,
    usage,
)
from headroom.api.policies.bandwidth import PLAIN as RATE_REFUSED
from headroom.api.policies.cel import EXEMPT_NAMESPACES, MIRROR
from headroom.api.policies.requesting import PLAIN as REQUEST_REFUSED
from headroom.api.resources import GROUP
from headroom.sim import owning as owners
from headroom.sim import requesting, reserving
from headroom.sim import resizing as sizes
from headroom.sim.answers import Body, ErrorAnswer, about
from headroom.sim.apistore import ObjectStore
from headroom.sim.calls import ApiCall
from headroom.sim.catalog import NAMESPACE, POD, ResourceType
from headroom.sim.covering import asks, covers, is_counted, is_in_scope, keys, wanted
from headroom.sim.rights import Attributes, Users, allowed
from headroom.sim.selecting import labels_of, matches

LONGEST_MESSAGE: Final = 5 * 1024
"""In bytes; instead of a longer one, or one of several lines, the policy's plain message is given."""
_KINDS: Final = {
    name: tuple(
        ResourceType(group="admissionregistration.k8s.io", plural=plural, kind="", namespaced=False)
        for plural in (f"{kind}admissionpolicies", f"{kind}admissionpolicybindings")
    )
    for kind, names in (
        ("mutating", (USAGE, HOLD, LENGTH, OWNED, REQUESTER, BANDWIDTH)),
        ("validating", (USAGE_KEPT, HELD, RESIZE, GUARD, OWNERSHIP, MARKS, REQUIRE, REQUESTS, RATES)),
    )
    for name in names
}
_HOLDS, _INDEXES, _CONFIGS = (
    ResourceType(group=GROUP, plural=each.plural, kind=each.name, namespaced=False, custom=True)
    for each in (BudgetHold.kind, BudgetIndex.kind, BandwidthConfig.kind)
)
_PARTS: Final = ("", "status", "resize")
"""The ways to update a pod."""

Values = Mapping[str, str]


class Policies:
    """The policies of one simulated cluster."""

    def __init__(self, store: ObjectStore, users: Users) -> None:
        self._store, self._users = store, users

    # --- for the server ---------------------------------------------------------------------------------------------------

    def mutated(self, call: ApiCall, pod: Body) -> Body:
        """What is made of a new object."""
        if requesting.is_request(call) and self._in_force(REQUESTER):
            return requesting.named(call, pod)
        if call.target.type is not POD or _is_mirror(pod) or _is_exempt(call):
            return pod
        changes = {
            USAGE: self._finalized,
            HOLD: self._gated,
            LENGTH: self._ended,
            OWNED: self._owned,
            BANDWIDTH: self._reserved,
        }
        for name, change in changes.items():
            if self._in_force(name):
                pod = change(call, pod)
        return pod

    def check_created(self, call: ApiCall, pod: Body) -> None:
        """Refuse a new object that a policy refuses."""
        self._check_request(call, None, pod)
        if _is_exempt(call):
            return
        self._check_marks(call, {"metadata": {}}, pod)
        if call.target.type is not POD:
            return
        for name, check in ((GUARD, self._guard_new), (HELD, self._hold_new), (REQUIRE, self._require)):
            if self._in_force(name):
                check(call, pod)
        self._check_rates(call, None, pod)
        self._check_ownership(call, None, pod)

    def check_updated(self, call: ApiCall, old: Body, new: Body) -> None:
        """Refuse a change that a policy refuses."""
        self._check_request(call, old, new)
        if _is_exempt(call):
            return
        self._check_marks(call, old, new)
        if call.target.type is not POD or call.target.subresource not in _PARTS:
            return
        checks = ((USAGE_KEPT, self._keep_usage), (GUARD, self._guard), (HELD, self._hold), (RESIZE, self._resize))
        for name, check in checks:
            if self._in_force(name):
                check(call, old, new)
        self._check_rates(call, old, new)
        self._check_ownership(call, old, new)

    def _check_marks(self, call: ApiCall, old: Body, new: Body) -> None:
        """Only who may release says of an owner that we suspended it or let it go."""
        type_ = call.target.type
        if (type_.group, type_.plural) not in marking.OWNERS or call.target.subresource or not self._in_force(MARKS):
            return
        set_ = [
            key
            for key in (marks.SUSPENDED,)
            if key in labels_of(new) and labels_of(new)[key] != labels_of(old).get(key)
        ]
        before, after = _annotations(old), _annotations(new)
        set_ += [key for key in marking.ANNOTATIONS if key in after and after[key] != before.get(key)]
        if set_ and not self._may_release(call):
            named = f"{type_.plural} {call.target.namespace}/{new['metadata'].get('name', '')}"
            values = {"object": named, "user": call.user, "keys": ", ".join(set_)}
            raise _refused(MARKS, call, new, marking.MARKED, values, marking.PLAIN)

    def _check_request(self, call: ApiCall, old: Body | None, new: Body) -> None:
        """Only who may release asks for it, and in their own name."""
        if requesting.is_request(call) and self._in_force(REQUESTS):
            found = requesting.wrong(call, old, new, self._may_release)
            if found is not None:
                raise _refused(REQUESTS, call, new, *found, REQUEST_REFUSED)

    def _check_ownership(self, call: ApiCall, old: Body | None, new: Body) -> None:
        """Only the controller that makes a pod is said to have made it."""
        may_write = partial(self._may_write_status, call)
        is_asked = self._in_force(OWNERSHIP) and owners.is_forged(old, new, may_write)
        if is_asked and not self._may_release(call):
            raise _refused(OWNERSHIP, call, new, owning.FORGED, {"user": call.user}, owning.PLAIN)

    def _check_rates(self, call: ApiCall, old: Body | None, new: Body) -> None:
        """Rates can be read, and stay."""
        config = self._config() if self._in_force(RATES) else None
        if config is None or (old is None and _is_mirror(new)):
            return
        found = reserving.wrong(config, old, new, lambda: self._may_release(call))
        if found is not None:
            raise _refused(RATES, call, new, *found, RATE_REFUSED)

    def _in_force(self, name: str) -> bool:
        return all(self._store.get(type_, "", name) for type_ in _KINDS[name])

    # --- parameters and rights --------------------------------------------------------------------------------------------

    def _holds(self, call: ApiCall) -> Iterator[Body]:
        """The holds of the pod's namespace, by their budgets' names."""
        holds = [each.body["spec"] for each in self._store.all(_HOLDS)]
        for each in sorted(holds, key=lambda each: str(each["budget"])):
            if call.target.namespace in (each.get("namespaces") or ()):
                yield each

    def _entries(self, call: ApiCall) -> list[Body] | None:
        """The budgets of the pod's namespace; None where there is no index."""
        index = self._store.get(_INDEXES, "", INDEX_NAME)
        if index is None:
            return None
        budgets = index.body["spec"].get("budgets") or []
        namespace = self._store.get(NAMESPACE, "", call.target.namespace)
        labels = labels_of(namespace.body) if namespace else {}
        return [each for each in budgets if is_in_scope(each, call.target.namespace, labels)]

    def _of_no_budget(self) -> list[Body]:
        """The entry with the names that device classes of GPUs go by."""
        index = self._store.get(_INDEXES, "", INDEX_NAME)
        budgets = (index.body["spec"].get("budgets") or []) if index else []
        return [each for each in budgets if not each["budget"]]

    def _config(self) -> BandwidthConfigSpec | None:
        found = self._store.get(_CONFIGS, "", CONFIG_NAME)
        return reserving.config_of(found.body if found else None)

    def _may(self, call: ApiCall, verb: str, resource: str, group: str = GROUP, *, name: str = "") -> bool:
        """In the whole cluster: rights in single namespaces do not count."""
        return allowed(self._users.get(call.user), Attributes(verb, group, resource, "", name))

    def _may_release(self, call: ApiCall, hold: str = "") -> bool:
        return self._may(call, "release", BudgetHold.kind.plural, name=hold)

    def _may_write_status(self, call: ApiCall, group: str, resource: str) -> bool:
        return self._may(call, "update", f"{resource}/status", group)

    # --- what is added ----------------------------------------------------------------------------------------------------

    def _finalized(self, call: ApiCall, pod: Body) -> Body:
        finalizers = pod["metadata"].get("finalizers") or []
        exact = any(each.get("exact") and covers(each, pod) for each in self._entries(call) or ())
        if not exact or USAGE_FINALIZER in finalizers:
            return pod
        return pod | {"metadata": pod["metadata"] | {"finalizers": [*finalizers, USAGE_FINALIZER]}}

    def _gated(self, call: ApiCall, pod: Body) -> Body:
        if _is_bound(pod) or marks.PROTECTED in _annotations(pod):
            return pod
        for hold in self._holds(call):
            if not covers(hold, pod):
                continue
            by = _annotations(pod).get(marks.HELD_BY)
            if _has_gate(pod, marks.GATE) and by is not None and by <= hold["budget"]:
                return pod
            told = {marks.HELD_BY: hold["budget"], marks.HELD_BECAUSE: hold.get("because", "")}
            gates = [each for each in _spec(pod).get("schedulingGates") or [] if each.get("name") != marks.GATE]
            metadata = pod["metadata"] | {"annotations": _annotations(pod) | told}
            return pod | {
                "metadata": metadata,
                "spec": _spec(pod) | {"schedulingGates": [*gates, {"name": marks.GATE}]},
            }
        return pod

    def _ended(self, _: ApiCall, pod: Body) -> Body:
        length = durations.milliseconds(_annotations(pod).get(marks.EXPECTED_DURATION, ""))
        deadline = _spec(pod).get("activeDeadlineSeconds")
        if length is None or (deadline is not None and deadline <= length // 1000):
            return pod
        return pod | {"spec": _spec(pod) | {"activeDeadlineSeconds": length // 1000}}

    def _reserved(self, _: ApiCall, pod: Body) -> Body:
        config = self._config()
        return reserving.reserved(config, pod) if config else pod

    def _owned(self, call: ApiCall, pod: Body) -> Body:
        return owners.marked(pod, partial(self._may_write_status, call))

    # --- what is refused to new pods --------------------------------------------------------------------------------------

    def _hold_new(self, call: ApiCall, pod: Body) -> None:
        if _is_mirror(pod) or marks.PROTECTED in _annotations(pod):
            return
        if _has_gate(pod, marks.GATE) and not _is_bound(pod):
            return
        template = holding.NAMES_ITS_NODE if _is_bound(pod) else holding.NOT_GATED
        for hold in self._holds(call):
            if covers(hold, pod) and not self._may_release(call):
                raise _held(call, pod, hold, template)

    def _guard_new(self, call: ApiCall, pod: Body) -> None:
        annotations = _annotations(pod)
        if set_ := [key for key in guarding.PRIVILEGED if key in annotations]:
            self._guarded(call, pod, guarding.MARKED, key=" and ".join(set_))
        declared = annotations.get(marks.EXPECTED_DURATION)
        if declared is not None and durations.milliseconds(declared) is None:
            shown = declared[: guarding.LONGEST_SHOWN].replace("\n", " ")
            more = "..." if len(declared) > guarding.LONGEST_SHOWN else ""
            self._guarded(call, pod, guarding.LENGTH_UNREADABLE, value=shown + more)

    def _require(self, call: ApiCall, pod: Body) -> None:
        namespace = self._store.get(NAMESPACE, "", call.target.namespace)
        entries = self._entries(call)
        if namespace is None or marks.REQUIRE_BUDGET not in labels_of(namespace.body) or entries is None:
            return
        known = [*entries, *self._of_no_budget()]
        names = [*requiring.GPU_RESOURCES, *(name for each in known for name in each.get("resources") or ())]
        if _is_mirror(pod) or not asks({"resources": names}, pod) or any(covers(each, pod) for each in entries):
            return
        listed = "; ".join(f"{each['budget']} ({', '.join(wanted(each))})" for each in entries)
        if len(listed) > requiring.LONGEST_LIST:
            listed = listed[: requiring.LONGEST_LIST] + "..."
        advice = requiring.ADVICE_LABELS + listed if listed else requiring.ADVICE_BUDGET
        values = {"namespace": call.target.namespace, "advice": advice}
        raise _refused(REQUIRE, call, pod, requiring.NO_BUDGET, values, requiring.UNCOUNTED)

    # --- and to changes ---------------------------------------------------------------------------------------------------

    def _hold(self, call: ApiCall, old: Body, new: Body) -> None:
        if call.target.subresource:
            return
        before, after = labels_of(old), labels_of(new)
        gates = [] if _gate_names(new) or _has_gate(old, marks.GATE) else _gate_names(old)
        is_free = not {marks.RELEASED_AT, marks.PROTECTED}.isdisjoint(_annotations(old))
        for hold in self._holds(call):
            changed = [key for key in keys(hold) if before.get(key) != after.get(key)]
            if changed and (covers(hold, old) or covers(hold, new)) and not self._may_release(call):
                raise _held(call, new, hold, holding.RELABELLED, keys=" and ".join(changed))
            if gates and not is_free and covers(hold, old) and not self._may_release(call):
                raise _held(call, new, hold, holding.LAST_GATE, gates=" and ".join(gates))

    def _resize(self, call: ApiCall, old: Body, new: Body) -> None:
        grown = [*sizes.grown(old, new)] if call.target.subresource == "resize" else []
        for hold in self._holds(call) if grown else ():
            names = [" ".join(name for name in each if is_counted(hold, name)) for each in grown]
            if any(names) and matches(hold, labels_of(new)) and not self._may_release(call):
                raise _held(call, new, hold, resizing.GROWN, policy=RESIZE, names=" ".join(filter(None, names)))

    def _guard(self, call: ApiCall, old: Body, new: Body) -> None:
        before, after = _annotations(old), _annotations(new)
        if _lost(old, new, marks.GATE):
            self._guarded(call, new, guarding.GATE_LIFTED)
        if changed := [key for key in guarding.PRIVILEGED if before.get(key) != after.get(key)]:
            self._guarded(call, new, guarding.MARKED, key=" and ".join(changed))
        if before.get(marks.EXPECTED_DURATION) != after.get(marks.EXPECTED_DURATION):
            self._guarded(call, new, guarding.LENGTH_CHANGED)
        if call.target.subresource and labels_of(old) != labels_of(new):
            self._guarded(call, new, guarding.LABELS_BY_PART, part=call.target.subresource)

    def _guarded(self, call: ApiCall, pod: Body, template: str, **values: str) -> None:
        if not self._may_release(call):
            raise _refused(GUARD, call, pod, template, values | {"user": call.user}, guarding.GUARDED)

    def _keep_usage(self, call: ApiCall, old: Body, new: Body) -> None:
        def carried(by: Body) -> bool:
            return USAGE_FINALIZER in (by["metadata"].get("finalizers") or ())

        if (
            carried(old)
            and not carried(new)
            and not self._may(call, "update", BudgetIndex.kind.plural, name=INDEX_NAME)
        ):
            raise _refused(USAGE_KEPT, call, new, usage.KEPT, {}, usage.KEPT)


# --- refusals ---------------------------------------------------------------------------------------------------------------------


def _held(call: ApiCall, pod: Body, hold: Body, template: str, policy: str = HELD, **values: str) -> ErrorAnswer:
    told = {"budget": hold["budget"], "because": hold.get("because", "")} | values
    return _refused(policy, call, pod, template, told, holding.WAITS)


def _refused(policy: str, call: ApiCall, pod: Body, template: str, values: Values, plain: str) -> ErrorAnswer:
    name = pod["metadata"].get("name", "")
    words = template.format(pod=f"{call.target.namespace}/{name}", **values)
    if "\n" in words or len(words.encode()) > LONGEST_MESSAGE:
        words = plain
    why = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {words}"
    type_ = call.target.type
    what = f"{type_.plural}.{type_.group}" if type_.group else type_.plural
    details = about(type_.group, type_.plural, name) | {"causes": [{"message": why}]}
    return ErrorAnswer(403, "Forbidden", f'{what} "{name}" is forbidden: {why}', details)


# --- pods, and what covers them ---------------------------------------------------------------------------------------------------


def _is_exempt(call: ApiCall) -> bool:
    return call.target.namespace in EXEMPT_NAMESPACES


def _spec(pod: Body) -> Body:
    return pod.get("spec") or {}


def _annotations(pod: Body) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _is_mirror(pod: Body) -> bool:
    return MIRROR in _annotations(pod)


def _is_bound(pod: Body) -> bool:
    return bool(_spec(pod).get("nodeName"))


def _has_gate(pod: Body, gate: str) -> bool:
    return gate in _gate_names(pod)


def _gate_names(pod: Body) -> list[str]:
    return [each.get("name", "") for each in _spec(pod).get("schedulingGates") or ()]


def _lost(old: Body, new: Body, gate: str) -> bool:
    return _has_gate(old, gate) and not _has_gate(new, gate)

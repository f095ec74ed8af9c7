"""Pods that keep apart from their own group: required anti-affinity, and topology spread that forbids, both by host.

What such a rule leaves of a room is a resource of it: one place for one pod of the group, or as many as the skew allows beside the host
with the fewest. Only rules that a pod meets itself are modelled; of all others kube-scheduler's own verdict tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from headroom.core.demand.constraints import HOSTNAME, constraints_of, refusal
from headroom.core.demand.fitting import PODS, WHOLE
from headroom.core.demand.units import Apart, Room
from headroom.model.facts import Amounts, Node, Pairs, Pod, Shape
from headroom.model.numbering import ABSENT, Ints
from headroom.model.tables import PHASES
from headroom.model.world import World

ENDED: Final = ("Succeeded", "Failed")
_ENDED_PHASES: Final = [PHASES.index(each) for each in ENDED]


class _Expression(Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class _Selector(Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


class _Term(Struct, frozen=True, rename="camel"):
    """A term of required anti-affinity, or a constraint on spread; each has fields that the other has not."""

    topology_key: str = ""
    label_selector: _Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: _Selector | None = None
    max_skew: int = 1
    min_domains: int | None = None
    when_unsatisfiable: str = "DoNotSchedule"
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class _AntiAffinity(Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: tuple[_Term, ...] | None = None


class _Affinity(Struct, rename="camel"):
    pod_anti_affinity: _AntiAffinity | None = None


class SpreadRule(Struct, frozen=True, kw_only=True):
    """What keeps the pods of one group apart."""

    name: str
    """Of the resource that it makes of a room; equal rules of one group have one name."""
    wanted: tuple[_Expression, ...]
    """What the labels of the group's pods say."""
    namespaces: frozenset[str] | None
    """Theirs; None for all."""
    spread: _Term | None = None
    """None for anti-affinity."""


class Apartness:
    """The rules of pods in one view, and what they leave."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rules: dict[tuple[int, str, Pairs], tuple[SpreadRule, ...]] = {}
        self._known: dict[tuple[str, int], Apart] = {}

    def rules(self, pod: Pod) -> tuple[SpreadRule, ...]:
        """The rules that keep a pod apart from pods of its own group."""
        shape = pod.shape
        if not shape.spread and "podAntiAffinity" not in shape.affinity:
            return ()
        key = id(shape), pod.namespace, pod.labels
        known = self._rules.get(key)
        if known is None:
            known = self._rules[key] = tuple(self._read(pod))
        return known

    def of(self, pod: Pod) -> tuple[Apart, ...]:
        """What is known of the groups from which a pod keeps apart."""
        return tuple(self._apart(rule, pod.shape) for rule in self.rules(pod))

    # --- what is said -----------------------------------------------------------------------------------------------------

    def _read(self, pod: Pod) -> list[SpreadRule]:
        found: dict[str, SpreadRule] = {}
        for term, is_spread in _terms(pod.shape):
            wanted = _wanted(term, dict(pod.labels))
            namespaces = frozenset({pod.namespace}) if is_spread else self._namespaces(term, pod.namespace)
            if wanted is None or not _selects(wanted, dict(pod.labels)):
                continue
            if namespaces is None or pod.namespace in namespaces:
                rule = SpreadRule(name="", wanted=wanted, namespaces=namespaces, spread=term if is_spread else None)
                name = _name(rule, pod.shape)
                found[name] = msgspec.structs.replace(rule, name=name)
        return [found[name] for name in sorted(found)]

    def _namespaces(self, term: _Term, own: str) -> frozenset[str] | None:
        """The namespaces that a term is about; None for all."""
        selector, named = term.namespace_selector, frozenset(term.namespaces or ())
        if selector is None:
            return named or frozenset({own})
        if not selector.match_labels and not selector.match_expressions:
            return None
        wanted = _expressions(selector)
        chosen = {each.name for each in self._world.namespaces.values() if _selects(wanted, dict(each.labels))}
        return named | chosen

    # --- what is there ----------------------------------------------------------------------------------------------------

    def _apart(self, rule: SpreadRule, shape: Shape) -> Apart:
        key = rule.name, id(shape) if rule.spread else 0
        known = self._known.get(key)
        if known is None:
            rows = self._rows(rule)
            here = self._by_node(rows)
            moments = self._world.pods.column("started")[rows]
            known = self._known[key] = Apart(
                name=rule.name,
                here=here,
                changed=int(moments.max(initial=0)),
                max_skew=rule.spread.max_skew if rule.spread else None,
                min_domains=(rule.spread.min_domains or 0) if rule.spread else 0,
                hosts=self._hosts(rule.spread, shape, here) if rule.spread else {},
            )
        return known

    def _rows(self, rule: SpreadRule) -> Ints:
        """The pods of a group that are on nodes; those that are about to go count only for anti-affinity."""
        pods = self._world.pods
        sets = [number for number, labels in pods.label_sets.items() if _selects(rule.wanted, dict(labels))]
        of_group = np.isin(pods.column("labels"), sets) & (pods.column("node") != pods.names.number(""))
        of_group &= (pods.column("node") >= 0) & ~np.isin(pods.column("phase"), _ENDED_PHASES)
        if rule.namespaces is not None:
            of_group &= np.isin(pods.column("namespace"), [pods.names.number(each) for each in rule.namespaces])
        if rule.spread:
            of_group &= pods.column("deleting") == ABSENT
        return np.flatnonzero(of_group)

    def _by_node(self, rows: Ints) -> dict[str, int]:
        pods = self._world.pods
        numbers, counts = np.unique(pods.column("node")[rows], return_counts=True)
        return {pods.names[number]: count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}

    def _hosts(self, term: _Term, shape: Shape, here: Mapping[str, int]) -> dict[str, int]:
        """The hosts that count, each with how many pods of the group it has at most, if all that is free there is theirs."""
        found: dict[str, int] = {}
        wishes = constraints_of(shape)
        for node in self._world.nodes:
            bare = Room(name=node.name, labels=node.labels)
            if not any(key == HOSTNAME for key, _ in node.labels):
                continue
            open_to = not refusal(wishes, bare)
            tolerated = open_to and not refusal(wishes, msgspec.structs.replace(bare, taints=node.taints))
            if term.node_affinity_policy != "Ignore" and not open_to:
                continue
            if term.node_taints_policy == "Honor" and open_to and not tolerated:
                continue
            usable = tolerated and node.ready and not node.unschedulable and node.deleting is None
            found[node.name] = here.get(node.name, 0) + (_many(shape, self._free(node)) if usable else 0)
        return found

    def _free(self, node: Node) -> Mapping[str, int]:
        known = self._frees.get(node.name)
        if known is None:
            known = self._frees[node.name] = dict(node.allocatable)
            for pod in filter(None, map(self._world.pods.get, self._world.pods.by_node[node.name])):
                if pod.phase not in ENDED:
                    for name, amount in (*pod.shape.requests, (PODS, WHOLE)):
                        known[name] = known.get(name, 0) - amount
        return known

    @cached_property
    def _frees(self) -> dict[str, dict[str, int]]:
        return {}


def _terms(shape: Shape) -> list[tuple[_Term, bool]]:
    """What a shape says of its pods on one host, and whether it is about spread. What cannot be read is not modelled."""
    try:
        affinity = msgspec.json.decode(shape.affinity, type=_Affinity | None) if shape.affinity else None
        spread = msgspec.json.decode(shape.spread, type=tuple[_Term, ...] | None) if shape.spread else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    against = affinity.pod_anti_affinity if affinity else None
    terms = (against.required_during_scheduling_ignored_during_execution if against else None) or ()
    every = [(term, False) for term in terms]
    every += [(term, True) for term in spread or () if term.when_unsatisfiable == "DoNotSchedule" and term.max_skew > 0]
    return [pair for pair in every if pair[0].topology_key == HOSTNAME]


def _wanted(term: _Term, labels: Mapping[str, str]) -> tuple[_Expression, ...] | None:
    """What a term asks of labels, with what it copies from the pod; None where it matches nothing."""
    if term.label_selector is None:
        return None
    copied = [_Expression(key, "In", (labels[key],)) for key in term.match_label_keys or () if key in labels]
    copied += [_Expression(key, "NotIn", (labels[key],)) for key in term.mismatch_label_keys or () if key in labels]
    return tuple(sorted({*_expressions(term.label_selector), *copied}, key=msgspec.json.encode))


def _expressions(selector: _Selector) -> tuple[_Expression, ...]:
    labels = [_Expression(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    return (*labels, *(selector.match_expressions or ()))


def _selects(wanted: tuple[_Expression, ...], labels: Mapping[str, str]) -> bool:
    return all(_holds(each, labels.get(each.key)) for each in wanted)


def _holds(expression: _Expression, value: str | None) -> bool:
    values = expression.values or ()
    match expression.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def _name(rule: SpreadRule, shape: Shape) -> str:
    """The same for equal rules. Whom a spread counts as a host depends on where its pods may go."""
    told: list[Any] = [rule.wanted, sorted(rule.namespaces) if rule.namespaces is not None else None]
    if rule.spread:
        told += [rule.spread, shape.node_selector, shape.affinity, shape.tolerations]
    return f"apart:{hashlib.sha256(msgspec.json.encode(told, order='deterministic')).hexdigest()[:12]}"


def _many(shape: Shape, free: Mapping[str, int]) -> int:
    """How many pods of a shape fit into what is free."""
    asks: Amounts = (*shape.requests, (PODS, WHOLE))
    return max(0, min(free.get(name, 0) // amount for name, amount in asks if amount))

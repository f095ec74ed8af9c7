"""Which nodes a pod may go to as far as labels and taints say, exactly as Kubernetes means it.

Required pod affinity and topology spread are not judged here: `apart` knows what keeps a group's pods on different hosts, and what
else they forbid, kube-scheduler's own verdict tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from headroom.core.demand.units import Room
from headroom.model.facts import UNREADABLE, Pairs, Shape, Taint

REPELS: Final = ("NoSchedule", "NoExecute")
NAME_FIELD: Final = "metadata.name"
HOSTNAME: Final = "kubernetes.io/hostname"
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LARGEST: Final = 2**63 - 1
_MOST_TOLD: Final = 5


class Expression(Struct, frozen=True):
    """One condition on a label, or on the node's name."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Term(Struct, frozen=True, rename="camel"):
    """Conditions that must hold together."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class Toleration(Struct, frozen=True):
    """Taints that a pod puts up with."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Required(Struct, rename="camel"):
    node_selector_terms: tuple[Term, ...] | None = None


class _NodeAffinity(Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Required | None = None


class _Affinity(Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class PlacementConstraints(NamedTuple):
    """Where pods of a shape may go."""

    selector: Pairs
    terms: tuple[Term, ...] | None
    """One of them must hold; None where any node will do."""
    tolerations: tuple[Toleration, ...]
    problem: str
    """Why such a pod can go nowhere at all, as a clause; empty if it can."""
    keys: frozenset[str]
    """The labels that it looks at."""
    by_name: bool
    """Whether it looks at the node's name."""


@lru_cache(maxsize=8192)
def constraints_of(shape: Shape) -> PlacementConstraints:
    """What a shape says of nodes; what cannot be read fits nowhere."""
    problem = next(
        (f"its request for {name} cannot be read" for name, amount in shape.requests if amount >= UNREADABLE), ""
    )
    try:
        what = "affinity"
        terms = _terms(_read(shape.affinity, _Affinity))
        what = "tolerations"
        tolerations = _read(shape.tolerations, tuple[Toleration, ...])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        terms, tolerations, problem = None, None, f"its {what} cannot be read"
    expressions = [each for term in terms or () for each in term.match_expressions or ()]
    return PlacementConstraints(
        selector=shape.node_selector,
        terms=terms,
        tolerations=tolerations or (),
        problem=problem,
        keys=frozenset({key for key, _ in shape.node_selector} | {each.key for each in expressions}),
        by_name=any(term.match_fields for term in terms or ()),
    )


def _read(text: str, type_: Any) -> Any:
    """JSON text as typed data; None where nothing is said."""
    return msgspec.json.decode(text, type=type_ | None) if text else None


def _terms(affinity: _Affinity | None) -> tuple[Term, ...] | None:
    of_nodes = affinity.node_affinity if affinity else None
    required = of_nodes.required_during_scheduling_ignored_during_execution if of_nodes else None
    return None if required is None else required.node_selector_terms or ()


def refusal(wishes: PlacementConstraints, room: Room) -> str:
    """Why pods with these constraints may not go to a room, as a clause; empty if they may."""
    taint = untolerated(wishes, room.taints)
    says = f"it does not tolerate taint {told_taint(taint)}" if taint else ""
    return unmatched(wishes, room.labels, room.name) or says


def unmatched(wishes: PlacementConstraints, pairs: Pairs, name: str) -> str:
    """What of these constraints the labels and the name of a node do not meet, as a clause; empty if they meet all."""
    labels = dict(pairs)
    for key, value in wishes.selector:
        if labels.get(key) != value:
            return f"it requires label {key}={value}"
    if wishes.terms is not None and not any(holds(term, labels, name) for term in wishes.terms):
        return f"its affinity requires {_told(wishes.terms)}"
    return ""


def untolerated(wishes: PlacementConstraints, taints: Iterable[Taint]) -> Taint | None:
    """The first taint that keeps pods with these constraints away."""
    return next((each for each in taints if each.effect in REPELS and not is_tolerated(wishes.tolerations, each)), None)


def holds(term: Term, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node meets a term; one that asks for nothing is met by none."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    of_node = {NAME_FIELD: name}
    return all(is_met(each, labels.get(each.key)) for each in expressions) and all(
        each.key == NAME_FIELD and each.operator in ("In", "NotIn") and is_met(each, of_node[NAME_FIELD])
        for each in fields
    )


def is_met(expression: Expression, value: str | None) -> bool:
    """Whether a condition holds for a label's value, None where the label is not there. An odd condition holds nowhere."""
    wanted = expression.values or ()
    match expression.operator:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return bool(wanted) and value not in wanted
        case "Exists":
            return not wanted and value is not None
        case "DoesNotExist":
            return not wanted and value is None
        case "Gt" | "Lt" if len(wanted) == 1:
            has, bound = number(value), number(wanted[0])
            if has is None or bound is None:
                return False
            return has > bound if expression.operator == "Gt" else has < bound
    return False


def number(text: str | None) -> int | None:
    """A whole number of 64 bits as Go reads it; None for anything else."""
    if text is None or not _WHOLE_NUMBER.fullmatch(text):
        return None
    found = int(text)
    return found if -_LARGEST - 1 <= found <= _LARGEST else None


def is_tolerated(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Whether a pod with these tolerations may go where the taint is."""
    for each in tolerations:
        if (each.effect or taint.effect) != taint.effect or (each.key or taint.key) != taint.key:
            continue
        if each.operator == "Exists" or (each.operator in (None, "", "Equal") and (each.value or "") == taint.value):
            return True
    return False


# --- in words -------------------------------------------------------------------------------------------------------------------


def told_taint(taint: Taint) -> str:
    """A taint as kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _told(terms: tuple[Term, ...]) -> str:
    shown = " or ".join(_told_term(each) for each in terms[:_MOST_TOLD])
    more = f" or {len(terms) - _MOST_TOLD} more" if len(terms) > _MOST_TOLD else ""
    return f"{shown}{more}" if terms else "no node at all"


def _told_term(term: Term) -> str:
    every = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return " and ".join(_told_expression(each) for each in every) if every else "no node at all"


def _told_expression(each: Expression) -> str:
    values = each.values or ()
    listed = ", ".join(values[:_MOST_TOLD]) + (", ..." if len(values) > _MOST_TOLD else "")
    return f"{each.key} {each.operator}" + (f" ({listed})" if values else "")

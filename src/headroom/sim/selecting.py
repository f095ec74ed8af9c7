"""Label and field selectors, as the API server reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headroom.sim.answers import Body, bad_request

Match = Callable[[Body], bool]

_PART: Final = re.compile(r"\s*([^,()]*(?:\([^()]*\))?[^,()]*)\s*(?:,|$)")
_SET: Final = re.compile(r"\s*([^\s!=<>,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL: Final = re.compile(r"\s*([^\s!=<>,()]+)\s*(==|=|!=)\s*([^\s!=<>,()]*)\s*")
_BARE: Final = re.compile(r"\s*(!?)\s*([^\s!=<>,()]+)\s*")

NAMES: Final = ("metadata.name", "metadata.namespace")


def labels_of(body: Body) -> Mapping[str, str]:
    """An object's labels."""
    found: Mapping[str, str] = body.get("metadata", {}).get("labels") or {}
    return found


def by_labels(text: str) -> Match | None:
    """The test that a label selector in a query stands for; None for no selector."""
    if not text.strip():
        return None
    tests = [_requirement(part) for part in _parts(text)]
    return lambda body: all(test(labels_of(body)) for test in tests)


def _parts(text: str) -> list[str]:
    parts, at = [], 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or match.end() == at:
            raise bad_request(f"unable to parse requirement: found '{text[at:]}', expected: ',', ')' or identifier")
        parts.append(match[1])
        at = match.end()
    return parts


def _requirement(part: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.fullmatch(part):
        values = {each.strip() for each in found[3].split(",")}
        return _among(found[1], values, wanted=found[2] == "in")
    if found := _EQUAL.fullmatch(part):
        return _among(found[1], {found[3]}, wanted=found[2] != "!=")
    if found := _BARE.fullmatch(part):
        key, absent = found[2], bool(found[1])
        return lambda labels: (key not in labels) == absent
    raise bad_request(f"unable to parse requirement: found '{part}', expected: ',', ')' or identifier")


def _among(key: str, values: set[str], *, wanted: bool) -> Callable[[Mapping[str, str]], bool]:
    if wanted:
        return lambda labels: key in labels and labels[key] in values
    return lambda labels: key not in labels or labels[key] not in values


def matches(selector: Body | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector of an object matches: an empty one matches all, none at all matches nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_expression(each, labels) for each in selector.get("matchExpressions") or [])


def _expression(requirement: Body, labels: Mapping[str, str]) -> bool:
    key, values = requirement.get("key", ""), requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def by_fields(text: str, known: Sequence[str], *, named: bool) -> Match | None:
    """The test that a field selector stands for; `named` says whether an unknown field is answered with the known ones."""
    if not text.strip():
        return None
    tests = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([^!=\s]+)\s*(==|=|!=)\s*(.*)", part)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        if found[1] not in known:
            raise bad_request(_unknown(found[1], known, named=named))
        tests.append((found[1], found[3], found[2] != "!="))
    return lambda body: all((field(body, path) == value) == wanted for path, value, wanted in tests)


def _unknown(field_name: str, known: Sequence[str], *, named: bool) -> str:
    if not named:
        return f"field label not supported: {field_name}"
    choices = ", ".join(f'"{each}"' for each in known)
    return f'"{field_name}" is not a known field selector: only {choices}'


def field(body: Body, path: str) -> str:
    """A field as text; what is not there is empty."""
    value: Any = body
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)

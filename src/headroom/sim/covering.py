"""Which pods a budget covers, as our policies tell from documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headroom.api.policies.cel import IMPLICIT
from headroom.sim.answers import Body
from headroom.sim.selecting import labels_of, matches

Values = Mapping[str, str]


def is_in_scope(entry: Body, namespace: str, labels: Values) -> bool:
    """An entry of the index covers a namespace, by its name or by its labels."""
    selector = entry.get("namespaceSelector")
    return namespace in (entry.get("namespaces") or ()) if selector is None else matches(selector, labels)


def covers(covered: Body, pod: Body) -> bool:
    """What a budget covers, an entry of the index or the spec of a hold, selects and counts a pod."""
    return matches(covered, labels_of(pod)) and asks(covered, pod)


def asks(covered: Body, pod: Body) -> bool:
    """A pod asks for what a budget counts."""
    spec = pod.get("spec") or {}
    if spec.get("resourceClaims"):
        return True
    holders = [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    asked = {name for each in holders for name in _asked(each)}
    return any(name.startswith(IMPLICIT) or is_counted(covered, name) for name in asked)


def is_counted(covered: Body, name: str) -> bool:
    """A budget counts a resource."""
    every = covered.get("resources") or ()
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in every)


def _asked(holder: Any) -> Iterator[str]:
    resources = (holder.get("resources") if isinstance(holder, dict) else None) or {}
    for part in ("requests", "limits"):
        yield from resources.get(part) or ()


def keys(covered: Body) -> list[str]:
    """The labels that a selector looks at."""
    return [*(covered.get("matchLabels") or ()), *(each["key"] for each in covered.get("matchExpressions") or ())]


def wanted(covered: Body) -> Iterator[str]:
    """A selector in words."""
    yield from (f"{key}={value}" for key, value in (covered.get("matchLabels") or {}).items())
    for each in covered.get("matchExpressions") or ():
        values = "|".join(each.get("values") or ())
        yield f"{each['key']} {each['operator']}" + (f" {values}" if values else "")

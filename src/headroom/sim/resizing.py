"""Pods that are resized in place: what the subresource changes, and what our policy on it looks at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from headroom.api.policies.resizing import PLAIN
from headroom.api.quantities import InvalidQuantity, nano
from headroom.sim.answers import Body

_PLAIN = re.compile(PLAIN)
_LISTS = ("containers", "initContainers")


def resized(before: Body, wanted: Body) -> Body:
    """The pod with the resources that are wanted, and nothing else of it."""
    old, new = before["spec"], wanted.get("spec") or {}
    spec: Body = {**old}
    for part in _LISTS:
        asked = {each["name"]: each.get("resources") or {} for each in new.get(part) or ()}
        if part in old:
            spec[part] = [each | {"resources": _whole(asked.get(each["name"], {}))} for each in old[part]]
    if new.get("resources"):
        spec["resources"] = _whole(new["resources"])
    return before | {"spec": spec}


def _whole(resources: Body) -> Body:
    """Where there is only a limit, that is the request."""
    limits = resources.get("limits") or {}
    requests = limits | (resources.get("requests") or {})
    return resources | ({"requests": requests} if requests else {})


def grown(old: Body, new: Body) -> Iterator[list[str]]:
    """For each container, and the pod as a whole, the names of what it asks for more of."""
    for part in _LISTS:
        before = {each["name"]: each for each in old["spec"].get(part) or ()}
        yield from (_more(before[each["name"]], each) for each in new["spec"].get(part) or ())
    yield _more(old["spec"], new["spec"])


def _more(before: Any, after: Any) -> list[str]:
    old, new = ((each.get("resources") or {}) for each in (before, after))
    was, asked = _whole(old).get("requests") or {}, _whole(new).get("requests") or {}
    return [name for name in asked if _exceeds(str(asked[name]), str(was.get(name, "0")))]


def _exceeds(new: str, old: str) -> bool:
    """As the policy has it: what it cannot compare counts as more if it is another."""
    found, known = nano(new), nano(old)
    if (
        isinstance(found, InvalidQuantity)
        or isinstance(known, InvalidQuantity)
        or not _PLAIN.match(new)
        or not _PLAIN.match(old)
    ):
        return new != old
    return found > known

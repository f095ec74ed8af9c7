"""Policies to compare: what stands in files put over what a record had, and what is taken away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from headroom.api.kinds import KINDS, AnyResource
from headroom.model.decisions import Ref
from headroom.model.errors import Misconfigured
from headroom.model.world import ref_of

MOST_FIELDS: Final = 5
_QUOTAS: Final = (("quota.gpuHours", "GPU-hours"), ("quota.usd", "dollars"))
NOT_SET: Final = "(not set)"


def changed(
    before: Mapping[Ref, AnyResource], given: Iterable[AnyResource], without: Iterable[str]
) -> dict[Ref, AnyResource]:
    """The policies with those that are given in place of their namesakes, and without those that are named."""
    after = dict(before) | {ref_of(each): each for each in given}
    for text in without:
        ref = named(text)
        if ref not in after:
            there = ", ".join(str(each) for each in sorted(after)) or "there are none"
            raise Misconfigured(f"leaving out {text}: there is no such resource; these are there: {there}")
        del after[ref]
    return after


def named(text: str) -> Ref:
    """The resource that somebody means with KIND/NAMESPACE/NAME, or KIND/NAME where it has no namespace; short names will do."""
    parts = text.split("/")
    kinds = {word.lower(): kind for kind in KINDS.values() for word in (kind.name, kind.plural, *kind.short_names)}
    kind = kinds.get(parts[0].lower())
    if kind is None:
        raise Misconfigured(f"leaving out {text}: {parts[0]!r} is no kind of Headroom's; they are {', '.join(KINDS)}")
    if len(parts) != (3 if kind.namespaced else 2) or not all(parts):
        form = "KIND/NAMESPACE/NAME" if kind.namespaced else "KIND/NAME"
        raise Misconfigured(f"leaving out {text}: a {kind.name} is written {form}")
    return Ref(kind.name, *parts[1:]) if kind.namespaced else Ref(kind.name, "", parts[1])


def differences(before: Mapping[Ref, AnyResource], after: Mapping[Ref, AnyResource]) -> list[str]:
    """What the change is, resource by resource."""
    found = []
    for ref in sorted(before.keys() | after.keys()):
        if ref not in before:
            found.append(f"{ref} is added")
        elif ref not in after:
            found.append(f"{ref} is left out")
        elif before[ref].spec != after[ref].spec:
            found.append(f"{ref}: {_fields(before[ref].spec, after[ref].spec)}")
    return found


def clauses(before: Mapping[Ref, AnyResource], after: Mapping[Ref, AnyResource]) -> list[str]:
    """The change as clauses of a question that begins with "what if"."""
    found = []
    for ref in sorted(before.keys() | after.keys()):
        noun = "budget" if ref.kind == "GPUWorkloadBudget" else ref.kind
        if ref not in before:
            found.append(f"there were a {noun} {ref.name}")
        elif ref not in after:
            found.append(f"there were no {noun} {ref.name}")
        elif before[ref].spec != after[ref].spec:
            found.append(_clause(f"{noun} {ref.name}", before[ref].spec, after[ref].spec))
    return found


def _clause(subject: str, before: Any, after: Any) -> str:
    old, new = dict(_leaves(msgspec.to_builtins(before))), dict(_leaves(msgspec.to_builtins(after)))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    said = [
        f"{new[name]} {unit} instead of {old[name]}"
        for name, unit in _QUOTAS
        if name in names and name in old and name in new
    ]
    if not said:
        return f"{subject} were as in the change"
    others = "" if len(said) == len(names) else ", with other settings"
    return f"{subject} had {' and '.join(said)}{others}"


def _fields(before: Any, after: Any) -> str:
    """Which fields differ, each with its old and its new value; not too many."""
    old, new = dict(_leaves(msgspec.to_builtins(before))), dict(_leaves(msgspec.to_builtins(after)))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    told = [f"{name} {old.get(name, NOT_SET)} -> {new.get(name, NOT_SET)}" for name in names[:MOST_FIELDS]]
    more = len(names) - MOST_FIELDS
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in a spec that is set, with its path such as enforcement.steps[0].at."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}[{number}]")
    elif value is not None:
        yield path, value

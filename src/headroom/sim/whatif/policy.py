"""Policies to compare: those of the record, with given manifests applied over them and some resources removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from headroom.api.kinds import KINDS, AnyResource
from headroom.model.decisions import Ref
from headroom.model.errors import Misconfigured
from headroom.model.world import ref_of

MOST_FIELDS: Final = 5
MOST_IN_TITLE: Final = 2
_QUOTAS: Final = (("quota.gpuHours", "GPU-hours"), ("quota.usd", "dollars"))
NOT_SET: Final = "(not set)"


def changed(
    before: Mapping[Ref, AnyResource], given: Iterable[AnyResource], without: Iterable[str]
) -> dict[Ref, AnyResource]:
    """The policies with the given ones in place of their namesakes, and without the named ones."""
    after = dict(before) | {ref_of(each): each for each in given}
    for text in without:
        ref = named(text)
        if ref not in after:
            there = ", ".join(str(each) for each in sorted(after)) or "none"
            raise Misconfigured(f"leaving out {text}: no such resource; the record has {there}")
        del after[ref]
    return after


def named(text: str) -> Ref:
    """The resource named by KIND/NAMESPACE/NAME, or KIND/NAME if it is cluster-scoped; short names of kinds are accepted."""
    parts = text.split("/")
    kinds = {word.lower(): kind for kind in KINDS.values() for word in (kind.name, kind.plural, *kind.short_names)}
    kind = kinds.get(parts[0].lower())
    if kind is None:
        raise Misconfigured(
            f"leaving out {text}: {parts[0]!r} is not a kind of Headroom's; choose one of {', '.join(KINDS)}"
        )
    if len(parts) != (3 if kind.namespaced else 2) or not all(parts):
        form = "KIND/NAMESPACE/NAME" if kind.namespaced else "KIND/NAME"
        raise Misconfigured(f"leaving out {text}: write a {kind.name} as {form}")
    return Ref(kind.name, *parts[1:]) if kind.namespaced else Ref(kind.name, "", parts[1])


def differences(before: Mapping[Ref, AnyResource], after: Mapping[Ref, AnyResource]) -> list[str]:
    """The change, resource by resource."""
    found = []
    for ref in sorted(before.keys() | after.keys()):
        if ref not in before:
            found.append(f"{ref} added")
        elif ref not in after:
            found.append(f"{ref} removed")
        elif before[ref].spec != after[ref].spec:
            found.append(f"{ref}: {_fields(before[ref].spec, after[ref].spec)}")
    return found


def clauses(before: Mapping[Ref, AnyResource], after: Mapping[Ref, AnyResource]) -> list[str]:
    """The change as clauses of a question that begins with "What if"."""
    found = []
    for ref in sorted(before.keys() | after.keys()):
        noun = "budget" if ref.kind == "GPUWorkloadBudget" else ref.kind
        if ref not in before:
            found.append(f"there were a {noun} named {ref.name}")
        elif ref not in after:
            found.append(f"there were no {noun} {ref.name}")
        elif before[ref].spec != after[ref].spec:
            found.append(_clause(f"{noun} {ref.name}", before[ref].spec, after[ref].spec))
    return found


def _clause(subject: str, before: Any, after: Any) -> str:
    old, new = dict(_leaves(msgspec.to_builtins(before))), dict(_leaves(msgspec.to_builtins(after)))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    units = dict(_QUOTAS)
    names.sort(key=lambda name: (name not in units, name))
    said = [
        f"{new[name]} {units[name]} instead of {old[name]}"
        if name in units and name in old and name in new
        else f"{name} {new.get(name, NOT_SET)} instead of {old.get(name, NOT_SET)}"
        for name in names[:MOST_IN_TITLE]
    ]
    more = len(names) - MOST_IN_TITLE
    return f"{subject} had {' and '.join(said)}{', among other changes' if more > 0 else ''}"


def _fields(before: Any, after: Any) -> str:
    """The fields that differ, at most `MOST_FIELDS`, each with its old and new value."""
    old, new = dict(_leaves(msgspec.to_builtins(before))), dict(_leaves(msgspec.to_builtins(after)))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    told = [f"{name} {old.get(name, NOT_SET)} -> {new.get(name, NOT_SET)}" for name in names[:MOST_FIELDS]]
    more = len(names) - MOST_FIELDS
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every set value of a spec with its path, such as enforcement.steps[0].at."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}[{number}]")
    elif value is not None:
        yield path, value

"""Facts from outside, as documents write them: instances, offers, machines, and what stands in the ledger."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.api.quantities import InvalidQuantity, nano
from headroom.model import times
from headroom.model.facts import Usage
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import FACTS

FIELDS: Final = {each.type.__name__: name for name, each in FACTS.items() if each.manifest}
"""The kinds of documents that are facts, and the field of the World that each belongs to."""
KINDS: Final[dict[str, type[Struct]]] = {
    **{kind: FACTS[name].type for kind, name in FIELDS.items()},
    "Usage": Usage,
    "HomeVerdict": HomeVerdict,
}
_MICRO: Final = 1000
"""Billionths in a millionth."""
_MOMENTS: Final = ("launchedAt", "reclaimAt", "at", "scoredAt", "since", "start", "end")
_AMOUNTS: Final = ("gpus", "pricePerHour")
_COUNTS: Final = ("score", "gpuMemory", "networkMbps")
_MAPPINGS: Final = ("tags", "labels")
_POWER: Final = ("On", "Off", "PoweringOff", "Unknown")

Problems = list[tuple[str, str]]


@cache
def _fields(type_: type[Struct]) -> dict[str, str]:
    """What a document may say of a fact, and where that goes. Asking msgspec evaluates every annotation anew."""
    return {each.encode_name: each.name for each in msgspec.structs.fields(type_) if each.name != "name"}


def fact(kind: str, document: dict[str, Any]) -> tuple[Any, Problems]:
    """The fact, and what is wrong with it: field and message. A wrong field is left out, never guessed."""
    type_ = KINDS[kind]
    known = _fields(type_)
    problems: Problems = []
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        problems.append(("metadata.name", "is required"))
    problems += [
        (str(key), "is not a field here") for key in document if key not in ("apiVersion", "kind", "metadata", "spec")
    ]
    spec = document.get("spec")
    if not isinstance(spec, dict):
        problems.append(("spec", "is required"))
        spec = {}
    values: dict[str, Any] = {"name": str(name or "")}
    for key, value in spec.items():
        if key not in known:
            problems.append((f"spec.{key}", f"is not a field here; the fields are {', '.join(sorted(known))}"))
            continue
        found, problem = _value(kind, key, value)
        if problem:
            problems.append((f"spec.{key}", problem))
        elif found is not None:
            values[known[key]] = found
    if kind == "Usage" and "start" not in spec and isinstance(document.get("spec"), dict):
        problems.append(("spec.start", "is required"))
    return type_(**values), problems


def _value(kind: str, key: str, value: Any) -> tuple[Any, str]:
    if value is None:
        return None, ""
    if key in _MOMENTS:
        moment = times.moment(value) if isinstance(value, str) else None
        return moment, "" if moment is not None else f"must be a moment such as 2026-01-31T12:00:00Z, not {value!r}"
    if key in _AMOUNTS:
        return _millionths(value)
    if key in _MAPPINGS:
        good = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        return (value, "") if good else (None, "must be a mapping of text to text")
    if key in _COUNTS:
        good = isinstance(value, int) and not isinstance(value, bool)
        return (value, "") if good else (None, f"must be a whole number, not {value!r}")
    if key in ("holds", "available"):
        return (value, "") if isinstance(value, bool) else (None, f"must be true or false, not {value!r}")
    if kind == "Machine" and key == "power" and isinstance(value, bool):
        value = "On" if value else "Off"  # YAML takes these two words for yes and no
    if not isinstance(value, str):
        return None, f"must be text, not {value!r}"
    if kind == "Machine" and key == "power" and value not in _POWER:
        return None, f"must be one of {', '.join(_POWER)}, not {value!r}"
    return value, ""


def _millionths(value: Any) -> tuple[int | None, str]:
    """An amount of GPUs or dollars in millionths, exactly; a finer one is refused, since it could not be kept."""
    # YAML reads 1.5 as a float; its shortest text is what was written.
    text = repr(value) if isinstance(value, float) else value
    found = nano(text, largest=10**12) if isinstance(text, (str, int)) else InvalidQuantity("must be a decimal number")
    if isinstance(found, InvalidQuantity):
        return None, found.reason
    if found < 0:
        return None, "must not be negative"
    if found % _MICRO:
        return None, "must have at most 6 decimals"
    return found // _MICRO, ""

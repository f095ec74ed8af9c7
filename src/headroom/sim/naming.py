"""What the API server demands of every object's metadata: texts where texts belong, and names that are names."""

from __future__ import annotations

from typing import Any, Final

from headroom.api.resources import LABEL_VALUE, is_qualified_name
from headroom.api.schema import matches
from headroom.sim.answers import Body, Cause, invalid_value
from headroom.sim.catalog import ResourceType

PARTS: Final = ("labels", "annotations", "finalizers")
LARGEST_ANNOTATIONS: Final = 256 * 1024
STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")


def not_text(body: Body) -> str:
    """Where something else stands that must be text, and what it is; empty if nothing does."""
    metadata = body.get("metadata")
    places = {f"ObjectMeta.metadata.{name}": (metadata or {}).get(name) for name in ("labels", "annotations")}
    if body.get("kind") == "ConfigMap":
        places["ConfigMap.data"] = body.get("data")
    for place, values in places.items():
        for each in values.values() if isinstance(values, dict) else ():
            if each is not None and not isinstance(each, str):
                return f"json: cannot unmarshal {_json_type(each)} into Go struct field {place} of type string"
    return ""


def _json_type(value: Any) -> str:
    kinds = ((bool, "bool"), (int, "number"), (float, "number"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def causes(type_: ResourceType, metadata: Body) -> list[Cause]:
    """Every rule that labels, annotations and finalizers break."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    found = [
        invalid_value(f"metadata.{part}", key, "name part must consist of alphanumeric characters, '-', '_' or '.'")
        for part, keys in (("labels", labels), ("annotations", map(str.lower, annotations)))
        for key in keys
        if not is_qualified_name(key)
    ]
    found += [
        invalid_value(
            "metadata.labels", value, "a valid label must be an empty string or consist of alphanumeric characters"
        )
        for value in labels.values()
        if len(value) > 63 or not matches(LABEL_VALUE, value)
    ]
    if sum(len(text.encode()) for pair in annotations.items() for text in pair) > LARGEST_ANNOTATIONS:
        why = f"Too long: may not be more than {LARGEST_ANNOTATIONS} bytes"
        found.append(Cause("metadata.annotations", "FieldValueTooLong", why))
    if not type_.custom:
        found += _finalizer_causes(metadata.get("finalizers") or [])
    return found


def _finalizer_causes(finalizers: list[str]) -> list[Cause]:
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid_value(f"metadata.finalizers[{index}]", each, why)
        for index, each in enumerate(finalizers)
        if each not in STANDARD_FINALIZERS and "/" not in each
    ]

"""The metadata of a resource: not ours to define, but a wrong name or label must be named like any other wrong field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from typing import Annotated, Any, Final

from msgspec import Meta

from headroom.api import schema
from headroom.api.resources import LABEL_VALUE, SUBDOMAIN, ApiType, Kind, is_qualified_name
from headroom.api.schema import Json, Problem, Rule, Schema, extra, matches

LARGEST_ANNOTATIONS: Final = 256 * 1024
GENERATED_NAME: Final = (58, 5)
"""How much of generateName is kept, and how many random characters follow it."""


def _own(message: str, holds: Callable[[Any], bool]) -> Rule:
    """A rule that the API server has built in, so that there is no CEL for it."""
    return Rule(cel="", message=message, holds=holds)


def _are_label_values(labels: dict[str, str]) -> bool:
    return all(len(each) <= 63 and matches(LABEL_VALUE, each) for each in labels.values())


def _fit(annotations: dict[str, str]) -> bool:
    return (
        sum(len(text.encode(errors="replace")) for pair in annotations.items() for text in pair) <= LARGEST_ANNOTATIONS
    )


def _is_a_day(text: str) -> bool:
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


_LABEL_KEYS: Final = _own(
    "every key must be a label key such as team or example.com/team", lambda it: all(map(is_qualified_name, it))
)
_LABEL_VALUES: Final = _own(
    "every value must have at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    _are_label_values,
)
_ANNOTATION_KEYS: Final = _own(
    "every key must be a name such as team or example.com/team",
    lambda it: all(is_qualified_name(key.lower()) for key in it),
)
_ANNOTATIONS_FIT: Final = _own(f"must have at most {LARGEST_ANNOTATIONS} bytes together", _fit)
_FINALIZERS: Final = _own("each must be a name such as example.com/cleanup", lambda it: all(map(is_qualified_name, it)))
_ONE_CONTROLLER: Final = _own(
    "only one of them can be the controller", lambda it: sum(each.get("controller") is True for each in it) <= 1
)


class OwnerReference(ApiType, frozen=True, kw_only=True):
    """The object with which this one is deleted."""

    api_version: Annotated[str, Meta(min_length=1)]
    kind: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]
    uid: Annotated[str, Meta(min_length=1)]
    controller: bool = False
    block_owner_deletion: bool = False


Timestamp = Annotated[
    str,
    Meta(
        pattern=(
            r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.,][0-9]+)?"
            r"(Z|[+-]([01][0-9]|2[0-4]):[0-5][0-9])$"
        ),
        extra=extra(_own("must be a day of the calendar", _is_a_day), hint="a time such as 2026-01-31T12:00:00Z"),
    ),
]


class ObjectMeta(ApiType, frozen=True, kw_only=True):
    """What Kubernetes keeps for every object; managedFields is left out, as no one writes it by hand."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: Annotated[dict[str, str], Meta(extra=extra(_LABEL_KEYS, _LABEL_VALUES))] = {}
    annotations: Annotated[dict[str, str], Meta(extra=extra(_ANNOTATION_KEYS, _ANNOTATIONS_FIT))] = {}
    finalizers: Annotated[tuple[str, ...], Meta(extra=extra(_FINALIZERS))] = ()
    owner_references: Annotated[tuple[OwnerReference, ...], Meta(extra=extra(_ONE_CONTROLLER))] = ()
    uid: str = ""
    resource_version: str = ""
    self_link: str = ""
    generation: int = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: int = 0


@cache
def metadata_schema() -> Schema:
    """The schema of any object's metadata."""
    return schema.of(ObjectMeta)


def metadata_problems(kind: Kind, metadata: Json) -> Iterator[Problem]:
    """What the API server would say of the metadata of a new object of this kind."""
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        yield Problem("metadata", f"must be a mapping with at least a name, not {schema.shown(metadata)}")
        return
    managed = metadata.get("managedFields")
    if managed is not None and not isinstance(managed, list):
        yield Problem("metadata.managedFields", "must be left out: the API server writes it")
    known = {name: _texts(each) for name, each in metadata.items() if name != "managedFields"}
    yield from schema.check(metadata_schema(), known, "metadata")
    yield from _name_problems(kind, known)
    namespace = known.get("namespace")
    if kind.namespaced and namespace and isinstance(namespace, str) and not _is_name(namespace, longest=63, dots=False):
        yield Problem("metadata.namespace", "must have at most 63 lower-case letters, digits and '-'")


def _name_problems(kind: Kind, metadata: dict[str, Json]) -> Iterator[Problem]:
    name, prefix = metadata.get("name"), metadata.get("generateName")
    shape = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
    if prefix and isinstance(prefix, str):
        kept, added = GENERATED_NAME
        # Kubernetes takes a last dash and the character before it for one good character.
        judged = prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") and prefix.isascii() else prefix
        if not _is_name(judged):
            yield Problem("metadata.generateName", f"must be {shape}")
        name = name or prefix[:kept] + "x" * added
    if not name:
        yield Problem("metadata.name", "is required", "Required")
    elif isinstance(name, str) and (not _is_name(name) or len(name) > kind.longest_name):
        yield Problem("metadata.name", f"must have at most {kind.longest_name} {shape}")


def _is_name(text: str, *, longest: int = 253, dots: bool = True) -> bool:
    return len(text) <= longest and (dots or "." not in text) and matches(SUBDOMAIN, text)


def _texts(value: Json) -> Json:
    # In labels and annotations a null is read as an empty text.
    return {key: "" if each is None else each for key, each in value.items()} if isinstance(value, dict) else value

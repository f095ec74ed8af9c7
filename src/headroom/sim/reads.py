"""GET and LIST: single objects, pages pinned to one version, and objects as they were at an earlier one."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.sim import selecting
from headroom.sim.answers import (
    Body,
    Cause,
    ErrorAnswer,
    bad_request,
    expired,
    forbidden_field,
    invalid,
    not_found,
    too_large,
)
from headroom.sim.apistore import ObjectStore, Record
from headroom.sim.catalog import PathTarget, ResourceType
from headroom.sim.selecting import Match

_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing "
    "with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the "
    "time the first chunk was returned and now may show up in the list."
)


class Token(Struct, frozen=True):
    """Where a list goes on; opaque to clients."""

    rv: int
    """The version that the list is pinned to; -1 for whatever is there now."""
    start: str
    v: str = "meta.k8s.io/v1"

    def text(self) -> str:
        """The token as clients get it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def token(text: str) -> Token:
    """The token that a client sent."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as failure:
        raise bad_request(f"invalid continue token: continue key is not valid: {failure}") from None


def version_of(text: str | None, where: str = "") -> int:
    """A resourceVersion as a number; none is 0."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise (
            ErrorAnswer(400, "BadRequest", f"invalid resource version: {why}")
            if not where
            else ErrorAnswer(500, "", why)
        )
    return int(text)


def wrong_options(field: str, why: str) -> ErrorAnswer:
    """The refusal of a combination of list options."""
    return invalid("meta.k8s.io", "ListOptions", "", [forbidden_field(field, why)])


def matching(type_: ResourceType, query: Mapping[str, str]) -> Match | None:
    """The test that the query's selectors stand for together; None where there are none."""
    labels = selecting.by_labels(query.get("labelSelector", ""))
    plain = not type_.custom and type_.fields == selecting.NAMES
    fields = selecting.by_fields(query.get("fieldSelector", ""), type_.fields, named=plain)
    if labels and fields:
        return lambda body: labels(body) and fields(body)
    return labels or fields


def get(store: ObjectStore, target: PathTarget, query: Mapping[str, str]) -> Record:
    """One object."""
    version = version_of(query.get("resourceVersion"))
    if version > store.version:
        raise too_large(version, store.version)
    record = store.get(target.type, target.namespace, target.name)
    if record is None:
        raise not_found(target.type.group, target.type.plural, target.name)
    return record


def listed(store: ObjectStore, target: PathTarget, query: Mapping[str, str]) -> bytes:
    """A list, or a page of it, as JSON."""
    type_ = target.type
    match = matching(type_, query)
    limit = _limit(query.get("limit") or "0")
    version, records = _snapshot(store, target, query, limit)
    if match:
        records = [each for each in records if match(each.body)]
    metadata: Body = {"resourceVersion": str(version)}
    if limit and len(records) > limit:
        metadata["continue"] = Token(version, "/".join(records[limit].key)).text()
        if match is None:
            metadata["remainingItemCount"] = len(records) - limit
        records = records[:limit]
    head = msgspec.json.encode({"kind": f"{type_.kind}List", "apiVersion": type_.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(each.item() for each in records) + b"]}"


def _limit(text: str) -> int:
    try:
        return max(0, int(text))
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _snapshot(store: ObjectStore, target: PathTarget, query: Mapping[str, str], limit: int) -> tuple[int, list[Record]]:
    if query.get("continue"):
        return _continued(store, target, query)
    match, asked = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    version = version_of(asked)
    if match and not asked:
        raise wrong_options(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if match not in ("", "Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
        cause = Cause("resourceVersionMatch", "FieldValueNotSupported", why)
        raise invalid("meta.k8s.io", "ListOptions", "", [cause])
    if match == "Exact" and version == 0:
        raise wrong_options("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if version > store.version:
        raise too_large(version, store.version)
    # A page at a version without a word on how to match it means exactly that version.
    if match == "Exact" or (version and limit and not match):
        return version, store.at(target.type, target.namespace, version)
    return store.version, store.all(target.type, target.namespace)


def _continued(store: ObjectStore, target: PathTarget, query: Mapping[str, str]) -> tuple[int, list[Record]]:
    if query.get("resourceVersion") not in (None, "", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    mark = token(query["continue"])
    if mark.rv == -1:
        version, records = store.version, store.all(target.type, target.namespace)
    elif mark.rv < store.compacted and mark.rv != store.version:
        raise expired(_TOO_OLD, extra={"continue": Token(-1, mark.start).text()})
    else:
        version, records = mark.rv, store.at(target.type, target.namespace, mark.rv)
    start: tuple[Any, ...] = tuple(mark.start.split("/", 1))
    return version, [each for each in records if each.key >= start]

"""The kinds that people write, those of the operator itself, and the two questions everyone asks of a document: is it right, and what does it say."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from headroom.api import schema
from headroom.api.bandwidth import Bandwidth
from headroom.api.bandwidth_config import BandwidthConfig
from headroom.api.budget_hold import BudgetHold
from headroom.api.budget_index import BudgetIndex
from headroom.api.budgets import GPUWorkloadBudget
from headroom.api.metadata import metadata_problems
from headroom.api.offers import LeftoverNodePool
from headroom.api.power import PowerPool
from headroom.api.reading import readable
from headroom.api.releases import ReleaseRequest
from headroom.api.resources import API_VERSION, Definition, Kind, Resource, Spec, Status
from headroom.api.schema import Json, Problem, Schema
from headroom.api.spot_pools import Spotpool

KINDS: Final[dict[str, Kind]] = {
    each.kind.name: each.kind
    for each in (GPUWorkloadBudget, Spotpool, PowerPool, Bandwidth, LeftoverNodePool, ReleaseRequest)
}
OPERATOR_KINDS: Final[dict[str, Definition]] = {
    each.kind.name: each.kind for each in (BudgetIndex, BudgetHold, BandwidthConfig)
}
"""The kinds that only the operator writes, for the policies of the API server to read."""
DEFINITIONS: Final[dict[str, Definition]] = {**KINDS, **OPERATOR_KINDS}
AnyResource = Resource[Any, Any]

_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")


@cache
def spec_schema(kind: str) -> Schema:
    """The schema of a kind's spec."""
    return schema.of(DEFINITIONS[kind].spec)


@cache
def status_schema(kind: str) -> Schema:
    """The schema of a kind's status."""
    return schema.of(KINDS[kind].status)


def problems(document: Json) -> list[Problem]:
    """Every wrong field of one of our resources, those of metadata first; none means the API server accepts it."""
    if not isinstance(document, dict):
        return [Problem("", "must be a Kubernetes object: a mapping with apiVersion, kind, metadata and spec")]
    word = document.get("kind")
    kind = KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        return [Problem("kind", f"must be one of {', '.join(KINDS)}, not {schema.shown(word)}")]
    found = []
    if (version := document.get("apiVersion")) != API_VERSION:
        found.append(Problem("apiVersion", f"must be {API_VERSION}, not {schema.shown(version)}"))
    metadata, spec = document.get("metadata"), document.get("spec")
    found += metadata_problems(kind, metadata)
    found += [
        Problem(name := key if isinstance(key, str) else schema.shown(key), schema.no_field(name, _FIELDS))
        for key in document
        if key not in _FIELDS
    ]
    if spec is None:
        found.append(Problem("spec", "is required", "Required"))
    else:
        found += schema.check(spec_schema(kind.name), spec, "spec")
        if kind.rules:
            stored = {"metadata": metadata or {}, "spec": schema.defaulted(spec_schema(kind.name), spec)}
            found += schema.check_rules(kind.rules, stored, "")
    return found + _status_problems(kind, document)


def _status_problems(kind: Kind, document: dict[str, Json]) -> list[Problem]:
    """Fields that a new object's status does not have; what stands in the others is dropped by the API server anyway.

    An object that was stored already had this check. It is not repeated, lest an operator that was rolled back refuses a
    resource because its successor wrote more into the status.
    """
    metadata, status = document.get("metadata"), document.get("status")
    if status is None or (isinstance(metadata, dict) and metadata.get("uid")):
        return []
    found = schema.check(status_schema(kind.name), status, "status")
    return [each for each in found if each.fault == "Unknown"]


def spec_of(kind: str, document: Json) -> Spec:
    """The typed spec of a document without problems."""
    return msgspec.convert(schema.defaulted(spec_schema(kind), document), KINDS[kind].spec, strict=True)


def status_of(kind: str, document: Json) -> Status:
    """The typed status, with every field that can be read; an older or newer version may have written the others."""
    try:
        status: Status = readable(document or {}, KINDS[kind].status)
    except msgspec.ValidationError:
        return KINDS[kind].status()
    return status

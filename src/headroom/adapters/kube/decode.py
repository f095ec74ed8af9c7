"""Turns list pages and watch lines into facts: event and object in one typed pass, with only the fields that are kept.

An object that does not fit its type is read again piece by piece, so that it costs itself some fields and nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from headroom.adapters.kube import disruptions, karpenter, operator_kinds, parse, raw, workloads
from headroom.adapters.kube.admission import Policy, policy_of
from headroom.adapters.kube.claims import claim_of
from headroom.adapters.kube.listwatch import Event, Page
from headroom.adapters.kube.operator_kinds import Index
from headroom.adapters.kube.parse import Settings
from headroom.api.kinds import AnyResource
from headroom.api.resources import API_VERSION
from headroom.model import facts
from headroom.model.errors import Unavailable

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

Wire = TypeVar("Wire")
WireStruct = TypeVar("WireStruct", bound=msgspec.Struct)


class Versioned(Protocol):
    """A fact that knows which version of its object it was read from."""

    @property
    def resource_version(self) -> str: ...


Fact = TypeVar("Fact", bound=Versioned)


class WireEvent(raw.Part, Generic[Wire]):
    """One line of a watch."""

    type: str | None = None
    object: Wire | None = None


class WirePage(raw.Part, Generic[Wire]):
    """One page of a list."""

    metadata: raw.ListMeta | None = None
    items: list[Wire] | None = None


class FactDecoder(Generic[Wire, Fact]):
    """Reads pages and lines of one kind of object."""

    def __init__(
        self,
        pages: msgspec.json.Decoder[WirePage[Wire]],
        events: msgspec.json.Decoder[WireEvent[Wire]],
        repair: Callable[[object], Wire],
        fact: Callable[[Wire], Fact],
    ) -> None:
        self._pages, self._events, self._repair, self._fact = pages, events, repair, fact

    def page(self, body: bytes) -> Page[Fact]:
        """One page of a list. Raises `Unavailable` for anything else: an empty answer must not pass for an empty cluster."""
        try:
            found = self._pages.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = self._repaired_page(body)
        meta = found.metadata
        if meta is None or not meta.resource_version:
            raise Unavailable("listing: the API server answered with something that is no list")
        return Page(
            items=[self._fact(each) for each in found.items or ()], version=meta.resource_version, cont=meta.next or ""
        )

    def event(self, line: bytes) -> Event[Fact]:
        """One line of a watch. Raises `Unavailable` when it is no event: then the stream was cut."""
        try:
            found = self._events.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = self._repaired_event(line)
        if found.type == "ERROR":
            return _failure(line)
        if found.type == "BOOKMARK":
            return _bookmark(line)
        if not found.type or found.object is None:
            raise Unavailable("watching: the API server sent something that is no event")
        fact = self._fact(found.object)
        return Event(type=found.type, fact=fact, version=fact.resource_version)

    def _repaired_page(self, body: bytes) -> WirePage[Wire]:
        document = _mapping(raw.plain(body))
        items = document.get("items")
        return WirePage(
            metadata=raw.fitted(document.get("metadata"), raw.ListMeta),
            items=[self._repair(each) for each in items] if isinstance(items, list) else [],
        )

    def _repaired_event(self, line: bytes) -> WireEvent[Wire]:
        document = _mapping(raw.plain(line))
        return WireEvent(type=str(document.get("type") or ""), object=self._repair(document.get("object")))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _failure(line: bytes) -> Event[Any]:
    why = raw.fitted(_mapping(raw.plain(line)).get("object"), raw.Failure)
    return Event(
        type="ERROR", fact=None, version="", status_code=why.code or 0, message=why.message or why.reason or ""
    )


def _bookmark(line: bytes) -> Event[Any]:
    meta = raw.fitted(_mapping(raw.plain(line)).get("object"), raw.Object).metadata or raw.ObjectMeta()
    return Event(
        type="BOOKMARK",
        fact=None,
        version=meta.resource_version or "",
        initial_end=(meta.annotations or {}).get(INITIAL_EVENTS_END) == "true",
    )


def _of(wire: type[WireStruct], fact: Callable[[WireStruct], Fact]) -> FactDecoder[WireStruct, Fact]:
    """Reads what one wire type describes, and mends what does not fit it."""
    return FactDecoder(
        msgspec.json.Decoder(WirePage[wire]),  # type: ignore[valid-type]  # a type that is only known here
        msgspec.json.Decoder(WireEvent[wire]),  # type: ignore[valid-type]  # as above
        lambda document: raw.fitted(document, wire),
        fact,
    )


def pods() -> FactDecoder[raw.Pod, facts.Pod]:
    """Reads pods."""
    return _of(raw.Pod, parse.pod_of)


def nodes() -> FactDecoder[raw.Node, facts.Node]:
    """Reads nodes."""
    return _of(raw.Node, parse.node_of)


def namespaces() -> FactDecoder[raw.Object, facts.Namespace]:
    """Reads namespaces."""
    return _of(raw.Object, parse.namespace_of)


def claims() -> FactDecoder[raw.ResourceClaim, facts.Claim]:
    """Reads ResourceClaims."""
    return _of(raw.ResourceClaim, claim_of)


def jobs() -> FactDecoder[raw.Job, facts.Workload]:
    """Reads Jobs."""
    return _of(raw.Job, workloads.job_of)


def job_sets() -> FactDecoder[raw.JobSet, facts.Workload]:
    """Reads JobSets."""
    return _of(raw.JobSet, workloads.job_set_of)


def kueue_workloads() -> FactDecoder[raw.Workload, facts.Workload]:
    """Reads Workloads of Kueue."""
    return _of(raw.Workload, workloads.workload_of)


def node_pools() -> FactDecoder[karpenter.NodePoolWire, facts.NodePool]:
    """Reads NodePools of Karpenter."""
    return _of(karpenter.NodePoolWire, karpenter.node_pool_of)


def node_claims() -> FactDecoder[karpenter.NodeClaimWire, facts.NodeClaim]:
    """Reads NodeClaims of Karpenter."""
    return _of(karpenter.NodeClaimWire, karpenter.node_claim_of)


def disruption_budgets() -> FactDecoder[disruptions.Wire, disruptions.Disruption]:
    """Reads PodDisruptionBudgets."""
    return _of(disruptions.Wire, disruptions.disruption_of)


def policies() -> FactDecoder[raw.Object, Policy]:
    """Reads admission policies and their bindings."""
    return _of(raw.Object, policy_of)


def _of_documents(fact: Callable[[dict[str, Any]], Fact]) -> FactDecoder[dict[str, Any], Fact]:
    """Reads whole documents."""
    return FactDecoder(
        msgspec.json.Decoder(WirePage[dict[str, Any]]),
        msgspec.json.Decoder(WireEvent[dict[str, Any]]),
        _mapping,
        fact,
    )


def indexes() -> FactDecoder[dict[str, Any], Index]:
    """Reads BudgetIndexes."""
    return _of_documents(operator_kinds.index_of)


def holds() -> FactDecoder[dict[str, Any], facts.Hold]:
    """Reads BudgetHolds."""
    return _of_documents(operator_kinds.hold_of)


def settings() -> FactDecoder[raw.ConfigMap, Settings]:
    """Reads ConfigMaps."""
    return _of(raw.ConfigMap, parse.settings_of)


def resources(kind: str) -> FactDecoder[dict[str, Any], AnyResource]:
    """Reads one of our own kinds."""
    named = {"apiVersion": API_VERSION, "kind": kind}
    return _of_documents(lambda document: parse.resource(named | document))

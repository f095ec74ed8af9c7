"""Turns list pages and watch lines into facts: event and object in one typed pass, with only the fields that are kept.

An object that does not fit its type is read again piece by piece, so that it costs itself some fields and nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from headroom.adapters.kube import (
    admission,
    devices,
    disruptions,
    operator_kinds,
    parse,
    raw,
)
from headroom.adapters.kube.admission import Policy, policy_of
from headroom.adapters.kube.listwatch import Event, ListPage
from headroom.adapters.kube.operator_kinds import RawBudgetIndex
from headroom.adapters.kube.parse import RawConfigMap
from headroom.api.kinds import AnyResource
from headroom.api.resources import API_VERSION
from headroom.model import facts
from headroom.model.errors import Unavailable

_DEVICES: Final = f"{devices.GROUP}/v1"
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")

Name = tuple[str | None, str | None]
"""The apiVersion and the kind of an object, as far as it says."""

Wire = TypeVar("Wire")
WireStruct = TypeVar("WireStruct", bound=raw.Object)


class VersionedFact(Protocol):
    """A fact that knows which version of its object it was read from."""

    @property
    def resource_version(self) -> str: ...


Fact = TypeVar("Fact", bound=VersionedFact)


class WireEvent(raw.RawPart, Generic[Wire]):
    """One line of a watch."""

    type: str | None = None
    object: Wire | None = None


class WirePage(raw.RawPart, Generic[Wire]):
    """One page of a list."""

    api_version: str | None = None
    kind: str | None = None
    metadata: raw.ListMeta | None = None
    items: list[Wire] | None = None


class KindCheck(Generic[Wire]):
    """The names that objects of one kind go by, and how one is asked for its own."""

    def __init__(self, api_version: str, kinds: Iterable[str], name: Callable[[Wire], Name]) -> None:
        self._api_version, self._kinds, self._name = api_version, frozenset(kinds), name
        self._lists = frozenset(f"{kind}List" for kind in self._kinds)

    def check(self, wire: Wire) -> None:
        """Raises `Unavailable` for an object of another kind: whoever sent it is not the API server, or not well."""
        self._check(self._name(wire), self._kinds)

    def check_page(self, page: WirePage[Wire]) -> None:
        """Raises `Unavailable` for a list of another kind."""
        self._check((page.api_version, page.kind), self._lists)

    def _check(self, name: Name, kinds: frozenset[str]) -> None:
        version, kind = name
        if kind and kinds and (kind not in kinds or version not in (None, self._api_version)):
            wanted = " or ".join(sorted(kinds))
            raise Unavailable(f"reading {wanted} of {self._api_version}: the API server sent {kind} of {version}")


class FactDecoder(Generic[Wire, Fact]):
    """Reads pages and lines of one kind of object."""

    def __init__(
        self,
        pages: msgspec.json.Decoder[WirePage[Wire]],
        events: msgspec.json.Decoder[WireEvent[Wire]],
        repair: Callable[[object], Wire],
        fact: Callable[[Wire], Fact],
        named: KindCheck[Wire],
    ) -> None:
        self._pages, self._events, self._repair, self._fact, self._named = pages, events, repair, fact, named

    def page(self, body: bytes) -> ListPage[Fact]:
        """One page of a list. Raises `Unavailable` for anything else: an empty answer must not pass for an empty cluster."""
        try:
            found = self._pages.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = self._repaired_page(body)
        meta, items = found.metadata, found.items or ()
        if meta is None or not meta.resource_version:
            raise Unavailable("listing: the API server answered with something that is not a list")
        self._named.check_page(found)
        for each in items:
            self._named.check(each)
        return ListPage(items=[self._fact(each) for each in items], version=meta.resource_version, cont=meta.next or "")

    def event(self, line: bytes) -> Event[Fact]:
        """One line of a watch. Raises `Unavailable` when it is no event: then the stream was cut."""
        try:
            found = self._events.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = self._repaired_event(line)
        if found.type == "ERROR":
            return _failure(line)
        if found.type != "BOOKMARK" and (found.type not in CHANGES or found.object is None):
            raise Unavailable("watching: the API server sent something that is not an event")
        if found.object is not None:
            self._named.check(found.object)
        if found.type == "BOOKMARK":
            return _bookmark(line)
        assert found.object is not None
        fact = self._fact(found.object)
        return Event(type=found.type, fact=fact, version=fact.resource_version)

    def _repaired_page(self, body: bytes) -> WirePage[Wire]:
        document = _mapping(raw.plain(body))
        items = document.get("items")
        head = raw.fitted(document, raw.Object)
        return WirePage(
            api_version=head.api_version,
            kind=head.kind,
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


_BOOKMARKS: Final = msgspec.json.Decoder(WireEvent[raw.Object])


def _bookmark(line: bytes) -> Event[Any]:
    try:
        found = _BOOKMARKS.decode(line).object
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = raw.fitted(_mapping(raw.plain(line)).get("object"), raw.Object)
    meta = (found and found.metadata) or raw.RawObjectMeta()
    return Event(
        type="BOOKMARK",
        fact=None,
        version=meta.resource_version or "",
        initial_end=(meta.annotations or {}).get(INITIAL_EVENTS_END) == "true",
    )


def of(
    wire: type[WireStruct], fact: Callable[[WireStruct], Fact], api_version: str = "", *kinds: str
) -> FactDecoder[WireStruct, Fact]:
    """Reads what one wire type describes, and mends what does not fit it."""
    return FactDecoder(
        msgspec.json.Decoder(WirePage[wire]),  # type: ignore[valid-type]  # a type that is only known here
        msgspec.json.Decoder(WireEvent[wire]),  # type: ignore[valid-type]  # as above
        lambda document: raw.fitted(document, wire),
        fact,
        KindCheck(api_version, kinds, lambda found: (found.api_version, found.kind)),
    )


def pods() -> FactDecoder[raw.RawPod, facts.Pod]:
    """Reads pods."""
    return of(raw.RawPod, parse.pod_of, "v1", "Pod")


def nodes() -> FactDecoder[raw.RawNode, facts.Node]:
    """Reads nodes."""
    return of(raw.RawNode, parse.node_of, "v1", "Node")


def names() -> FactDecoder[raw.Object, facts.Namespace]:
    """Reads the names and labels of objects of any kind."""
    return of(raw.Object, parse.namespace_of)


def disruption_budgets() -> FactDecoder[disruptions.RawDisruptionBudget, disruptions.Disruption]:
    """Reads PodDisruptionBudgets."""
    return of(disruptions.RawDisruptionBudget, disruptions.disruption_of, "policy/v1", "PodDisruptionBudget")


def policies() -> FactDecoder[raw.Object, Policy]:
    """Reads admission policies and their bindings."""
    return of(raw.Object, policy_of, "admissionregistration.k8s.io/v1", *admission.KINDS.values())


def of_documents(fact: Callable[[dict[str, Any]], Fact], kind: str) -> FactDecoder[dict[str, Any], Fact]:
    """Reads whole documents of a kind of ours."""

    def name(document: dict[str, Any]) -> Name:
        found = raw.fitted(document, raw.Object)
        return found.api_version, found.kind

    return FactDecoder(
        msgspec.json.Decoder(WirePage[dict[str, Any]]),
        msgspec.json.Decoder(WireEvent[dict[str, Any]]),
        _mapping,
        fact,
        KindCheck(API_VERSION, [kind], name),
    )


def indexes() -> FactDecoder[dict[str, Any], RawBudgetIndex]:
    """Reads BudgetIndexes."""
    return of_documents(operator_kinds.index_of, "BudgetIndex")


def holds() -> FactDecoder[dict[str, Any], facts.Hold]:
    """Reads BudgetHolds."""
    return of_documents(operator_kinds.hold_of, "BudgetHold")


def settings() -> FactDecoder[raw.ConfigMap, RawConfigMap]:
    """Reads ConfigMaps."""
    return of(raw.ConfigMap, parse.settings_of, "v1", "ConfigMap")


def resources(kind: str) -> FactDecoder[dict[str, Any], AnyResource]:
    """Reads one of our own kinds."""
    named = {"apiVersion": API_VERSION, "kind": kind}
    return of_documents(lambda document: parse.resource(named | document), kind)

"""Headroom's resources, by kind and in order: a plan reads one kind at a time, and never sorts all of them for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model.decisions import Ref

Listed = list[tuple[Ref, AnyResource]]


class ResourceTable(Mapping[Ref, AnyResource]):
    """Resources under their names. Whoever keeps it writes; plans only read."""

    def __init__(self, resources: Mapping[Ref, AnyResource] | None = None) -> None:
        self._kinds: dict[str, dict[Ref, AnyResource]] = {}
        self._sorted: dict[str, Listed] = {}
        for ref, each in (resources or {}).items():
            self.put(ref, each)

    def __getitem__(self, ref: Ref) -> AnyResource:
        return self._kinds[ref.kind][ref]

    def __iter__(self) -> Iterator[Ref]:
        return (ref for found in self._kinds.values() for ref in found)

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def put(self, ref: Ref, resource: AnyResource) -> None:
        """Keep a resource."""
        self._kinds.setdefault(ref.kind, {})[ref] = resource
        self._sorted.pop(ref.kind, None)

    def remove(self, ref: Ref) -> None:
        """It is gone."""
        del self._kinds[ref.kind][ref]
        self._sorted.pop(ref.kind, None)

    def of_kind(self, kind: str) -> Listed:
        """Every resource of a kind, by namespace and name."""
        if kind not in self._sorted:
            self._sorted[kind] = sorted(self._kinds.get(kind, {}).items())
        return self._sorted[kind]

    def overlaid(self, statuses: Mapping[Ref, Status]) -> ResourceTable:
        """The same resources, some with another status than the one that is written."""
        found = ResourceTable()
        found._kinds, found._sorted = dict(self._kinds), dict(self._sorted)
        for kind in {ref.kind for ref in statuses}:
            known = [(ref, _with(each, statuses.get(ref))) for ref, each in self.of_kind(kind)]
            found._kinds[kind], found._sorted[kind] = dict(known), known
        return found


def _with(resource: AnyResource, status: Status | None) -> AnyResource:
    return resource if status is None else structs.replace(resource, status=status)

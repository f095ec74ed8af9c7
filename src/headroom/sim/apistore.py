"""The memory of the simulated API server: objects, one growing version for all of them, and what happened since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headroom.model.ports import Clock
from headroom.sim.answers import Body, expired, too_large
from headroom.sim.apply import Owners, managed_fields
from headroom.sim.catalog import ResourceType

Key = tuple[str, str]
"""Namespace and name."""

KEPT_MS: Final = 600_000
"""How long events are kept for watches, unless `compact` forgets them sooner."""


class Record:
    """One object as it was at one version. Its body is never changed."""

    __slots__ = ("_raw", "body", "owners", "type", "version")

    def __init__(self, type_: ResourceType, body: Body, owners: Owners) -> None:
        self.type, self.body, self.owners = type_, body, owners
        self.version = int(body["metadata"].get("resourceVersion", 0))
        self._raw: bytes | None = None

    @property
    def key(self) -> Key:
        """Namespace and name."""
        metadata = self.body["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    @property
    def uid(self) -> str:
        """The identity that no second object ever has."""
        return str(self.body["metadata"]["uid"])

    def document(self) -> Body:
        """The object as clients see it, with its managedFields."""
        if not self.owners:
            return self.body
        metadata = self.body["metadata"] | {"managedFields": managed_fields(self.owners, self.type.api_version)}
        return self.body | {"metadata": metadata}

    def raw(self) -> bytes:
        """The object as JSON."""
        if self._raw is None:
            self._raw = msgspec.json.encode(self.document())
        return self._raw

    def item(self) -> bytes:
        """The object as it stands in a list: without kind and apiVersion, unless it is a custom one."""
        if self.type.custom:
            return self.raw()
        return msgspec.json.encode(
            {key: value for key, value in self.document().items() if key not in ("kind", "apiVersion")}
        )


class Change:
    """One write: the object before (None if it was made) and after it (None if it went)."""

    __slots__ = ("after", "at", "before", "type", "version")

    def __init__(self, type_: ResourceType, at: int, before: Record | None, after: Record | None, version: int) -> None:
        self.type, self.at, self.before, self.after, self.version = type_, at, before, after, version


class ObjectStore:
    """Every object, and the changes that led here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.version = 1
        self.compacted = 1
        """No version before this one can be read or watched from."""
        self._objects: dict[tuple[str, str], dict[Key, Record]] = {}
        self._log: list[Change] = []
        self._listeners: list[Callable[[Change], None]] = []

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Tell `listener` of every change from now on; the result ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _table(self, type_: ResourceType) -> dict[Key, Record]:
        return self._objects.setdefault((type_.group, type_.plural), {})

    def get(self, type_: ResourceType, namespace: str, name: str) -> Record | None:
        """One object."""
        return self._table(type_).get((namespace, name))

    def all(self, type_: ResourceType, namespace: str = "") -> list[Record]:
        """Every object of a type, of one namespace or of all, by namespace and name."""
        table = self._table(type_)
        keys = sorted(key for key in table if not namespace or key[0] == namespace)
        return [table[key] for key in keys]

    def put(self, type_: ResourceType, body: Body, owners: Owners) -> Record:
        """Make or replace an object; it gets the next version."""
        self.version += 1
        metadata = body["metadata"] | {"resourceVersion": str(self.version)}
        record = Record(type_, body | {"metadata": metadata}, owners)
        table = self._table(type_)
        before = table.get(record.key)
        table[record.key] = record
        self._tell(Change(type_, self._clock.now(), before, record, self.version))
        return record

    def remove(self, record: Record) -> Record:
        """Forget an object; the result is what its last event shows."""
        self.version += 1
        metadata = record.body["metadata"] | {"resourceVersion": str(self.version)}
        gone = Record(record.type, record.body | {"metadata": metadata}, record.owners)
        del self._table(record.type)[record.key]
        self._tell(Change(record.type, self._clock.now(), gone, None, self.version))
        return gone

    def _tell(self, change: Change) -> None:
        self._log.append(change)
        self._forget_old(change.at - KEPT_MS)
        for listener in list(self._listeners):
            listener(change)

    def _forget_old(self, before_ms: int) -> None:
        # Halves, so that the cost of moving the list is spread over many writes.
        half = len(self._log) // 2
        if half >= 512 and self._log[half].at < before_ms:
            self.compact(self._log[half].version)

    def compact(self, version: int | None = None) -> None:
        """Forget every change up to `version`, or up to now."""
        self.compacted = max(self.compacted, self.version if version is None else version)
        self._log = [each for each in self._log if each.version > self.compacted]

    def since(self, version: int) -> list[Change]:
        """Every change after a version; none for a version that is still to come."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        # Every change has its own version and none is left out, so the place in the log follows from it.
        return self._log[version - self.compacted :] if version <= self.version else []

    def at(self, type_: ResourceType, namespace: str, version: int) -> list[Record]:
        """The objects as they were at a version, by namespace and name."""
        if version > self.version:
            raise too_large(version, self.version)
        if version == self.version:
            return self.all(type_, namespace)
        if version < self.compacted:
            raise expired("The resourceVersion for the provided list is too old.")
        table = dict(self._table(type_))
        for change in reversed(self.since(version)):
            if (change.type.group, change.type.plural) == (type_.group, type_.plural):
                _undo(table, change)
        return [table[key] for key in sorted(table) if not namespace or key[0] == namespace]


def _undo(table: dict[Key, Record], change: Change) -> None:
    record: Any = change.before or change.after
    if change.before is None:
        table.pop(record.key, None)
    else:
        table[record.key] = change.before

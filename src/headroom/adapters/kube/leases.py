"""One Lease object of the API server, for leader election."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.model import times
from headroom.model.errors import Unavailable
from headroom.model.ports import Lease, LeaseTaken

ASSUMED_SECONDS: Final = 15
"""For how long a lease holds that does not say; none at all would let everybody in at once."""
REQUEST_SECONDS: Final = 5.0
"""A request that takes longer is of no use to a leader whose lease runs out."""


class _Metadata(Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Spec(Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class _Object(Struct):
    metadata: _Metadata
    kind: str | None = None
    spec: _Spec | None = None


class KubeLeases:
    """Implements `Leases` on coordination.k8s.io/v1; every write names the version that it replaces."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        *,
        timeout: float = REQUEST_SECONDS,
        published: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`published` are annotations that stand on the lease while it is ours; those with no value are removed."""
        self._kube, self._published = kube, published
        self._namespace = namespace
        self._name = name
        self._timeout = timeout
        self._last: tuple[str, dict[str, Any]] = ("", {})
        self._acquired = ""

    async def read(self) -> Lease | None:
        """The lease, None if there is none yet."""
        try:
            return self._understood(await self._kube.get(self._path, timeout=self._timeout))
        except errors.NotFound:
            return None

    async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
        """Take, renew or (with an empty holder) release the lease. Raises `LeaseTaken` if it is no longer `before`."""
        spec = self._spec(holder, duration_seconds, before)
        ours = {name: value if holder else "" for name, value in self._published().items()}
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            if before is None:
                metadata["annotations"] = _changed({}, ours)
                collection = paths.leases(self._namespace)
                return self._understood(await self._kube.create(collection, body, timeout=self._timeout))
            # A replacement would drop the labels that others gave it.
            version, kept = self._last
            uid, _, number = before.version.partition("/")
            # The uid too: without it the server would recreate a deleted lease.
            own = {"uid": uid, "resourceVersion": number}
            annotations = {"annotations": _changed(before.annotations, ours)}
            body["metadata"] = {**(kept if version == before.version else metadata), **own, **annotations}
            return self._understood(await self._kube.replace(self._path, body, timeout=self._timeout))
        except errors.AlreadyExists as problem:
            raise LeaseTaken(str(problem)) from problem
        except (errors.Conflict, errors.NotFound) as problem:
            if before is None:
                raise  # no such namespace
            raise LeaseTaken(str(problem)) from problem

    def _spec(self, holder: str, duration_seconds: int, before: Lease | None) -> dict[str, Any]:
        now = _micro_time(self._kube.clock.now())
        transitions = before.transitions if before else 0
        acquired = self._acquired or now
        if before is None or holder != before.holder:
            acquired = now
            # A release is no change of leader yet; the next one counts it.
            transitions += 1 if before and holder else 0
        return {
            "holderIdentity": holder,
            # As client-go does it: others need not wait for a lease that was given back.
            "leaseDurationSeconds": duration_seconds if holder else 1,
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _understood(self, body: bytes) -> Lease:
        doing = f"reading {paths.spoken(self._path)}: the answer is not a Lease"
        try:
            found = msgspec.json.decode(body, type=_Object)
            metadata = msgspec.json.decode(body)["metadata"]
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:  # ValueError: bytes that are no text
            raise Unavailable(f"{doing}: {problem}") from problem
        if found.kind != "Lease":
            raise Unavailable(f"{doing}: it is of kind {found.kind}")
        if not found.metadata.uid or not found.metadata.resource_version:
            # A write that names neither would take the lease from whoever holds it.
            raise Unavailable(f"{doing}: it has no uid or no version")
        spec = found.spec or _Spec()
        # Written back as it was, only without what the server keeps to itself.
        metadata.pop("managedFields", None)
        version = f"{found.metadata.uid}/{found.metadata.resource_version}"
        self._last = (version, metadata)
        self._acquired = spec.acquire_time or ""
        return Lease(
            holder=spec.holder_identity or "",
            duration_seconds=spec.lease_duration_seconds or ASSUMED_SECONDS,
            renewals=spec.renew_time or "",
            transitions=spec.lease_transitions or 0,
            version=version,
            annotations=found.metadata.annotations or {},
        )

    @property
    def _path(self) -> str:
        return paths.lease(self._namespace, self._name)


def _changed(annotations: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in {**annotations, **ours}.items() if value or name not in ours}


def _micro_time(ms: int) -> str:
    """The API's MicroTime: exactly six digits after the point."""
    return f"{times.text(ms - ms % times.SECOND)[:-1]}.{ms % times.SECOND:03d}000Z"

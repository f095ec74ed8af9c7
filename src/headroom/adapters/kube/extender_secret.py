"""The Secret in which the extender keeps its certificate and authority, and the touch that brings a refused pod back."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from headroom.adapters.kube import errors, paths, raw
from headroom.adapters.kube.changing import annotated, change, split
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects_pods import TOUCHED_AT
from headroom.model import times

FIELDS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")
Values = tuple[str, str, str, str]


class _Secret(raw.Object):
    data: dict[str, str] | None = None


class KeptSecret:
    """One Secret of the extender's own namespace."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube, self._namespace, self._name = kube, namespace, name
        self._version = ""

    async def read(self) -> Values | None:
        """The values of `FIELDS`; None if there is no such Secret, or it lacks one of them."""
        try:
            found = raw.read(await self._kube.get(paths.secret(self._namespace, self._name)), _Secret)
        except errors.NotFound:
            self._version = ""
            return None
        self._version = (found.metadata and found.metadata.resource_version) or ""
        try:
            a, b, c, d = (base64.b64decode((found.data or {})[field], validate=True).decode() for field in FIELDS)
        except (KeyError, binascii.Error, UnicodeDecodeError):
            return None
        return (a, b, c, d)

    async def write(self, values: Values) -> None:
        """Keep these, if nobody has written since they were read."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"}
        body["stringData"] = dict(zip(FIELDS, values, strict=True))
        if not self._version:
            await self._kube.create(paths.of("", "v1", "secrets", self._namespace), body)
        else:
            metadata["resourceVersion"] = self._version
            await self._kube.replace(paths.secret(self._namespace, self._name), body)


async def touch(kube: Kube, key: str, uid: str, now: int) -> None:
    """Annotate a pending pod, so that kube-scheduler looks at it again."""

    def stamp(pod: raw.RawPod) -> dict[str, Any] | None:
        is_bound = pod.spec is not None and pod.spec.node_name
        return None if is_bound else annotated({TOUCHED_AT: times.text(now)})

    await change(kube, paths.pod(*split(key)), raw.RawPod, stamp, uid=uid)

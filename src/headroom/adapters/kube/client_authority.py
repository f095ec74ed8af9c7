"""The authority that signs client certificates for the API server, as the cluster publishes it, so that we take the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.looking import ASK_SECONDS, Looking

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"


class _Data(msgspec.Struct):
    client_ca_file: str = msgspec.field(name="client-ca-file", default="")


class _ConfigMap(msgspec.Struct):
    data: _Data | None = None


_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)


class ClientAuthority(Looking):
    """Keeps the trust of a server equal to the cluster's."""

    def __init__(self, kube: Kube, trust: Callable[[str], None], tell: Callable[[str], None]) -> None:
        """`trust` takes PEM, empty for nobody; `tell` hears why there is none to trust."""
        super().__init__(kube, tell)
        self._trust, self._known = trust, ""

    async def _look(self) -> str:
        found = await self._read()
        if found != self._known:
            self._trust(found)
            self._known = found
        return "" if found else f"ConfigMap {NAMESPACE}/{NAME} has no client-ca-file; only tokens are accepted"

    async def _read(self) -> str:
        try:
            body = await self._kube.get(paths.configmap(NAMESPACE, NAME), timeout=ASK_SECONDS)
        except errors.NotFound:
            return ""
        try:
            return (_CONFIG_MAP.decode(body).data or _Data()).client_ca_file
        except msgspec.DecodeError:
            return ""

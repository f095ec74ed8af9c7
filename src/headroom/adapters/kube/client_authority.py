"""The authority that signs client certificates for the API server, as the cluster publishes it, so that we take the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.model.errors import HeadroomError

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
LOOK_SECONDS: Final = 60.0
ASK_SECONDS: Final = 5.0


class _Data(msgspec.Struct):
    client_ca_file: str = msgspec.field(name="client-ca-file", default="")


class _ConfigMap(msgspec.Struct):
    data: _Data | None = None


_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)


class ClientAuthority:
    """Keeps the trust of a server equal to the cluster's."""

    def __init__(self, kube: Kube, trust: Callable[[str], None], tell: Callable[[str], None]) -> None:
        """`trust` takes PEM, empty for nobody; `tell` takes a sentence, once for each reason why there is none to trust."""
        self._kube, self._trust, self._tell = kube, trust, tell
        self._known = ""
        self._told = ""

    async def look(self) -> None:
        """Read it once. What was read before stays while it cannot be read."""
        problem = ""
        try:
            found = await self._read()
            if not found:
                problem = f"ConfigMap {NAMESPACE}/{NAME} has no client-ca-file; people can show tokens only"
            if found != self._known:
                self._trust(found)
                self._known = found
        except HeadroomError as error:
            problem = str(error)
        if problem != self._told:
            self._told = problem
            if problem:
                self._tell(problem)

    async def follow(self) -> None:
        """Read it again and again. Never returns."""
        while True:
            await self._kube.clock.sleep(LOOK_SECONDS)
            await self.look()

    async def _read(self) -> str:
        try:
            body = await self._kube.get(paths.configmap(NAMESPACE, NAME), timeout=ASK_SECONDS)
        except errors.NotFound:
            return ""
        try:
            return (_CONFIG_MAP.decode(body).data or _Data()).client_ca_file
        except msgspec.DecodeError:
            return ""

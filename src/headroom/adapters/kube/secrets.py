"""Reads Secrets at the moment they are needed. Nothing of them is kept, logged or told.

Which it may read, RBAC says: those of its own namespace that an administrator names, and in a pool's namespace those for which a
RoleBinding there gives the right. There is no right for the whole cluster.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final

from headroom.adapters.kube import errors, paths, raw
from headroom.adapters.kube.client import Kube
from headroom.adapters.usable_by import Secret
from headroom.api.marks import USABLE_BY
from headroom.model.errors import Refused, Unavailable

READ_SECONDS: Final = 2.0
"""A call waits for it, and somebody waits for the call."""


class _Secret(raw.Object):
    data: dict[str, str] | None = None


class Secrets:
    """The Secrets of the operator's own namespace, or, where it is named, of another one."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace

    async def read(self, name: str, namespace: str = "") -> Secret:
        """Its values, which must be text, and who may use it. Raises `Refused` if there is none or we may not read it."""
        namespace = namespace or self._namespace
        doing = f"reading Secret {namespace}/{name}"
        try:
            async with asyncio.timeout(READ_SECONDS):
                found = raw.read(await self._kube.get(paths.secret(namespace, name)), _Secret)
        except TimeoutError as problem:
            raise Unavailable(f"{doing}: no answer within {READ_SECONDS:g}s") from problem
        except errors.Forbidden as problem:
            raise Refused(f"{problem}; {_remedy(namespace, name)}") from problem
        try:
            values = {key: base64.b64decode(value, validate=True).decode() for key, value in (found.data or {}).items()}
        except (binascii.Error, UnicodeDecodeError):
            raise Refused(
                f"{doing}: not all of its values are text"
            ) from None  # their bytes are no part of the sentence
        secret = Secret(values)
        secret.usable_by = ((found.metadata and found.metadata.annotations) or {}).get(USABLE_BY, "")
        secret.place = f"{namespace}/{name}"
        return secret


def _remedy(namespace: str, name: str) -> str:
    """The operator may read no Secret unless an administrator names it."""
    return (
        f"grant get on that one: kubectl create role -n {namespace} headroom-secret-{name} --verb=get --resource=secrets "
        f"--resource-name={name}, and bind it to the operator's service account"
    )

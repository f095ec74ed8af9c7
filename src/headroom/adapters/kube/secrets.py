"""Reads Secrets of the operator's own namespace, at the moment they are needed. Nothing of them is kept, logged or told."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final

from headroom.adapters.kube import paths, raw
from headroom.adapters.kube.client import Kube
from headroom.model.errors import Refused, Unavailable

READ_SECONDS: Final = 2.0
"""A call waits for it, and somebody waits for the call."""


class _Secret(raw.Object):
    data: dict[str, str] | None = None


class Secrets:
    """The Secrets of one namespace, and of no other."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace

    async def read(self, name: str) -> dict[str, str]:
        """The values that are text. Raises `Refused` if there is no such Secret or we may not read it."""
        doing = f"reading Secret {self._namespace}/{name}"
        try:
            async with asyncio.timeout(READ_SECONDS):
                found = raw.read(await self._kube.get(paths.secret(self._namespace, name)), _Secret).data or {}
        except TimeoutError as problem:
            raise Unavailable(f"{doing}: no answer within {READ_SECONDS:g} s") from problem
        try:
            return {key: base64.b64decode(value, validate=True).decode() for key, value in found.items()}
        except (binascii.Error, UnicodeDecodeError):
            raise Refused(
                f"{doing}: not all of its values are text"
            ) from None  # their bytes are no part of the sentence

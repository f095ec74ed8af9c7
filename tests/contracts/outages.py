"""A transport that can be cut, to see what its user does about what it missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

from headroom.adapters.kube.transport import Reply, Transport
from headroom.model.errors import Unavailable


class Severable:
    """Passes everything on until `cut`, and again after `mend`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._down = asyncio.Event()
        self.streams = 0
        """How many streams are open."""

    def cut(self) -> None:
        self._down.set()

    def mend(self) -> None:
        self._down.clear()

    async def request(self, method: str, path: str, **more: Any) -> Reply:
        self._check()
        return await self._inner.request(method, path, **more)

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        self._check()
        inner = self._inner.stream(path, query=query, idle=idle, opened=opened)
        lines = cast("AsyncGenerator[bytes, None]", inner)
        end: asyncio.Future[Any] = asyncio.ensure_future(self._down.wait())
        self.streams += 1
        try:
            async with aclosing(lines):
                while True:
                    line: asyncio.Future[Any] = asyncio.ensure_future(anext(lines, b""))
                    await asyncio.wait([line, end], return_when=asyncio.FIRST_COMPLETED)
                    if end.done():
                        line.cancel()
                        await asyncio.gather(line, return_exceptions=True)
                        self._check()
                    if not (found := await line):
                        return
                    yield found
        finally:
            self.streams -= 1
            end.cancel()

    async def close(self) -> None:
        """Whoever made the inner one closes it."""

    def _check(self) -> None:
        if self._down.is_set():
            raise Unavailable("the line is cut")

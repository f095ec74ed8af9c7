"""Pages that stay true while they are looked at: server-sent events, the whole page first and then what changed in it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

import msgspec
from aiohttp import web

from headroom.model.errors import HeadroomError
from headroom.web.pages import Model, Page
from headroom.web.patching import patch
from headroom.web.scope import ACCESS
from headroom.web.view import Showing

PAUSE_SECONDS: Final = 0.25
"""Between two messages of a stream: faster than this nobody reads."""
SILENCE_SECONDS: Final = 1.0
"""Time passes on a page even if nothing is decided, and another operator may have taken over."""
ALIVE_SECONDS: Final = 10.0
"""A word that says nothing, so that proxies and browsers know that somebody is there."""
RETRY_MS: Final = 1000
MOST_STREAMS: Final = 200
GONE: Final = {"problem": "There is no such page any more, or you may not see it any more."}

_ENCODER: Final = msgspec.json.Encoder()


class Streams:
    """All open streams of an app."""

    def __init__(self, showing: Showing) -> None:
        self._showing = showing
        self._open: set[asyncio.Task[Any]] = set()

    async def stream(self, request: web.Request, page: Page, headers: dict[str, str]) -> web.StreamResponse:
        """Send a page and what becomes of it, until the reader goes away."""
        if len(self._open) >= MOST_STREAMS:
            raise web.HTTPServiceUnavailable(text="Too many live pages are open; close some.\n")
        response = web.StreamResponse(
            headers=headers | {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await response.prepare(request)
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            await self._follow(response, request, page)
        except (ConnectionError, HeadroomError):
            pass  # the reader went away, or nobody can say what they may see: they come again and are asked again
        finally:
            self._open.discard(task)
        return response

    async def _follow(self, response: web.StreamResponse, request: web.Request, page: Page) -> None:
        access = request[ACCESS]
        shown: Model | None = None
        spoke_at = time.monotonic()
        # Who goes away while there is nothing to say is not noticed by writing.
        while request.transport is not None and not request.transport.is_closing():
            bell = self._showing.view.loop.bell
            heard = bell.rings
            scope = await access.scope()
            model = page(self._showing.view, scope, access.name) if scope else None
            if model is None:
                await response.write(_event("gone", GONE))
                return
            news = model if shown is None else patch(shown, model)
            if news:
                await response.write(_event("state" if shown is None else "patch", news))
                shown, spoke_at = model, time.monotonic()
                await asyncio.sleep(PAUSE_SECONDS)
            elif time.monotonic() - spoke_at >= ALIVE_SECONDS:
                await response.write(b": still here\n\n")
                spoke_at = time.monotonic()
            await bell.wait(heard, SILENCE_SECONDS)

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        for task in list(self._open):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._open, return_exceptions=True)


def _event(kind: str, data: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + _ENCODER.encode(data) + b"\n\n"

"""Pages that stay true while they are looked at: server-sent events, the whole page first and then what changed in it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web
from msgspec import Struct

from headroom.model.errors import HeadroomError
from headroom.web.pages import Model, Page, frame
from headroom.web.patching import patch
from headroom.web.scope import ACCESS, Access, Scope
from headroom.web.view import Showing, View

PAUSE_SECONDS: Final = 0.1
"""Between two messages of a stream: faster than this nobody reads."""
SILENCE_SECONDS: Final = 1.0
"""Time passes on a page even if nothing is decided, and another operator may have taken over."""
ALIVE_SECONDS: Final = 10.0
"""A word that says nothing, so that proxies and browsers know that somebody is there."""
RETRY_MS: Final = 1000
MOST_STREAMS: Final = 200
MOST_MADE: Final = 256
SHARE: Final = 10
"""A page that took long to make is not made again for so many times as long: deciding comes before showing."""
SHARE_OF_ALL: Final = 4
"""Nor is any page made again for so many times as long as all of them took."""
MOST_OF_ONE: Final = 20
"""Streams of one viewer, so that nobody takes the places of others."""
WRITE_SECONDS: Final = 30.0
"""Who does not read for so long is not there any more."""
GONE: Final = {"problem": "There is no such page any more, or you may not see it any more."}

_ENCODER: Final = msgspec.json.Encoder()


Address = tuple[object, ...]
"""Which page is meant, in one form whatever the request looked like."""


class Asked(NamedTuple):
    """A page that somebody asked for."""

    address: Address
    page: Page


class Made(Struct, frozen=True):
    """A page as it was at some moment, for all who may see the same."""

    view: View
    rings: int
    """How often there had been news."""
    told_at: float
    """When the last of it came."""
    at: float
    good_until: float
    body: Model | None

    def is_true(self, view: View, now: float) -> bool:
        """Whether it may still be shown: nothing is new, or it was so dear that news must wait."""
        if view is not self.view:
            return False
        return now < self.good_until or (view.loop.bell.rings == self.rings and now - self.at < SILENCE_SECONDS)


class Streams:
    """All open streams of an app, and the pages that they show."""

    def __init__(self, showing: Showing) -> None:
        self._showing = showing
        self._open: dict[asyncio.Task[Any], str] = {}
        """Each with the name of its viewer."""
        self._made: dict[tuple[Address, Scope], Made] = {}
        self._busy_until = 0.0

    def made(self, asked: Asked, scope: Scope) -> Made:
        """A page as it is now; made once for all who look at the same."""
        view, key = self._showing.view, (asked.address, scope)
        known = self._made.pop(key, None)
        now = time.monotonic()
        if known is None or not (known.is_true(view, now) or (view is known.view and now < self._busy_until)):
            bell = view.loop.bell
            rings, told_at, body = bell.rings, bell.rung_at, asked.page(view, scope)
            took = time.monotonic() - now
            self._busy_until = max(now, self._busy_until) + took * SHARE_OF_ALL
            known = Made(view, rings, told_at, now, now + took * SHARE, body)
        self._made[key] = known
        while len(self._made) > MOST_MADE:
            del self._made[next(iter(self._made))]
        return known

    def whole(self, made: Made, scope: Scope, access: Access) -> Model:
        """A page with its frame, for one viewer."""
        return frame(made.view, scope, access.name) | (made.body or {})

    async def stream(self, request: web.Request, asked: Asked, headers: dict[str, str]) -> web.StreamResponse:
        """Send a page and what becomes of it, until the reader goes away."""
        name = request[ACCESS].name
        of_one = sum(each == name for each in self._open.values()) if name else 0
        if len(self._open) >= MOST_STREAMS or of_one >= MOST_OF_ONE:
            return web.json_response({"problem": "Too many live pages are open; close some."}, status=503)
        response = web.StreamResponse(
            headers=headers | {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = name
        try:
            await response.prepare(request)
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            await self._follow(response, request, asked)
        except (ConnectionError, TimeoutError, HeadroomError):
            pass  # the reader went away or reads no more, or nobody can say what they may see: they come again and are asked again
        finally:
            del self._open[task]
        return response

    async def _follow(self, response: web.StreamResponse, request: web.Request, asked: Asked) -> None:
        access = request[ACCESS]
        shown: Model | None = None
        spoke_at = time.monotonic()
        # Who goes away while there is nothing to say is not noticed by writing.
        while request.transport is not None and not request.transport.is_closing():
            scope = await access.scope()
            made = self.made(asked, scope)
            if not scope or made.body is None:
                await _write(response, _event("gone", GONE, made))
                return
            model = self.whole(made, scope, access)
            news = model if shown is None else patch(shown, model)
            if news:
                await _write(response, _event("state" if shown is None else "patch", news, made))
                shown, spoke_at = model, time.monotonic()
                await asyncio.sleep(PAUSE_SECONDS)
            elif time.monotonic() - spoke_at >= ALIVE_SECONDS:
                await _write(response, b": still here\n\n")
                spoke_at = time.monotonic()
            await made.view.loop.bell.wait(made.rings, SILENCE_SECONDS)
            await asyncio.sleep(max(0.0, max(made.good_until, self._busy_until) - time.monotonic()))

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)


def _event(kind: str, data: Any, made: Made) -> bytes:
    """One event; its id is the moment of the news that it tells, so that anybody can see how late it came."""
    return f"event: {kind}\nid: {round(made.told_at * 1000)}\ndata: ".encode() + _ENCODER.encode(data) + b"\n\n"

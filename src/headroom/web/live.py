"""Live pages over server-sent events: the whole page first, then its changes."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import Struct

from headroom.model import times
from headroom.model.errors import HeadroomError
from headroom.web.access import ACCESS
from headroom.web.pages import Model, framed
from headroom.web.patching import patch
from headroom.web.rates import Turns, one_to_close
from headroom.web.scope import Access, Scope
from headroom.web.source import Address, PageSource, Pulse, Sheet

PAUSE_SECONDS: Final = 0.1
"""The least time between two messages of a stream: nobody reads faster."""
SILENCE_SECONDS: Final = 1.0
"""Time passes on a page even without decisions, and another operator may have taken over."""
ALIVE_SECONDS: Final = 10.0
"""Between two empty messages, which keep proxies and browsers from closing the connection."""
RETRY_MS: Final = 1000
MOST_STREAMS: Final = 200
MOST_MADE: Final = 256
SHARE: Final = 10
"""After making a page, rest for this many times as long: decisions take precedence over pages."""
MOST_OF_ONE: Final = 20
"""Streams of one tenant, so that one tenant cannot take all places."""
WRITE_SECONDS: Final = 30.0
"""A reader that takes nothing for this long is considered gone."""
GONE: Final = {"problem": "This page does not exist, or you may not see it."}

_ENCODER: Final = msgspec.json.Encoder()


class Made(Struct, frozen=True):
    """A page at one moment."""

    sheet: Sheet
    at: float
    """Of the moment that it is true for."""
    good_until: float

    def is_true(self, pulse: Pulse, now: float) -> bool:
        """Whether it may still be shown: nothing is new, or it was so expensive that a new one must wait."""
        if pulse.epoch != self.sheet.epoch:
            return False
        return now < self.good_until or (pulse.rings == self.sheet.rings and now - self.at < SILENCE_SECONDS)


class Streams:
    """All open streams of an app, and the pages that they show."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._open: dict[asyncio.Task[Any], str] = {}
        """Each with its tenant."""
        self._made: dict[tuple[Address, Scope], Made] = {}
        self.turns = Turns()

    async def made(self, address: Address, scope: Scope, tenant: str, oldest: float = math.inf) -> Made:
        """A page that is at most `oldest` seconds old; made once for all its viewers, one page at a time, the tenants in turn."""
        known = self._known(address, scope, oldest)
        if known is not None:
            return known
        async with self.turns.turn(tenant) as rest:
            known = self._known(address, scope, oldest)
            if known is None:
                sheet = await self._source.make(address, scope)
                rest.append(sheet.rest)
                rests_until = time.monotonic() + sheet.took * SHARE
                known = self._made[address, scope] = Made(sheet, sheet.made_at, rests_until)
        while len(self._made) > MOST_MADE:
            del self._made[next(iter(self._made))]
        return known

    def _known(self, address: Address, scope: Scope, oldest: float) -> Made | None:
        known, now = self._made.pop((address, scope), None), time.monotonic()
        if known is None or now - known.at >= oldest or not known.is_true(self._source.pulse(), now):
            return None
        self._made[address, scope] = known
        return known

    def whole(self, sheet: Sheet, scope: Scope, access: Access) -> Model:
        """A page with its frame for one viewer, with the moment it is true for."""
        at = {"at": times.text(sheet.at - sheet.at % times.SECOND)}
        return framed(self._source.pulse().frame, scope, access.name) | at | (sheet.body or {})

    def _has_place(self, tenant: str) -> bool:
        """Whether a tenant may open one more stream; when all places are taken, the tenant with most streams loses one."""
        if tenant and sum(each == tenant for each in self._open.values()) >= MOST_OF_ONE:
            return False
        if len(self._open) < MOST_STREAMS:
            return True
        other = one_to_close(self._open.items(), tenant)
        if other is not None:
            del self._open[other]
            other.cancel()
        return other is not None

    async def stream(self, request: web.Request, address: Address, headers: dict[str, str]) -> web.StreamResponse:
        """Send a page and its changes until the reader disconnects."""
        tenant = request[ACCESS].tenant
        if not self._has_place(tenant):
            problem = {"problem": "Too many live pages are open; close some."}
            return web.json_response(problem, status=503, headers={"Retry-After": "10"})
        response = web.StreamResponse(
            headers=headers | {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = tenant
        try:
            await response.prepare(request)
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            await self._follow(response, request, address)
        except (ConnectionError, TimeoutError, HeadroomError):
            pass  # the reader is gone or stuck, or their rights cannot be checked: they reconnect and are authorized again
        finally:
            self._open.pop(task, None)
        return response

    async def _follow(self, response: web.StreamResponse, request: web.Request, address: Address) -> None:
        access = request[ACCESS]
        shown: Model | None = None
        spoke_at = time.monotonic()
        # Only a write notices that a reader has gone, and there may be nothing to write.
        while request.transport is not None and not request.transport.is_closing():
            scope = await access.scope()
            made = await self.made(address, scope, access.tenant)
            if not scope or made.sheet.body is None:
                await _write(response, _event("gone", GONE, made))
                return
            model = self.whole(made.sheet, scope, access)
            news = model if shown is None else patch(shown, model)
            if news:
                await _write(response, _event("state" if shown is None else "patch", news, made))
                shown, spoke_at = model, time.monotonic()
                await asyncio.sleep(PAUSE_SECONDS)
            elif time.monotonic() - spoke_at >= ALIVE_SECONDS:
                await _write(response, b": still here\n\n")
                spoke_at = time.monotonic()
            await self._source.news(made.sheet.rings, SILENCE_SECONDS)
            await asyncio.sleep(max(0.0, made.good_until - time.monotonic()))

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)


def _event(kind: str, data: Any, made: Made) -> bytes:
    """One event; its id is the time of the news in it, so that readers can measure the delay."""
    return f"event: {kind}\nid: {round(made.sheet.told_at * 1000)}\ndata: ".encode() + _ENCODER.encode(data) + b"\n\n"

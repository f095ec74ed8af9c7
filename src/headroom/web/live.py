"""Pages that stay true while they are looked at: server-sent events, the whole page first and then what changed in it."""

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
MOST_OF_ONE: Final = 20
"""Streams of one tenant, so that nobody takes the places of others."""
WRITE_SECONDS: Final = 30.0
"""Who does not read for so long is not there any more."""
GONE: Final = {"problem": "There is no such page any more, or you may not see it any more."}

_ENCODER: Final = msgspec.json.Encoder()


class Made(Struct, frozen=True):
    """A page as it was at some moment."""

    sheet: Sheet
    at: float
    good_until: float

    def is_true(self, pulse: Pulse, now: float) -> bool:
        """Whether it may still be shown: nothing is new, or it was so dear that news must wait."""
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
        """A page as it is now, or was `oldest` seconds ago; made once for all who look at the same, one at a time, the tenants in turn."""
        known = self._known(address, scope, oldest)
        if known is not None:
            return known
        async with self.turns.turn(tenant) as rest:
            known = self._known(address, scope, oldest)
            if known is None:
                sheet = await self._source.make(address, scope)
                rest.append(sheet.rest)
                now = time.monotonic()
                known = self._made[address, scope] = Made(sheet, now, now + sheet.took * SHARE)
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
        """A page with its frame, for one viewer; it says for which moment it is true."""
        at = {"at": times.text(sheet.at - sheet.at % times.SECOND)}
        return framed(self._source.pulse().frame, scope, access.name) | at | (sheet.body or {})

    def _has_place(self, tenant: str) -> bool:
        """Whether one more stream of a tenant may be opened; where all places are taken, whoever has most gives one up."""
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
        """Send a page and what becomes of it, until the reader goes away."""
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
            pass  # the reader went away or reads no more, or nobody can say what they may see: they come again and are asked again
        finally:
            self._open.pop(task, None)
        return response

    async def _follow(self, response: web.StreamResponse, request: web.Request, address: Address) -> None:
        access = request[ACCESS]
        shown: Model | None = None
        spoke_at = time.monotonic()
        # Who goes away while there is nothing to say is not noticed by writing.
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
    """One event; its id is the moment of the news that it tells, so that anybody can see how late it came."""
    return f"event: {kind}\nid: {round(made.sheet.told_at * 1000)}\ndata: ".encode() + _ENCODER.encode(data) + b"\n\n"

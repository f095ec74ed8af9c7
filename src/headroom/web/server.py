"""The dashboard's HTTP server: metrics, the pages and their data, over HTTPS behind the guard."""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from headroom.model.errors import Misconfigured, Unavailable
from headroom.web import hosts
from headroom.web.access import ACCESS
from headroom.web.doors import in_door
from headroom.web.editions import OLDEST_SECONDS, Editions
from headroom.web.files import Files
from headroom.web.guard import Judge, guard
from headroom.web.headers import ON_THE_WAY, with_headers
from headroom.web.live import GONE, Streams
from headroom.web.page import Page
from headroom.web.rates import SEARCH_COST, Allowance
from headroom.web.scope import EVERYTHING, Anybody
from headroom.web.shell import document, listing
from headroom.web.source import METRICS, Address, PageSource

METRICS_COST: Final = 5.0
METRICS_SECONDS: Final = 6.0
"""Metrics wait this long for the next pages of one moment: the longest rest after pages, and some more; a scrape gives up after ten."""
HERE: Final = Path(__file__).parent
CHARTS: Final = HERE / "node_modules" / "uplot" / "dist"
"""The charting library from its npm package; without it the pages show numbers only."""
SOURCE: Final = web.AppKey[PageSource]("source")
STREAMS: Final = web.AppKey("streams", Streams)
EDITIONS: Final = web.AppKey("editions", Editions)
ALLOWANCE: Final = web.AppKey("allowance", Allowance)
_ENCODER: Final = msgspec.json.Encoder()


def main_app(source: PageSource, judge: Judge | None) -> web.Application:
    """Metrics, the pages and their data; without a judge they are open to everyone."""
    guarded = guard(judge, source.namespaces) if judge else _for_everyone
    app = web.Application(middlewares=[in_door, with_headers, guarded])
    app[SOURCE], app[STREAMS], app[ALLOWANCE] = source, Streams(source), Allowance()
    app[EDITIONS] = Editions(source, app[STREAMS].turns)
    app.on_shutdown.append(app[STREAMS].close)
    files = Files({"": HERE / "static", "charts/": CHARTS}, {"app/pages.js": listing(source.pages)})
    shell = document(source.pages, [each for each in files.names if each.startswith("app/")])
    app.add_routes([web.get("/", partial(_shell, shell)), web.get("/metrics", _metrics)])
    for page in source.pages:
        if page.maker is not None:
            once, live = partial(_once, page), partial(_live, page)
            app.add_routes([web.get(f"/api/{page.path}", once)])
            app.add_routes([web.get(f"/api/live/{page.path}", live, allow_head=False)])
    app.add_routes([web.get("/static/{path:.+}", files.send)])
    return app


@web.middleware
async def _for_everyone(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not _is_meant(request):
        # A foreign page whose DNS name points here must not read data that is for this machine only.
        return web.Response(status=403, text="Open this page at the address that was printed.\n")
    request[ACCESS] = Anybody()
    return await handler(request)


def _is_meant(request: web.Request) -> bool:
    """Whether a request to the loopback names the loopback."""
    if not hosts.is_at_loopback(request):
        return True
    named = hosts.named(request)
    return named is not None and hosts.is_loopback(named[0])


async def _metrics(request: web.Request) -> web.Response:
    if (wait := request.app[ALLOWANCE].take(request[ACCESS].tenant, METRICS_COST)) > 0:
        return _too_often(wait)
    try:
        body = await _measured(request)
    except Unavailable as problem:
        return web.Response(status=503, text=f"{problem}\n")
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _shell(shell: str, _: web.Request) -> web.Response:
    """The one document: it contains no data; its scripts fetch that."""
    return web.Response(text=shell, content_type="text/html")


async def _measured(request: web.Request) -> bytes:
    """The metrics, of one moment with the pages that are asked for now."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(METRICS_SECONDS):
            found = await request.app[EDITIONS].page(METRICS, EVERYTHING, request[ACCESS].tenant)
            text: str = (found.body or {})["text"]
            return text.encode()
    # Who watches the operator is not kept waiting for long because others look at pages.
    return await request.app[SOURCE].metrics()


async def _once(page: Page, request: web.Request) -> web.Response:
    address = _allowed(page, request)
    if isinstance(address, web.Response):
        return address
    access, streams = request[ACCESS], request.app[STREAMS]
    scope = await access.scope()
    try:
        if page.reads:  # results of a search are not shared, so it is made alone
            sheet = (await streams.made(address, scope, access.tenant, OLDEST_SECONDS)).sheet
        else:
            sheet = await request.app[EDITIONS].page(address, scope, access.tenant)
    except Unavailable as problem:
        return web.json_response({"problem": str(problem)}, status=503, headers={"Retry-After": "5"})
    if sheet.body is None:
        return web.json_response(GONE, status=404)
    return web.Response(body=_ENCODER.encode(streams.whole(sheet, scope, access)), content_type="application/json")


async def _live(page: Page, request: web.Request) -> web.StreamResponse:
    address = _allowed(page, request)
    if isinstance(address, web.Response):
        return address
    return await request.app[STREAMS].stream(request, address, request[ON_THE_WAY])


def _allowed(page: Page, request: web.Request) -> Address | web.Response:
    """The requested page, or an error response if the request is invalid or exceeds the rate limit."""
    try:
        address = _address(page, request)
    except Misconfigured as error:
        return web.json_response({"problem": str(error)}, status=400)
    cost = SEARCH_COST if page.reads else 1.0
    wait = request.app[ALLOWANCE].take(request[ACCESS].tenant, cost)
    return _too_often(wait) if wait > 0 else address


def _too_often(wait: float) -> web.Response:
    problem = {"problem": f"Too many requests; try again in {math.ceil(wait)} s."}
    return web.json_response(problem, status=429, headers={"Retry-After": str(math.ceil(wait))})


def _address(page: Page, request: web.Request) -> Address:
    what, *names = page.path.split("/")
    given = [request.match_info[each.strip("{}")] for each in names]
    return (what, *given, page.reads(request.query)) if page.reads else (what, *given)

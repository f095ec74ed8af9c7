"""A dashboard on the loopback of a workstation: asks the operator with the user's credentials, and shows them to nobody.

Any other program, user or web page on this machine could knock too. So everything but the very first visit needs a cookie, which
that visit gets for a key that works once; and the name in the address must be ours, or another site's name could lead here. Browsers
send a cookie to every port of a host, so it is tied to a folder of a made-up name, which no other server here has.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct

from headroom.model.errors import HeadroomError
from headroom.web import hosts
from headroom.web.doors import in_door

PASSED_ON: Final = (
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Cache-Control",
    "If-Modified-Since",
    "If-None-Match",
    "Last-Event-ID",
    "Range",
)
"""Of a browser's request. Cookies and credentials are not among them."""
KEPT_BACK: Final = frozenset(
    {
        "connection",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "server",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    }
)
"""Of the operator's answer: what is between two ends of one connection, and what would make a browser ask for a password."""
COOKIE: Final = "headroom"
OWN_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class RelayProblem(Struct):
    """What the operator answers where it gives nothing."""

    problem: str


class OperatorEnd(Protocol):
    """Whoever answers."""

    def answer(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The answer to a request. Raises a `HeadroomError` if there is none."""
        ...


class Relay:
    """The server on the loopback. Tell it its port once it is known."""

    def __init__(self, operator: OperatorEnd) -> None:
        self._operator = operator
        self._key = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._folder = f"/{secrets.token_hex(8)}"
        self.entered = asyncio.Event()
        """Set by the first visit, which uses the key up."""
        self._passing: set[asyncio.Task[Any]] = set()
        self.port = 0

    @property
    def address(self) -> str:
        """Where the first visit goes; it works once."""
        return f"http://127.0.0.1:{self.port}/?key={self._key}"

    def app(self) -> web.Application:
        """The application to listen with."""
        app = web.Application(middlewares=[in_door, self._checked])
        # HEAD comes with GET; other methods are not served, since nothing here can be changed.
        app.router.add_get(self._folder + "/{path:.*}", self._pass_on)
        app.on_shutdown.append(self._cut)
        return app

    async def _cut(self, _: web.Application) -> None:
        """End the live pages, which would go on for ever."""
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if hosts.named(request) not in (("127.0.0.1", self.port), ("localhost", self.port)):
            return _refused(request, 403, "This is not the address that `headroom dashboard` printed.")
        if self._has_key(request):
            self.entered.set()
            return self._welcome()
        own_page = request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if not own_page or not _same(request.cookies.get(COOKIE, ""), self._cookie):
            return _refused(
                request,
                403,
                "This dashboard belongs to the user who started it. Open the address that `headroom dashboard` printed; it "
                "works once, so run the command again for another browser.",
            )
        return await handler(request)

    def _has_key(self, request: web.Request) -> bool:
        # A program that only looks what is there, with HEAD, must not use the key up: it gets no page, so nobody has entered.
        if request.method != "GET" or request.path != "/" or self.entered.is_set():
            return False
        return _same(request.query.get("key", ""), self._key)

    def _welcome(self) -> web.Response:
        """The cookie, and on to the page itself, without the key in its address."""
        # The page sends the browser on by itself: after a redirect, a browser that came from elsewhere would keep the cookie back.
        headers = OWN_HEADERS | {"Refresh": f"0; url=.{self._folder}/"}
        welcome = web.Response(text="The dashboard opens ...\n", headers=headers)
        welcome.set_cookie(COOKIE, self._cookie, httponly=True, samesite="Strict", path=f"{self._folder}/")
        return welcome

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        path = request.rel_url.raw_path_qs.removeprefix(self._folder)
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            async with self._operator.answer(request.method, path, headers) as answer:
                return await _passed_back(request, answer)
        except HeadroomError as error:
            return _refused(request, 502, f"The operator does not answer: {error}.")
        finally:
            self._passing.discard(task)


async def _passed_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Every piece of the answer as it comes, so that live pages are live."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    response.headers.extend((name, value) for name, value in answer.headers.items() if name.lower() not in KEPT_BACK)
    await response.prepare(request)
    try:
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
    except (aiohttp.ClientError, TimeoutError, OSError):
        # Too late for another status: the browser must see that the answer is cut off, and ask again.
        if request.transport is not None:
            request.transport.abort()
    return response


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _refused(request: web.Request, status: int, sentence: str) -> web.Response:
    if "/api/" in request.path:
        return web.json_response({"problem": sentence}, status=status, headers=OWN_HEADERS)
    return web.Response(text=sentence + "\n", status=status, headers=OWN_HEADERS)

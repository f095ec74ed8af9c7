"""The HTTP servers: health on plain HTTP; metrics, the page and its JSON over HTTPS behind the guard."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from jinja2 import Environment, FileSystemLoader

from headroom.model.errors import Misconfigured
from headroom.web.guard import Judge, guard
from headroom.web.view import MOST_RESOURCES, Showing, View

STILL_SECONDS: Final = 30.0
"""The loop ticks every second or so; one that has not for so long is stuck."""
SHUTDOWN_SECONDS: Final = 2.0
HERE: Final = Path(__file__).parent
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

VIEW: Final = web.AppKey("view", View)
SHOWING: Final = web.AppKey("showing", Showing)
PULSE: Final = web.AppKey["Pulse"]("pulse")
PAGES: Final = web.AppKey("pages", Environment)


class Pulse:
    """Whether the loop still ticks, judged each time somebody asks."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._ticks, self._at = -1, time.monotonic()

    def beats(self) -> bool:
        """Whether there was a tick lately."""
        ticks = self._view.loop.ticks
        if ticks != self._ticks:
            self._ticks, self._at = ticks, time.monotonic()
        return time.monotonic() - self._at < STILL_SECONDS


def health_app(view: View) -> web.Application:
    """`/healthz`: the loop ticks. `/readyz`: the view of the cluster is complete."""
    app = web.Application(middlewares=[_with_headers])
    app[VIEW], app[PULSE] = view, Pulse(view)
    app.add_routes([web.get("/healthz", _healthz), web.get("/readyz", _readyz)])
    return app


def main_app(showing: Showing, judge: Judge | None) -> web.Application:
    """Metrics, page and state; without a judge they are for everyone."""
    app = web.Application(middlewares=[_with_headers, *([guard(judge)] if judge else [])])
    app[SHOWING] = showing
    app[PAGES] = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True)
    app.add_routes([web.get("/", _page), web.get("/api/state", _state), web.get("/metrics", _metrics)])
    app.router.add_static("/static", HERE / "static")
    return app


@web.middleware
async def _with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except web.HTTPException as answer:
        answer.headers.update(HEADERS)
        raise
    response.headers.update(HEADERS)
    return response


async def _healthz(request: web.Request) -> web.Response:
    if request.app[PULSE].beats():
        return web.Response(text="ok\n")
    return web.Response(status=503, text=f"The loop has not ticked for {STILL_SECONDS:g} s.\n")


async def _readyz(request: web.Request) -> web.Response:
    view = request.app[VIEW]
    if view.port.world(view.clock.now()).complete:
        return web.Response(text="ok\n")
    why = [str(each) for each in view.port.problems()] or ["The view of the cluster is not complete yet."]
    return web.Response(status=503, text="\n".join(why) + "\n")


async def _metrics(request: web.Request) -> web.Response:
    metrics, view = request.app[SHOWING].metrics, request.app[SHOWING].view
    metrics.view_age.set(view.port.age_seconds())
    metrics.budgets.measure(view.port.world(view.clock.now()))
    metrics.resources.clear()
    for (kind, ready), count in view.ready().items():
        metrics.resources.labels(kind, ready).set(count)
    return web.Response(body=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _state(request: web.Request) -> web.Response:
    return web.json_response(request.app[SHOWING].view.state())


async def _page(request: web.Request) -> web.Response:
    view = request.app[SHOWING].view
    state = view.state()
    shown = state["resources"][:MOST_RESOURCES]
    page = request.app[PAGES].get_template("dashboard.html")
    text = page.render(
        state | {"title": view.title, "resources": shown, "hidden": len(state["resources"]) - len(shown)}
    )
    return web.Response(text=text, content_type="text/html")


# --- listening --------------------------------------------------------------------------------------------------------------


class Servers:
    """What listens, to be closed together."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def listen(self, app: web.Application, address: str, what: str, tls: ssl.SSLContext | None = None) -> int:
        """Serve an app at host:port and return the port. Raises `Misconfigured` if that cannot be had."""
        host, port = split(address, what)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, host or None, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise Misconfigured(f"listening on {address}: {_why(error)}; set {what} to another address") from error
        return int(runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
        self._runners.clear()


def split(address: str, what: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[::1]:port` or `:port`."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 65536) or (
        ":" in host and not host.startswith("[")
    ):
        raise Misconfigured(f"reading {what}: it must be host:port such as 0.0.0.0:8443, not {address!r}")
    return host.strip("[]"), int(port)


def free_port(first: int, tries: int = 100) -> int:
    """The first port from `first` on that nobody on this machine uses."""
    for port in range(first, min(first + tries, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Misconfigured(f"listening on 127.0.0.1:{first}: no port from there on is free; give another --port")


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there already"
    return error.strerror or str(error)

"""The HTTP servers: health on plain HTTP; metrics, the pages and their data over HTTPS behind the guard."""

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

from headroom.model.errors import Misconfigured
from headroom.web.files import Files
from headroom.web.guard import Judge, guard
from headroom.web.live import GONE, Asked, Streams
from headroom.web.pages import Pages, nodes, search
from headroom.web.scope import ACCESS, Anybody
from headroom.web.view import Showing, View

STILL_SECONDS: Final = 30.0
"""The loop ticks every second or so; one that has not for so long is stuck."""
SHUTDOWN_SECONDS: Final = 2.0
HERE: Final = Path(__file__).parent
CHARTS: Final = HERE / "node_modules" / "uplot" / "dist"
"""The charting library as its package has it; without it the pages show numbers only."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FRESH: Final = {"Cache-Control": "no-store"}
ASK_AGAIN: Final = {"Cache-Control": "no-cache"}
"""For files that only change with the program: a browser keeps them and asks whether they still are the same."""

VIEW: Final = web.AppKey("view", View)
SHOWING: Final = web.AppKey("showing", Showing)
PULSE: Final = web.AppKey["Pulse"]("pulse")
PAGES: Final = web.AppKey("pages", Pages)
STREAMS: Final = web.AppKey("streams", Streams)
_ON_THE_WAY: Final = web.RequestKey[dict[str, str]]("headers")
"""Under this key a request carries the headers of its answer, for one that begins before its handler ends."""


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
    """Metrics, the pages and their data; without a judge they are for everyone."""
    guarded = guard(judge, lambda: _namespaces(showing)) if judge else _for_everyone
    app = web.Application(middlewares=[_with_headers, guarded])
    app[SHOWING], app[PAGES], app[STREAMS] = showing, Pages(), Streams(showing)
    app.on_shutdown.append(app[STREAMS].close)
    app.add_routes([web.get("/", _shell), web.get("/metrics", _metrics)])
    for path in ("overview", "nodes", "decisions", "power", "budgets/{namespace}/{name}", "power/{name}"):
        app.add_routes([web.get(f"/api/{path}", _once), web.get(f"/api/live/{path}", _live, allow_head=False)])
    app.add_routes([web.get("/static/{path:.+}", Files({"": HERE / "static", "charts/": CHARTS}).send)])
    return app


def _namespaces(showing: Showing) -> set[str]:
    """Those in which there is something to see: our resources, and pods that ask for GPUs."""
    world = showing.view.world()
    return {ref.namespace for ref in world.resources if ref.namespace} | nodes.namespaces(world)


@web.middleware
async def _for_everyone(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not _is_meant(request):
        # A page of somebody else, whose name was made to lead here, must not read what only this machine may.
        return web.Response(status=403, text="Open this by the address that was printed.\n")
    request[ACCESS] = Anybody()
    return await handler(request)


def _is_meant(request: web.Request) -> bool:
    """Whether a request to the loopback names the loopback."""
    here = str((request.get_extra_info("sockname") or ("",))[0])
    if not here.startswith("127.") and here != "::1":
        return True
    host = request.url.host or ""
    return host in ("localhost", "::1") or host.startswith("127.")


@web.middleware
async def _with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[_ON_THE_WAY] = HEADERS | (ASK_AGAIN if request.path.startswith("/static/") else FRESH)
    try:
        response = await handler(request)
    except web.HTTPException as answer:
        answer.headers.update(request[_ON_THE_WAY])
        raise
    if not response.prepared:
        response.headers.update(request[_ON_THE_WAY])
    return response


async def _healthz(request: web.Request) -> web.Response:
    if request.app[PULSE].beats():
        return web.Response(text="ok\n")
    return web.Response(status=503, text=f"The loop has not ticked for {STILL_SECONDS:g} s.\n")


async def _readyz(request: web.Request) -> web.Response:
    view = request.app[VIEW]
    world = view.port.world(view.clock.now())
    lines = [f"not seen: {kind}: {why}" for kind, why in sorted(world.unseen.items())]
    if world.complete:
        return web.Response(text="\n".join(["ok", *lines]) + "\n")
    named = {*world.unseen.values()}
    lines += [each for each in map(str, view.port.problems()) if each not in named]
    return web.Response(status=503, text="\n".join(lines or ["The view of the cluster is not complete yet."]) + "\n")


async def _metrics(request: web.Request) -> web.Response:
    metrics, view = request.app[SHOWING].metrics, request.app[SHOWING].view
    metrics.view_age.set(view.port.age_seconds())
    metrics.watch_up.clear()
    for kind, seen in view.port.watched().items():
        metrics.watch_up.labels(kind).set(seen)
    world = view.port.world(view.clock.now())
    metrics.budgets.measure(world)
    metrics.power.measure(world, view.loop.decisions)
    metrics.resources.clear()
    for (kind, ready), count in view.ready().items():
        metrics.resources.labels(kind, ready).set(count)
    return web.Response(body=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _shell(_: web.Request) -> web.FileResponse:
    """The one document: it holds no data, scripts ask for that."""
    return web.FileResponse(HERE / "templates" / "shell.html", headers={"Content-Type": "text/html; charset=utf-8"})


async def _once(request: web.Request) -> web.Response:
    try:
        asked = _asked(request)
    except Misconfigured as error:
        return web.json_response({"problem": str(error)}, status=400)
    access = request[ACCESS]
    scope = await access.scope()
    made = request.app[STREAMS].made(asked, scope)
    if made.body is None:
        return web.json_response(GONE, status=404)
    return web.json_response(request.app[STREAMS].whole(made, scope, access))


async def _live(request: web.Request) -> web.StreamResponse:
    try:
        asked = _asked(request)
    except Misconfigured as error:
        return web.json_response({"problem": str(error)}, status=400)
    return await request.app[STREAMS].stream(request, asked, request[_ON_THE_WAY])


def _asked(request: web.Request) -> Asked:
    pages, what = request.app[PAGES], request.path.rpartition("/api/")[2].removeprefix("live/").partition("/")[0]
    if what == "budgets":
        named = request.match_info["namespace"], request.match_info["name"]
        return Asked((what, *named), pages.budget(*named))
    if what == "power" and "name" in request.match_info:
        return Asked((what, request.match_info["name"]), pages.pool(request.match_info["name"]))
    if what == "decisions":
        wanted = search(request.query)
        return Asked((what, wanted), pages.decisions(wanted))
    plain = {"nodes": pages.nodes, "power": pages.power}
    return Asked((what,), plain.get(what, pages.overview))


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

"""The extender's HTTP server: filter, prioritize and preempt for kube-scheduler, health and metrics for everybody."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from headroom.core.bandwidth import FilterAnswer
from headroom.model.errors import Refused
from headroom.model.facts import Pod
from headroom.web import certificate
from headroom.web.doors import Limits, in_door
from headroom.web.extender import wire
from headroom.web.extender.metrics import ExtenderMetrics

LARGEST_BODY: Final = 8 * 2**20
"""A pod of the largest size that the API server takes, and the names of 20,000 nodes."""
SCHEDULER: Final = Limits(connections=256, of_one_peer=128, request_seconds=120.0)
"""kube-scheduler keeps a connection for 90 seconds: one that the server closes earlier fails the next question."""
JSON: Final = {"Content-Type": "application/json"}
OPEN: Final = ("/healthz", "/readyz")
Asked = TypeVar("Asked", wire.ExtenderArgs, wire.PreemptionArgs)


class PlacementBackend(Protocol):
    """Whoever knows the links and the pods."""

    def unready(self) -> str:
        """Why nothing can be answered now; empty if it can."""
        ...

    def heard(self, pod: Pod) -> None:
        """kube-scheduler asks about this pod, whether it is answered or not: so it does not bind it just now."""
        ...

    def filter(self, pod: Pod, names: list[str]) -> tuple[FilterAnswer, bytes]:
        """Where it may go, and the same as kube-scheduler reads it."""
        ...

    def score(self, pod: Pod, names: list[str]) -> list[int]:
        """How good each node is for it."""
        ...

    def fits_without(self, pod: Pod, victims: dict[str, list[str]]) -> list[str]:
        """The nodes where it would fit with these pods evicted."""
        ...


ANSWERING: Final = web.AppKey["PlacementBackend"]("answering")
METRICS: Final = web.AppKey("metrics", ExtenderMetrics)


def extender_app(
    answering: PlacementBackend, metrics: ExtenderMetrics, *, known_clients: bool = False, names: Collection[str] = ()
) -> web.Application:
    """What kube-scheduler asks. With `known_clients`, only those whose certificate our authority signed are answered, of these names if given."""
    middlewares = [in_door, _of_known(names)] if known_clients else [in_door]
    app = web.Application(middlewares=middlewares, client_max_size=LARGEST_BODY)
    app[ANSWERING], app[METRICS] = answering, metrics
    app.add_routes([web.post("/filter", _filter), web.post("/prioritize", _prioritize), web.post("/preempt", _preempt)])
    app.add_routes([web.get("/healthz", _healthz), web.get("/readyz", _readyz)])
    return app


def health_app(answering: PlacementBackend, metrics: ExtenderMetrics) -> web.Application:
    """Health and metrics, in plain HTTP: numbers only, no names."""
    app = web.Application(middlewares=[in_door])
    app[ANSWERING], app[METRICS] = answering, metrics
    app.add_routes([web.get("/healthz", _healthz), web.get("/readyz", _readyz), web.get("/metrics", _metrics)])
    return app


def _of_known(names: Collection[str]) -> Middleware:
    @web.middleware
    async def of_known(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        shown = certificate.shown(connection) if isinstance(connection, ssl.SSLObject) else None
        if request.path in OPEN or (shown is not None and (not names or shown.name in names)):
            return await handler(request)
        if shown is None:
            return web.Response(
                status=401, text="Show a client certificate of the authority given as --client-authority.\n"
            )
        return web.Response(status=403, text="The name in your certificate is none of those given as --client-names.\n")

    return of_known


async def _filter(request: web.Request) -> web.Response:
    return await _answered(request, "filter", wire.question, _filter_now)


async def _prioritize(request: web.Request) -> web.Response:
    return await _answered(request, "prioritize", wire.question, _prioritize_now)


async def _preempt(request: web.Request) -> web.Response:
    return await _answered(request, "preempt", wire.preemption, _preempt_now)


def _filter_now(app: web.Application, asked: wire.ExtenderArgs) -> bytes:
    verdict, body = app[ANSWERING].filter(asked.pod, asked.names)
    app[METRICS].answered(verdict)
    return body


def _prioritize_now(app: web.Application, asked: wire.ExtenderArgs) -> bytes:
    return wire.prioritized(asked.names, app[ANSWERING].score(asked.pod, asked.names))


def _preempt_now(app: web.Application, asked: wire.PreemptionArgs) -> bytes:
    return wire.preempted(asked, app[ANSWERING].fits_without(asked.pod, asked.uids))


async def _answered(
    request: web.Request, verb: str, read: Callable[[bytes], Asked], answer: Callable[[web.Application, Asked], bytes]
) -> web.Response:
    body, began = await request.read(), time.perf_counter()
    metrics, answering = request.app[METRICS], request.app[ANSWERING]
    metrics.asked.labels(verb).inc()
    try:
        asked = read(body)
    except Refused as problem:
        metrics.errors.labels("Malformed").inc()
        # A 200 with an error: kube-scheduler puts only such a sentence into the pod's event.
        return web.Response(body=wire.failed(str(problem)), headers=JSON, status=200 if verb == "filter" else 400)
    answering.heard(asked.pod)
    if why := answering.unready():
        metrics.errors.labels("Unready").inc()
        return web.Response(status=503, text=f"{why}\n")
    body = answer(request.app, asked)
    metrics.seconds.labels(verb).observe(time.perf_counter() - began)
    return web.Response(body=body, headers=JSON)


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    why = request.app[ANSWERING].unready()
    return web.Response(status=503 if why else 200, text=f"{why or 'ok'}\n")


async def _metrics(request: web.Request) -> web.Response:
    body = request.app[METRICS].render()
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

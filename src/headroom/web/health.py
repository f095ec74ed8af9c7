"""Health, in a process of its own: whoever asks, however often, the operator is not asked; it says by itself that it lives.

Few modules are imported here: a probe must not wait for them.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from aiohttp import web
from msgspec import Struct

from headroom.web import confined, doors, hosts
from headroom.web.doors import in_door
from headroom.web.headers import with_headers
from headroom.web.listening import Servers
from headroom.web.wire import Link

STILL_SECONDS: Final = 30.0
"""The loop ticks every second or so; one that has not for so long is stuck."""


class Vitals(Protocol):
    """What health is judged by."""

    @property
    def ticks(self) -> int:
        """How often the loop has looked."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the view of the cluster is complete."""
        ...

    @property
    def reasons(self) -> list[str]:
        """What is not seen, and why."""
        ...


class LastVitals(Struct, frozen=True):
    """As the operator said last."""

    ticks: int = 0
    complete: bool = False
    reasons: list[str] = []


class HealthBeat(Struct, frozen=True, tag="Beat"):
    """The operator's pulse, as far as health needs it."""

    pulse: LastVitals


VITALS: Final = web.AppKey[Callable[[], Vitals]]("vitals")
HEART: Final = web.AppKey["Heart"]("heart")


class Heart:
    """Whether the loop still ticks, judged each time somebody asks."""

    def __init__(self, vitals: Callable[[], Vitals]) -> None:
        self._vitals = vitals
        self._ticks, self._at = -1, time.monotonic()

    def beats(self) -> bool:
        """Whether there was a tick lately."""
        ticks = self._vitals().ticks
        if ticks != self._ticks:
            self._ticks, self._at = ticks, time.monotonic()
        return time.monotonic() - self._at < STILL_SECONDS


def health_app(vitals: Callable[[], Vitals]) -> web.Application:
    """`/healthz`: the loop ticks. `/readyz`: the view of the cluster is complete. Anybody may ask; only who is here learns why not."""
    app = web.Application(middlewares=[in_door, with_headers])
    app[VITALS], app[HEART] = vitals, Heart(vitals)
    app.add_routes([web.get("/healthz", _healthz), web.get("/readyz", _readyz)])
    return app


async def _healthz(request: web.Request) -> web.Response:
    if request.app[HEART].beats():
        return web.Response(text="ok\n")
    return web.Response(status=503, text=f"The loop has not ticked for {STILL_SECONDS:g}s.\n")


async def _readyz(request: web.Request) -> web.Response:
    vitals = request.app[VITALS]()
    # Whoever gets to the loopback, by exec or port-forward, is no stranger; a page whose name was made to lead there is one.
    host = hosts.named(request) if hosts.is_at_loopback(request) else None
    reasons = vitals.reasons if host is not None and hosts.is_loopback(host[0]) else []
    said = "\n".join(["ok" if vitals.complete else "not ready", *reasons])
    return web.Response(status=200 if vitals.complete else 503, text=f"{said}\n")


async def serve(end: socket.socket, listening: Sequence[socket.socket]) -> None:
    """Serve health until the operator hangs up."""
    link: Link[HealthBeat] = await Link.over(end, HealthBeat)
    last, servers = LastVitals(), Servers()
    await servers.serve(health_app(lambda: last), listening, limits=doors.HEALTH)
    try:
        while (beat := await link.heard()) is not None:
            last = beat.pulse
    finally:
        await servers.close()
        link.close()


if __name__ == "__main__":
    confined.run(serve, sys.argv[1:], connections=doors.HEALTH.connections)

"""Servers, each behind a door of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from headroom.web.addresses import bound
from headroom.web.doors import DASHBOARD, LINGER_SECONDS, Door, Limits, quiet_logger

SHUTDOWN_SECONDS: Final = 2.0


class Servers:
    """What listens, to be closed together."""

    def __init__(self) -> None:
        self._behind: list[tuple[Door, web.AppRunner]] = []

    async def listen(
        self,
        app: web.Application,
        address: str,
        what: str,
        tls: ssl.SSLContext | None = None,
        limits: Limits = DASHBOARD,
    ) -> int:
        """Serve an app at host:port and return the port. Raises `Misconfigured` if that cannot be had."""
        listening = bound(address, what)
        await self.serve(app, listening, tls, limits)
        return int(listening[0].getsockname()[1])

    async def serve(
        self,
        app: web.Application,
        listening: Sequence[socket.socket],
        tls: ssl.SSLContext | None = None,
        limits: Limits = DASHBOARD,
    ) -> Door:
        """Serve an app on sockets that listen already; they are ours from now on."""
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=quiet_logger(),
            shutdown_timeout=SHUTDOWN_SECONDS,
            # The library counts from the last answer, or from the beginning, until the whole next request is there.
            keepalive_timeout=limits.request_seconds,
            lingering_time=LINGER_SECONDS,
        )
        await runner.setup()
        assert runner.server is not None
        door = Door(runner.server, limits, tls)
        self._behind.append((door, runner))
        door.open(listening)
        return door

    async def close(self) -> None:
        """Stop listening."""
        for door, _ in self._behind:
            door.close()
        await asyncio.gather(*(runner.cleanup() for _, runner in self._behind))
        self._behind.clear()

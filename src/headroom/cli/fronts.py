"""Keeps the processes that serve the dashboard and the health of an operator: starts them, answers them, starts them again."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import sys
from typing import Final

from msgspec import structs

from headroom.api import marks
from headroom.runtime.logs import Log
from headroom.runtime.settings import Settings
from headroom.web.addresses import bound
from headroom.web.link import LONGEST_QUESTION, Begin, LinkQuestion, LinkServer
from headroom.web.source import Local
from headroom.web.view import Showing
from headroom.web.wire import Link

DASHBOARD: Final = "headroom.cli.front"
HEALTH: Final = "headroom.web.health"
"""The modules that the processes are. Only they load what a server takes."""
AGAIN_SECONDS: Final = 1.0
END_SECONDS: Final = 4.0
KEPT_BACK: Final = frozenset({"HEADROOM_LEDGER_URL", "PGPASSWORD"})
"""What nobody needs who serves pages."""
ALLOCATOR: Final = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "30000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
"""Buffers of connections that are closed go back to the system, instead of leaving holes."""


class Fronts:
    """One process for the dashboard and one for health, each with its own sockets and its own link."""

    def __init__(self, settings: Settings, showing: Showing, log: Log) -> None:
        self._settings, self._log = structs.replace(settings, ledger_url=""), log
        self._local = Local(showing)
        self._answering = LinkServer(self._local, self._failed)
        self._failure = ""
        self._listening: dict[str, list[socket.socket]] = {}
        self._keeping: list[asyncio.Task[None]] = []

    def start(self) -> list[asyncio.Task[None]]:
        """Listen, and start the processes. Raises `Misconfigured` if an address or the certificate cannot be had."""
        settings = self._settings
        if settings.health_address:
            self._listening[HEALTH] = bound(settings.health_address, "health_address")
        if settings.metrics_address:
            if settings.metrics_certificate and not settings.metrics_plain:
                from headroom.cli import front

                front.tls_of(settings)  # one that cannot be read is a mistake of today
            self._listening[DASHBOARD] = bound(settings.metrics_address, "metrics_address")
        self._keeping = [asyncio.create_task(self._keep(module)) for module in self._listening]
        return self._keeping

    def published(self) -> dict[str, str]:
        """Annotations by which `headroom dashboard` on this host finds the dashboard and knows it; without values if it has its own way."""
        certificate, port = self._answering.certificate, ""
        if certificate:
            own = [each.getsockname()[:2] for each in self._listening.get(DASHBOARD, ())]
            port = next((str(number) for host, number in own if _on_loopback(host)), "")
        return {marks.DASHBOARD_PORT: port, marks.DASHBOARD_CERTIFICATE: certificate if port else ""}

    async def close(self) -> None:
        """End the processes, and stop listening."""
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        for listening in self._listening.values():
            for each in listening:
                each.close()

    def _failed(self, error: Exception) -> None:
        if self._failure != (failure := repr(error)):
            self._failure = failure
            self._log.exception("making a page raised: this is a bug", error=failure)

    async def _keep(self, module: str) -> None:
        while True:
            try:
                why: object = await self._serve(module)
            except OSError as error:
                why = error.strerror or str(error)
            self._log.warning("a process that serves pages has ended; it is started again", module=module, why=why)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _serve(self, module: str) -> int | None:
        """Start a process, which is a module, and answer it until it is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            passed = [theirs.fileno(), *(each.fileno() for each in self._listening[module])]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, *map(str, passed)),
                stdin=asyncio.subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if name not in KEPT_BACK} | ALLOCATOR,
                pass_fds=passed,
            )
        link: Link[LinkQuestion] = await Link.over(ours, LinkQuestion, LONGEST_QUESTION)
        try:
            if module == DASHBOARD:
                link.say(Begin(self._settings))
            await self._answering.serve(link)
        finally:
            link.close()
            await asyncio.shield(_ended(process))
        return process.returncode


def _on_loopback(host: str) -> bool:
    """Whether somebody on this host can come by the loopback."""
    number = ipaddress.ip_address(host)
    return number.is_loopback or number.is_unspecified


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Give it time to end by itself, and no more than that."""
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):  # it ended in this very moment
            process.kill()
        await process.wait()

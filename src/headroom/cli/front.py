"""A process beside the operator that serves its pages: started by `headroom run`, and gone when that is.

It has descriptors, memory and processor time of its own, so whatever clients take, they take from this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Final

from headroom.adapters.kube.client_authority import ClientAuthority
from headroom.adapters.kube.reviews import Reviews
from headroom.cli import capabilities, live
from headroom.model.errors import HeadroomError
from headroom.runtime import logs
from headroom.runtime.settings import Settings
from headroom.web import certificate, confined, doors
from headroom.web.link import Beat, Begin, LinkAnswer, Remote
from headroom.web.listening import Servers
from headroom.web.server import main_app
from headroom.web.wire import Link

NICER: Final = 5
"""Deciding comes before showing."""


async def serve(end: socket.socket, listening: Sequence[socket.socket]) -> None:
    """Serve what the operator's first word says, until it hangs up."""
    link: Link[Begin | Beat | LinkAnswer] = await Link.over(end, Begin | Beat | LinkAnswer)
    begin = await link.heard()
    if not isinstance(begin, Begin):
        return
    remote, servers = Remote(link, capabilities.pages()), Servers()
    log = logs.make(begin.settings.log_level, begin.settings.log_format)
    try:
        async with _dashboard(begin.settings, log, remote, servers, listening):
            await remote.run()
    except HeadroomError as error:
        log.error("the dashboard cannot be served", why=str(error))
    finally:
        await servers.close()
        link.close()


@contextlib.asynccontextmanager
async def _dashboard(
    settings: Settings, log: logs.Log, remote: Remote, servers: Servers, listening: Sequence[socket.socket]
) -> AsyncIterator[None]:
    if settings.metrics_plain:
        await servers.serve(main_app(remote, None), listening)
        yield
        return
    async with live.connection(settings) as (kube, _):
        tls = tls_of(settings)
        authority = ClientAuthority(
            kube, tls.trust, lambda why: log.warning("client certificates are not taken", why=why)
        )
        if not settings.metrics_certificate:
            remote.certified(tls.shown_pem)
        await authority.look()
        beside = [asyncio.create_task(authority.follow())]
        if settings.metrics_certificate:
            files = (settings.metrics_certificate, settings.metrics_key)
            beside.append(asyncio.create_task(certificate.follow(tls, *files, kube.clock)))
        for task in beside:
            task.add_done_callback(functools.partial(_told, log))
        await servers.serve(main_app(remote, Reviews(kube, kube.clock)), listening, tls)
        try:
            yield
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


def _told(log: logs.Log, task: asyncio.Task[None]) -> None:
    """Pages go on without what runs beside them, but not without a word."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a part of Headroom has ended by a mistake in it", error=repr(error))


def tls_of(settings: Settings) -> certificate.Context:
    """How the dashboard speaks TLS. Raises `Misconfigured` if the certificate that is set cannot be read."""
    names = ("headroom", f"headroom.{settings.operator_namespace}.svc")
    return certificate.context(settings.metrics_certificate, settings.metrics_key, names)


if __name__ == "__main__":
    confined.run(serve, sys.argv[1:], connections=doors.DASHBOARD.connections, nicer=NICER)

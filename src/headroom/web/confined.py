"""How a process that serves strangers begins: with limits of its own, and never longer than the operator that started it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

SPARE_DESCRIPTORS: Final = 128
"""Beside those of clients: the link, the API server, files."""
MOST_MEMORY: Final = 1024 * 1024 * 1024
"""Of data. What clients may keep open takes a small part of it; a mistake of ours must not take the operator's."""
TLS_BUFFER: Final = 32 * 1024
"""Of each connection: requests are short. The library takes 256 KiB, whatever comes."""
SWEEP_SECONDS: Final = 0.1
FEW_OBJECTS: Final = 200
_PARENT_DEATH: Final = 1

Serve = Callable[[socket.socket, Sequence[socket.socket]], Awaitable[None]]
"""Serves on sockets that listen, until whoever has the other end of the first one hangs up."""


def run(serve: Serve, descriptors: Sequence[str], *, connections: int, nicer: int = 0) -> None:
    """Serve, within limits; the descriptors are those of the link and of the sockets that listen."""
    for each in (signal.SIGINT, signal.SIGTERM):
        # They may reach the whole group; the operator says when it is over.
        signal.signal(each, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):  # Linux alone has it; elsewhere the link's end tells
        # Killed in the moment the operator is: the next one needs the addresses.
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    _limit(resource.RLIMIT_NOFILE, connections + SPARE_DESCRIPTORS)
    _limit(resource.RLIMIT_DATA, MOST_MEMORY)
    _limit(resource.RLIMIT_CORE, 0)
    os.nice(nicer)
    SSLProtocol.max_size = TLS_BUFFER
    end, *listening = (socket.socket(fileno=int(each)) for each in descriptors)

    async def serving() -> None:
        sweeping = asyncio.create_task(_sweep())
        try:
            await serve(end, listening)
        finally:
            sweeping.cancel()

    asyncio.run(serving())


async def _sweep() -> None:
    """Connections that are closed hold one another, each with its buffers for TLS, until the collector comes by."""
    gc.collect()
    gc.freeze()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        if sum(gc.get_count()) > FEW_OBJECTS:
            gc.collect()


def _limit(what: int, wanted: int) -> None:
    _, most = resource.getrlimit(what)
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(what, (limit, limit))

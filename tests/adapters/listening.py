"""A server on the loopback, in IPv4 and IPv6, that counts who connects and what they send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\non"


@dataclass
class Listening:
    """What arrived, and what is answered."""

    port: int = 0
    answer: bytes = OK
    pause: float = 0.0
    """Seconds before the answer."""
    trickle: float = 0.0
    """Seconds between the head of the answer and its body."""
    hang_up: bool = False
    """The connection breaks once the request has arrived."""
    peers: list[str] = field(default_factory=list)
    """The numbers under which somebody connected to us."""
    requests: list[bytes] = field(default_factory=list)
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(str(writer.get_extra_info("sockname")[0]).removeprefix("::ffff:"))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        self.requests.append(head + await reader.readexactly(int(length.partition(b":")[2])))
        if self.hang_up:
            return
        await asyncio.sleep(self.pause)
        start, _, body = self.answer.partition(b"\r\n\r\n")
        writer.write(start + b"\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(self.trickle)
        writer.write(body)
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        await reader.read()


@contextlib.asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[Listening]:
    """One port for every number of this machine."""
    found = Listening()
    sock = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    server = await asyncio.start_server(found.begin, sock=sock, ssl=tls)
    found.port = sock.getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        serving = list(found.serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

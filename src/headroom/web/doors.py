"""A door: accepts connections within limits, so that no client can lock others out or exhaust the process.

The HTTP library closes connections that send no whole request in time. This module adds what it lacks: limits on the number of
connections, in all and per peer, counted before TLS begins; on the duration of a handshake; and on readers that take nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from msgspec import Struct

SEND_BUFFER: Final = 128 * 1024
RECEIVE_BUFFER: Final = 64 * 1024
"""Kernel buffers of one connection; by default they grow to megabytes for a reader that takes nothing."""
AT_ONCE: Final = 64
"""Connections to accept before other work gets its turn."""
REST_SECONDS: Final = 0.1
"""How long to rest after the process ran out of descriptors."""
LINGER_SECONDS: Final = 1.0
"""How long to keep reading a request after its answer: no request here needs a body."""
CLOSE_SECONDS: Final = 5.0
"""How long a TLS shutdown may take."""
_RESET: Final = struct.pack("ii", 1, 0)


class Limits(Struct, frozen=True, kw_only=True):
    """Limits for the clients of one server."""

    connections: int = 512
    of_one_peer: int = 256
    """Large, because an ingress brings all viewers from one address."""
    request_seconds: float = 10.0
    """For the handshake, and again for each whole request after it."""
    reading_seconds: float = 30.0
    """A client that reads nothing of its answer for this long is considered gone."""


DASHBOARD: Final = Limits()
HEALTH: Final = Limits(connections=128, of_one_peer=64)


class Connection(asyncio.Protocol):
    """One connection: passes all data to the HTTP library, and tracks whether a request is being answered."""

    def __init__(self, door: Door, peer: str, inner: asyncio.Protocol) -> None:
        self._door, self.peer, self._inner = door, peer, inner
        self._transport: asyncio.BaseTransport | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.opening: asyncio.Task[None] | None = None

    @property
    def is_made(self) -> bool:
        """Whether it was ever open: only then does asyncio report its end."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open, its TLS handshake done."""
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._read_again()
        self._door.lost(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Nothing more will come."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """The reader does not keep up."""
        loop = asyncio.get_running_loop()
        self._stalled = loop.call_later(self._door.limits.reading_seconds, self.abort)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The reader has taken most of it."""
        self._read_again()
        self._inner.resume_writing()

    def abort(self) -> None:
        """Close it at once and drop unsent data."""
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """While a request is answered, the connection is not idle, so the door does not close it to make room."""
        self._door.waits(self, False)
        try:
            yield
        finally:
            self._door.waits(self, True)

    def _read_again(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


@web.middleware
async def in_door(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the door which connections are idle; the first middleware of every app."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, Connection):
        return await handler(request)
    with connection.answering():
        return await handler(request)


class Door:
    """Accepts connections for one server.

    When there is no room, the door closes the connection that has been idle longest, of the peer that is over its limit or has most. So a
    client that sends its request at once gets in, however many half-sent requests others keep open.
    """

    def __init__(
        self, made: Callable[[], asyncio.Protocol], limits: Limits, tls: ssl.SSLContext | None, name: str = ""
    ) -> None:
        self.limits = limits
        self.refused = 0
        """Connections closed to make room, or refused."""
        self._made, self._tls, self._name = made, tls, name
        self._listening: list[socket.socket] = []
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        """Idle connections, longest first."""
        self._open: set[Connection] = set()
        self._of_peer: Counter[str] = Counter()

    def open(self, listening: Sequence[socket.socket]) -> None:
        """Begin to accept."""
        self._listening = list(listening)
        for each in self._listening:
            each.setblocking(False)
            # Accepted sockets inherit these.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            asyncio.get_running_loop().add_reader(each.fileno(), self._accept, each)

    def close(self) -> None:
        """Accept no more."""
        for each in self._listening:
            asyncio.get_running_loop().remove_reader(each.fileno())
            each.close()
        self._listening.clear()
        for connection in list(self._open):
            if connection.opening is not None and not connection.opening.done():
                connection.opening.cancel()

    def waits(self, connection: Connection, does: bool) -> None:
        """Note whether a connection is idle."""
        self._waiting.pop(connection, None)
        if does and connection in self._open:
            self._waiting[connection] = None

    def lost(self, connection: Connection) -> None:
        """A connection is closed."""
        if connection in self._open:
            self._open.discard(connection)
            self._waiting.pop(connection, None)
            self._of_peer[connection.peer] -= 1
            if not self._of_peer[connection.peer]:
                del self._of_peer[connection.peer]

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(listening, error)
                return
            accepted.setblocking(False)
            self._take(accepted, peer_of(str(address[0])))

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        """Make room and try again soon; otherwise the loop would spin on a socket that it cannot accept."""
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            self._make_room_fairly()
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        loop.call_later(REST_SECONDS, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _take(self, accepted: socket.socket, peer: str) -> None:
        has_room = self._of_peer[peer] < self.limits.of_one_peer or self._make_room(lambda each: each.peer == peer)
        if has_room:
            has_room = len(self._open) < self.limits.connections or self._make_room_fairly()
        if not has_room:
            self.refused += 1
            # A reset, so that nothing of it stays in the kernel.
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            accepted.close()
            return
        connection = Connection(self, peer, self._made())
        self._open.add(connection)
        self._of_peer[peer] += 1
        self._waiting[connection] = None
        connection.opening = asyncio.create_task(self._begin(connection, accepted))
        connection.opening.add_done_callback(lambda _: self._opened(connection, accepted))

    def _make_room_fairly(self) -> bool:
        """Close one of the peer with most connections, so that a crowd from one address does not displace others."""
        most = max(self._of_peer.items(), key=lambda each: each[1], default=("", 0))[0]
        return self._make_room(lambda each: each.peer == most) or self._make_room(lambda _: True)

    def _make_room(self, of: Callable[[Connection], bool]) -> bool:
        """Close the matching connection that has been idle longest. False: none of them is idle."""
        for connection in self._waiting:
            if of(connection):
                self.refused += 1
                # It counts as closed from here on; asyncio frees its descriptor in this iteration of the loop or the next.
                self.lost(connection)
                connection.abort()
                return True
        return False

    async def _begin(self, connection: Connection, accepted: socket.socket) -> None:
        limit = self.limits.request_seconds if self._tls else None
        closing = CLOSE_SECONDS if self._tls else None
        with contextlib.suppress(OSError, ssl.SSLError):  # too slow, or no TLS
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=limit, ssl_shutdown_timeout=closing
            )

    def _opened(self, connection: Connection, accepted: socket.socket) -> None:
        if not connection.is_made:
            self.lost(connection)
            accepted.close()


def peer_of(address: str) -> str:
    """The peer behind an address: an IPv4 address, or the /64 IPv6 network, all of whose addresses one machine may use."""
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, IPv6Address):
        return str(known.ipv4_mapped or IPv6Address(int(known) >> 64 << 64))
    return str(known)


def quiet_logger() -> logging.Logger:
    """A logger for the HTTP library: data that is not HTTP is answered but not logged, so that strangers cannot fill the log."""
    logger = logging.getLogger("headroom.web")
    if not logger.filters:
        logger.addFilter(_is_ours)
    return logger


def _is_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, ConnectionError))

"""Sockets that listen at an address."""

from __future__ import annotations

import errno
import socket
from typing import Final

from headroom.model.errors import Misconfigured

BACKLOG: Final = 512


def bound(address: str, what: str) -> list[socket.socket]:
    """Sockets that listen at host:port, one for each number of the host. Raises `Misconfigured` if they cannot be had."""
    host, port = split(address, what)
    made: list[socket.socket] = []
    lacks: OSError | None = None
    try:
        for number in socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            where = number[4]
            # All of them at one port, also where it was left to the system.
            at = (where[0], made[0].getsockname()[1] if made else where[1], *where[2:])
            try:
                made.append(socket.create_server(at, family=number[0], backlog=BACKLOG))
            except OSError as error:
                # A machine without IPv6 may have its numbers all the same.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                lacks = error
        if not made:
            raise lacks or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    except OSError as error:
        for each in made:
            each.close()
        raise Misconfigured(f"listening on {address}: {_why(error)}; set {what} to another address") from error
    return made


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
    raise Misconfigured(f"listening on 127.0.0.1:{first}: no port at or above it is free; choose another --port")


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there already"
    return error.strerror or str(error)

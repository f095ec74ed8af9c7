"""The host that a request names, parsed strictly: a foreign page whose DNS name points here (DNS rebinding) names another host."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final

from aiohttp import hdrs, web

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9.-]{1,253}))(?::([0-9]{1,5}))?", re.ASCII)


def named(request: web.Request) -> tuple[str, int | None] | None:
    """Host and port that a request names; None if it names none, several, or an ambiguous one."""
    given = request.headers.getall(hdrs.HOST, [])
    # A target that is a whole URL names a host too, and that host takes precedence.
    if len(given) != 1 or request.host != given[0]:
        return None
    return parsed(given[0])


def parsed(host: str) -> tuple[str, int | None] | None:
    """Host and port of `host`, `host:port`, `[::1]` or `[::1]:port`, in one spelling; None for anything else."""
    found = _HOST.fullmatch(host)
    if found is None or (found[3] and int(found[3]) > 65535):
        return None
    port = int(found[3]) if found[3] else None
    if found[1]:
        try:
            return str(IPv6Address(found[1])), port
        except AddressValueError:
            return None
    return found[2].lower(), port


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address or `localhost`."""
    if host == "localhost":
        return True
    try:
        # Four plain numbers only: any other spelling of an address is treated as a name.
        return host == "::1" or IPv4Address(host).is_loopback
    except AddressValueError:
        return False


def is_at_loopback(request: web.Request) -> bool:
    """Whether a request arrived on the loopback interface."""
    here = (request.get_extra_info("sockname") or ("",))[0]
    try:
        number = ip_address(str(here).partition("%")[0])
    except ValueError:
        return True  # no network at all
    mapped = number.ipv4_mapped if isinstance(number, IPv6Address) else None
    return (mapped or number).is_loopback

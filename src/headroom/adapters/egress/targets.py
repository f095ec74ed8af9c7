"""Reads an address in one strict way, so that what is checked is what is called.

Every library has its own idea of an odd address. Here an odd one is refused, not understood: one spelling for each number, plain
ASCII names, no user, no fragment, nothing encoded in the host.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final

from msgspec import Struct

from headroom.adapters.egress.networks import Number
from headroom.model.errors import Refused

PORTS: Final = {"https": 443, "http": 80}
WAKE_ON_LAN: Final = "wol"
LONGEST: Final = 2048
_LONGEST_NAME: Final = 253
_URL: Final = re.compile(r"(https?)://([^/?]*)(/[^?]*)?(\?.*)?", re.ASCII)
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


class EgressTarget(Struct, frozen=True, kw_only=True):
    """Where a call goes, read strictly."""

    scheme: str
    host: str
    """A name in lower case, or a number in its usual spelling, without brackets."""
    port: int
    path: str = "/"
    query: str = ""

    @property
    def number(self) -> Number | None:
        """The host's number, if it is written as one."""
        return number_of(self.host)

    @property
    def entry(self) -> str:
        """The entry of the list that would allow it."""
        return spelled(self.scheme, self.host, self.port)


def spelled(scheme: str, host: str, port: int | None) -> str:
    """An entry as people write it; the usual port is left out."""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" + ("" if port in (None, PORTS.get(scheme)) else f":{port}")


def target_of(url: str) -> EgressTarget:
    """The target of a URL. Raises `Refused`, with why and without the URL, for anything that could be read in two ways."""
    if len(url) > LONGEST:
        raise Refused(f"its address is longer than {LONGEST} characters")
    # Also no backslash, which some read as a slash.
    if any(not "!" <= each <= "~" or each in '\\"<>^`{|}' for each in url):
        raise Refused("its address has characters that are not allowed")
    if "#" in url:
        raise Refused("its address has a fragment")
    found = _URL.fullmatch(url)
    if found is None:
        raise Refused("its address does not begin with http:// or https://")
    scheme, authority, path, query = found[1], found[2], found[3] or "/", found[4] or ""
    if "@" in authority:
        raise Refused("its address has a user name in it; credentials belong in a Secret")
    host, port = _authority(authority, PORTS[scheme])
    return EgressTarget(scheme=scheme, host=host, port=port, path=path, query=query[1:])


def datagram_to(number: str, port: int) -> EgressTarget:
    """The target of a Wake-on-LAN packet. Raises `Refused` unless it is a number in its usual spelling."""
    known = number_of(number)
    if known is None:
        raise Refused("its address is not an IPv4 address such as 10.0.7.255")
    return EgressTarget(scheme=WAKE_ON_LAN, host=str(known), port=port)


def _authority(text: str, usual: int) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise Refused("its address has a host that is neither a plain name nor an IP address")
    port = usual if found[2] is None else int(found[2])
    if not 1 <= port <= 65535 or (found[2] or "").startswith("0"):
        raise Refused("its address has a port that is not a port number")
    return host_of(found[1]), port


def host_of(text: str) -> str:
    """A host as it is compared: a name in lower case, a number in its usual spelling. Raises `Refused` for any other."""
    if text.startswith("["):
        return _ipv6(text[1:-1])
    host = text.lower()
    if host.endswith("."):
        raise Refused("its address has a host that ends with a dot")
    labels = host.split(".")
    # What looks like a number is read as one by whoever connects, in many spellings.
    if _NUMERIC.fullmatch(labels[-1]):
        return _ipv4(host)
    if len(host) > _LONGEST_NAME or not all(_LABEL.fullmatch(each) for each in labels):
        raise Refused("its address has a host that is not a host name")
    return host


def _ipv4(text: str) -> str:
    try:
        number = IPv4Address(text)
    except AddressValueError:
        raise Refused("its address has an IPv4 address that is not written like 10.0.7.1") from None
    return str(number)


def _ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        raise Refused("its address has brackets without an IPv6 address") from None


def number_of(host: str) -> Number | None:
    """The number that a host is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None

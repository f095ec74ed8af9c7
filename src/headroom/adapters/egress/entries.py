"""The administrator's list of where calls may go: `[scheme://]host[:port]`, separated by commas.

A host is a name, `*.` and a name (anything that ends so, but not that name itself), a number, or a network of numbers. The scheme is
https unless http or wol is written. The port is 443 or 80 unless another is written; a wol entry without one is for every port.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Final

from msgspec import Struct

from headroom.adapters.egress.networks import Network, Number
from headroom.adapters.egress.targets import PORTS, WAKE_ON_LAN, host_of, number_of, spelled
from headroom.model.errors import Misconfigured, Refused

SETTING: Final = "--allow-egress (HEADROOM_ALLOW_EGRESS)"
_ENTRY: Final = re.compile(
    r"(?:(https|http|wol)://)?(\*\.)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?:/([0-9]{1,3}))?(?::([0-9]{1,5}))?", re.ASCII
)


class EgressEntry(Struct, frozen=True, kw_only=True):
    """One place, or some places, where calls may go."""

    scheme: str
    name: str = ""
    """A name; with a leading dot it stands for all names that end so."""
    network: Network | None = None
    port: int | None = None
    """None: any."""

    def is_for(self, scheme: str, port: int) -> bool:
        """Whether it speaks of such calls at all."""
        return scheme == self.scheme and self.port in (None, port)

    def has_name(self, host: str) -> bool:
        """Whether a host is one of its names."""
        return host.endswith(self.name) if self.name.startswith(".") else host == self.name

    def has_number(self, number: Number) -> bool:
        """Whether a number is one of its numbers."""
        return self.network is not None and number in self.network

    def __str__(self) -> str:
        if self.network is None:
            return spelled(self.scheme, f"*{self.name}" if self.name.startswith(".") else self.name, self.port)
        size = "" if self.network.num_addresses == 1 else f"/{self.network.prefixlen}"
        host = str(self.network.network_address)
        shown = f"[{host}]" if ":" in host else host
        port = "" if self.port in (None, PORTS.get(self.scheme)) else f":{self.port}"
        return f"{self.scheme}://{shown}{size}{port}"


def entries(text: str) -> tuple[EgressEntry, ...]:
    """The list in the setting. Raises `Misconfigured` with the entry that cannot be read, and why."""
    return tuple(_entry(each.strip()) for each in text.split(",") if each.strip())


def _entry(text: str) -> EgressEntry:
    found = _ENTRY.fullmatch(text)
    if found is None:
        raise _unread(
            text, "write it as [scheme://]host[:port], such as https://power-api.example.com or http://10.0.7.0/24:8000"
        )
    scheme, any_below, host, size, port = found[1] or "https", found[2], found[3], found[4], found[5]
    if port and (port.startswith("0") or int(port) > 65535):
        raise _unread(text, "its port is not a port number")
    try:
        known = host_of(host)
    except Refused as problem:
        raise _unread(text, str(problem).replace("its address", "it")) from None
    number = number_of(known)
    chosen = int(port) if port else PORTS.get(scheme)
    if number is None:
        if size or scheme == WAKE_ON_LAN:
            raise _unread(text, "only an address such as 10.0.7.255 or 10.0.7.0/24 is allowed")
        return EgressEntry(scheme=scheme, name=f".{known}" if any_below else known, port=chosen)
    if any_below:
        raise _unread(text, "an address has no subdomains; write a network such as 10.0.7.0/24")
    try:
        network = ip_network(f"{known}/{size}" if size else known)
    except ValueError:
        raise _unread(text, "it is not a network: the bits after its prefix must be 0, as in 10.0.7.0/24") from None
    return EgressEntry(scheme=scheme, network=network, port=chosen)


def _unread(text: str, why: str) -> Misconfigured:
    return Misconfigured(f"reading the settings: {SETTING}: {text!r}: {why}")

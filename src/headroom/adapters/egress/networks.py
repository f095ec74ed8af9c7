"""Numbers that a call reaches only if an administrator lists them by number: this machine, its links, the cloud's own services.

A name may be anybody's, and may change from one moment to the next; what it stands for is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

Number = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA: Final = "the cloud's metadata service, which hands out credentials"
_NETWORKS: Final = {
    "this machine itself": ("127.0.0.0/8", "::1/128"),
    "not the address of a machine": ("0.0.0.0/8", "::/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "broadcast": ("255.255.255.255/32",),
    METADATA: (
        "169.254.169.254/32",
        "169.254.170.2/32",
        "169.254.170.23/32",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "fd00:ec2::/32",
        "fd20:ce::254/128",
    ),
    "reserved": (
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        "100::/64",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    ),
    # Through these an IPv6 number may stand for any IPv4 number, of this machine too.
    "an IPv4 address in another form": (
        "::/96",
        "::ffff:0:0/96",
        "::ffff:0:0:0/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
    ),
}
_SPECIAL: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(each), what) for what, networks in _NETWORKS.items() for each in networks
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
_LOW: Final = 0xFFFF_FFFF


@lru_cache(maxsize=1024)
def special(number: Number) -> tuple[tuple[Network, str], ...]:
    """The special networks that a number lies in, each with what it is; none for an ordinary number."""
    return tuple(found for each in _meanings(number) for found in _special(each))


def _special(number: Number) -> Iterator[tuple[Network, str]]:
    return ((network, what) for network, what in _SPECIAL if number in network)


def _meanings(number: Number) -> Iterator[Number]:
    """The number, and the IPv4 number that a gateway would make of it. The other dresses are special as a whole."""
    yield number
    if isinstance(number, IPv6Address) and (number in _NAT64 or (int(number) >> 32) & _LOW in _ISATAP):
        yield IPv4Address(int(number) & _LOW)


def lies_within(inner: Network, outer: Network) -> bool:
    """Whether all numbers of one network are in another."""
    if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network):
        return inner.subnet_of(outer)
    return False

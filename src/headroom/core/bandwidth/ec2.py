"""What the network cards of EC2's GPU machine types carry, in Mbps, as AWS documents it: baseline rates, not bursts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FAMILIES: Final = {
    "g3": "4xlarge=5000 8xlarge=10000 16xlarge=25000",
    "g4ad": "xlarge=2000 2xlarge=4167 4xlarge=8333 8xlarge=15000 16xlarge=25000",
    "g4dn": "xlarge=5000 2xlarge=10000 4xlarge=20000 8xlarge=50000 12xlarge=50000 16xlarge=50000 metal=100000",
    "g5": "xlarge=2500 2xlarge=5000 4xlarge=10000 8xlarge=25000 12xlarge=40000 16xlarge=25000 24xlarge=50000 48xlarge=100000",
    "g5g": "xlarge=1250 2xlarge=2500 4xlarge=5000 8xlarge=12000 16xlarge=25000 metal=25000",
    "g6": "xlarge=2500 2xlarge=5000 4xlarge=10000 8xlarge=25000 12xlarge=40000 16xlarge=25000 24xlarge=50000 48xlarge=100000",
    "g6e": "xlarge=2500 2xlarge=5000 4xlarge=20000 8xlarge=25000 12xlarge=100000 16xlarge=35000 24xlarge=200000 48xlarge=400000",
    "g6f": "large=1500 xlarge=2500 2xlarge=5000 4xlarge=10000",
    "g7": "2xlarge=40000 4xlarge=80000 8xlarge=100000 12xlarge=175000 24xlarge=350000 48xlarge=700000",
    "g7e": "2xlarge=50000 4xlarge=50000 8xlarge=100000 12xlarge=400000 24xlarge=800000 48xlarge=1600000",
    "gr6": "4xlarge=10000 8xlarge=25000",
    "gr6f": "4xlarge=10000",
    "p3": "2xlarge=2500 8xlarge=10000 16xlarge=25000",
    "p3dn": "24xlarge=100000",
    "p4d": "24xlarge=400000",
    "p4de": "24xlarge=400000",
    "p5": "4xlarge=100000 48xlarge=3200000",
    "p5e": "48xlarge=3200000",
    "p5en": "48xlarge=3200000",
    "p6-b200": "48xlarge=3200000",
    "p6-b300": "48xlarge=6400000",
    "p6e-gb200": "36xlarge=3200000",
}


def _types() -> Mapping[str, int]:
    pairs = [(family, size.partition("=")) for family, sizes in _FAMILIES.items() for size in sizes.split()]
    return {f"{family}.{size}": int(mbps) for family, (size, _, mbps) in pairs}


NETWORK_MBPS: Final = _types()
"""By machine type."""

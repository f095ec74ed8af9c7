"""Numbers and names of offers, as people and statuses have them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

MICRO: Final = 1_000_000
REASONS: Final[Mapping[str, str]] = {
    "Family": "of another family",
    "Architecture": "of another architecture",
    "Vendor": "with GPUs of another vendor",
    "TooFewGpus": "with too few GPUs",
    "PartOfAGpu": "with a part of a GPU",
    "ZoneWithoutSubnet": "in zones without a subnet of the node class",
    "SoldOut": "sold out",
    "Unpriced": "without a price",
    "Stale": "whose prices are over an hour old",
    "DearerThanOnDemand": "dearer than on-demand machines",
    "BelowScore": "below minSpotScore",
}


def dollars(amount: int) -> str:
    """Millionths of a dollar, exactly."""
    return format(Decimal(amount) / MICRO, "f")


def seeds_price(amount: int) -> str:
    """A price with four decimals, as `lastPriceUSD` has it."""
    return format((Decimal(amount) / MICRO).quantize(Decimal("0.0001")), "f")


def money(amount: int) -> str:
    """A price for people."""
    places = Decimal("0.01") if amount >= MICRO else Decimal("0.0001")
    return f"${(Decimal(amount) / MICRO).quantize(places)}"


def share(millionths: int) -> str:
    """A share or rate, exactly."""
    return format((Decimal(millionths) / MICRO).normalize(), "f")


def percent(millionths: int) -> str:
    """A share for people: `4.2%`."""
    found = (Decimal(millionths) / (MICRO // 100)).quantize(Decimal("0.1"))
    return f"{found.to_integral() if found == found.to_integral() else found}%"


def offer_text(key: str, zones: Mapping[str, str]) -> str:
    """An offer for people: `g5.xlarge in us-east-1a`. `zones` are names by zone id."""
    kind, _, rest = key.partition("/")
    zone, _, capacity = rest.rpartition("/")
    where = "" if zone in ("", "*") else f" in {zones.get(zone, zone)}"
    return f"{kind}{where}{' on demand' if capacity == 'on-demand' else ''}"

"""Which type is launched in which zone: as the pool lists them or by price, but for what is sold out, rests or costs too much."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from headroom.api.quantities import InvalidQuantity, nano
from headroom.core.spot_pools import resting
from headroom.core.spot_pools.fleet import SpotFleet
from headroom.core.spot_pools.places import SpotPoolState, told
from headroom.core.spot_pools.wording import few, price, where
from headroom.model import times
from headroom.model.cloud_facts import Offer

STALE_MS: Final = times.HOUR
"""An older offer says nothing."""
UNKNOWN: Final = 10**15
"""A price that nobody knows, in comparisons: behind all that are known."""
_MILLIONTH: Final = 1000
_ON_DEMAND: Final = ("on-demand", "ondemand", "postpaid-by-hour")
_SPOT: Final = ("spot", "spotpaid")


class Alternative(NamedTuple):
    """A type in a zone."""

    instance_type: str
    zone: str
    price: int | None = None
    """Millionths of a dollar an hour, where that is known."""
    barred: str = ""
    """Why it cannot be had now, as one word,"""
    says: str = ""
    """and as a clause."""
    until: int | None = None
    """When that ends by itself."""


class LaunchChoice(NamedTuple):
    """What a pool could launch."""

    open: tuple[Alternative, ...]
    """The first one first."""
    barred: tuple[Alternative, ...]

    @property
    def why(self) -> str:
        """Why nothing can be launched, as one word."""
        reasons = {each.barred for each in self.barred}
        return next((word for word in ("PriceTooHigh", "PriceUnknown") if word in reasons), "SoldOut")

    @property
    def says(self) -> str:
        """And as a sentence."""
        return f"No machine can be launched now: {few([each.says for each in self.barred])}."


def choice_of(pool: SpotPoolState, fleet: SpotFleet) -> LaunchChoice:
    """Every type in every zone, those that can be had in the order in which they are tried."""
    offers = _offers(pool, fleet)
    every = [_judged(pool, kind, zone, offers) for kind in pool.spec.types for zone in pool.spec.all_zones]
    free = [each for each in every if not each.barred]
    if pool.spec.allocation == "LowestPrice":
        free.sort(key=lambda each: UNKNOWN if each.price is None else each.price)
    return LaunchChoice(tuple(free), tuple(each for each in every if each.barred))


def _judged(pool: SpotPoolState, kind: str, zone: str, offers: dict[tuple[str, str], Offer]) -> Alternative:
    offer = offers.get((kind, zone))
    cost = offer.price_per_hour if offer is not None else None
    name, limit = where(kind, zone), cap(pool)
    until = resting.until(pool, kind, zone)
    if until is not None:
        return Alternative(kind, zone, cost, "SoldOut", f"{name} is not tried before {told(until)}", until)
    if offer is not None and offer.available is False:
        return Alternative(kind, zone, cost, "SoldOut", f"{name} is sold out")
    if limit is not None and cost is None:
        return Alternative(kind, zone, cost, "PriceUnknown", f"{name} has no known price")
    if limit is not None and cost is not None and cost > limit:
        says = f"{name} costs {price(cost)} an hour, more than {price(limit)} (maxPricePerHour)"
        return Alternative(kind, zone, cost, "PriceTooHigh", says)
    return Alternative(kind, zone, cost)


def cap(pool: SpotPoolState) -> int | None:
    """What a machine may cost in an hour, in millionths of a dollar."""
    text = pool.spec.max_price_per_hour
    return None if text is None else _millionths(text)


@lru_cache(maxsize=1024)
def _millionths(text: str | int) -> int:
    amount = nano(text)
    # What nobody can read allows nothing.
    return 0 if isinstance(amount, InvalidQuantity) else amount // _MILLIONTH


def _offers(pool: SpotPoolState, fleet: SpotFleet) -> dict[tuple[str, str], Offer]:
    """The newest offer for each type and zone; a price of nothing is none. Where the cloud chooses the zone, the dearest counts."""
    spec, now = pool.spec, pool.now
    words = _SPOT if spec.instance_charge_type == "SPOTPAID" else _ON_DEMAND
    found: dict[tuple[str, str], Offer] = {}
    for each in fleet.offers.get((spec.provider, spec.region), ()):
        plain = each.capacity_type.lower().replace("_", "-")
        if (plain and plain not in words) or (each.at is not None and now - each.at > STALE_MS):
            continue
        if each.endpoint and each.endpoint != spec.endpoint:
            continue  # another service's, whoever runs that
        if each.price_per_hour is not None and each.price_per_hour <= 0:
            continue
        key = each.instance_type, each.zone
        known = found.get(key)
        if known is None or (each.at or 0) > (known.at or 0):
            found[key] = each
    if "" in spec.all_zones:
        for (kind, _), each in sorted(found.items()):
            known = found.get((kind, ""))
            if known is None or (known.zone and (each.price_per_hour or 0) > (known.price_per_hour or 0)):
                found[kind, ""] = each
    return found

"""What the nodes of a ladder cost less than on-demand machines of the same types."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from headroom.api.offers_status import Savings
from headroom.core.offers.gathering import Scene
from headroom.core.offers.quotes import SPOT, Market
from headroom.core.offers.rendering import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from headroom.core.offers.wording import MICRO, dollars
from headroom.model import times

LONGEST_MS: Final = times.HOUR
"""After a longer silence nobody knows what ran, so no more than this is counted."""
MOST_DOLLARS: Final = 10**12
"""Nobody saves more; whoever wrote that did not count."""


def savings(scene: Scene, market: Market) -> Savings:
    """Saved so far, and what the nodes of now save in an hour."""
    before = scene.before.savings or Savings(since=times.text(scene.now))
    as_of = times.moment(before.as_of)
    passed = 0 if as_of is None else min(max(0, scene.now - as_of), LONGEST_MS)
    saved = _micro(before.usd) + _micro(before.usd_per_hour) * passed // times.HOUR
    return Savings(
        usd=dollars(saved),
        usd_per_hour=dollars(_rate(scene, market)),
        as_of=times.text(scene.now),
        since=before.since or times.text(scene.now),
    )


def _rate(scene: Scene, market: Market) -> int:
    prices = {
        (each.offer.instance_type, each.offer.zone): each.price
        for each in market.quotes.values()
        if (each.offer.capacity_type or SPOT) == SPOT
    }
    total = 0
    for live in scene.live.values():
        for claim in live.claims:
            labels = dict(claim.labels)
            kind = labels.get(INSTANCE_TYPE, "")
            price = prices.get((kind, labels.get(ZONE, "")))
            if claim.launched and labels.get(CAPACITY_TYPE) == SPOT and price is not None and kind in market.on_demand:
                total += market.on_demand[kind] - price
    return total


def _micro(text: str) -> int:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return 0
    return int(found * MICRO) if found.is_finite() and -MOST_DOLLARS <= found <= MOST_DOLLARS else 0

"""One set of offers from several who read prices: for the ranking, for spot pools and for the dollars of budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from headroom.model import times
from headroom.model.cloud_facts import Offer

CONFIRMED_MS: Final = 30 * times.MINUTE
"""A price that stays is told anew after this; after an hour without a word it is not believed any more."""
LARGEST_STEP: Final = 2
"""A price that is more than so many times another one, or less than that part of it, may be a mistake."""


def is_near(price: int, other: int) -> bool:
    """Whether a price is neither more than twice nor less than half of another one."""
    return max(price, other) <= LARGEST_STEP * min(price, other)


def united(regions: Mapping[str, Offer], pools: Mapping[str, Offer]) -> Mapping[str, Offer]:
    """The offers of whole regions, with newer prices of the same place as the spot pools' accounts see it; else what only those know.

    Names of zones differ between accounts, so a price counts for another account's offer only where both name the zone's id. One that is
    far from the region's own waits for the region's next look, which tells mistakes from news.
    """
    if not regions or not pools:
        return regions or pools
    found = dict(regions)
    for name, each in pools.items():
        known = found.get(name)
        if known is None:
            found[name] = each
        elif (
            each.zone_id
            and each.zone_id == known.zone_id
            and (each.at or 0) > (known.at or 0)
            and each.price_per_hour
            and is_near(each.price_per_hour, known.price_per_hour or each.price_per_hour)
        ):
            found[name] = structs.replace(known, price_per_hour=each.price_per_hour, at=each.at)
    return found


def confirmed(before: Mapping[str, Offer], found: Mapping[str, Offer]) -> dict[str, Offer]:
    """What was found. An offer that says nothing new stays the object that it was, with its moments until those grow old."""
    return {
        name: old if (old := before.get(name)) is not None and _says_the_same(old, each) else each
        for name, each in found.items()
    }


def _says_the_same(old: Offer, new: Offer) -> bool:
    """Whether nobody must hear of it. An offer whose moments are too old would count for nothing."""
    if structs.replace(old, at=new.at, scored_at=new.scored_at) != new:
        return False
    return all(
        (after or 0) - (before or 0) < CONFIRMED_MS
        for before, after in ((old.at, new.at), (old.scored_at, new.scored_at))
    )

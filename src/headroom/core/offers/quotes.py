"""Which offers can be ranked for a pool, at what cost, and why the others are passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Final, Literal

from msgspec import Struct, structs

from headroom.api import quantities
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.core.offers.ranking import Risk, cost_of, risk_of
from headroom.model import times
from headroom.model.cloud_facts import Experience, Offer
from headroom.model.facts import Price
from headroom.model.world import World

SPOT, ON_DEMAND = "spot", "on-demand"
STALE_MS: Final = times.HOUR
"""A price of which nothing was heard for so long counts for nothing."""
DEAREST: Final = 10**12
"""A price beyond a million dollars an hour is none."""
WHOLE: Final = 1_000_000
_ANY_ZONE: Final = "*"

Reason = Literal[
    "Family",
    "Architecture",
    "Vendor",
    "TooFewGpus",
    "PartOfAGpu",
    "ZoneWithoutSubnet",
    "SoldOut",
    "Unpriced",
    "Stale",
    "DearerThanOnDemand",
    "BelowScore",
]


class Quote(Struct, frozen=True, gc=False, kw_only=True):
    """An offer that can be ranked."""

    key: str
    """As instance type, zone id and capacity type."""
    offer: Offer
    price: int
    """Of the machine, in millionths of a dollar per hour."""
    risk: Risk
    cost: int
    """Of a useful GPU-hour, in millionths of a dollar."""
    rank: int
    """What it is ranked by: that cost, or the price of the machine."""

    @property
    def family(self) -> str:
        """Of the machine type, exactly: `g5` is not `g5g`."""
        return self.offer.instance_type.partition(".")[0]


class Market(Struct, frozen=True, kw_only=True):
    """What can be had for a pool."""

    quotes: dict[str, Quote]
    """Those that are ranked, by key, best first."""
    fallback: tuple[Quote, ...] = ()
    """On-demand machines beside them, best first."""
    on_demand: Mapping[str, int] = {}
    """What each machine type costs on demand, where that is known."""
    passed_over: Mapping[str, int] = {}
    """How many offers were not ranked, by reason."""
    zones: Mapping[str, str] = {}
    """Names of zones by their ids."""
    below_score: bool = False
    """No offer has the score that is asked for, and the cheapest stands for all."""


def key_of(offer: Offer) -> str:
    """How an offer is told from others: by zone id, since names of zones differ between accounts."""
    return f"{offer.instance_type}/{offer.zone_id or offer.zone or _ANY_ZONE}/{offer.capacity_type or SPOT}"


def experience_key(offer: Offer) -> str:
    """Under which name its experience is kept: by the name of the zone, which nodes know."""
    return f"{offer.instance_type}/{offer.zone or offer.zone_id}/{offer.capacity_type or SPOT}"


def by_region(offers: Mapping[str, Offer]) -> dict[str, dict[str, Offer]]:
    """Offers by region, so that each pool looks at its own region only; those without one are under no name."""
    found: dict[str, dict[str, Offer]] = {}
    for name, each in offers.items():
        found.setdefault(each.region, {})[name] = each
    return found


def market_of(world: World, spec: LeftoverNodePoolSpec, zones: Collection[str]) -> Market:
    """All offers, judged for a pool. `zones` are those in which its machines can be launched; none: any."""
    passed: Counter[Reason] = Counter()
    newest: dict[str, Offer] = {}
    unpriced: list[Offer] = []
    for offer in world.offers.values():
        if not _is_meant(offer, spec):
            continue
        reason = _unfit(offer, spec, zones) or _unsold(offer, world.now)
        if reason:
            passed[reason] += 1
            unpriced += [offer] if reason == "Unpriced" and offer.capacity_type == ON_DEMAND else []
            continue
        key = key_of(offer)
        known = newest.get(key)
        if known is None or _age(offer, world.now) < _age(known, world.now):
            newest[key] = offer
    prices = _on_demand(world.prices, newest.values())
    booked = {key_of(each): each for each in _from_the_book(prices, newest.values(), unpriced)}
    passed["Unpriced"] -= sum(key_of(each) in booked for each in unpriced)
    newest |= booked
    restart_ms = _restart_ms(spec)
    quoted = sorted(
        (_quote(key, offer, spec, restart_ms, world.experience) for key, offer in newest.items()),
        key=attrgetter("rank", "key"),
    )
    asked = [each for each in quoted if each.key.endswith(f"/{spec.capacity_type}")]
    others = [each for each in quoted if spec.falls_back and each.key.endswith(f"/{ON_DEMAND}")]
    return _screened(spec, asked, others, prices, passed)


def _screened(
    spec: LeftoverNodePoolSpec, asked: list[Quote], others: list[Quote], prices: dict[str, int], passed: Counter[Reason]
) -> Market:
    """Without those that a dearer rung, or a score that is too low, rules out."""
    below = False
    if spec.falls_back and others:
        dearest = others[0].cost
        kept = [each for each in asked if each.cost < dearest]
        passed["DearerThanOnDemand"] += len(asked) - len(kept)
        asked = kept
    if spec.strategy == "CheapestAboveScore" and spec.capacity_type == SPOT and asked:
        good = [each for each in asked if (each.offer.score or 0) >= spec.min_spot_score]
        passed["BelowScore"] += len(asked) - len(good)
        below = not good
        asked = good or ([] if spec.falls_back else asked[:1])
    return Market(
        quotes={each.key: each for each in asked},
        fallback=tuple(others),
        on_demand=prices,
        passed_over={reason: count for reason, count in sorted(passed.items()) if count},
        zones={
            each.offer.zone_id: each.offer.zone for each in (*asked, *others) if each.offer.zone_id and each.offer.zone
        },
        below_score=below,
    )


def _is_meant(offer: Offer, spec: LeftoverNodePoolSpec) -> bool:
    """Whether it is of the pool's cloud and region. A tenant chooses who answers behind a webhook, so that word counts for nobody else."""
    return offer.provider in ("", "aws") and offer.region in ("", spec.region) and not offer.endpoint


def _unfit(offer: Offer, spec: LeftoverNodePoolSpec, zones: Collection[str]) -> Reason | None:
    """Why its machines are not what the pool asks for."""
    is_named = offer.instance_type.partition(".")[0] in spec.families
    if spec.families and not is_named:
        return "Family"
    if offer.arch not in ("", spec.architecture):
        return "Architecture"
    if offer.vendor not in ("", spec.gpu_vendor) and offer.vendor.lower() != spec.gpu_vendor:
        return "Vendor"
    if offer.gpus <= (spec.min_gpus - 1) * WHOLE:
        return "TooFewGpus"
    if offer.gpus % WHOLE and not is_named:
        return "PartOfAGpu"
    return "ZoneWithoutSubnet" if zones and offer.zone and offer.zone not in zones else None


def _unsold(offer: Offer, now: int) -> Reason | None:
    """Why it has no price that counts."""
    if offer.available is False:
        return "SoldOut"
    if offer.price_per_hour is None or not 0 < offer.price_per_hour <= DEAREST:
        return "Unpriced"
    return "Stale" if _age(offer, now) > STALE_MS else None


def _age(offer: Offer, now: int) -> int:
    """How old its price is. One from the future is of now: no clock is ahead of itself."""
    return 0 if offer.at is None else max(0, now - offer.at)


def _quote(
    key: str, offer: Offer, spec: LeftoverNodePoolSpec, restart_ms: int, experience: Mapping[str, Experience]
) -> Quote:
    known = experience.get(experience_key(offer)) if experience else None
    spot = offer.capacity_type != ON_DEMAND
    risk = (
        risk_of(
            offer.score,
            spot=spot,
            launches=known.launches,
            failures=known.failures,
            interruptions=known.interruptions,
            machine_ms=known.machine_ms,
        )
        if known
        else _assumed(offer.score, spot)
    )
    price = offer.price_per_hour or 0
    cost = cost_of(price, offer.gpus, risk, restart_ms)
    rank = cost if spec.strategy == "CostAndRisk" else price
    return Quote(key=key, offer=offer, price=price, risk=risk, cost=cost, rank=rank)


@lru_cache(maxsize=64)
def _assumed(score: int | None, spot: bool) -> Risk:
    """The risk where nothing was seen yet: one of a few."""
    return risk_of(score, spot=spot)


def _restart_ms(spec: LeftoverNodePoolSpec) -> int:
    found = quantities.nano(spec.restart_hours)
    return found * times.HOUR // quantities.NANO if isinstance(found, int) else 0


def _on_demand(book: Iterable[Price], offers: Iterable[Offer]) -> dict[str, int]:
    """What machine types cost on demand: as the cloud says, else by the price book."""
    found = {
        entry.instance_type: entry.price_per_hour
        for entry in book
        if entry.instance_type
        and entry.capacity_type in ("", ON_DEMAND)
        and not (entry.node or entry.zone or entry.labels)
    }
    for offer in offers:
        if offer.capacity_type == ON_DEMAND and offer.price_per_hour:
            found[offer.instance_type] = offer.price_per_hour
    return found


def _from_the_book(prices: Mapping[str, int], offers: Iterable[Offer], unpriced: Iterable[Offer]) -> list[Offer]:
    """On-demand machines that the cloud gives no price for and the price book does, wherever they are sold, be it as spot."""
    every = list(offers)
    told = {each.instance_type for each in every if each.capacity_type == ON_DEMAND}
    every += unpriced
    return [
        structs.replace(each, capacity_type=ON_DEMAND, price_per_hour=prices[each.instance_type], at=None, score=None)
        for each in every
        if each.instance_type in prices and each.instance_type not in told
    ]

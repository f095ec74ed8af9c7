"""What is known of a region's GPU machines, and the offers that follow from it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field, structs

from headroom.adapters.clouds.aws_market import AwsMarket, Place
from headroom.adapters.clouds.machine_types import MachineType, groups
from headroom.adapters.clouds.providers import ON_DEMAND, SPOT, BadCredentials, NotPermitted
from headroom.adapters.prices import is_near
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.model import times
from headroom.model.cloud_facts import Offer
from headroom.model.errors import HeadroomError, Refused, Unavailable

PROVIDER: Final = "aws"
SCORE_KEPT_MS: Final = 2 * times.HOUR
"""A score that could not be read again for so long is not known any more."""
MISSED_MS: Final = 12 * times.MINUTE
"""A spot price that is missing is the last one for so long: who has the first place should not lose it for a hole in one answer."""
LEAST_SHARE: Final = 100
"""A spot price below this part of the on-demand price is a mistake of whoever tells it: the largest discount is nine tenths."""


class RegionMarket(Struct, kw_only=True):
    """A region with one set of keys. Each part is replaced as a whole when it was read to the end."""

    region: str
    types: dict[str, MachineType] = field(default_factory=dict)
    zones: dict[str, str] = field(default_factory=dict)
    """Names by id."""
    offered: set[Place] = field(default_factory=set)
    spot: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """The price, and when it was read last."""
    spot_at: int = 0
    dear: set[Place] = field(default_factory=set)
    """Where the last spot price that was told is above the on-demand price."""
    on_demand: dict[str, int] = field(default_factory=dict)
    on_demand_at: int = 0
    doubted: dict[str, int] = field(default_factory=dict)
    """On-demand prices that were told once, and are far from those before. They count once they are told a second time."""
    scores: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)
    """By group of types: when it was asked, and the score of each zone id."""

    def offers(self, now: int) -> dict[str, Offer]:
        """All that can be had, by name."""
        found: dict[str, Offer] = {}
        for kind, zone_id in sorted(self.offered | self.spot.keys()):
            machine, zone = self.types.get(kind), self.zones.get(zone_id)
            if machine is None or zone is None:
                continue
            price, at = self.spot.get((kind, zone_id), (0, 0))
            if price and self.is_plausible(kind, price):
                each = self._offer(machine, zone_id, SPOT, price, at)
                asked, score = self._score(machine, zone_id, now)
                each = each if score is None else _scored(each, score, asked)
                found[each.name] = each
            if machine.is_on_demand:
                each = self._offer(machine, zone_id, ON_DEMAND, self.on_demand.get(kind), self.on_demand_at or None)
                found[each.name] = each
        return found

    def is_plausible(self, kind: str, price: int) -> bool:
        """Whether a spot price can be true beside what the type costs on demand."""
        return price * LEAST_SHARE >= self.on_demand.get(kind, 0)

    def _offer(self, machine: MachineType, zone_id: str, capacity: str, price: int | None, at: int | None) -> Offer:
        zone = self.zones[zone_id]
        return Offer(
            name=f"{PROVIDER}/{self.region}/{zone}/{machine.name}/{capacity}",
            provider=PROVIDER,
            region=self.region,
            zone=zone,
            zone_id=zone_id,
            instance_type=machine.name,
            arch=machine.arch,
            vendor=machine.vendor,
            gpus=machine.gpus,
            gpu_memory=machine.gpu_memory,
            network_mbps=machine.network_mbps,
            capacity_type=capacity,
            price_per_hour=price,
            at=at,
        )

    def _score(self, machine: MachineType, zone_id: str, now: int) -> tuple[int, int | None]:
        asked, found = self.scores.get(machine.group, (0, {}))
        return asked, found.get(zone_id) if now - asked <= SCORE_KEPT_MS else None


def _scored(offer: Offer, score: int, at: int) -> Offer:
    return structs.replace(offer, score=score, scored_at=at)


def wanted_groups(
    types: Mapping[str, MachineType], specs: Iterable[LeftoverNodePoolSpec]
) -> dict[str, tuple[str, ...]]:
    """The groups of types whose scores some spec asks for; each is asked for as a whole, so that the questions stay the same."""
    spot = [spec for spec in specs if spec.capacity_type == SPOT]
    wanted = {each.group for each in types.values() if any(is_meant(spec, each) for spec in spot)}
    return {group: names for group, names in groups(types.values()).items() if group in wanted}


def is_meant(spec: LeftoverNodePoolSpec, machine: MachineType) -> bool:
    """Whether a spec may choose machines of a type."""
    if spec.families and machine.family not in spec.families:
        return False
    return machine.arch == spec.architecture and machine.vendor == spec.gpu_vendor


async def read_types(market: RegionMarket, aws: AwsMarket, families: Iterable[str]) -> None:
    """What there is, and where."""
    zones, types = await aws.zones(), await aws.types(families)
    offered = await aws.offered([*types])
    _must_be_some(zones and types and offered, "GPU machine type")
    market.zones = {sys.intern(zone_id): sys.intern(name) for zone_id, name in zones.items()}
    market.types, market.offered = types, {(kind, zone) for kind, zone in offered if kind in types and zone in zones}


async def read_spot(market: RegionMarket, aws: AwsMarket, now: int) -> None:
    """Spot prices of everything that is sold as spot."""
    names = [each.name for each in market.types.values() if each.is_spot]
    found = await aws.spot(names, market.zones, now)
    _must_be_some(found, "spot price")
    last = {place: each for place, each in market.spot.items() if now - each[1] <= MISSED_MS and place[0] in names}
    # Spot that costs more than on demand loses its place at once, so one wrong answer must not say so.
    dear = {place for place, price in found.items() if price > market.on_demand.get(place[0], price)}
    news = {
        place: (price, now)
        for place, price in found.items()
        if market.is_plausible(place[0], price) and place not in dear - market.dear
    }
    market.spot, market.spot_at, market.dear = last | news, now, dear


async def read_on_demand(market: RegionMarket, aws: AwsMarket, now: int) -> None:
    """On-demand prices, as far as the price list has them."""
    found = {kind: price for kind, price in (await aws.on_demand()).items() if kind in market.types}
    _must_be_some(found, "on-demand price")
    doubted = {
        kind: price
        for kind, price in found.items()
        if not is_near(price, market.on_demand.get(kind, price)) and not is_near(price, market.doubted.get(kind, 0))
    }
    kept = {kind: market.on_demand[kind] for kind in doubted}
    market.on_demand, market.on_demand_at, market.doubted = found | kept, now, doubted


def _must_be_some(found: object, what: str) -> None:
    """No region has none, so an answer without any is a mistake: what was read last stays, and grows old."""
    if not found:
        raise Unavailable(f"AWS answered without any {what}")


async def read_scores(market: RegionMarket, aws: AwsMarket, specs: Iterable[LeftoverNodePoolSpec], now: int) -> None:
    """Placement scores of each group that is asked for. One that AWS refuses costs the others nothing."""
    every = list(specs)
    count = max((spec.target_count for spec in every), default=1)
    wanted = wanted_groups(market.types, every)
    market.scores = {group: known for group, known in market.scores.items() if group in wanted}
    refused: HeadroomError | None = None
    # Those first that were asked longest ago: if only some are answered, it is not always the same ones.
    for group in sorted(wanted, key=lambda each: (market.scores.get(each, (0, {}))[0], each)):
        try:
            market.scores[group] = now, await aws.scores(wanted[group], count)
        except (BadCredentials, NotPermitted):
            raise
        except Refused as problem:
            refused = problem
    if refused is not None:
        raise refused


async def read_all(market: RegionMarket, aws: AwsMarket, specs: Iterable[LeftoverNodePoolSpec], now: int) -> list[str]:
    """Everything, once. Without types or spot prices there is nothing to tell, so that raises; what else cannot be read is listed."""
    every = list(specs)
    await read_types(market, aws, {family for spec in every for family in spec.families})
    await read_spot(market, aws, now)
    problems = []
    for what, reading in (
        ("on-demand prices", read_on_demand(market, aws, now)),
        ("placement scores", read_scores(market, aws, every, now)),
    ):
        try:
            await reading
        except HeadroomError as problem:
            problems.append(f"The {what} of {market.region} cannot be read: {problem}")
    return problems

"""The market at each moment of a history, as the production code judges it: what is ranked, at what cost, and what must be paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from headroom.api.offers import LeftoverNodePoolSpec
from headroom.core.offers import ON_DEMAND, SPOT, Market, key_of, market_of
from headroom.model.cloud_facts import Offer
from headroom.model.world import World
from headroom.sim.backtest.history import GONE, PriceChanges, TracedMachineType, zone_prefix

NOBODY: Final = -1
"""Stands for no offer at all."""
_MILLION: Final = 1_000_000

Ints = NDArray[np.int64]


class Timeline(Struct, frozen=True, kw_only=True, eq=False):
    """All offers over time. Offers are columns, in the order of their names; from each moment on, what its row says."""

    keys: tuple[str, ...]
    gpus: Ints
    """Of each offer's machine, in millionths."""
    at: Ints
    """The moments, and at last the end of the history, in milliseconds."""
    ranks: Ints
    """By what an offer is ranked; 0 where it is not."""
    prices: Ints
    """Of the machine, in millionths of a dollar per hour."""
    fallback: Ints
    """The on-demand machine to fall back to where nothing is ranked, or nobody."""

    @property
    def moments(self) -> int:
        """How many rows there are."""
        return len(self.ranks)

    def costs(self, number: int) -> dict[str, int]:
        """What is ranked at a moment, as the production code is told it."""
        row = self.ranks[number]
        return {self.keys[place]: int(row[place]) for place in np.flatnonzero(row).tolist()}

    def usd(self) -> NDArray[np.float64]:
        """Dollars per GPU-hour of what may be taken at each moment; infinite for what may not."""
        paid = self.prices / self.gpus
        taken = self.ranks > 0
        rows = np.flatnonzero(self.fallback != NOBODY)
        taken[rows, self.fallback[rows]] = True
        return np.where(taken, paid, np.inf)

    def part(self, begin: int, end: int) -> Timeline:
        """What lies between two moments, with the prices that were in force at the first."""
        first = max(0, int(np.searchsorted(self.at[:-1], begin, side="right")) - 1)
        last = max(first + 1, int(np.searchsorted(self.at[:-1], end, side="left")))
        at = self.at[first : last + 1].clip(begin, end)
        rows = slice(first, last)
        return structs.replace(
            self, at=at, ranks=self.ranks[rows], prices=self.prices[rows], fallback=self.fallback[rows]
        )


class Catalogue(NamedTuple):
    """What a pool may take, by its own spec."""

    types: Mapping[str, TracedMachineType]
    regions: Sequence[str]
    passed_over: Mapping[str, int]
    """How many machine types it does not take, by reason."""

    def has(self, kind: str, zone: str) -> bool:
        """Whether it may take such a machine there."""
        return kind in self.types and any(zone.startswith(zone_prefix(region)) for region in self.regions)

    def sells(self, kind: str, region: str) -> bool:
        """Whether it may take such a machine on demand there."""
        return kind in self.types and region in self.regions


def catalogue(types: Mapping[str, TracedMachineType], spec: LeftoverNodePoolSpec, regions: Sequence[str]) -> Catalogue:
    """The machine types that the production code would rank for a pool, were they offered."""
    offers = {name: _offer(each, spec, "", spec.capacity_type, 1) for name, each in types.items()}
    market = market_of(World(now=0, offers=offers), spec, ())
    fitting = {quote.offer.instance_type for quote in market.quotes.values()}
    return Catalogue({name: types[name] for name in sorted(fitting)}, regions, market.passed_over)


def _offer(kind: TracedMachineType, spec: LeftoverNodePoolSpec, place: str, capacity: str, price: int) -> Offer:
    """An offer of no age: what stands in a history is in force until the next row. All regions count as the pool's."""
    return Offer(
        name=f"{kind.name}/{place}/{capacity}",
        region=spec.region,
        zone_id=place,
        instance_type=kind.name,
        arch=kind.arch,
        vendor=kind.vendor,
        gpus=kind.gpus,
        capacity_type=capacity,
        price_per_hour=price,
    )


def timeline(
    spec: LeftoverNodePoolSpec,
    known: Catalogue,
    spot: PriceChanges,
    on_demand: PriceChanges | None,
    told: Callable[[int], None] = lambda _: None,
) -> Timeline:
    """Ask the production code for the market whenever a price changes."""
    feeds = [_Feed(spec, known, spot, SPOT)] + ([_Feed(spec, known, on_demand, ON_DEMAND)] if on_demand else [])
    offers = {key_of(each): each for feed in feeds for each in feed.offers}
    keys = sorted(offers)
    places = {key: number for number, key in enumerate(keys)}
    at = _moments(spot, on_demand)
    made = _Rows(len(at), len(keys))
    for number, moment in enumerate(at.tolist()):
        for feed in feeds:
            offers.update(feed.until(moment))
        made.put(number, market_of(World(now=moment, offers=offers), spec, ()), places)
        told(number)
    return Timeline(
        keys=tuple(keys),
        gpus=np.array([offers[key].gpus for key in keys], dtype=np.int64),
        at=np.append(at, max(feed.changes.until for feed in feeds)),
        ranks=made.ranks,
        prices=made.prices,
        fallback=made.fallback,
    )


def _moments(spot: PriceChanges, on_demand: PriceChanges | None) -> Ints:
    """When any price changes, from the first one of what the pool asks for on; what was told before it is in force then."""
    if on_demand is None or not len(on_demand.at):
        return np.unique(spot.at)
    if not len(spot.at):
        return np.unique(on_demand.at)
    return np.unique(np.concatenate([spot.at, on_demand.at.clip(min=spot.at[0])]))


class _Feed:
    """Prices of one kind, told in the order of time."""

    def __init__(self, spec: LeftoverNodePoolSpec, known: Catalogue, changes: PriceChanges, capacity: str) -> None:
        self.changes = changes
        self.offers = [_offer(known.types[kind], spec, place, capacity, GONE) for kind, place in changes.keys]
        self._next = 0

    def until(self, moment: int) -> dict[str, Offer]:
        """The offers whose prices changed since the last call, up to a moment."""
        end = int(np.searchsorted(self.changes.at, moment, side="right"))
        rows = zip(
            self.changes.what[self._next : end].tolist(), self.changes.price[self._next : end].tolist(), strict=True
        )
        self._next = end
        told = {}
        for what, price in rows:
            offer = self.offers[what] = structs.replace(self.offers[what], price_per_hour=price)
            told[key_of(offer)] = offer
        return told


class _Rows:
    """The columns of a timeline while it is made."""

    def __init__(self, rows: int, keys: int) -> None:
        self.ranks = np.zeros((rows, keys), dtype=np.int64)
        self.prices = np.zeros((rows, keys), dtype=np.int64)
        self.fallback = np.full(rows, NOBODY, dtype=np.int64)

    def put(self, number: int, market: Market, places: Mapping[str, int]) -> None:
        for key, quote in market.quotes.items():
            self.ranks[number, places[key]] = quote.rank
            self.prices[number, places[key]] = quote.price
        if market.fallback and not market.quotes:
            first = market.fallback[0]
            self.fallback[number] = places[first.key]
            self.prices[number, places[first.key]] = first.price

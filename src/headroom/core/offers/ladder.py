"""The ladder: which offers become rungs, in which order.

A rung is a few machine types in a few zones that cost about the same: Karpenter chooses among them by itself. A rung that exists is kept
as it is, since nodes of a NodePool whose template changes are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from msgspec import Struct

from headroom.api.offers import LeftoverNodePoolSpec
from headroom.core.offers.quotes import ON_DEMAND, Market, Quote
from headroom.core.offers.ranking import MILLION


class DesiredRung(Struct, frozen=True, kw_only=True):
    """A rung as it should be."""

    types: tuple[str, ...]
    """Best first."""
    zones: tuple[str, ...]
    """By name, best first; none: any."""
    zone_ids: tuple[str, ...]
    capacity_type: str
    best: Quote | None = None
    """The best of its offers; None where no price is known."""

    @property
    def identity(self) -> tuple[frozenset[str], frozenset[str], str]:
        """What makes two of them the same, whatever is best in them."""
        return frozenset(self.types), frozenset(self.zones), self.capacity_type

    def has(self, quote: Quote) -> bool:
        """Whether an offer is one of its machines."""
        return (
            quote.offer.instance_type in self.types
            and (not self.zones or zone_of(quote) in self.zones)
            and (quote.offer.capacity_type or "spot") == self.capacity_type
        )


def zone_of(quote: Quote) -> str:
    """The name of its zone, as nodes know it."""
    return quote.offer.zone or quote.offer.zone_id


class _Offers:
    """The offers in their order, found by machine type and by what can share a rung."""

    def __init__(self, every: Iterable[Quote]) -> None:
        self._by_type: dict[str, list[tuple[int, Quote]]] = {}
        for place, quote in enumerate(every):
            kind = quote.offer.instance_type
            if kind in self._by_type:
                self._by_type[kind].append((place, quote))
            else:
                self._by_type[kind] = [(place, quote)]

    def of(self, step: DesiredRung) -> list[Quote]:
        """Those that a rung has."""
        return [each for each in self._of_types(set(step.types)) if step.has(each)]

    def like(self, quote: Quote) -> list[Quote]:
        """Those of the same family and size."""
        same = {kind for kind in self._by_type if kind.partition(".")[0] == quote.family}
        return [each for each in self._of_types(same) if each.offer.gpus == quote.offer.gpus]

    def _of_types(self, kinds: Collection[str]) -> Iterator[Quote]:
        placed = sorted((pair for kind in kinds for pair in self._by_type.get(kind, ())), key=itemgetter(0))
        return (quote for _, quote in placed)


class _Room:
    """How many machine types and zones the ladder may still have."""

    def __init__(self, types: int, zones: int) -> None:
        self.types: set[str] = set()
        self.zones: set[str] = set()
        self._most_types, self._most_zones = types, zones

    def takes(self, types: Iterable[str], zones: Iterable[str]) -> bool:
        """Whether these fit in beside the others."""
        return len(self.types | set(types)) <= self._most_types and len(self.zones | set(zones)) <= self._most_zones

    def takes_one(self, kind: str, zone: str) -> bool:
        """Whether a machine type fits in beside the others, in this zone if one is given."""
        has_place = kind in self.types or len(self.types) < self._most_types
        return has_place and (not zone or zone in self.zones or len(self.zones) < self._most_zones)

    def take(self, step: DesiredRung) -> None:
        """These are in it now."""
        self.types |= set(step.types)
        self.zones |= set(step.zones)


def ladder(
    spec: LeftoverNodePoolSpec,
    market: Market,
    order: Sequence[str],
    standing: Sequence[DesiredRung],
    *,
    near: int,
) -> list[DesiredRung]:
    """The rungs, best first.

    `order` names the offers, the one that has the first place first. `standing` are the rungs that exist and still fit the spec. Offers of
    one family and size whose costs differ by no more than `near` millionths share a rung.
    """
    room = _Room(spec.max_instance_types, spec.max_zones)
    most = spec.weights.count - (1 if spec.falls_back else 0)
    steps: list[DesiredRung] = []
    every = [market.quotes[key] for key in order if key in market.quotes]
    offers = _Offers(every)
    # A rung with an offer takes its type, and its zone unless it names none: without room for these nothing can be made of the offer.
    are_zoned = all(step.zones for step in standing)
    for quote in every:
        if len(steps) >= most:
            break
        if not room.takes_one(quote.offer.instance_type, zone_of(quote) if are_zoned else ""):
            continue
        if any(step.has(quote) for step in steps):
            continue
        found = _standing(quote, offers, standing, room) or _grouped(quote, offers, steps, room, near)
        if found is not None:
            room.take(found)
            steps.append(found)
    if spec.falls_back and (last := _fallback(spec, market, steps, standing)) is not None:
        steps.append(last)
    return steps


def _standing(quote: Quote, offers: _Offers, standing: Sequence[DesiredRung], room: _Room) -> DesiredRung | None:
    """A rung that exists and has this offer."""
    for step in standing:
        if step.has(quote) and room.takes(step.types, step.zones):
            return _best_first(step, offers.of(step))
    return None


def _best_first(step: DesiredRung, members: Sequence[Quote]) -> DesiredRung:
    """The same rung, with what is best in it first."""
    zones = _ordered(step.zones, map(zone_of, members))
    # A NodePool says names alone; the ids are what its offers are known by.
    ids = {zone_of(each): each.offer.zone_id for each in members}
    return DesiredRung(
        types=_ordered(step.types, (each.offer.instance_type for each in members)),
        zones=zones,
        zone_ids=tuple(ids[zone] for zone in zones if ids.get(zone)),
        capacity_type=step.capacity_type,
        best=members[0] if members else None,
    )


def _ordered(names: Sequence[str], first: Iterable[str]) -> tuple[str, ...]:
    known = [name for name in dict.fromkeys(first) if name in names]
    return (*known, *(name for name in names if name not in known))


def _grouped(quote: Quote, offers: _Offers, steps: Sequence[DesiredRung], room: _Room, near: int) -> DesiredRung | None:
    """A new rung around an offer: what is alike and costs about the same, in each of its zones."""
    if not room.takes((quote.offer.instance_type,), (zone_of(quote),)):
        return None
    alike = [
        each
        for each in offers.like(quote)
        if each.rank * MILLION <= quote.rank * (MILLION + near) and not any(step.has(each) for step in steps)
    ]
    here = (each.offer.instance_type for each in alike if zone_of(each) == zone_of(quote))
    types = _limited(quote.offer.instance_type, here, lambda found: room.takes(found, ()))
    pairs = {(each.offer.instance_type, zone_of(each)) for each in alike}
    full = (zone for zone in map(zone_of, alike) if all((kind, zone) in pairs for kind in types))
    zones = _limited(zone_of(quote), full, lambda found: room.takes((), found))
    ids = {zone_of(each): each.offer.zone_id for each in alike}
    return DesiredRung(
        types=types,
        zones=tuple(zone for zone in zones if zone),
        zone_ids=tuple(ids[zone] for zone in zones if ids.get(zone)),
        capacity_type=quote.offer.capacity_type or "spot",
        best=quote,
    )


def _limited(first: str, others: Iterable[str], fits: Callable[[list[str]], bool]) -> tuple[str, ...]:
    """The first, and as many of the others as fit in beside it."""
    found = [first]
    for name in others:
        if name not in found and fits([*found, name]):
            found.append(name)
    return tuple(found)


def _is_good(step: DesiredRung, known: Sequence[Quote]) -> bool:
    """Whether a rung of on-demand machines has the cheapest one; where nobody knows prices, any has."""
    return not known or step.has(known[0])


def _fallback(
    spec: LeftoverNodePoolSpec, market: Market, steps: Sequence[DesiredRung], standing: Sequence[DesiredRung]
) -> DesiredRung | None:
    """The last rung: on-demand machines, the cheapest ones, or the same as above where nobody knows their prices."""
    known = market.fallback
    kept = next((each for each in standing if each.capacity_type == ON_DEMAND and _is_good(each, known)), None)
    if kept is not None:
        return _best_first(kept, [each for each in known if kept.has(each)])
    room = _Room(spec.max_instance_types, spec.max_zones)
    kinds = [each.offer.instance_type for each in known] or [kind for step in steps for kind in step.types]
    if not kinds:
        return None
    types = _limited(kinds[0], kinds, lambda found: room.takes(found, ()))
    there = [each for each in known if each.offer.instance_type in types]
    pairs = {zone_of(each): each.offer.zone_id for each in there} or {
        zone: zone_id for step in steps for zone, zone_id in zip(step.zones, step.zone_ids or step.zones, strict=False)
    }
    zones = list(pairs)[: spec.max_zones] if "" not in pairs else []
    return DesiredRung(
        types=types,
        zones=tuple(zones),
        zone_ids=tuple(pairs[zone] for zone in zones if pairs[zone]),
        capacity_type=ON_DEMAND,
        best=known[0] if known else None,
    )

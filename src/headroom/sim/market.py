"""What machines cost beside a simulated cluster, by its documents of kind Offer, and prices that move.

The annotation `sim.headroom.dev/price-moves: "25%"` lets the price of an offer wander by so much up and down, a small step every ten
minutes; `sim.headroom.dev/sold-out: "true"` lets launches fail of an offer that everybody hears of.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import structs

from headroom.adapters import outside
from headroom.adapters.kube import parse
from headroom.model import times
from headroom.model.cloud_facts import Offer, OfferFeed
from headroom.sim.answers import Body
from headroom.sim.apiserver import ApiServer
from headroom.sim.faults import Faults, split
from headroom.sim.kubelet import ANNOTATION, PodLifecycle
from headroom.sim.script import Scenario

KIND: Final = "Offer"
READ_EVERY_MS: Final = 5 * times.MINUTE
MOVES_SECONDS: Final = 600.0
MOVES: Final = f"{ANNOTATION}price-moves"
SOLD_OUT: Final = f"{ANNOTATION}sold-out"
_STEPS: Final = 8
"""So many steps lead from the price of the document to the end of its span."""


def offers_of(server: ApiServer, regions: Collection[str], at: int) -> dict[str, Offer]:
    """What is offered in some regions, at the prices of now, by name."""
    found: dict[str, Offer] = {}
    for body in server.objects(KIND):
        offer: Offer = outside.fact(KIND, body)[0]
        if offer.region in regions:
            found[offer.name] = structs.replace(offer, at=at, scored_at=at if offer.score is not None else None)
    return found


def is_sold_out(body: Body) -> bool:
    """Whether launches of an offer fail, whatever is reported of it."""
    offer: Offer = outside.fact(KIND, body)[0]
    return offer.available is False or _annotation(body, SOLD_OUT) == "true"


class Feed:
    """The market as one operator process has read it, for the LeftoverNodePools there are. What it knows dies with the process."""

    def __init__(self, server: ApiServer) -> None:
        self._server, self._clock = server, server.clock
        self._read: dict[str, Offer] = {}
        self.feeds: dict[str, OfferFeed] = {}
        """How well it is known, by the name of the LeftoverNodePool."""

    def offers(self, others: Mapping[str, Offer]) -> Mapping[str, Offer]:
        """What was read, and what is known beside it of others; of two that are the same machine the one that was read."""
        if not self._read:
            return others
        known = {_place(each) for each in self._read.values()}
        return {name: each for name, each in others.items() if _place(each) not in known} | self._read

    @property
    def is_due(self) -> bool:
        """Whether it is time to read again: every few minutes, and at once for a pool that is new."""
        pools = self._pools()
        at = min((self.feeds[name].at if name in self.feeds else 0 for name in pools), default=self._clock.now())
        return self.feeds.keys() != pools.keys() or self._clock.now() >= at + READ_EVERY_MS

    def read(self) -> None:
        """Read all of it."""
        pools, now = self._pools(), self._clock.now()
        self._read = offers_of(self._server, set(pools.values()), now)
        self.feeds = {name: OfferFeed(pool=name, at=now) for name in pools}

    def unread(self) -> None:
        """It cannot be read now: what is known stays, and grows old."""
        before = {name: self.feeds.get(name, OfferFeed(pool=name)) for name in self._pools()}
        message = "The prices of the simulated cloud cannot be read."
        self.feeds = {name: structs.replace(each, problem="Prices", message=message) for name, each in before.items()}

    def _pools(self) -> dict[str, str]:
        """The region of every LeftoverNodePool that can be read, by its name."""
        every = (parse.resource(body) for body in self._server.objects("LeftoverNodePool"))
        return {each.name: each.spec.region for each in every if not each.problems}


def _place(offer: Offer) -> tuple[str, str, str, str]:
    return offer.region, offer.instance_type, offer.zone, offer.capacity_type or "spot"


class WanderingMarket:
    """Lets prices wander, by the seed of the scenario alone."""

    def __init__(self, server: ApiServer, rng: random.Random) -> None:
        self._server, self._clock, self._rng = server, server.clock, rng
        self._places: dict[str, int] = {}
        """How many steps the price of each offer is above that of its document, by name."""
        self._bases: dict[str, int] = {}
        self._turn = 0

    @classmethod
    def of(cls, server: ApiServer, _cluster: PodLifecycle, _faults: Faults, scenario: Scenario) -> WanderingMarket:
        """That of a scenario."""
        return cls(server, split(scenario.seed, "market"))

    def begin(self) -> None:
        """Let prices move from now on, if any may."""
        if any(_span(body) for body in self._server.objects(KIND)):
            self._later(self._move)

    def stop(self) -> None:
        """Let them stay."""
        self._turn += 1

    def _later(self, do: Callable[[], None]) -> None:
        turn = self._turn
        self._clock.call_later(MOVES_SECONDS, lambda: do() if turn == self._turn else None)

    def _move(self) -> None:
        type_ = self._server.catalog.of_kind(KIND)
        assert type_ is not None, "every simulated cluster has it"
        for body in self._server.objects(KIND):
            offer: Offer = outside.fact(KIND, body)[0]
            span = _span(body)
            if not span or offer.price_per_hour is None:
                continue
            base = self._bases.setdefault(offer.name, offer.price_per_hour)
            place = self._places.get(offer.name, 0) + self._rng.choice((-1, 0, 0, 1))
            place = self._places[offer.name] = min(max(place, -_STEPS), _STEPS)
            price = base * (100 * _STEPS + span * place) // (100 * _STEPS)
            if price != offer.price_per_hour:
                text = f"{price // 1_000_000}.{price % 1_000_000:06d}"
                spec = {"pricePerHour": text, "at": times.text(self._clock.now())}
                self._server.do("PATCH", type_.url("", offer.name), {"spec": spec})
        self._later(self._move)


def _annotation(body: Body, name: str) -> str:
    return str(((body.get("metadata") or {}).get("annotations") or {}).get(name, ""))


def _span(body: Body) -> int:
    """By how many percent the price of an offer wanders; 0 if it stays."""
    text = _annotation(body, MOVES).removesuffix("%")
    return min(int(text), 90) if text.isdigit() else 0

"""On-demand machines whose price the cloud does not tell, and the price book does."""

from __future__ import annotations

from msgspec import structs

from headroom.core.offers import market_of
from headroom.model.facts import Price
from headroom.model.world import World
from tests.builders import NOON
from tests.core.offer_stage import a_leftover, on_demand


def test_machines_that_only_the_book_prices_are_ranked_on_demand() -> None:
    known, unknown = on_demand("g5.xlarge", zone="us-east-1a"), on_demand("g6.xlarge", zone="us-east-1b")
    offers = {each.name: structs.replace(each, price_per_hour=None, at=None) for each in (known, unknown)}
    book = (Price(price_per_hour=1_100_000, instance_type="g5.xlarge"),)
    world = World(now=NOON, offers=offers, prices=book)
    for spec in (a_leftover(capacityType="on-demand").spec, a_leftover().spec):
        market = market_of(world, spec, ())
        ranked = [*market.quotes.values(), *market.fallback]
        assert [(each.key, each.price) for each in ranked] == [("g5.xlarge/use1-az6/on-demand", 1_100_000)]
        assert market.passed_over == {"Unpriced": 1}
    priced = structs.replace(world, offers=offers | {"x": on_demand("g5.xlarge", 1.0, "us-east-1b")})
    market = market_of(priced, a_leftover().spec, ())
    assert [each.price for each in market.fallback] == [1_000_000], (
        "the cloud's own word for a type counts before the book"
    )

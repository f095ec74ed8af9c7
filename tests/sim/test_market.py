"""Simulated prices that move, and what an operator process reads of them."""

from __future__ import annotations

import random

from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.market import Feed, WanderingMarket, offers_of
from tests.builders import NOON, a_document
from tests.karpenter_stage import an_offer


def a_server(*documents: dict[str, object]) -> ApiServer:
    server = ApiServer(SimClock(NOON), random.Random(1))
    for document in documents:
        server.put(document)
    return server


def price(server: ApiServer, name: str) -> int:
    found = offers_of(server, {"us-east-1"}, NOON)[name].price_per_hour
    assert found is not None
    return found


def test_prices_wander_within_their_span_by_the_seed_and_others_stay() -> None:
    async def play() -> list[int]:
        server = a_server(an_offer("a", "z", "1.0", moves="25%"), an_offer("b", "z", "1.0"))
        market = WanderingMarket(server, random.Random(7))
        market.begin()
        seen = []
        for _ in range(300):
            await server.clock.sleep(600)
            seen.append(price(server, "a-z-spot"))
            assert price(server, "b-z-spot") == 1_000_000
        market.stop()
        last = price(server, "a-z-spot")
        await server.clock.sleep(6000)
        assert price(server, "a-z-spot") == last, "it has stopped"
        return seen

    first, second = run_virtual(play), run_virtual(play)
    assert first == second
    assert 750_000 <= min(first) < 900_000
    assert 1_100_000 < max(first) <= 1_250_000


def test_a_process_reads_for_the_pools_there_are_and_what_it_cannot_read_grows_old() -> None:
    async def play() -> None:
        server = a_server(an_offer("a", "z", "1.0"), an_offer("b", "z", "1.0", region="eu-west-1"))
        feed = Feed(server)
        assert not feed.is_due
        server.put(a_document("LeftoverNodePool", "cheap", region="us-east-1"))
        assert feed.is_due
        feed.read()
        assert list(feed.offers({})) == ["a-z-spot"]
        assert feed.feeds["cheap"].at == NOON
        await server.clock.sleep(200)
        assert not feed.is_due
        await server.clock.sleep(200)
        assert feed.is_due
        feed.unread()
        assert (feed.feeds["cheap"].at, feed.feeds["cheap"].problem) == (NOON, "Prices")
        assert feed.is_due

    run_virtual(play)


def test_of_two_that_are_the_same_machine_the_one_that_was_read_counts() -> None:
    async def play() -> None:
        server = a_server(an_offer("a", "z", "1.0"), a_document("LeftoverNodePool", "cheap", region="us-east-1"))
        feed, others = Feed(server), offers_of(server, {"us-east-1"}, NOON)
        assert feed.offers(others) is others
        feed.read()
        assert list(feed.offers({"sim/z/a": others["a-z-spot"]})) == ["a-z-spot"]

    run_virtual(play)

"""The cost of ranking and deciding on many offers, and the memory that they take."""

from __future__ import annotations

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

import msgspec

from headroom.core.offers import PLAN, market_of
from headroom.core.offers.choosing import chosen
from headroom.model.changes import EVERYTHING
from headroom.model.cloud_facts import Offer, OfferFeed
from headroom.model.world import World
from tests.builders import NOON
from tests.core.offer_stage import Stage, a_leftover, an_offer

OFFERS: Final = 2000
SHARED: Final = 50
"""Pools in one region; each has weights of its own, so there can be no more."""
TRIES: Final = 15
ZONES: Final = 6


def offers(count: int = OFFERS) -> list[Offer]:
    """Machine types of many families in the zones of a region, at prices and with scores of chance."""
    chance = random.Random(1)
    found = []
    for number in range(count):
        kind, zone = divmod(number, ZONES)
        name = f"us-east-1{'abcdef'[zone]}"
        found.append(
            an_offer(
                f"g{kind // 8}.{1 + kind % 8}xlarge",
                name,
                chance.uniform(0.2, 9),
                gpus=chance.choice((1, 4, 8)),
                name=f"offer-{number}",
                zone_id=f"use1-az{zone}",
                score=chance.choice((None, 3, 6, 9)),
            )
        )
    return found


def settled(pools: int = 1) -> World:
    """A world in which all that was decided stands."""
    share = 100 // pools
    each = [
        a_leftover(
            f"pool-{number}", nodeClassName="gpu", weights={"min": 1 + number * share, "max": (number + 1) * share}
        )
        for number in range(pools)
    ]
    feeds = {resource.name: OfferFeed(pool=resource.name, at=NOON) for resource in each}
    stage = Stage(*each, offers=offers(), offer_feeds=feeds)
    stage.settle()
    return stage.world()


def milliseconds(what: Callable[[], object]) -> float:
    """CPU time, the median of some tries."""
    what()
    taken = []
    for _ in range(TRIES):
        gc.collect()
        begin = time.process_time()
        what()
        taken.append((time.process_time() - begin) * 1000)
    return statistics.median(taken)


def ranking() -> tuple[float, int]:
    """Ranking for one pool that has its ladder already: judging offers, and the order with the first place; and how many were ranked."""
    world = settled()
    (resource,) = world.resources.values()

    def ranked() -> int:
        market = market_of(world, resource.spec, ())
        return len(chosen(resource.spec, resource.status, market, (), world.now).order)

    return milliseconds(ranked), ranked()


def deciding(pools: int) -> float:
    """All that the plan does for so many pools of one region when an offer changed."""
    world = settled(pools)
    assert world.now == NOON
    found = list(PLAN.decide(world, EVERYTHING))
    assert len(found) == pools, "every pool is decided on"
    assert not [each for each in found if each.actions], "nothing is due any more"
    return milliseconds(lambda: list(PLAN.decide(world, EVERYTHING)))


def megabytes() -> float:
    """What the offers take in memory, each with texts of its own, as if a cloud had just told them."""
    told = msgspec.json.encode(offers())
    gc.collect()
    tracemalloc.start()
    kept = {each.name: each for each in msgspec.json.decode(told, type=list[Offer])}
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == OFFERS
    return size / 1e6

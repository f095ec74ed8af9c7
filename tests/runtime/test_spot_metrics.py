"""Metrics of spot pools: the newest decision counts, launches are counted once, and nothing stays of a pool that is gone."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.model.cloud_facts import Launch
from headroom.model.decisions import Decision, Ref
from headroom.model.times import MINUTE
from headroom.model.world import World
from headroom.runtime.metrics import Metrics
from headroom.runtime.spot_metrics import SpotMetrics
from tests.builders import NOON, a_used_world
from tests.web import pools, spots

POOL = 'namespace="team-a",pool="inference"'


def launches(outcome: str, count: float) -> str:
    return f'launches_total{{namespace="team-a",outcome="{outcome}",pool="inference"}} {count}'


class Scraped:
    """One operator's metrics of spot pools."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self._measure = SpotMetrics(self._metrics.registry)

    def __call__(self, world: World, decisions: dict[Ref, Decision] | None = None) -> list[str]:
        self._measure.measure(world, decisions or {})
        lines = self._metrics.render().decode().splitlines()
        return [line.removeprefix("headroom_spot_") for line in lines if line.startswith("headroom_spot")]


def world_of(*left: pools.Left, **more: Any) -> World:
    return a_used_world(*(each.resource for each in left), **(spots.facts_of() | more))


def test_everything_is_told_of_every_pool() -> None:
    assert Scraped()(world_of(spots.troubled())) == [
        f'machines{{{POOL},state="Launching"}} 1.0',
        f'machines{{{POOL},state="Cancelling"}} 1.0',
        f'machines{{{POOL},state="Running"}} 2.0',
        f'machines{{{POOL},state="Draining"}} 1.0',
        f'machines{{{POOL},state="Ending"}} 1.0',
        f"size{{{POOL}}} 4.0",
        f"minimum{{{POOL}}} 1.0",
        f"maximum{{{POOL}}} 6.0",
        f"sold_out{{{POOL}}} 2.0",
        f"breaker_open{{{POOL}}} 1.0",
        f"braked{{{POOL}}} 1.0",
        f"listing_age_seconds{{{POOL}}} 12.0",
        f"orphans{{{POOL}}} 1.0",
        f"price_dollars_per_hour{{{POOL}}} 6.25",
        f'unserved_pods{{{POOL},reason="NoMachineFits"}} 3.0',
        launches("Accepted", 1.0),
        launches("SoldOut", 1.0),
        launches("Unknown", 1.0),
    ]


def test_a_launch_counts_once_and_each_repeat_of_it_once_more() -> None:
    scraped = Scraped()
    world = world_of(spots.a_spot_pool())
    scraped(world)
    again = Launch(token="t2", pool="team-a/inference", at=NOON, outcome="Accepted", instance="i-002")
    later = structs.replace(world, launches={**world.launches, "t2": again})
    for _ in range(2):
        found = [line for line in scraped(later) if line.startswith("launches")]
    assert found == [
        launches("Accepted", 2.0),
        launches("SoldOut", 1.0),
        launches("Unknown", 1.0),
    ]


def test_the_newest_decision_counts_and_a_pool_that_is_gone_leaves_nothing_but_its_launches() -> None:
    scraped, left = Scraped(), spots.a_spot_pool()
    small = structs.replace(left.decision, status=structs.replace(left.decision.status, size=1, slots=()))
    lines = scraped(world_of(left), {left.decision.resource: small})
    assert f"size{{{POOL}}} 1.0" in lines
    assert not [line for line in lines if line.startswith("price")]
    assert all(line.startswith("launches_total") for line in scraped(world_of()))


def test_a_breaker_whose_time_is_over_is_closed_and_a_list_never_read_has_no_age() -> None:
    world = world_of(spots.troubled(), listings={}, now=NOON + 21 * MINUTE)
    lines = Scraped()(world)
    assert f"breaker_open{{{POOL}}} 0.0" in lines
    assert not [line for line in lines if line.startswith("listing_age")]

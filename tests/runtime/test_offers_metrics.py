"""Metrics of cheapest capacity: the newest decision counts, nothing stays of one that is gone, and the page names them all."""

from __future__ import annotations

import re
from pathlib import Path

from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.runtime.metrics import Metrics
from headroom.runtime.offers_metrics import OffersMetrics
from tests.builders import a_used_world
from tests.web import cheap

PAGE = Path(__file__).parents[2] / "docs" / "cheapest-capacity.md"
POOL = 'pool="cheap"'


class Scraped:
    """One operator's metrics of cheapest capacity."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self._measure = OffersMetrics(self._metrics.registry)

    def __call__(self, world: World, decisions: dict[Ref, Decision] | None = None) -> list[str]:
        self._measure.measure(world, decisions or {})
        lines = self._metrics.render().decode().splitlines()
        return [line.removeprefix("headroom_offers_") for line in lines if line.startswith("headroom_offers_")]


def test_everything_is_told() -> None:
    stage = cheap.a_stage()
    left = cheap.left_by(stage)
    assert Scraped()(cheap.failing(cheap.world_of(stage)), cheap.decided(left)) == [
        f'rungs{{{POOL},state="Active"}} 4.0',
        f'rungs{{{POOL},state="Resting"}} 1.0',
        f'rungs{{{POOL},state="Leaving"}} 0.0',
        f"price_dollars_per_hour{{{POOL}}} 0.4",
        f"cost_dollars_per_gpu_hour{{{POOL}}} 0.412475",
        f"score{{{POOL}}} 8.0",
        f"below_score{{{POOL}}} 0.0",
        f"ranked{{{POOL}}} 6.0",
        f"nodes{{{POOL}}} 3.0",
        f"saved_dollars{{{POOL}}} 0.025283",
        f"saved_dollars_per_hour{{{POOL}}} 1.517",
        f"feed_age_seconds{{{POOL}}} 900.0",
        f'passed_over{{{POOL},reason="Family"}} 1.0',
        f'passed_over{{{POOL},reason="SoldOut"}} 1.0',
        f'feed_failing{{{POOL},problem="Credentials"}} 0.0',
        f'feed_failing{{{POOL},problem="Types"}} 0.0',
        f'feed_failing{{{POOL},problem="Prices"}} 1.0',
        f'feed_failing{{{POOL},problem="Scores"}} 0.0',
        f"switches_total{{{POOL}}} 0.0",
    ]


def test_the_newest_decision_counts_and_one_that_is_gone_leaves_nothing() -> None:
    stage, scraped = cheap.moved(), Scraped()
    left = cheap.left_by(stage)
    assert f"switches_total{{{POOL}}} 1.0" in scraped(cheap.world_of(stage), cheap.decided(left))
    assert f'rungs{{{POOL},state="Leaving"}} 2.0' in scraped(cheap.world_of(stage))
    assert scraped(a_used_world()) == []


def test_a_feed_that_was_never_read_has_no_age() -> None:
    stage = cheap.a_stage()
    lines = Scraped()(cheap.world_of(stage, offer_feeds={}))
    assert not [line for line in lines if line.startswith("feed_age")]


def test_the_page_names_every_metric_and_no_other() -> None:
    named = set(re.findall(r"`headroom_offers_(\w+?)(?:\{[^}]*\})?`", PAGE.read_text()))
    stage = cheap.a_stage()
    there = {line.partition("{")[0] for line in Scraped()(cheap.world_of(stage), cheap.decided(cheap.left_by(stage)))}
    assert named == there

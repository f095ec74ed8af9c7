"""A back-test chooses what the plan itself would have chosen: the same prices, played by both, moment by moment."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.core.offers import rules_of
from headroom.model.times import HOUR
from headroom.sim.backtest.history import TracedMachineType
from headroom.sim.backtest.rules import Production, play
from headroom.sim.backtest.timeline import catalogue, timeline
from tests.builders import NOON
from tests.core.offer_stage import Stage, a_leftover, an_offer
from tests.sim.test_backtest import changes

ZONE_IDS = ("use1-az6", "use1-az1", "use1-az2")
TYPES = {
    name: TracedMachineType(name=name, gpus=1_000_000, arch="amd64", vendor="nvidia")
    for name in ("g5.xlarge", "g6.xlarge")
}
PLACES = [(kind, zone) for kind in TYPES for zone in ZONE_IDS]
EVERY = 5
"""Hours between two prices of all offers."""

prices = st.lists(st.integers(0, 12).map(lambda each: each and 0.44 + each / 100), min_size=6, max_size=6)


def by_the_plan(rows: list[list[float]], spec: dict[str, Any]) -> list[tuple[int, str, str]]:
    """When the first place changed, by a stage that is asked whenever the plan wants to look again."""
    zones = ("us-east-1a", "us-east-1b", "us-east-1c")
    offers = [an_offer(kind, zone, None) for kind in TYPES for zone in zones]
    stage = Stage(a_leftover(nodeClassName="gpu", onDemandFallback=False, **spec), offers=offers)
    found: list[tuple[int, str, str]] = []
    for number, row in enumerate(rows):
        stage.now = NOON + number * EVERY * HOUR
        for offer, dollars in zip(offers, row, strict=True):
            stage.price(offer.name, dollars)
        end = stage.now + EVERY * HOUR
        while stage.now < end:
            last = stage.status().chosen
            (decision,) = stage.tick()
            chosen = stage.status().chosen
            if last and chosen and last.offer and last.offer != chosen.offer:
                found.append((stage.now, last.offer, chosen.offer))
            stage.now += decision.look_again_ms or HOUR
    return found


@pytest.mark.parametrize("strategy", ["CostAndRisk", "CheapestAboveScore"])
@given(st.lists(prices, min_size=1, max_size=6), st.sampled_from(("1%", "5%", "12%")))
@settings(max_examples=12)
def test_a_back_test_chooses_as_the_plan(strategy: str, rows: list[list[float]], threshold: str) -> None:
    given_spec: dict[str, Any] = {"strategy": strategy, "switchThreshold": threshold, "minSpotScore": 0}
    spec = a_leftover(nodeClassName="gpu", onDemandFallback=False, **given_spec).spec
    history = changes(
        *(
            (EVERY * number, kind, zone, dollars)
            for number, row in enumerate(rows)
            for (kind, zone), dollars in zip(PLACES, row, strict=True)
        ),
        (EVERY * len(rows), *PLACES[0], 0.0),
    )
    line = timeline(spec, catalogue(TYPES, spec, ("us-east-1",)), history, None)
    played = play(line, Production(line, rules_of(spec)))
    assert [(NOON + each.at, each.before, each.after) for each in played.switches] == by_the_plan(rows, given_spec)

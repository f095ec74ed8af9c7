"""What becomes a rung of the ladder, and in which order: fit, price, size, on-demand machines, the seed's rule."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api.resources import Condition
from headroom.model.decisions import Decision
from tests.core.offer_stage import HOUR, Stage, a_class, a_leftover, an_offer, on_demand


def ready(decision: Decision) -> Condition:
    return next(each for each in decision.status.conditions if each.type == "Ready")


def templates(stage: Stage) -> dict[str, str]:
    return {name: pool.template for name, pool in stage.pools.items()}


TWO = (an_offer("g5.xlarge", "us-east-1a", 0.4), an_offer("g6.xlarge", "us-east-1b", 0.6))


# --- the ladder --------------------------------------------------------------------------------------------------------------------


def test_the_cheapest_offer_is_the_heaviest_rung() -> None:
    stage = Stage(offers=TWO)
    decision = stage.settle()
    assert [stage.what(name) for name in stage.by_weight()][:2] == [
        (["g5.xlarge"], ["us-east-1a"]),
        (["g6.xlarge"], ["us-east-1b"]),
    ]
    assert stage.status().selected_instance_types == ("g5.xlarge", "g6.xlarge")
    assert stage.status().last_price_usd == "0.4000"
    assert (ready(decision).status, ready(decision).reason) == ("True", "Reconciled")
    assert len({pool.weight for pool in stage.pools.values()}) == len(stage.pools)


def test_prices_are_compared_per_gpu() -> None:
    stage = Stage(offers=(an_offer("g5.xlarge", dollars=0.5), an_offer("g5.48xlarge", dollars=3.2, gpus=8)))
    stage.settle()
    assert stage.status().selected_instance_types[0] == "g5.48xlarge"


def test_an_unchanged_world_writes_nothing_more() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    before = len(stage.performed)
    stage.settle()
    assert stage.performed[before:] == []


def test_types_of_one_family_and_size_share_a_rung_while_they_cost_the_same() -> None:
    stage = Stage(
        offers=(
            an_offer("g5.xlarge", "us-east-1a", 0.400),
            an_offer("g5.2xlarge", "us-east-1a", 0.410),
            an_offer("g5.4xlarge", "us-east-1a", 0.500),
            an_offer("g6.xlarge", "us-east-1a", 0.405),
        )
    )
    stage.settle()
    assert stage.what(stage.by_weight()[0]) == (["g5.2xlarge", "g5.xlarge"], ["us-east-1a"])
    assert stage.rungs()[0].instance_types[0] == "g5.xlarge"


def test_a_rung_has_a_second_zone_only_where_all_its_types_cost_the_same() -> None:
    stage = Stage(
        offers=(
            an_offer("g5.xlarge", "us-east-1a", 0.400),
            an_offer("g5.xlarge", "us-east-1b", 0.401),
            an_offer("g5.xlarge", "us-east-1c", 0.700),
        )
    )
    stage.settle()
    assert stage.what(stage.by_weight()[0]) == (["g5.xlarge"], ["us-east-1a", "us-east-1b"])


def test_no_more_types_and_zones_than_asked_for() -> None:
    offers = [
        an_offer(f"g{number}.xlarge", zone, 0.3 + number / 10)
        for number in range(1, 9)
        for zone in ("us-east-1a", "us-east-1b", "us-east-1c")
    ]
    stage = Stage(a_leftover(maxInstanceTypes=3, maxZones=2), offers=offers)
    stage.settle()
    spot = [each for each in stage.rungs() if each.capacity_type == "spot"]
    assert len({kind for each in spot for kind in each.instance_types}) == 3
    assert len({zone for each in spot for zone in each.zones}) == 2


def test_more_rungs_than_weights_are_left_out() -> None:
    offers = [an_offer(f"g{number}.xlarge", dollars=0.3 + number / 10) for number in range(1, 9)]
    stage = Stage(a_leftover(maxInstanceTypes=8, weights={"min": 10, "max": 12}), offers=offers)
    stage.settle()
    assert [stage.pools[name].weight for name in stage.by_weight()] == [12, 11, 10]
    assert stage.rungs()[-1].capacity_type == "on-demand"


@pytest.mark.parametrize(
    ("spec", "fields", "reason"),
    [
        ({"families": ["g5"]}, {"kind": "g5g.xlarge"}, "Family"),
        ({}, {"arch": "arm64"}, "Architecture"),
        ({}, {"vendor": "amd"}, "Vendor"),
        ({"minGPUs": 4}, {"gpus": 1}, "TooFewGpus"),
        ({}, {"kind": "g6f.xlarge", "gpus": 0.125}, "PartOfAGpu"),
        ({}, {"dollars": None}, "Unpriced"),
        ({}, {"dollars": 0}, "Unpriced"),
        ({}, {"available": False}, "SoldOut"),
        ({}, {"zone": "us-east-1c"}, "ZoneWithoutSubnet"),
    ],
)
def test_what_does_not_fit_is_passed_over(spec: dict[str, Any], fields: dict[str, Any], reason: str) -> None:
    stage = Stage(
        a_leftover(**spec, onDemandFallback=False),
        offers=(an_offer(**fields),),
        classes=[a_class(zones=("us-east-1a", "us-east-1b"))],
    )
    decision = stage.decide()[0]
    assert (ready(decision).reason, stage.status().passed_over) == ("NoQuotes", {reason: 1})
    assert not stage.pools


def test_a_part_of_a_gpu_is_taken_where_its_family_is_named() -> None:
    stage = Stage(a_leftover(families=["g6f"]), offers=(an_offer("g6f.xlarge", gpus=0.125, dollars=0.1),))
    stage.settle()
    assert stage.status().selected_instance_types == ("g6f.xlarge",)


def test_an_old_price_is_no_price() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    before = dict(stage.pools)
    stage.now += 2 * HOUR
    decision = stage.decide()[0]
    assert (ready(decision).status, ready(decision).reason) == ("False", "NoQuotes")
    assert stage.pools == before, "what stood goes on to stand"


def test_of_two_prices_the_newer_counts() -> None:
    old = an_offer("g5.xlarge", dollars=0.1, name="old", at=Stage().now - HOUR // 2)
    stage = Stage(offers=(old, an_offer("g5.xlarge", dollars=0.5, name="new")))
    stage.decide()
    assert stage.status().last_price_usd == "0.5000"


def test_a_tenants_word_is_no_price() -> None:
    stage = Stage(offers=(an_offer(dollars=0.01, endpoint="https://tenant.example"),))
    assert ready(stage.decide()[0]).reason == "NoQuotes"


# --- on demand ---------------------------------------------------------------------------------------------------------------------


def test_on_demand_machines_are_the_last_rung() -> None:
    stage = Stage(offers=(*TWO, on_demand("g5.xlarge", 1.0), on_demand("g6.xlarge", 0.9)))
    stage.settle()
    last = stage.by_weight()[-1]
    assert stage.rungs()[-1].capacity_type == "on-demand"
    assert stage.pools[last].weight == 1
    assert stage.what(last)[0] == ["g5.xlarge", "g6.xlarge"]


def test_spot_that_costs_more_than_on_demand_is_no_rung() -> None:
    stage = Stage(offers=(an_offer("g5.xlarge", dollars=1.5), on_demand("g5.xlarge", 1.0)))
    stage.settle()
    assert [each.capacity_type for each in stage.rungs()] == ["on-demand"]
    assert stage.status().passed_over == {"DearerThanOnDemand": 1}


def test_no_fallback_where_none_is_wanted() -> None:
    stage = Stage(a_leftover(onDemandFallback=False), offers=(*TWO, on_demand()))
    stage.settle()
    assert {each.capacity_type for each in stage.rungs()} == {"spot"}


def test_on_demand_is_ranked_by_its_own_prices() -> None:
    stage = Stage(
        a_leftover(capacityType="on-demand"),
        offers=(
            an_offer("g5.xlarge", dollars=0.1),
            an_offer("g6.xlarge", dollars=0.2),
            on_demand("g5.xlarge", 2.0),
            on_demand("g6.xlarge", 1.0),
        ),
    )
    stage.settle()
    assert stage.status().selected_instance_types[0] == "g6.xlarge"
    assert {each.capacity_type for each in stage.rungs()} == {"on-demand"}


# --- the seed's rule ---------------------------------------------------------------------------------------------------------------


def seeds(*scores: int | None, **spec: Any) -> Stage:
    offers = [
        an_offer(f"g{number}.xlarge", dollars=0.3 + number / 10, score=score)
        for number, score in enumerate(scores, start=1)
    ]
    return Stage(a_leftover(strategy="CheapestAboveScore", **spec), offers=offers)


def test_the_cheapest_with_a_good_score_is_first() -> None:
    stage = seeds(3, 5, 9)
    stage.settle()
    assert stage.status().selected_instance_types == ("g2.xlarge", "g3.xlarge")
    assert stage.status().last_score == 5
    assert stage.status().below_score is None


def test_without_a_good_score_on_demand_is_used() -> None:
    stage = seeds(3, None)
    stage.offers["od"] = on_demand("g1.xlarge", 3.0, name="od")
    stage.settle()
    assert [each.capacity_type for each in stage.rungs()] == ["on-demand"]


def test_without_a_good_score_or_a_fallback_the_cheapest_is_taken_and_marked() -> None:
    stage = seeds(3, 4, onDemandFallback=False)
    stage.settle()
    assert stage.status().selected_instance_types == ("g1.xlarge",)
    assert stage.status().below_score is True

"""The pages of cheapest capacity as data: what is first, every rung, and all offers by price and risk."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec import structs

from headroom.api.kinds import problems
from headroom.api.resources import Condition
from headroom.model.times import text
from headroom.model.world import World
from headroom.runtime.journal import Journal
from headroom.sim.ledger import MemoryLedger
from headroom.web.pages import Model, frame, framed
from headroom.web.pages.offers import EXAMPLE
from headroom.web.scope import EVERYTHING, Scope
from tests.builders import NOON, a_resource, a_used_world
from tests.core.offer_stage import Stage, a_leftover, an_offer
from tests.web import cheap, pools
from tests.web.showing import Made, page_at

TEAM = Scope(namespaces=frozenset({"team-a"}), nodes=True)


def made_of(stage: Stage, world: World | None = None) -> Made:
    left = cheap.left_by(stage)
    made = Made(world or cheap.world_of(stage))
    made.journal = Journal(MemoryLedger())  # the plans would have their own word
    pools.leave(made, left)
    return made


def shown(made: Made, *address: str, scope: Scope = EVERYTHING) -> Model:
    body = page_at(*address)(made.view(), scope)
    assert body is not None
    return framed(frame(made.view()), scope, "") | body


def test_one_is_told_in_numbers_and_in_words() -> None:
    row = shown(made_of(cheap.a_stage()), "offers")["pools"]["cheap"]
    assert row.pop("message").startswith("First: g5.xlarge in us-east-1a at $0.4000 an hour")
    assert row == {
        "name": "cheap",
        "state": "LaunchFailed",
        "tone": "warn",
        "region": "us-east-1",
        "capacityType": "spot",
        "first": "g5.xlarge in us-east-1a",
        "pricePerHour": "0.4000",
        "costPerGpuHour": "0.412475",
        "score": 8,
        "rungs": {"Active": 4, "Resting": 1},
        "nodes": 3,
        "savedUsd": "0.025283",
        "savedUsdPerHour": "1.517",
        "switches": 0,
        "offers": 6,
        "reason": "LaunchFailed",
    }


def test_each_rung_says_what_it_costs_and_why_it_adds_nothing() -> None:
    found = list(shown(made_of(cheap.moved()), "offers", "cheap")["rungs"].values())
    assert [each["state"] for each in found] == ["Active", "Active", "Active", "Leaving", "Leaving"]
    first = found[0]
    assert (first["types"], first["zones"], first["weight"]) == (["g6.xlarge"], ["us-east-1a"], 100)
    assert (first["pricePerHour"], first["costPerGpuHour"], first["nodes"]) == ("0.25", "0.26329", 1)
    assert (found[3]["cause"], found[3]["nodes"]) == ("NotRanked", 2)


def test_every_offer_has_its_place_price_and_risk() -> None:
    stage = cheap.a_stage()
    page = shown(made_of(stage), "offers", "cheap")
    found = list(page["offers"].values())
    assert [each["place"] for each in found] == [1, 2, 3, 4, 5, 6]
    assert found[0] == {
        "place": 1,
        "type": "g5.xlarge",
        "zone": "us-east-1a",
        "capacityType": "spot",
        "gpus": "1",
        "pricePerHour": "0.4",
        "pricePerGpuHour": "0.4",
        "costPerGpuHour": "0.412475",
        "interruptionsPerHour": "0.0005",
        "failedLaunches": "0.03",
        "score": 8,
        "onDemandPerHour": "1.006",
        "rung": found[0]["rung"],
        "rungState": "Active",
        "first": True,
    }
    assert found[0]["rung"] in stage.pools
    assert [each["type"] for each in found if each.get("runnerUp")] == ["g6.xlarge"]
    assert page["why"][1] == "The next best, g6.xlarge in us-east-1a, costs 27.7% more."
    assert page["passedOver"] == [
        {"reason": "Family", "words": "1 of another family"},
        {"reason": "SoldOut", "words": "1 sold out"},
    ]
    assert (page["offersInAll"], page["pool"]["feedAt"]) == (6, text(stage.now - 42_000))


def test_of_very_many_offers_the_best_are_shown() -> None:
    stage = cheap.a_stage()
    made = made_of(stage)
    more = [an_offer(f"g5.{each}xlarge", "us-east-1b", 2 + each / 100, at=stage.now) for each in range(500)]
    world = cheap.world_of(stage)
    made.become(structs.replace(world, offers={each.name: each for each in (*stage.offers.values(), *more)}))
    page = shown(made, "offers", "cheap")
    assert len(page["offers"]) <= 151
    assert any(each.get("first") for each in page["offers"].values())


NOT_READY = Condition(type="Ready", status="False", reason="NoQuotes", message="None.", last_transition_time=text(NOON))


@pytest.mark.parametrize(
    ("spec", "status", "state", "tone"),
    [
        ({"paused": True}, {}, "Paused", "idle"),
        ({}, {"conditions": ()}, "Waiting", "idle"),
        ({}, {"conditions": (NOT_READY,)}, "NotReady", "bad"),
        ({}, {"rungs": ()}, "Steady", "good"),
        ({}, {"rungs": (), "below_score": True}, "BelowScore", "warn"),
    ],
)
def test_the_state_is_one_word(spec: dict[str, Any], status: dict[str, Any], state: str, tone: str) -> None:
    stage = cheap.a_stage(**spec) if not spec else Stage(a_leftover("cheap", **cheap.SPEC | spec))
    left = cheap.left_by(stage)
    made = Made(cheap.world_of(stage))
    pools.leave(
        made,
        left._replace(decision=structs.replace(left.decision, status=structs.replace(left.decision.status, **status))),
    )
    row = shown(made, "offers")["pools"]["cheap"]
    assert (row["state"], row["tone"]) == (state, tone)


def test_a_feed_that_fails_and_a_budget_over_quota_are_told() -> None:
    stage = cheap.moved()
    made = made_of(stage, cheap.failing(cheap.world_of(stage)))
    page = shown(made, "offers", "cheap")
    assert (page["pool"]["state"], page["pool"]["feedProblem"]) == ("FeedFailing", "Throttled by EC2.")
    left = cheap.left_by(stage)
    rungs = tuple(structs.replace(each, cause="OverQuota") for each in stage.status().rungs)
    over = structs.replace(left.decision, status=structs.replace(stage.status(), rungs=rungs))
    pools.leave(made, left._replace(decision=over))
    assert shown(made, "offers")["pools"]["cheap"]["state"] == "OverQuota"


def test_only_who_sees_everything_sees_it() -> None:
    made = made_of(cheap.a_stage())
    assert page_at("offers")(made.view(), TEAM) == {"maySee": False, "pools": {}}
    assert page_at("offers", "cheap")(made.view(), TEAM) is None
    assert page_at("offers", "nothing")(made.view(), EVERYTHING) is None


def test_an_invalid_one_says_what_is_wrong_with_it() -> None:
    made = Made(a_used_world(a_resource("LeftoverNodePool", "broken", region="US")))
    page = shown(made, "offers", "broken")
    assert (page["pool"]["state"], page["rungs"], "offers" in page) == ("Invalid", {}, False)
    assert "spec.region" in page["pool"]["problems"][0]


def test_without_one_there_is_one_to_begin_with() -> None:
    page = shown(Made(a_used_world()), "offers")
    assert (page["pools"], page["example"]) == ({}, EXAMPLE)
    assert problems(yaml.safe_load(EXAMPLE)) == []

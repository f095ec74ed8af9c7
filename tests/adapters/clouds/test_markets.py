"""Regions are read once for all that look at them, each part by itself, and what is told of them is what was read."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.clouds import market
from headroom.adapters.prices import confirmed, united
from headroom.api.kinds import AnyResource
from headroom.core.offers.quotes import market_of
from headroom.model import times
from headroom.model.changes import Topic
from headroom.model.cloud_facts import Offer
from headroom.model.world import World
from headroom.sim.clock import SimClock
from tests.aws_region import product
from tests.aws_service import AwsService
from tests.builders import NOON, a_resource, a_world
from tests.cloud_faults import How, MarketCall
from tests.cloud_sides import CANARY, KEY, KEY_ID, OnAws
from tests.cloud_stage import Stage, until

A, B = "use1-az6", "use1-az1"
SPOT = "aws/us-east-1/us-east-1a/g5.xlarge/spot"
SECRET = "headroom-system/aws-keys"
CALLS = (
    "DescribeAvailabilityZones",
    "DescribeInstanceTypes",
    "DescribeInstanceTypeOfferings",
    "DescribeSpotPriceHistory",
    "AWSPriceListService.GetProducts",
    "GetSpotPlacementScores",
)


class OwnSecrets:
    """Of the operator's own namespace, where none is named."""

    def __init__(self, stage: Stage) -> None:
        self._vault = stage.vault

    async def read(self, name: str, namespace: str = "") -> Any:
        return await self._vault.read(name, namespace or "headroom-system")


@pytest.fixture
async def stage(aws_service: AwsService) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield await staged(stack, aws_service)


async def staged(stack: AsyncExitStack, service: AwsService, speed: float = 20.0) -> Stage:
    """A fleet before a region with a few prices."""
    side = await stack.enter_async_context(OnAws(service))
    made = Stage("c", SimClock(NOON, speed), side, endpoints=dict.fromkeys(("aws-ec2", "aws-pricing"), side.url))
    stack.callback(made.close)
    made.vault.secrets[SECRET] = {"accessKeyId": KEY_ID, "secretAccessKey": KEY}, ""
    made.fleet._secrets = OwnSecrets(made)
    prices = {"g5.xlarge": "0.5", "g5.2xlarge": "0.6"}
    service.region.history = [
        (kind, zone, price, NOON - times.HOUR) for kind, price in prices.items() for zone in (A, B)
    ]
    service.region.products = [product("g5.xlarge", "1.006"), product("g5.2xlarge", "1.212")]
    service.region.scores = lambda _kinds, _count: {A: 8, B: 6}
    return made


def pool(stage: Stage, name: str = "one", *, lent: bool = True, **spec: Any) -> AnyResource:
    """A LeftoverNodePool whose Secret lets it use the keys."""
    url = stage.fleet._places.endpoints["aws-ec2"]
    given = {
        "region": "us-east-1",
        "nodeClassName": "gpu",
        "families": ["g5"],
        "credentialsSecretRef": {"name": "aws-keys"},
    }
    made = a_resource("LeftoverNodePool", name, **{key: value for key, value in (given | spec).items() if value})
    assert not made.problems, made.problems
    values, users = stage.vault.secrets[SECRET]
    if lent:
        stage.vault.secrets[SECRET] = values, f"{users} LeftoverNodePool/{name}@{url}".strip()
    return stage.view.put(structs.replace(made, namespace=""))


def world(stage: Stage) -> World:
    """What a plan would see."""
    fleet = stage.fleet
    seen = stage.view.world(stage.clock.now())
    return structs.replace(seen, offers=fleet.offers, offer_feeds=fleet.offer_feeds, instances_given=False)


def is_read(stage: Stage) -> bool:
    """Whether every part was read once."""
    found = stage.fleet.offers.get(SPOT)
    paid = stage.fleet.offers.get(SPOT.replace("/spot", "/on-demand"))
    return bool(found and found.score and paid and paid.price_per_hour)


def counted(service: AwsService) -> dict[str, int]:
    return {call: service.log.count(call) for call in CALLS}


async def test_a_region_is_read_into_the_world_and_ranked(stage: Stage) -> None:
    one = pool(stage)
    async with stage.running():
        await until(lambda: is_read(stage))
        seen = world(stage)
        assert (Topic.OFFERS, "") in stage.view.news
        feed = seen.offer_feeds["one"]
        assert (feed.problem, feed.at >= NOON) == ("", True)
        ranked = market_of(seen, one.spec, ())
        assert next(iter(ranked.quotes.values())).offer.name == SPOT
        assert {each.offer.instance_type.partition(".")[0] for each in ranked.quotes.values()} == {"g5"}


async def test_a_hundred_objects_make_no_more_calls_than_one(aws_service: AwsService) -> None:
    found = []
    for objects in (1, 100):
        async with AsyncExitStack() as stack:
            stage = await staged(stack, aws_service)
            for number in range(objects):
                pool(stage, f"p{number}", requeueMinutes=1, targetCount=1 + number % 2)
            async with stage.running():
                await until(partial(is_read, stage))
                await stage.clock.sleep(30.0)  # of its own time: nobody asks once more
                assert len(stage.fleet.offer_feeds) == objects
            found.append(counted(aws_service))
    assert found == [dict.fromkeys(CALLS, 1)] * 2, "each is asked once"


async def test_what_was_read_is_not_read_again_for_minutes_whatever_requeue_minutes_says(
    aws_service: AwsService,
) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, aws_service, 200.0)
        pool(stage, requeueMinutes=1)
        await stack.enter_async_context(stage.running())
        await until(lambda: is_read(stage))
        await until(lambda: counted(aws_service)["DescribeSpotPriceHistory"] == 3)
        minutes = (stage.clock.now() - NOON) / times.MINUTE
        assert minutes > 2 * 0.9 * 5 - 1
        assert counted(aws_service)["DescribeInstanceTypes"] == 1
        assert counted(aws_service)["GetSpotPlacementScores"] <= 2


async def test_scores_that_are_throttled_or_a_page_of_a_proxy_are_unknown(
    stage: Stage, aws_service: AwsService
) -> None:
    one = pool(stage)
    hows: tuple[How, ...] = ("throttled", "garbage", "denied")
    for how in hows:
        aws_service.faults.always("scores", how)
        async with stage.running():
            await until(lambda: bool(stage.fleet.offer_feeds) and stage.fleet.offer_feeds["one"].problem == "Scores")
            await until(lambda: SPOT in stage.fleet.offers)
            assert stage.fleet.offers[SPOT].score is None
            assert market_of(world(stage), one.spec, ()).quotes, "it is ranked all the same"


async def test_a_feed_that_stops_grows_old_and_says_so(aws_service: AwsService) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, aws_service, 200.0)
        one = pool(stage)
        await stack.enter_async_context(stage.running())
        await until(lambda: is_read(stage))
        aws_service.faults.always("offers", "throttled")
        await until(lambda: stage.fleet.offer_feeds["one"].problem == "Prices")
        feed = stage.fleet.offer_feeds["one"]
        assert "The spot prices of us-east-1 cannot be read: AWS answered RequestLimitExceeded" in feed.message
        seen = world(stage)
        assert market_of(seen, one.spec, ()).quotes, "for an hour what was read last counts"
        later = structs.replace(seen, now=seen.now + 61 * times.MINUTE)
        assert not market_of(later, one.spec, ()).quotes
        aws_service.faults.always("offers", None)
        await until(lambda: not stage.fleet.offer_feeds["one"].problem)


async def test_parts_that_are_slow_keep_no_others_waiting(stage: Stage, aws_service: AwsService) -> None:
    pool(stage)
    calls: tuple[MarketCall, ...] = ("products", "scores")
    for call in calls:
        aws_service.faults.always(call, "hang")
    async with stage.running():
        await until(lambda: SPOT in stage.fleet.offers)
        feed = stage.fleet.offer_feeds["one"]
        assert (feed.problem, feed.at >= NOON) == ("", True)
    aws_service.faults.always("products", None)
    aws_service.faults.always("scores", None)


async def test_a_secret_must_name_the_object_and_the_cloud(stage: Stage, aws_service: AwsService) -> None:
    pool(stage, "taken", lent=False)
    async with stage.running():
        await until(lambda: "taken" in stage.fleet.offer_feeds)
        feed = stage.fleet.offer_feeds["taken"]
        assert (feed.problem, feed.at) == ("Credentials", 0)
        assert "does not allow LeftoverNodePool/taken@" in feed.message
        assert not aws_service.log
        pool(stage, "lent")
        await until(lambda: "lent" in stage.fleet.offer_feeds and stage.fleet.offer_feeds["lent"].at > 0)
        assert stage.fleet.offer_feeds["taken"].problem == "Credentials"
        assert not stage.fleet.offer_feeds["lent"].problem


async def test_nothing_of_a_key_is_ever_told(
    stage: Stage, aws_service: AwsService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pool(stage)
    aws_service.echo = True
    values, users = stage.vault.secrets[SECRET]
    for wrong in (
        {"secretAccessKey": f"not-{KEY}"},
        {"accessKeyId": f"not-{KEY_ID}"},
        {"accessKeyId": f"{CANARY}\x00"},
    ):
        pool(stage)
        stage.vault.secrets[SECRET] = values | wrong, stage.vault.secrets[SECRET][1]
        async with stage.running():
            await until(lambda: bool(stage.fleet.offer_feeds))
            assert stage.fleet.offer_feeds["one"].problem == "Credentials"
            assert CANARY not in repr(stage.fleet.offer_feeds)
    assert users
    assert CANARY not in caplog.text
    assert CANARY not in repr(stage.fleet.__dict__)


async def test_nobody_is_asked_while_another_replica_leads_or_nobody_looks(
    stage: Stage, aws_service: AwsService
) -> None:
    stage.leads = False
    one = pool(stage)
    async with stage.running():
        await until(lambda: stage.clock.now() > NOON + 5 * times.SECOND)
        assert not aws_service.log
        stage.leads = True
        await until(lambda: is_read(stage))
        del stage.view.pools["/one"]
        await until(lambda: not stage.fleet.offers)
        assert not stage.fleet.offer_feeds
        stage.view.put(one)
        await until(lambda: is_read(stage))
        stage.leads = False
        await until(lambda: not stage.fleet.offers)


async def test_a_new_question_is_asked_at_once(stage: Stage, aws_service: AwsService) -> None:
    pool(stage)
    async with stage.running():
        await until(lambda: is_read(stage))
        pool(stage, "many", targetCount=50)
        await until(lambda: any(count == 50 for _, _, count in aws_service.region.asked))
        pool(stage, "others", families=["g4dn"])
        await until(lambda: any("g4dn.xlarge" in kinds for _, kinds, _ in aws_service.region.asked))


async def test_prices_of_spot_pools_and_of_regions_are_one_set(stage: Stage, aws_service: AwsService) -> None:
    side = OnAws(aws_service)
    stage.pool(side, availabilityZone="us-east-1b", instanceType="g5.xlarge")
    aws_service.region.history.append(("g5.xlarge", B, "0.5", NOON - 24 * times.HOUR))
    pool(stage)
    async with stage.running():
        await until(partial(is_read, stage))
        await until(lambda: stage.clock.now() > NOON + 10 * times.SECOND)
        (found,) = [each for name, each in stage.fleet.offers.items() if name.endswith("us-east-1b/g5.xlarge/spot")]
        assert (found.gpus, found.score, found.price_per_hour) == (1_000_000, 6, 500_000)


async def test_the_operators_own_view_of_a_region_counts_before_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    lent, own = pool(stage, "lent"), pool(stage, "own", credentialsSecretRef=None)
    async with stage.running():
        await until(lambda: len(stage.fleet.offer_feeds) == 2)
        found = stage.fleet._markets
        assert found is not None
        (first, known), (_, other) = sorted(found._regions.items())
        await until(lambda: SPOT in known.offers and SPOT in other.offers)
        assert first.secret == ""
        assert stage.fleet.offers[SPOT] is known.offers[SPOT]
        assert lent.name in stage.fleet.offer_feeds
        assert own.name in stage.fleet.offer_feeds


def an_offer(**more: Any) -> Offer:
    given: dict[str, Any] = {"name": "x", "zone": "us-east-1a", "zone_id": A, "price_per_hour": 500_000, "at": NOON}
    return Offer(**given | more)


def test_of_two_prices_the_newer_counts_where_both_mean_the_same_zone() -> None:
    ours = {"x": an_offer(gpus=1_000_000)}
    newer = an_offer(price_per_hour=400_000, at=NOON + 1)
    assert united(ours, {"x": newer})["x"] == structs.replace(newer, gpus=1_000_000)
    for theirs in (
        structs.replace(newer, at=NOON - 1),
        structs.replace(newer, zone_id=B),
        structs.replace(newer, zone_id=""),
        structs.replace(newer, price_per_hour=None),
        structs.replace(newer, price_per_hour=1_000_001),  # what a region's own look doubts at first
        structs.replace(newer, price_per_hour=249_999),
    ):
        assert united(ours, {"x": theirs}) == ours
    assert united(ours, {"y": newer}) == ours | {"y": newer}
    assert united({}, {"y": newer}) == {"y": newer}


def test_what_says_nothing_new_is_told_anew_before_it_grows_old() -> None:
    before = {"x": an_offer(score=5, scored_at=NOON)}
    soon, late = (
        an_offer(score=5, scored_at=NOON + 1, at=NOON + 1),
        an_offer(score=5, scored_at=NOON, at=NOON + times.HOUR),
    )
    assert confirmed(before, {"x": soon})["x"] is before["x"]
    assert confirmed(before, {"x": late})["x"] is late
    assert confirmed(before, {"x": structs.replace(soon, price_per_hour=1)})["x"].price_per_hour == 1
    assert confirmed(before, {}) == {}


async def test_a_mistake_of_ours_is_told_without_its_words(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr(market, "read_types", broken)
    pool(stage)
    async with stage.running():
        await until(lambda: bool(stage.fleet.offer_feeds))
        assert stage.fleet.offer_feeds["one"].message.endswith("a bug in Headroom (ZeroDivisionError).")


def test_a_world_without_anybody_who_looks_costs_nothing(stage: Stage) -> None:
    stage.fleet._step_markets(a_world())
    assert stage.fleet._markets is None
    assert stage.fleet.offer_feeds == {}

"""What AWS says of a region, by its real wire protocol: pages, throttling, pages of a proxy, nothing at all, and rows that make no sense."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.clouds import market as reading
from headroom.adapters.clouds.aws_market import AwsMarket, pricing_region
from headroom.adapters.clouds.aws_sdk import Clients
from headroom.adapters.clouds.bucket import TokenBucket
from headroom.adapters.clouds.machine_types import groups, machine_type
from headroom.adapters.clouds.market import RegionMarket
from headroom.adapters.clouds.providers import BadCredentials, CloudThrottled, Keys, NotPermitted
from headroom.model import times
from headroom.model.cloud_facts import Offer
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.sim.clock import SimClock
from tests.aws_region import ZONES, product
from tests.aws_service import AwsService
from tests.builders import NOON, a_resource
from tests.cloud_faults import Call, MarketCall
from tests.cloud_sides import CANARY, KEY, KEY_ID

KEYS = Keys({"accessKeyId": KEY_ID, "secretAccessKey": KEY})
A, B = "use1-az6", "use1-az1"
DAY = 24 * times.HOUR


@pytest.fixture
async def aws(aws_service: AwsService) -> AsyncIterator[AwsMarket]:
    aws_service.forget()
    clients = Clients()
    yield asked(aws_service, clients)
    await clients.close()


def asked(service: AwsService, clients: Clients, keys: Keys = KEYS) -> AwsMarket:
    bucket = TokenBucket(SimClock(NOON, 1000.0), 10.0, 50)
    return AwsMarket("us-east-1", keys, clients, bucket, {"ec2": service.url, "pricing": service.url})


def a_spec(**spec: Any) -> Any:
    made = a_resource("LeftoverNodePool", "one", **{"region": "us-east-1", "nodeClassName": "gpu"} | spec)
    assert not made.problems, made.problems
    return made.spec


async def test_types_are_read_over_many_pages_with_all_that_ranking_needs(
    aws: AwsMarket, aws_service: AwsService
) -> None:
    aws_service.region.page = 10
    types = await aws.types(["g5"])
    assert aws_service.log.count("DescribeInstanceTypes") > 5
    assert len(types) >= 60
    g5, g5g = types["g5.12xlarge"], types["g5g.xlarge"]
    assert (g5.family, g5.arch, g5.vendor, g5.model, g5.gpus) == ("g5", "amd64", "nvidia", "A10G", 4_000_000)
    assert (g5.gpu_memory, g5.network_mbps) == (4 * 22888, 40_000)
    assert (g5g.family, g5g.arch) == ("g5g", "arm64")
    assert types["g6f.large"].gpus == 125_000, "a part of a GPU is no whole one, and not none"
    assert types["p5.48xlarge"].network_mbps == 3_200_000
    assert "m5.large" not in types
    assert "trn1.2xlarge" not in types


async def test_zones_and_offerings_are_told_by_zone_id(aws: AwsMarket, aws_service: AwsService) -> None:
    aws_service.region.page = 3
    assert await aws.zones() == ZONES
    offered = await aws.offered(["g5.xlarge", "p5.48xlarge"])
    assert ("g5.xlarge", A) in offered
    assert {zone for _, zone in offered} <= ZONES.keys()


async def test_the_price_in_force_counts_whatever_page_it_stands_on(aws: AwsMarket, aws_service: AwsService) -> None:
    region = aws_service.region
    region.page = 2
    region.history = [
        ("g5.xlarge", A, "0.300000", NOON - 9 * DAY),
        ("g5.xlarge", A, "0.400000", NOON - DAY),
        ("g5.xlarge", B, "0.500000", NOON - DAY),
        ("g5.2xlarge", A, "0.600000", NOON - DAY),
        ("p5.48xlarge", A, "31.464000", NOON - DAY),
        ("m5.large", A, "0.010000", NOON - DAY),
    ]
    found = await aws.spot(["g5.xlarge", "g5.2xlarge", "p5.48xlarge"], ZONES, NOON)
    prices = {("g5.xlarge", A): 400_000, ("g5.xlarge", B): 500_000, ("g5.2xlarge", A): 600_000}
    assert found == prices | {("p5.48xlarge", A): 31_464_000}
    assert aws_service.log.count("DescribeSpotPriceHistory") == 2
    region.with_zone_ids = False
    assert await aws.spot(["g5.xlarge"], ZONES, NOON) == {("g5.xlarge", A): 400_000, ("g5.xlarge", B): 500_000}


async def test_one_bad_row_costs_the_good_ones_nothing(aws: AwsMarket, aws_service: AwsService) -> None:
    bad = ("0", "-1", "NaN", "1e9", "inf", "", "cheap", "1" * 400)
    kinds = ["g5.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g5.12xlarge", "g5.16xlarge", "g5.24xlarge"]
    for kind, price in zip([*kinds, "g5.48xlarge"], bad, strict=True):
        aws_service.region.history += [(kind, A, price, NOON - DAY), (kind, B, "1.5", NOON - DAY)]
    aws_service.region.history.append(("g5.xlarge", "nowhere-az1", "0.1", NOON - DAY))
    found = await aws.spot([*kinds, "g5.48xlarge"], ZONES, NOON)
    assert found == {(kind, B): 1_500_000 for kind in [*kinds, "g5.48xlarge"]}


async def test_a_newest_price_that_is_none_is_not_replaced_by_an_older_one(
    aws: AwsMarket, aws_service: AwsService
) -> None:
    later = [("g5.xlarge", A, "0.4", NOON - times.HOUR), ("g5.xlarge", A, "0", NOON + times.MINUTE)]
    aws_service.region.history = [*later, ("g5.xlarge", B, "0.5", NOON - DAY)]
    assert await aws.spot(["g5.xlarge"], ZONES, NOON) == {("g5.xlarge", B): 500_000}


async def test_prices_from_the_future_and_twice_told_ones_do_not_mislead(
    aws: AwsMarket, aws_service: AwsService
) -> None:
    told = [("g5.xlarge", A, "0.4", NOON - DAY), ("g5.xlarge", A, "0.01", NOON + DAY)]
    twice = [("g5.xlarge", B, "0.7", NOON + 1), ("g5.xlarge", B, "0.6", NOON + 1)]
    for order in (1, -1):
        aws_service.region.history = [*told, *twice[::order]]
        found = await aws.spot(["g5.xlarge"], ZONES, NOON)
        assert found == {("g5.xlarge", A): 400_000, ("g5.xlarge", B): 700_000}, "of two of one moment the dearer"


async def test_on_demand_prices_are_of_plain_linux_machines(aws: AwsMarket, aws_service: AwsService) -> None:
    no_products: list[Any] = ["{", "[]", "null", {"product": {}}, {"product": {"attributes": {"instanceType": 7}}}]
    no_dollars: list[Any] = ["0", "", None, "-3", "NaN", [], {}]
    no_prices = [product("g5.2xlarge", each) for each in no_dollars]
    aws_service.region.products = [
        *no_products,
        *no_prices,
        product("g5.xlarge", "1.0060000000"),
        product("p5.48xlarge", "98.3200000000"),
        product("g5.4xlarge", "9.9", operatingSystem="Windows"),
        product("g5.4xlarge", "9.9", tenancy="Dedicated"),
        product("g5.4xlarge", "9.9", region="eu-west-1"),
    ]
    aws_service.region.page = 2
    assert await aws.on_demand() == {"g5.xlarge": 1_006_000, "p5.48xlarge": 98_320_000}
    aws_service.region.products = [product("g5.xlarge", {"CNY": "7"})]
    assert await aws.on_demand() == {}


def test_the_price_list_is_asked_where_it_is_served() -> None:
    assert (pricing_region("eu-west-1"), pricing_region("cn-north-1")) == ("us-east-1", "cn-northwest-1")
    with pytest.raises(Refused, match="price book"):
        pricing_region("us-gov-west-1")


async def test_scores_are_asked_once_for_each_group_of_types_that_can_stand_in(
    aws: AwsMarket, aws_service: AwsService
) -> None:
    aws_service.region.scores = lambda _kinds, count: {A: 9 if count <= 4 else 3, B: 11, "x": 0}
    market = RegionMarket(region="us-east-1")
    await reading.read_types(market, aws, ["g5"])
    specs = [a_spec(families=["g5"], targetCount=3), a_spec(families=["g5", "g4dn"], targetCount=4)]
    for _ in range(3):
        await reading.read_scores(market, aws, specs, NOON)
    asked = aws_service.region.asked
    assert len(asked) == 6
    assert asked[:2] * 3 == asked, "the questions stay the same"
    assert {kinds for _, kinds, _ in asked} == {
        frozenset(groups(market.types.values())[each]) for each in market.scores
    }
    assert all(count == 4 for _, _, count in asked)
    assert all(not any(kind.startswith("g5g.") for kind in kinds) for _, kinds, _ in asked)
    assert {place for _, known in market.scores.values() for place in known.items()} == {(A, 9)}


async def test_a_machine_that_cannot_be_read_is_none() -> None:
    whole: dict[str, Any] = {
        "InstanceType": "g5.xlarge",
        "ProcessorInfo": {"SupportedArchitectures": ["i386", "x86_64"]},
        "GpuInfo": {"Gpus": [{"Count": 1, "Manufacturer": "NVIDIA", "Name": "A10G"}]},
    }
    assert machine_type(whole) is not None
    wrongs: tuple[dict[str, Any], ...] = (
        {"InstanceType": None},
        {"InstanceType": "g5"},
        {"GpuInfo": None},
        {"GpuInfo": {"Gpus": "many"}},
        {"GpuInfo": {"Gpus": [{"Count": -1}]}},
        {"GpuInfo": {"Gpus": [{"Count": 10**9}]}},
        {"GpuInfo": {"Gpus": [{"GpuPartitionSize": "NaN", "LogicalGpuCount": 1}]}},
        {"ProcessorInfo": {}},
        {"ProcessorInfo": {"SupportedArchitectures": ["x86_64_mac"]}},
        {"NetworkInfo": {"NetworkCards": [{"BaselineBandwidthInGbps": "much"}]}},
    )
    for wrong in wrongs:
        assert machine_type(whole | wrong) is None, wrong


READS: dict[Call | MarketCall, str] = {
    "types": "types",
    "offers": "spot",
    "products": "on_demand",
    "scores": "scores",
}


async def read(aws: AwsMarket, call: Call | MarketCall) -> Any:
    """What the call of that name reads."""
    given: dict[Call | MarketCall, tuple[Any, ...]] = {
        "types": (),
        "offers": (["g5.xlarge"], ZONES, NOON),
        "products": (),
        "scores": (["g5.xlarge"], 2),
    }
    return await getattr(aws, READS[call])(*given[call])


@pytest.mark.parametrize("call", READS)
async def test_failures_are_told_apart(aws: AwsMarket, aws_service: AwsService, call: Call | MarketCall) -> None:
    service = aws_service
    service.region.history = [("g5.xlarge", A, "0.4", NOON - DAY)]
    service.region.scores, service.region.products = lambda _kinds, _count: {A: 5}, [product("g5.xlarge", "1")]
    for how, kind in (
        ("throttled", CloudThrottled),
        ("denied", NotPermitted),
        ("garbage", Unavailable),
        ("drop", Unavailable),
        ("cut", Unavailable),
    ):
        service.faults.next(call, how)  # type: ignore[arg-type]  # one of the words
        with pytest.raises(kind):
            await read(aws, call)
    assert await read(aws, call), "and then it answers"
    service.region.endless = True
    service.region.page = 1 if call == "offers" else 0
    with pytest.raises(Unavailable, match="without an end"):
        await read(aws, call)


async def test_what_moto_lacks_is_an_html_page_and_no_mistake_of_ours(aws: AwsMarket) -> None:
    with pytest.raises(Unavailable):
        await aws.scores(["g5.xlarge"], 2)
    with pytest.raises(HeadroomError):
        await aws.on_demand()


async def test_an_answer_without_anything_does_not_take_away_what_was_known(
    aws: AwsMarket, aws_service: AwsService
) -> None:
    region = aws_service.region
    region.history, region.products = [("g5.xlarge", A, "0.4", NOON - DAY)], [product("g5.xlarge", "1")]
    market = RegionMarket(region="us-east-1")
    await reading.read_types(market, aws, [])
    await reading.read_spot(market, aws, NOON)
    await reading.read_on_demand(market, aws, NOON)
    before = market.offers(NOON)
    region.history, region.products = [("m5.large", A, "0.4", NOON - DAY)], []
    with pytest.raises(Unavailable, match="without any spot price"):
        await reading.read_spot(market, aws, NOON + times.HOUR)
    with pytest.raises(Unavailable, match="without any on-demand price"):
        await reading.read_on_demand(market, aws, NOON + times.HOUR)
    assert market.offers(NOON) == before
    assert (market.spot_at, market.on_demand_at) == (NOON, NOON)


async def test_keys_that_are_not_accepted_are_never_repeated(aws_service: AwsService) -> None:
    aws_service.forget()
    aws_service.echo = True
    clients = Clients()
    wrong = asked(aws_service, clients, Keys({"accessKeyId": KEY_ID, "secretAccessKey": f"not-{KEY}"}))
    for call in READS:
        with pytest.raises(BadCredentials) as caught:
            await read(wrong, call)
        assert CANARY not in str(caught.value)
    await clients.close()


@pytest.mark.parametrize("allowed", [False, True])
async def test_the_machine_we_run_on_gives_no_credentials_unless_a_setting_says_so(
    allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    clients = Clients(instance_metadata=allowed)
    async with clients.client("ec2", "us-east-1", "http://127.0.0.1:9", KEYS):
        resolver = clients._session.get_component("credential_provider")
    assert ("iam-role" in {each.METHOD for each in resolver.providers}) == allowed
    await clients.close()


def offer_of(market: RegionMarket, place: str) -> Offer:
    return market.offers(NOON)[f"aws/us-east-1/{place}"]


async def test_offers_have_all_that_is_known_of_them(aws: AwsMarket, aws_service: AwsService) -> None:
    region = aws_service.region
    region.history = [("g5.xlarge", A, "0.4", NOON - DAY), ("g5.2xlarge", A, "0.0001", NOON - DAY)]
    region.products = [product("g5.xlarge", "1.006"), product("g5.2xlarge", "1.212")]
    region.scores = lambda _kinds, _count: {A: 7}
    market = RegionMarket(region="us-east-1")
    await reading.read_types(market, aws, [])
    await reading.read_spot(market, aws, NOON)
    await reading.read_on_demand(market, aws, NOON)
    await reading.read_scores(market, aws, [a_spec(families=["g5"])], NOON)
    spot, paid = offer_of(market, "us-east-1a/g5.xlarge/spot"), offer_of(market, "us-east-1b/g5.xlarge/on-demand")
    assert (spot.zone, spot.zone_id, spot.price_per_hour, spot.at) == ("us-east-1a", A, 400_000, NOON)
    assert (spot.score, spot.scored_at, spot.arch, spot.vendor, spot.gpus) == (7, NOON, "amd64", "nvidia", 1_000_000)
    assert (paid.zone_id, paid.price_per_hour, paid.score) == (B, 1_006_000, None)
    assert "aws/us-east-1/us-east-1a/g5.2xlarge/spot" not in market.offers(NOON), "no discount is that large"
    assert offer_of(market, "us-east-1a/p5.48xlarge/on-demand").price_per_hour is None
    old = market.offers(NOON + reading.SCORE_KEPT_MS + 1)["aws/us-east-1/us-east-1a/g5.xlarge/spot"]
    assert old.score is None, "a score that cannot be read again is not known any more"

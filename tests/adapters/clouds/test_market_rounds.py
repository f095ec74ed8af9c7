"""A thousand rounds over the real wire: what the original of this capability got wrong in six of six does not happen in one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator

import pytest

from headroom.adapters.clouds import market as reading
from headroom.adapters.clouds.aws_market import AwsMarket
from headroom.adapters.clouds.aws_sdk import Clients
from headroom.adapters.clouds.market import RegionMarket
from headroom.model import times
from headroom.model.actions import ApplyNodePool
from tests.adapters.clouds.test_aws_market import A, B, asked
from tests.aws_region import product
from tests.aws_service import AwsService
from tests.builders import NOON
from tests.core.offer_stage import Stage, a_leftover

ROUNDS = 1000
AMD, ARM = ("g5.xlarge", "g5.2xlarge", "g6.xlarge", "g6.2xlarge"), ("g5g.xlarge", "g5g.2xlarge")


def rounds(seed: int) -> Iterator[list[tuple[str, str, str, int]]]:
    """What the feed tells: equal prices in any order, those of arm64 machines far below."""
    rng = random.Random(seed)
    rows = [(kind, zone, "0.5", NOON - times.HOUR) for kind in AMD for zone in (A, B)]
    rows += [(kind, zone, "0.1", NOON - times.HOUR) for kind in ARM for zone in (A, B)]
    for _ in range(ROUNDS):
        rng.shuffle(rows)
        yield list(rows)


@pytest.fixture
async def aws(aws_service: AwsService) -> AsyncIterator[AwsMarket]:
    aws_service.forget()
    aws_service.region.products = [product(kind, "1.2") for kind in AMD]
    clients = Clients()
    yield asked(aws_service, clients)
    await clients.close()


async def staged(market: RegionMarket, aws: AwsMarket) -> Stage:
    """A cluster before a market of a few types, without a spot price yet."""
    await reading.read_types(market, aws, [])
    await reading.read_on_demand(market, aws, NOON)
    market.types = {kind: each for kind, each in market.types.items() if kind in AMD + ARM}
    return Stage(a_leftover())


async def test_equal_prices_never_flap_and_no_machine_is_of_another_architecture(
    aws: AwsMarket, aws_service: AwsService
) -> None:
    market = RegionMarket(region="us-east-1")
    stage = await staged(market, aws)
    first: list[str] = []
    written = 0
    for number, rows in enumerate(rounds(seed=1)):
        stage.now = NOON + number * 7 * times.MINUTE
        aws_service.region.history = rows
        await reading.read_spot(market, aws, stage.now)
        market.on_demand_at = stage.now
        stage.offers = market.offers(stage.now)
        stage.settle() if not number else stage.decide()
        chosen = [*stage.by_weight(), *stage.status().selected_instance_types]
        if not number:
            first, written = chosen, len([each for each in stage.performed if isinstance(each, ApplyNodePool)])
        assert chosen == first, f"round {number}"
        assert not any("g5g" in kind for name in stage.pools for kind in stage.what(name)[0]), f"round {number}"
    assert len([each for each in stage.performed if isinstance(each, ApplyNodePool)]) == written, (
        "nothing was rewritten"
    )
    assert stage.status().switches == 0


async def test_a_lie_in_one_answer_changes_nothing(aws: AwsMarket, aws_service: AwsService) -> None:
    market = RegionMarket(region="us-east-1")
    stage = await staged(market, aws)
    good: dict[tuple[str, str], str | None] = {(kind, zone): "0.5" for kind in AMD for zone in (A, B)}
    good["g5.xlarge", A] = "0.4"
    lies = ("0.9", "1.5", "1e9", "0", "-1", "NaN", "0.001", None)
    told = [good, *(good | {place: lie} for lie in lies for place in (("g5.xlarge", A), ("g6.xlarge", B)))]
    first: list[str] = []
    for number, answer in enumerate(one for lie in told for one in (lie, good, good, good, good, good)):
        stage.now = NOON + number * 5 * times.MINUTE
        since = stage.now - times.MINUTE
        aws_service.region.history = [(kind, zone, price, since) for (kind, zone), price in answer.items() if price]
        await reading.read_spot(market, aws, stage.now)
        market.on_demand_at = stage.now
        stage.offers = market.offers(stage.now)
        stage.settle() if not number else stage.decide()
        chosen = stage.status().chosen
        assert chosen is not None
        first = first or [chosen.offer]
        assert [chosen.offer] == first == [f"g5.xlarge/{A}/spot"], f"answer {number}"
    assert stage.status().switches == 0


async def test_a_lie_about_on_demand_prices_changes_nothing(aws: AwsMarket, aws_service: AwsService) -> None:
    """Spot is left at once where it costs more than on demand, and believed only near it: one answer must not decide that."""
    market = RegionMarket(region="us-east-1")
    stage = await staged(market, aws)
    stage.settle()
    for number, answer in enumerate(one for lie in ("0.001", "0.4", "9999") for one in ("1.2", lie, "1.2", "1.2")):
        stage.now = NOON + number * 10 * times.MINUTE
        aws_service.region.history = [(kind, A, "0.5", stage.now - times.MINUTE) for kind in AMD]
        aws_service.region.products = [product(kind, answer) for kind in AMD]
        await reading.read_on_demand(market, aws, stage.now)
        await reading.read_spot(market, aws, stage.now)
        stage.offers = market.offers(stage.now)
        stage.settle() if not number else stage.decide()
        assert stage.rungs()[0].capacity_type == "spot", f"answer {number}"
    assert stage.status().switches == 0


async def test_what_is_told_twice_is_so(aws: AwsMarket, aws_service: AwsService) -> None:
    market = RegionMarket(region="us-east-1")
    await staged(market, aws)
    found = []
    for number, (spot, listed) in enumerate([("0.5", "1.2"), ("1.5", "0.3"), ("1.5", "0.3"), ("0.2", "0.3")]):
        now = NOON + number * 5 * times.MINUTE
        aws_service.region.history = [("g5.xlarge", A, spot, now)]
        aws_service.region.products = [product("g5.xlarge", listed)]
        await reading.read_on_demand(market, aws, now)
        await reading.read_spot(market, aws, now)
        found.append((market.spot["g5.xlarge", A][0], market.on_demand["g5.xlarge"]))
    assert found == [(500_000, 1_200_000), (500_000, 1_200_000), (1_500_000, 300_000), (200_000, 300_000)]


async def test_a_price_that_stays_away_is_none_after_a_while(aws: AwsMarket, aws_service: AwsService) -> None:
    market = RegionMarket(region="us-east-1")
    await staged(market, aws)
    rows = [(kind, A, "0.5", NOON - times.HOUR) for kind in AMD]
    found = []
    for minutes in (0, 5, 10, 15):
        aws_service.region.history = rows if not minutes else rows[1:]
        await reading.read_spot(market, aws, NOON + minutes * times.MINUTE)
        offers = market.offers(NOON + minutes * times.MINUTE)
        found.append(at.at if (at := offers.get("aws/us-east-1/us-east-1a/g5.xlarge/spot")) else None)
    assert found == [NOON, NOON, NOON, None], "for a while it is the last one, of its own moment"

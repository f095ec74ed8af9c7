"""A dry run reads what regions offer, as the operator would, and waits for it."""

from __future__ import annotations

import pytest

from headroom.adapters.clouds import Places
from headroom.cli.region_offers import RegionOffers
from headroom.core.offers import market_of
from headroom.model import times
from headroom.runtime.clock import RealClock
from headroom.sim.clock import SimClock
from tests.aws_region import product
from tests.aws_service import AwsService
from tests.builders import NOON, a_world
from tests.cloud_sides import KEY, KEY_ID
from tests.cloud_stage import Vault
from tests.core.offer_stage import a_leftover


async def test_a_dry_run_knows_what_regions_offer(aws_service: AwsService, monkeypatch: pytest.MonkeyPatch) -> None:
    aws_service.forget()
    for name, value in (("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", KEY)):
        monkeypatch.setenv(name, value)
    aws_service.region.history = [("g5.xlarge", "use1-az6", "0.4", NOON - times.HOUR)]
    aws_service.region.products = [product("g5.xlarge", "1.006")]
    aws_service.region.scores = lambda _kinds, _count: {"use1-az6": 9}
    places = Places(endpoints=dict.fromkeys(("aws-ec2", "aws-pricing"), aws_service.url))
    offers = RegionOffers(Vault(), places, SimClock(NOON, 5.0))
    pool = a_leftover(families=["g5"])
    seen = await offers.added(a_world(pool, now=NOON))
    assert (seen.offer_feeds["cheap"].problem, seen.offer_feeds["cheap"].at >= NOON) == ("", True)
    assert [each.offer.score for each in market_of(seen, pool.spec, ()).quotes.values()] == [9]
    asked = len(aws_service.log)
    assert (await offers.added(a_world(pool, now=NOON))).offers == seen.offers
    assert len(aws_service.log) == asked, "looking again asks nobody"
    await offers.close()


async def test_nothing_is_asked_where_nobody_looks_for_offers(aws_service: AwsService) -> None:
    aws_service.forget()
    offers = RegionOffers(Vault(), Places(), RealClock())
    world = a_world()
    assert await offers.added(world) is world
    await offers.close()
    assert not aws_service.log

"""Accounts are listed at a gentle pace, more often while something is under way, less often when they are throttled."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self, cast

from msgspec import structs

from headroom.adapters.clouds.inventory import Inventory
from headroom.adapters.clouds.polling import EVERY_SECONDS, LONGEST_SECONDS, OF_NAMESPACE, SOON_SECONDS, CloudPolling
from headroom.adapters.clouds.providers import (
    BadCredentials,
    CloudThrottled,
    QuoteRequest,
    ReclaimNotice,
    own_tags,
    unknown_ids,
)
from headroom.adapters.clouds.sessions import CloudAccount, Sessions
from headroom.api.kinds import AnyResource
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG, TOKEN_TAG
from headroom.model import times
from headroom.model.cloud_facts import Instance, Offer
from headroom.model.errors import HeadroomError
from headroom.sim.clock import SimClock
from tests.adapters.simulated import virtual
from tests.builders import NOON
from tests.cloud_stage import View, a_spotpool, an_intent

ACCOUNT = CloudAccount("tencent", "r", "https://cloud", "team-a", "keys")


class Played:
    """Sessions and provider in one: a cloud in memory, and when it was listed."""

    def __init__(self, clock: SimClock) -> None:
        self.clock, self.times, self.asked = clock, list[float](), list[Sequence[str]]()
        self.found: list[Instance] = []
        self.problem: HeadroomError | None = None
        self.takes = 0.0

    def account(self, _pool: AnyResource) -> CloudAccount:
        return ACCOUNT

    def remembering(self) -> None:
        return None

    async def provider(self, _pool: AnyResource, _secrets: None) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held."""

    async def identity(self) -> str:
        return ""

    async def machines(self, _cluster: str) -> list[Instance]:
        self.times.append(self.clock.monotonic())
        await asyncio.sleep(self.takes)
        if self.problem is not None:
            raise self.problem
        return list(self.found)

    async def describe(self, ids: Sequence[str]) -> dict[str, Instance]:
        self.asked.append(ids)
        return unknown_ids(ids, {}, "tencent", "r")

    async def offers(self, question: QuoteRequest) -> list[Offer]:
        return []

    async def notices(self) -> list[ReclaimNotice] | None:
        return None


class Scene:
    """A polling, on a clock that does not wait."""

    def __init__(self) -> None:
        self.clock, self.view = SimClock(NOON), View("c")
        self.cloud = Played(self.clock)
        self.polling = CloudPolling(cast(Sessions, self.cloud), self.clock, random.Random(1), self.view.tell)
        self.pool = self.view.put(a_spotpool(availabilityZone="z"))

    async def pass_time(self, seconds: int) -> list[float]:
        """How long it took from one list to the next."""
        began = len(self.cloud.times)
        for _ in range(seconds):
            self.polling.step(self.view.world(self.clock.now()))
            await self.clock.sleep(1)
        return [later - earlier for earlier, later in pairwise(self.cloud.times[began:])]

    def status(self, **slot: Any) -> None:
        status = structs.replace(self.pool.status, slots=(an_intent(self.clock, **slot),))
        self.view.put(structs.replace(self.pool, status=status))


def a_machine(name: str, slot: int = 0, **more: Any) -> Instance:
    tags = own_tags({CLUSTER_TAG: "c", OWNER_TAG: "uid-team-a-one", SLOT_TAG: str(slot)}.items())
    return Instance(name=name, provider="tencent", region="r", zone="z", tags=tags, **{"state": "RUNNING"} | more)


@virtual
async def test_the_pace_is_gentle_and_quick_while_something_is_under_way() -> None:
    scene = Scene()
    waits = await scene.pass_time(600)
    assert all(EVERY_SECONDS * 0.9 <= each <= EVERY_SECONDS * 1.1 + 1 for each in waits)
    for state in ("Launching", "Cancelling", "Ending", "Draining"):
        scene.status(state=state)
        waits = await scene.pass_time(120)
        assert all(SOON_SECONDS * 0.9 <= each <= SOON_SECONDS * 1.1 + 1 for each in waits), state
    scene.status(state="Running", instance_id="ins-1")
    scene.cloud.found = [a_machine("ins-1", state="PENDING")]
    await scene.pass_time(60)
    assert max(await scene.pass_time(120)) <= SOON_SECONDS * 1.1 + 1, "one that is pending is under way too"
    scene.cloud.found = [a_machine("ins-1")]
    await scene.pass_time(60)
    assert min(await scene.pass_time(300)) >= EVERY_SECONDS * 0.9


@virtual
async def test_one_that_is_throttled_is_asked_less_and_less_and_then_as_before() -> None:
    scene = Scene()
    scene.status(state="Launching")
    scene.cloud.problem = CloudThrottled("too often")
    waits = await scene.pass_time(1500)
    assert waits == sorted(waits)
    assert 15 < waits[0] < 25
    assert LONGEST_SECONDS - 1 <= waits[-1] <= LONGEST_SECONDS + 1
    listing = scene.polling.listings["team-a/one"]
    assert (listing.at, listing.problem, listing.message) == (0, "Throttled", "too often")
    scene.cloud.problem = None
    await scene.pass_time(int(LONGEST_SECONDS) + 5)
    assert max(await scene.pass_time(100)) <= SOON_SECONDS * 1.1 + 1


@virtual
async def test_keys_that_are_wrong_are_tried_again_at_the_usual_pace() -> None:
    scene = Scene()
    scene.cloud.problem = BadCredentials("no")
    assert max(await scene.pass_time(600)) <= EVERY_SECONDS * 1.1 + 1
    assert scene.polling.listings["team-a/one"].problem == "Credentials"


@virtual
async def test_a_namespace_with_very_many_addresses_has_few_looks_at_once() -> None:
    scene = Scene()
    scene.cloud.takes = 100

    def places(_pool: AnyResource) -> CloudAccount:
        return structs.replace(ACCOUNT, url=f"https://hook/{_pool.name}", namespace=_pool.namespace)

    scene.cloud.account = places  # type: ignore[method-assign]  # the cloud of this test
    for number in range(200):
        scene.view.put(a_spotpool(f"p{number}", availabilityZone="z"))
    scene.view.put(a_spotpool("other", "team-b", availabilityZone="z"))
    await scene.pass_time(20)
    assert len(scene.cloud.times) == OF_NAMESPACE + 1, "whoever else has a pool is not kept waiting"
    await scene.pass_time(400)
    assert len(scene.polling.listings) == 202, "each of them is looked at in its turn"


@virtual
async def test_a_look_that_takes_long_is_not_begun_twice_and_comes_to_an_end() -> None:
    scene = Scene()
    scene.cloud.takes = 1000
    await scene.pass_time(100)
    assert len(scene.cloud.times) == 1
    await scene.pass_time(100)
    assert scene.polling.listings["team-a/one"].message == "not finished within 150s"


@virtual
async def test_a_listing_is_of_the_moment_when_its_first_page_was_asked_for() -> None:
    scene = Scene()
    scene.cloud.takes = 20
    await scene.pass_time(40)
    assert scene.polling.listings["team-a/one"].at == NOON + round(scene.cloud.times[0] * 1000)


@virtual
async def test_a_machine_that_was_launched_while_a_list_was_read_is_not_lost() -> None:
    scene = Scene()
    scene.status(state="Running", instance_id="ins-1")
    await scene.pass_time(10)
    scene.cloud.takes = 20
    while len(scene.cloud.times) < 2:
        await scene.pass_time(1)
    scene.polling.launched(scene.pool, a_machine("ins-9", state="PENDING"))
    assert scene.polling.inventory.state("ins-9") == "PENDING"
    assert scene.cloud.asked[-1] == ["ins-1"]
    await scene.pass_time(22)
    assert scene.cloud.asked[-1] == ["ins-1", "ins-9"], "that list does not have it, so it is asked for"
    assert scene.polling.inventory.state("ins-9") == "NOT_FOUND"
    await scene.pass_time(36 * 60)
    assert scene.polling.inventory.state("ins-9") == "", "no status names it, and it was long ago"
    assert scene.polling.inventory.state("ins-1") == "NOT_FOUND"


@virtual
async def test_pools_that_go_are_forgotten() -> None:
    scene = Scene()
    scene.cloud.found = [a_machine("ins-1")]
    await scene.pass_time(10)
    assert scene.polling.inventory.known
    scene.view.pools.clear()
    await scene.pass_time(2)
    assert not scene.polling.inventory.known
    assert not scene.polling.listings


def test_twenty_thousand_machines_in_a_thousand_pools_take_less_than_40_mb() -> None:
    def fresh(text: str) -> str:
        return text.encode().decode()  # as each answer of a cloud has texts of its own

    def machines() -> list[Instance]:
        return [
            Instance(
                name=f"ins-{number:08x}",
                provider=fresh("tencent"),
                region=fresh("ap-singapore"),
                zone=fresh("ap-singapore-1"),
                instance_type=fresh("GN7.2XLARGE32"),
                state=fresh("RUNNING"),
                private_ip=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
                public_ip=f"43.{number >> 16}.{number >> 8 & 255}.{number & 255}",
                tags=own_tags(
                    [
                        (CLUSTER_TAG, fresh("c")),
                        (OWNER_TAG, f"uid-{number % 1000}"),
                        (SLOT_TAG, f"{number // 1000}"),
                        (TOKEN_TAG, f"{number:032x}"),
                    ]
                ),
                launched_at=NOON + number,
            )
            for number in range(20_000)
        ]

    inventory = Inventory()
    inventory.pools = {f"uid-{number}": f"team-a/p{number}" for number in range(1000)}
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(2):  # a list comes while the one before is still known
            inventory.keep(ACCOUNT, {*inventory.pools}, machines(), {}, NOON)
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(inventory.known) == 20_000
    assert held < 25_000_000, f"{held / 1e6:.1f} MB held"
    assert peak < 40_000_000, f"{peak / 1e6:.1f} MB at most, while a list is taken in"


@virtual
async def test_a_price_that_stays_for_hours_is_never_an_old_one() -> None:
    """The plan believes no price that is older than an hour, and would launch nothing under maxPricePerHour."""
    scene = Scene()

    async def offers(question: QuoteRequest) -> list[Offer]:
        return [Offer(name="o", provider="tencent", region="r", price_per_hour=1_000_000, at=question.now)]

    scene.cloud.offers = offers  # type: ignore[method-assign]  # a cloud whose price stays
    await scene.pass_time(60)
    mappings = set()
    for _ in range(30):
        await scene.pass_time(240)
        (offer,) = scene.polling.offers.values()
        assert scene.clock.now() - (offer.at or 0) <= 40 * times.MINUTE
        mappings.add(id(scene.polling.offers))
    assert len(mappings) <= 6, "and it is no news every five minutes"


def test_a_notice_of_another_day_is_none() -> None:
    """A moment of the year 9999 and two minutes is none that anybody could write down."""
    inventory = Inventory()
    inventory.keep(ACCOUNT, {"uid-team-a-one"}, [a_machine("ins-1")], {}, NOON)
    for at in (NOON - 61 * times.MINUTE, NOON + 25 * times.HOUR, 253402300799000 + 120_000):
        assert inventory.reclaimed(ACCOUNT, "ins-1", at, NOON) is None
        assert inventory.known["ins-1"].reclaim_at is None
    assert inventory.reclaimed(ACCOUNT, "ins-1", NOON + 2 * times.MINUTE, NOON) is not None

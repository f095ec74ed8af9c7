"""Every provider keeps one promise, with its real SDK: what is listed is complete, a token launches one machine, nobody else's is touched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headroom.adapters.clouds.providers import (
    NOT_FOUND,
    BadCredentials,
    CloudThrottled,
    NotLaunched,
    NotPermitted,
    Provider,
    QuoteRequest,
)
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG, TOKEN_TAG
from headroom.model.errors import HeadroomError, Unavailable
from tests.cloud_faults import Call, How
from tests.cloud_sides import CANARY, SIDES, CloudSide, OnAws, OnTencent, OnWebhook

CALLS: tuple[Call, ...] = ("launch", "list", "terminate")


@pytest.fixture(params=SIDES)
async def side(request: pytest.FixtureRequest) -> AsyncIterator[CloudSide]:
    if request.param == "aws":
        made: CloudSide = OnAws(request.getfixturevalue("aws_service"))
    else:
        made = OnTencent() if request.param == "tencent" else OnWebhook()
    async with made:
        yield made
        assert made.untouched, "machines of others are as they were"


async def test_the_life_of_a_machine(side: CloudSide) -> None:
    wanted = side.request(slot=7)
    async with side.provider() as provider:
        assert await provider.machines(side.cluster) == []
        launched = await provider.launch(wanted)
        assert (launched.state, launched.zone, launched.instance_type) == ("PENDING", side.zone, side.kind)
        mine = {CLUSTER_TAG: side.cluster, OWNER_TAG: side.owner, SLOT_TAG: "7", TOKEN_TAG: wanted.token}
        assert launched.tags == mine
        assert side.user_data(launched.name) == wanted.user_data["userData"]
        side.settle()
        (listed,) = await provider.machines(side.cluster)
        assert (listed.name, listed.provider, listed.region) == (launched.name, side.name, side.region)
        assert (listed.state, listed.tags, listed.zone) == ("RUNNING", launched.tags, side.zone)
        assert listed.launched_at is not None
        assert listed.private_ip
        await provider.terminate([launched.name])
        assert side.states()[launched.name] in ("TERMINATING", "SHUTDOWN")
        found = (await provider.describe([launched.name]))[launched.name]
        assert found.state in ("TERMINATING", "SHUTDOWN")
        await provider.terminate([launched.name])  # a second time does no harm


async def test_it_tells_whose_keys_they_are_where_the_cloud_has_accounts(side: CloudSide) -> None:
    async with side.provider() as provider:
        assert await provider.identity() == side.account
    async with side.provider(wrong_key=True) as provider:
        if side.account:
            with pytest.raises(BadCredentials):
                await provider.identity()


async def test_all_machines_are_listed_over_three_pages(side: CloudSide) -> None:
    ours = side.ours(45)
    async with side.provider(page=20) as provider:
        found = await provider.machines(side.cluster)
        assert sorted(each.name for each in found) == sorted(ours)
        assert {each.tags[SLOT_TAG] for each in found} == {str(slot) for slot in range(45)}
        assert await provider.machines("none-of-ours") == []


@pytest.mark.parametrize("how", ["drop", "garbage", "throttled"])
async def test_a_list_of_which_a_page_fails_is_no_list(side: CloudSide, how: How) -> None:
    side.ours(45)
    async with side.provider(page=20) as provider:
        side.faults.next("list", how, skip=2)
        with pytest.raises(CloudThrottled if how == "throttled" else Unavailable):
            await provider.machines(side.cluster)
        assert len(await provider.machines(side.cluster)) == 45


async def test_a_lost_answer_of_a_launch_is_unknown_and_the_same_token_finds_the_machine(side: CloudSide) -> None:
    before, wanted = side.states(), side.request()
    side.faults.next("launch", "cut")
    async with side.provider() as provider:
        with pytest.raises(NotLaunched) as caught:
            await provider.launch(wanted)
        assert caught.value.outcome == "Unknown"
        (lost,) = side.states().keys() - before.keys()
        assert (await provider.launch(wanted)).name == lost
    async with side.provider() as another:
        assert (await another.launch(wanted)).name == lost
    assert side.states().keys() - before.keys() == {lost}


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("sold out", "SoldOut"),
        ("too dear", "PriceTooLow"),
        ("quota", "QuotaReached"),
        ("refused", "Refused"),
        ("denied", "Refused"),
        ("throttled", "Unknown"),
        ("garbage", "Unknown"),
        ("drop", "Unknown"),
    ],
)
async def test_a_launch_that_fails_says_what_that_proves(side: CloudSide, how: How, outcome: str) -> None:
    before = side.states()
    side.faults.next("launch", how)
    async with side.provider() as provider:
        with pytest.raises(NotLaunched) as caught:
            await provider.launch(side.request())
        assert caught.value.outcome == outcome
        # A right that is missing is told before anybody looks at the token: it says nothing of what an earlier call has done.
        assert caught.value.before_token or how != "denied"
        assert side.states() == before
        assert (await provider.launch(side.request())).name not in before


async def test_a_machine_that_is_launched_is_neither_listed_nor_known_for_a_while(side: CloudSide) -> None:
    side.lag(15 * 60)
    async with side.provider() as provider:
        launched = await provider.launch(side.request())
        assert await provider.machines(side.cluster) == []
        assert (await provider.describe([launched.name]))[launched.name].state == NOT_FOUND
        side.pass_time(15 * 60 + 5)
        assert [each.name for each in await provider.machines(side.cluster)] == [launched.name]


async def test_machines_are_known_by_id_beside_those_that_are_not(side: CloudSide) -> None:
    ours = side.ours(3)
    gone = [f"{each[:-3]}{number}ff" for number, each in enumerate(ours)]
    async with side.provider() as provider:
        found = await provider.describe([gone[0], ours[0], gone[1], ours[1], gone[2], side.foreign[0]])
        assert {name: each.state for name, each in found.items()} == {
            **dict.fromkeys(gone, NOT_FOUND),
            **dict.fromkeys([*ours[:2], side.foreign[0]], "RUNNING"),
        }
        assert found[side.foreign[0]].tags.get(CLUSTER_TAG) is None
        for how in ("garbage", "drop"):
            side.faults.next("describe", "garbage" if how == "garbage" else "drop")
            with pytest.raises(Unavailable):
                await provider.describe([gone[0]])


async def test_keys_that_are_wrong_or_lack_a_right(side: CloudSide) -> None:
    for provider in (side.provider(wrong_key=True), side.provider(unknown_key=True)):
        async with provider:
            with pytest.raises(BadCredentials):
                await provider.machines(side.cluster)
            with pytest.raises(NotLaunched) as caught:
                await provider.launch(side.request())
            assert (caught.value.outcome, caught.value.before_token) == ("Refused", True)
    side.faults.next("list", "denied")
    side.faults.next("terminate", "denied")
    async with side.provider() as provider:
        with pytest.raises(NotPermitted):
            await provider.machines(side.cluster)
        with pytest.raises(NotPermitted):
            await provider.terminate(side.ours(1))


async def test_prices_and_stock(side: CloudSide) -> None:
    side.offer("zone-a", 0.42)
    side.offer("zone-b", 0.4, there=False)
    side.offer("zone-c", 0.0)
    side.offer("zone-d", 1e9)
    async with side.provider() as provider:
        zones = ("zone-a", "zone-b", "zone-c", "zone-d")
        found = {
            each.zone: each for each in await provider.offers(QuoteRequest(types=(side.kind,), zones=zones, now=5))
        }
        assert {zone: each.price_per_hour for zone, each in found.items()} == dict(
            zip(zones, (420_000, 400_000, None, None), strict=True)
        )
        assert {(each.capacity_type, each.instance_type, each.at) for each in found.values()} == {
            ("spot", side.kind, 5)
        }
        assert (found["zone-a"].available, found["zone-b"].available) in ((True, False), (None, None))
        side.faults.next("offers", "throttled")
        with pytest.raises(CloudThrottled):
            await provider.offers(QuoteRequest(types=(side.kind,), now=5))


async def test_no_error_repeats_what_was_sent(side: CloudSide) -> None:
    side.echo()
    hows: tuple[How, ...] = ("denied", "throttled", "refused", "sold out", "garbage", "cut", "drop")
    problems: list[HeadroomError] = []

    async def tried(provider: Provider, call: str) -> None:
        async with provider:
            try:
                if call == "launch":
                    await provider.launch(side.request())
                elif call == "list":
                    await provider.machines(side.cluster)
                else:
                    await provider.terminate(side.ours(1))
            except HeadroomError as problem:
                problems.append(problem)
            assert CANARY not in repr(provider) + repr(side.request()) + repr(vars(provider))

    for how in hows:
        for call in CALLS:
            side.faults.next(call, how)
            await tried(side.provider(), call)
    for call in CALLS:
        await tried(side.provider(wrong_key=True), call)
        await tried(side.provider(unknown_key=True), call)
    assert len(problems) >= 20
    for each in problems:
        chain = [each, each.__cause__, None if each.__suppress_context__ else each.__context__]
        assert not [one for one in chain if CANARY in f"{one!r} {one}"]


async def test_a_clock_that_is_off(side: CloudSide) -> None:
    if side.name == "webhook":  # nothing of it is signed with a time
        return
    side.service.skew_seconds = 3600
    async with side.provider() as provider:
        with pytest.raises(BadCredentials, match="clock"):
            await provider.machines(side.cluster)


async def test_many_launches_at_once_have_a_machine_each(side: CloudSide) -> None:
    async def one(slot: int) -> str:
        async with side.provider() as provider:
            return (await provider.launch(side.request(slot=slot))).name

    names = await asyncio.gather(*(one(slot) for slot in range(8)))
    assert len(set(names)) == 8
    async with side.provider() as provider:
        assert {each.name for each in await provider.machines(side.cluster)} == {*names}

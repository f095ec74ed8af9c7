"""A fleet lists each account once, trusts each cloud with its own pools only, and uses no key that was not lent to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.clouds import aws_sdk, fleet, tencent_sdk
from headroom.api.kinds import AnyResource
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG, TOKEN_TAG
from headroom.model.changes import Topic
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.sim.clock import SimClock
from tests.aws_service import AwsService
from tests.builders import NOON
from tests.cloud_sides import CANARY, KEY, KEY_ID, CloudSide, OnAws, OnTencent, OnWebhook
from tests.cloud_stage import USER_DATA, Stage, a_launch, an_intent, until

SPEED = 20.0


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


async def on(stack: AsyncExitStack, *sides: CloudSide, speed: float = SPEED, **more: Any) -> Stage:
    """A stage on these clouds."""
    for side in sides:
        await stack.enter_async_context(side)
    made = Stage("c", SimClock(NOON, speed), *sides, **more)
    stack.callback(made.close)
    return made


def is_listed(stage: Stage, *pools: AnyResource) -> bool:
    found = [stage.fleet.listings.get(f"{pool.namespace}/{pool.name}") for pool in pools]
    return all(each is not None and each.at > 0 and not each.problem for each in found)


async def listed_twice(stage: Stage) -> None:
    """Until everybody was listed twice more."""
    for _ in range(2):
        await until(partial(_all_after, stage, stage.clock.now()))


def _all_after(stage: Stage, at: int) -> bool:
    return all(each.at > at for each in stage.fleet.listings.values())


async def test_pools_with_the_same_keys_are_listed_together(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side, speed=1.0)
    pools = [stage.pool(side, f"p{number}") for number in range(5)]
    elsewhere = stage.pool(side, "p0", namespace="team-b")
    mine = [side.add(**{CLUSTER_TAG: "c", OWNER_TAG: pool.uid, SLOT_TAG: "0"}) for pool in (*pools, elsewhere)]
    async with stage.running() as clouds:
        await until(lambda: is_listed(stage, *pools, elsewhere))
        assert clouds.instances.keys() == {*mine}
        assert side.service.log.count("DescribeInstances") == 2, "once for each namespace's keys"
        assert stage.vault.asked.count("team-a/tencent-keys") <= 2, "once for the list, and once for prices"
        told = {name for topic, name in stage.view.news if topic is Topic.INSTANCES}
        assert {f"team-a/{pool.name}" for pool in pools} <= told


async def test_a_cloud_that_hangs_costs_the_others_nothing(stack: AsyncExitStack) -> None:
    slow, good = OnTencent(), OnWebhook()
    stage = await on(stack, slow, good)
    for number in range(6):
        stage.pool(slow, f"stuck-{number}", region=f"ap-{number}")
    fine = stage.pool(good, "fine")
    slow.faults.always("list", "hang")
    async with stage.running() as clouds:
        await until(lambda: is_listed(stage, fine))
        first = clouds.listings["team-a/fine"].at
        stage.slots(fine, an_intent(stage.clock))
        await until(lambda: clouds.listings["team-a/fine"].at > first)
        assert clouds.listings.keys() == {"team-a/fine"}, "not one of the calls that hang has ended"
        await clouds.launch(fine, a_launch(fine))
        assert clouds.launches["t"].outcome == "Accepted"


async def test_a_secret_must_name_the_pool_and_the_cloud(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    lent, taken = stage.pool(side, "lent"), stage.pool(side, "taken")
    url = side.url
    stage.vault.secrets["team-a/tencent-keys"] = side.secret, f"Spotpool/team-a/lent@{url}"
    async with stage.running() as clouds:
        await until(lambda: is_listed(stage, lent))
        await until(lambda: "team-a/taken" in clouds.listings)
        told = clouds.listings["team-a/taken"]
        assert (told.at, told.problem) == (0, "Credentials")
        assert f"does not allow Spotpool/team-a/taken@{url};" in told.message
        assert f"headroom.dev/usable-by=Spotpool/team-a/taken@{url}" in told.message
        stage.slots(taken, an_intent(stage.clock))
        with pytest.raises(HeadroomError):
            await clouds.launch(taken, a_launch(taken))
        with pytest.raises(Refused, match="does not allow"):
            await clouds.terminate(taken, side.foreign[0])
        assert "RunInstances" not in side.service.log


async def test_user_data_must_name_the_pool_too(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    pool = stage.slots(stage.pool(side), an_intent(stage.clock))
    stage.vault.secrets["team-a/user-data"] = {"userData": USER_DATA}, "Spotpool/team-a/two@" + side.url
    with pytest.raises(Refused, match=r"spec\.userDataSecretRef: Secret user-data does not allow"):
        await stage.fleet.launch(pool, a_launch(pool))
    assert stage.fleet.launches["t"].outcome == "Refused"
    assert side.service.log == []


async def test_the_own_credentials_are_for_listed_namespaces_only(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side, ambient=frozenset({"lab"}))
    without = {"credentialsSecretRef": None, "userDataSecretRef": None}
    theirs = stage.pool(side, "theirs", namespace="team-a", **without)
    trusted = stage.pool(side, "trusted", namespace="lab", **without)
    asked = await stage.fleet._sessions.provider(trusted)
    assert asked._keys.ambient  # type: ignore[attr-defined]  # no protocol has keys
    with pytest.raises(Refused, match="only namespaces that an administrator lists in --ambient-credentials"):
        await stage.fleet._sessions.provider(theirs)


async def test_a_region_is_checked_again_before_it_becomes_a_host_name(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    pool = stage.pool(side)
    for region in ("evil.example/", "a.b", "-a", "A", "a@b", "", "a" * 64, "ünder"):
        bad = structs.replace(pool, spec=structs.replace(pool.spec, region=region, provider="aws"))
        stage.view.put(bad)
        with pytest.raises(Refused, match=r"spec\.region is not a region"):
            await stage.fleet.terminate(bad, "ins-1")
    async with stage.running() as clouds:
        await until(lambda: "team-a/one" in clouds.listings)
        assert clouds.listings["team-a/one"].problem == "Refused"


async def test_whoever_runs_a_service_cannot_speak_of_other_pools_machines(stack: AsyncExitStack) -> None:
    honest, liar = OnTencent(), OnWebhook()
    stage = await on(stack, honest, liar)
    pool, mask = stage.pool(honest, "honest"), stage.pool(liar, "liar", namespace="team-b")
    stage.slots(pool, an_intent(stage.clock))  # listed often
    stage.slots(mask, an_intent(stage.clock))
    mine = honest.add(**{CLUSTER_TAG: "c", OWNER_TAG: pool.uid, SLOT_TAG: "0"})
    own = liar.add(**{CLUSTER_TAG: "c", OWNER_TAG: mask.uid, SLOT_TAG: "0"})
    claimed = liar.service.machines[liar.add(**{CLUSTER_TAG: "c", OWNER_TAG: pool.uid, SLOT_TAG: "0"})]
    claimed.state = "SHUTDOWN"
    async with stage.running() as clouds:
        await until(lambda: is_listed(stage, pool, mask))
        assert clouds.instances.keys() == {mine, own}
        # The same id: as the other pool's machine, as one of its own, as one of nobody's.
        for owner in (pool.uid, mask.uid, "uid-of-nobody"):
            claimed.name, claimed.tags = mine, {CLUSTER_TAG: "c", OWNER_TAG: owner, SLOT_TAG: "0"}
            await listed_twice(stage)
            assert (clouds.instances[mine].state, clouds.instances[mine].provider) == ("RUNNING", "tencent")


async def test_an_id_that_two_services_claim_is_not_known_at_all(stack: AsyncExitStack) -> None:
    honest, liar = OnWebhook(), OnWebhook()
    stage = await on(stack, honest, liar)
    pool, mask = stage.pool(honest, "honest"), stage.pool(liar, "liar", namespace="team-b")
    mine = honest.add(**{CLUSTER_TAG: "c", OWNER_TAG: pool.uid, SLOT_TAG: "0"})
    stage.slots(pool, an_intent(stage.clock, state="Draining", instance_id=mine))  # listed often
    stage.slots(mask, an_intent(stage.clock))
    claimed = liar.service.machines[liar.add(**{CLUSTER_TAG: "c", OWNER_TAG: "uid-of-nobody", SLOT_TAG: "0"})]
    claimed.name, claimed.state = mine, "SHUTDOWN"

    async with stage.running() as clouds:
        await until(lambda: is_listed(stage, pool, mask))
        await listed_twice(stage)
        assert clouds.instances[mine].state == "RUNNING", "one of nobody's gives way"
        claimed.tags = {CLUSTER_TAG: "c", OWNER_TAG: mask.uid, SLOT_TAG: "0"}
        await listed_twice(stage)
        assert mine not in clouds.instances, "absent, so nothing is proven"
        del liar.service.machines[next(name for name, each in liar.service.machines.items() if each is claimed)]
        await listed_twice(stage)
        assert clouds.instances[mine].state == "RUNNING"


@pytest.fixture
def no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    for module in (aws_sdk, tencent_sdk):
        monkeypatch.setattr(module.importlib, "import_module", missing)


@pytest.mark.usefixtures("no_sdk")
async def test_a_package_that_is_missing_is_named(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    tencent = stage.pool(side)
    aws = stage.view.put(structs.replace(tencent, name="two", spec=structs.replace(tencent.spec, provider="aws")))
    host = "https://ec2.ap-singapore.amazonaws.com"
    keys = {"secretId": KEY_ID, "secretKey": KEY, "accessKeyId": KEY_ID, "secretAccessKey": KEY}
    users = f"Spotpool/team-a/one@{side.url} Spotpool/team-a/two@{host}"
    stage.vault.secrets["team-a/tencent-keys"] = keys, users
    async with stage.running() as clouds:
        await until(lambda: len(clouds.listings) == 2)
        assert {each.problem for each in clouds.listings.values()} == {"Provider"}
        assert {each.message for each in clouds.listings.values()} == {
            "provider tencent needs the package tencentcloud-sdk-python-cvm: pip install headroom[tencent]",
            "provider aws needs the package aiobotocore: pip install headroom[aws]",
        }
        with pytest.raises(Unavailable):
            await clouds.launch(aws, a_launch(aws))


async def test_interruption_warnings_come_through_the_queue(stack: AsyncExitStack, aws_service: AwsService) -> None:
    queue = aws_service.warning_queue()
    side = OnAws(aws_service)
    stage = await on(stack, side, queues={"us-east-1": queue})
    pool = stage.pool(side)
    mine, other = (side.add(**{CLUSTER_TAG: "c", OWNER_TAG: uid, SLOT_TAG: "0"}) for uid in (pool.uid, "uid-x"))
    async with stage.running() as clouds:
        await until(lambda: clouds.instances.keys() >= {mine, other} and clouds.listings["team-a/one"].notices)
        warned = aws_service.warn(mine, stage.clock.now())
        await until(lambda: clouds.instances[mine].reclaim_at is not None)
        assert clouds.instances[mine].reclaim_at == warned + 120_000
        assert (Topic.INSTANCES, "team-a/one") in stage.view.news
        began = stage.clock.now()
        await until(lambda: clouds.listings["team-a/one"].at > began)
        assert clouds.instances[mine].reclaim_at == warned + 120_000, "a list does not forget it"
        assert clouds.instances[other].reclaim_at is None


async def test_a_refusal_after_an_unanswered_call_proves_nothing(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    pool = stage.slots(stage.pool(side), an_intent(stage.clock))
    side.faults.next("launch", "cut")
    side.faults.next("launch", "denied")
    with pytest.raises(Unavailable):
        await stage.fleet.launch(pool, a_launch(pool))
    with pytest.raises(Unavailable, match=r"UnauthorizedOperation\.PermissionDenied"):
        await stage.fleet.launch(pool, a_launch(pool))
    assert stage.fleet.launches["t"].outcome == "Unknown", "the first call has launched a machine"
    # An intent of a process before this one may have been called for too.
    earlier = structs.replace(an_intent(stage.clock, token="u"), launched_at="2026-11-15T11:00:00Z")
    before = stage.slots(pool, earlier)
    side.faults.next("launch", "denied")
    with pytest.raises(Unavailable):
        await stage.fleet.launch(before, a_launch(before, token="u"))
    # One of ours, called for the first time, proves it.
    first = stage.slots(pool, an_intent(stage.clock, token="v"))
    side.faults.next("launch", "denied")
    with pytest.raises(Refused):
        await stage.fleet.launch(first, a_launch(first, token="v"))
    assert stage.fleet.launches["v"].outcome == "Refused"


async def test_once_a_list_would_show_the_machine_a_refusal_counts(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side, speed=2000.0)
    pool = stage.slots(stage.pool(side), an_intent(stage.clock))
    side.faults.next("launch", "drop")
    with pytest.raises(Unavailable):
        await stage.fleet.launch(pool, a_launch(pool))
    sent = stage.clock.now()
    async with stage.running() as clouds:
        await until(lambda: is_listed(stage, pool) and clouds.listings["team-a/one"].at > sent + fleet.LAG_MS)
        side.faults.always("launch", "refused")
        with pytest.raises(Refused):
            await clouds.launch(pool, a_launch(pool))
        side.ours(1)
        mine = {CLUSTER_TAG: "c", OWNER_TAG: pool.uid, SLOT_TAG: "0"}
        side.service.add(**mine, **{TOKEN_TAG: "of an earlier intent"})
        await until(lambda: len(clouds.instances) == 1)
        with pytest.raises(Refused):
            await clouds.launch(pool, a_launch(pool))
        side.service.add(**mine, **{TOKEN_TAG: "t"})
        await until(lambda: len(clouds.instances) == 2)
        with pytest.raises(Unavailable):
            await clouds.launch(pool, a_launch(pool))


async def test_whoever_does_not_lead_asks_nobody_and_forgets(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    pool = stage.pool(side)
    side.add(**{CLUSTER_TAG: "c", OWNER_TAG: pool.uid, SLOT_TAG: "0"})
    async with stage.running() as clouds:
        await until(lambda: len(clouds.instances) == 1)
        stage.leads = False
        await until(lambda: not clouds.instances and not clouds.listings)
        asked = len(side.service.log)
        await stage.clock.sleep(60)
        assert len(side.service.log) == asked


async def test_nothing_is_listed_or_launched_before_the_cluster_is_known(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    stage.view.cluster = ""
    pool = stage.slots(stage.pool(side), an_intent(stage.clock))
    async with stage.running() as clouds:
        with pytest.raises(Unavailable, match="the cluster's id is not known yet"):
            await clouds.launch(pool, a_launch(pool))
        with pytest.raises(Unavailable):
            await clouds.terminate(pool, side.foreign[0])
        await stage.clock.sleep(60)
        assert side.service.log == []


async def test_an_orphan_is_ended_only_while_all_pools_are_seen(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side)
    pool, other = stage.pool(side), stage.pool(side, "two")
    orphan = side.add(**{CLUSTER_TAG: "c", OWNER_TAG: "uid-of-nobody", SLOT_TAG: "0"})
    owned = side.add(**{CLUSTER_TAG: "c", OWNER_TAG: other.uid, SLOT_TAG: "0"})
    unmarked = side.add(**{CLUSTER_TAG: "c"})
    for machine in (owned, unmarked):
        with pytest.raises(Refused, match="do not name a deleted Spotpool"):
            await stage.fleet.terminate(pool, machine, "Orphan")
    stage.view.complete = False
    with pytest.raises(Unavailable, match="not all Spotpools can be read"):
        await stage.fleet.terminate(pool, orphan, "Orphan")
    stage.view.complete = True
    await stage.fleet.terminate(pool, orphan, "Orphan")
    assert [name for name, state in side.states().items() if state == "TERMINATING"] == [orphan]


async def test_prices_are_offers_and_only_a_change_is_news(stack: AsyncExitStack) -> None:
    side = OnTencent()
    stage = await on(stack, side, speed=600.0, tencent_per_dollar=7.0)
    side.offer(side.zone, 3.5)
    stage.pool(side)
    async with stage.running() as clouds:
        await until(lambda: len(clouds.offers) == 1)
        (offer,) = clouds.offers.values()
        assert (offer.price_per_hour, offer.available, offer.zone) == (500_000, True, side.zone)
        before, asked = clouds.offers, side.service.log.count("DescribeZoneInstanceConfigInfos")
        await until(lambda: side.service.log.count("DescribeZoneInstanceConfigInfos") >= asked + 2)
        assert clouds.offers is before
        side.offer(side.zone, 7.0)
        await until(lambda: clouds.offers is not before)
        assert next(iter(clouds.offers.values())).price_per_hour == 1_000_000
        assert before[offer.name].price_per_hour == 500_000, "who has the old prices keeps them"
        assert [name for topic, name in stage.view.news if topic is Topic.OFFERS] == [offer.name] * 2


async def test_no_output_of_a_fleet_has_a_secret(
    stack: AsyncExitStack, aws_service: AwsService, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    sides: list[CloudSide] = [OnTencent(), OnAws(aws_service), OnWebhook()]
    stage = await on(stack, *sides)
    said: list[str] = []
    for side in sides:
        side.echo()
        pool = stage.slots(stage.pool(side, side.name), an_intent(stage.clock, token=side.name))
        for how in ("denied", "refused", "garbage", "cut", "throttled"):
            side.faults.next("launch", how)
            side.faults.next("list", how)
            try:
                await stage.fleet.launch(pool, a_launch(pool, token=side.name))
            except HeadroomError as problem:
                said += [repr(problem), str(problem), repr(problem.__cause__)]
            said += [repr(each) for each in stage.fleet.launches.values()]
    async with stage.running() as clouds:
        await until(lambda: len(clouds.listings) == 3)
        for _ in range(50):
            said += [repr(each) for each in (*clouds.listings.values(), *clouds.instances.values())]
            await asyncio.sleep(0.02)
        said += [repr(vars(clouds)), repr(vars(clouds._sessions)), repr(vars(clouds._polling))]
    output = capfd.readouterr()
    everything = "\n".join([*said, caplog.text, output.out, output.err, repr(stage.view.news)])
    assert len(said) > 100
    assert CANARY not in everything

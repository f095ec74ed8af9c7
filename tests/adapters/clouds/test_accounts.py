"""A Secret whose keys are changed for those of another account: told in the list, and nothing is launched there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from msgspec import structs

from headroom.adapters.clouds.aws import Aws
from headroom.adapters.clouds.aws_sdk import Clients
from headroom.adapters.clouds.providers import Keys, Provider
from headroom.adapters.clouds.tencent import Tencent
from headroom.adapters.clouds.threads import Threads
from headroom.api.kinds import AnyResource
from headroom.model.errors import Refused, Unavailable
from headroom.sim.clock import SimClock
from tests.builders import NOON
from tests.cloud_sides import KEY, OnTencent
from tests.cloud_stage import Stage, a_launch, an_intent, until
from tests.tencent_service import TencentService

OTHER_ID, OTHER = "AKIDother", "100087654321"


class TwoAccounts:
    """A stage on a cloud where two accounts have keys."""

    def __init__(self, stage: Stage, side: OnTencent) -> None:
        self.stage, self.side = stage, side
        self.other = TencentService({OTHER_ID: KEY})
        self.other.account = OTHER
        side.service.others.append(self.other)
        self.pool: AnyResource = stage.pool(side)

    def swap(self) -> None:
        """The Secret has keys of the other account from now on."""
        _, users = self.stage.vault.secrets["team-a/tencent-keys"]
        self.stage.vault.secrets["team-a/tencent-keys"] = {"secretId": OTHER_ID, "secretKey": KEY}, users

    def outcome(self) -> str:
        """What came of the launch."""
        return self.stage.fleet.launches["t"].outcome

    def intent(self, account: str) -> None:
        """The pool means to launch, and its slots are in that account."""
        status = structs.replace(self.pool.status, slots=(an_intent(self.stage.clock),), account=account)
        self.pool = self.stage.view.put(structs.replace(self.pool, status=status))


@pytest.fixture
async def two() -> AsyncIterator[TwoAccounts]:
    async with AsyncExitStack() as stack:
        side = await stack.enter_async_context(OnTencent())
        stage = Stage("c", SimClock(NOON, 20.0), side)
        stack.callback(stage.close)
        yield TwoAccounts(stage, side)


async def test_a_list_says_of_which_account_it_is(two: TwoAccounts) -> None:
    async with two.stage.running() as clouds:
        await until(lambda: "team-a/one" in clouds.listings)
        assert clouds.listings["team-a/one"].account == two.side.account
        two.swap()
        await until(lambda: clouds.listings["team-a/one"].account == OTHER)
    assert two.side.service.log.count("GetCallerIdentity") == 2, "once for each pair of keys"


async def test_nothing_is_launched_with_keys_of_another_account(two: TwoAccounts) -> None:
    """Between the last list and the call somebody may have changed the Secret."""
    two.intent(two.side.account)
    two.swap()
    with pytest.raises(Refused, match=f"in account {two.side.account}, but its keys belong to {OTHER}"):
        await two.stage.fleet.launch(two.pool, a_launch(two.pool))
    assert not two.other.machines
    assert two.outcome() == "Refused"


async def test_nothing_is_launched_while_nobody_tells_whose_keys_they_are(two: TwoAccounts) -> None:
    two.intent(two.side.account)
    two.side.faults.next("identity", "drop")
    with pytest.raises(Unavailable):
        await two.stage.fleet.launch(two.pool, a_launch(two.pool))
    assert two.outcome() == "Unknown"
    await two.stage.fleet.launch(two.pool, a_launch(two.pool))
    assert two.outcome() == "Accepted"


async def test_a_list_fails_with_the_identity_that_it_needs(two: TwoAccounts) -> None:
    two.side.faults.always("identity", "throttled")
    async with two.stage.running() as clouds:
        await until(lambda: "team-a/one" in clouds.listings)
        assert (clouds.listings["team-a/one"].at, clouds.listings["team-a/one"].problem) == (0, "Throttled")


@pytest.mark.parametrize("cloud", ["aws", "tencent"])
async def test_no_other_host_is_asked_where_an_administrator_moved_the_cloud(cloud: str) -> None:
    """The keys are for the host that the setting names: its STS is asked only if it is named as well."""
    keys = Keys({"accessKeyId": "a", "secretAccessKey": "b", "secretId": "a", "secretKey": "b"})
    away = "http://127.0.0.1:9"
    made: Provider = (
        Aws("us-east-1", keys, Clients(), urls={"ec2": away})
        if cloud == "aws"
        else Tencent("ap-singapore", keys, Threads(1), urls={"cvm": away})
    )
    assert await made.identity() == ""

"""Clouds keep one promise, whoever is behind the port: a token is one machine, what is known is complete, others' are not touched."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG, TOKEN_TAG
from headroom.model.errors import HeadroomError, Refused, Unavailable
from tests.cloud_faults import How
from tests.cloud_sides import OnAws, OnTencent, OnWebhook
from tests.contracts.cloud_ports import OnCloud, PortSide, Simulated

ENDED = ("TERMINATING", "SHUTDOWN")


@pytest.fixture(params=("simulator", "tencent", "aws", "webhook"))
async def side(request: pytest.FixtureRequest) -> AsyncIterator[PortSide]:
    if request.param == "simulator":
        made: PortSide = Simulated()
    elif request.param == "aws":
        made = OnCloud(OnAws(request.getfixturevalue("aws_service")))
    else:
        made = OnCloud(OnTencent() if request.param == "tencent" else OnWebhook())
    async with made:
        await made.until(lambda: made.key in made.clouds.listings, "it is listed")
        yield made
        assert [each for each in made.foreign if each not in made.alive()] == [], "machines of others still run"


async def test_a_machine_is_launched_known_at_once_listed_and_ended(side: PortSide) -> None:
    assert side.clouds.listings[side.key].problem == ""
    assert dict(side.clouds.instances) == {}
    action = side.intend(slot=2)
    before = side.clock.now()
    await side.clouds.launch(side.pool, action)
    launch = side.clouds.launches[action.token]
    assert (launch.outcome, launch.pool, launch.message) == ("Accepted", side.key, "")
    assert before <= launch.at <= side.clock.now()
    found = side.clouds.instances[launch.instance]
    ours = {CLUSTER_TAG: side.cluster, OWNER_TAG: side.pool.uid, SLOT_TAG: "2", TOKEN_TAG: action.token}
    assert found.tags == ours
    side.named(launch.instance, action)
    side.settle()
    await side.until(lambda: side.state(launch.instance) == "RUNNING", "it runs")
    await side.clouds.terminate(side.pool, launch.instance)
    assert launch.instance not in side.alive()
    await side.until(lambda: side.state(launch.instance) in ENDED, "it is known to end")


async def test_a_lost_answer_is_unknown_and_a_repeated_call_brings_the_same_machine(side: PortSide) -> None:
    action = side.intend()
    side.go_wrong("launch", "cut")
    with pytest.raises(Unavailable):
        await side.clouds.launch(side.pool, action)
    assert side.clouds.launches[action.token].outcome == "Unknown"
    (lost,) = side.alive().keys() - {*side.foreign}
    await side.clouds.launch(side.pool, action)
    await side.clouds.launch(side.pool, action)
    launch = side.clouds.launches[action.token]
    assert (launch.outcome, launch.instance) == ("Accepted", lost)
    assert side.alive().keys() - {*side.foreign} == {lost}


@pytest.mark.parametrize(
    ("how", "outcome"), [("sold out", "SoldOut"), ("quota", "QuotaReached"), ("refused", "Refused")]
)
async def test_a_refusal_proves_that_there_is_no_machine(side: PortSide, how: How, outcome: str) -> None:
    action = side.intend()
    side.go_wrong("launch", how)
    with pytest.raises(Refused):
        await side.clouds.launch(side.pool, action)
    launch = side.clouds.launches[action.token]
    assert (launch.outcome, launch.instance) == (outcome, "")
    assert side.alive().keys() == {*side.foreign}


async def test_a_machine_is_found_by_its_tags_whoever_launched_it(side: PortSide) -> None:
    mine = side.ours(slot=1)
    await side.until(lambda: side.state(mine) == "RUNNING", "it is listed")
    assert side.clouds.instances[mine].tags[SLOT_TAG] == "1"
    assert side.clouds.instances.keys() == {mine}, "nobody else's is"


async def test_a_machine_that_no_list_shows_yet_is_asked_for_by_its_id(side: PortSide) -> None:
    side.lag(15 * 60)
    action = side.intend()
    await side.clouds.launch(side.pool, action)
    machine = side.clouds.launches[action.token].instance
    side.named(machine, action)
    assert side.state(machine) == "PENDING"
    await side.until(lambda: side.state(machine) == "NOT_FOUND", "its cloud does not know it yet")
    assert machine in side.alive()
    side.settle()
    side.lag(0)
    await side.until(lambda: side.state(machine) in ("PENDING", "RUNNING"), "it is there")


async def test_what_is_gone_is_not_found_by_id_only_while_a_status_names_it(side: PortSide) -> None:
    action = side.intend()
    side.named("ins-0badc0de", action)
    await side.until(lambda: side.state("ins-0badc0de") == "NOT_FOUND", "nobody knows it")
    side.slots()
    await side.until(lambda: "ins-0badc0de" not in side.clouds.instances, "nobody asks for it")


async def test_a_list_that_fails_leaves_what_is_known_and_says_so(side: PortSide) -> None:
    mine = side.ours()
    side.intend()  # so that it is listed often
    await side.until(lambda: side.state(mine) == "RUNNING", "it is listed")
    side.go_wrong("list", "throttled", once=False)
    await side.until(lambda: side.clouds.listings[side.key].problem == "Throttled", "it is said")
    at = side.clouds.listings[side.key].at
    assert at > 0
    assert side.state(mine) == "RUNNING"
    side.go_wrong("list", None)
    await side.until(lambda: side.clouds.listings[side.key].problem == "", "all is well")
    assert side.clouds.listings[side.key].at > at


async def test_only_what_the_tags_prove_is_ended(side: PortSide) -> None:
    another = side.add(**{CLUSTER_TAG: side.cluster, OWNER_TAG: "uid-of-nobody", SLOT_TAG: "0"})
    mine = side.ours()
    for machine in (*side.foreign, another):
        with pytest.raises(Refused):
            await side.clouds.terminate(side.pool, machine)
    for machine in (*side.foreign, mine):
        with pytest.raises(HeadroomError):
            await side.clouds.terminate(side.pool, machine, "Orphan")
    with pytest.raises(Refused):
        await side.clouds.terminate(side.pool, mine, "Left")  # it runs
    assert side.alive().keys() == {*side.foreign, another, mine}
    await side.clouds.terminate(side.pool, another, "Orphan")
    await side.clouds.terminate(side.pool, mine)
    assert side.alive().keys() == {*side.foreign}
    with pytest.raises(Unavailable):
        await side.clouds.terminate(side.pool, "ins-0badc0de")

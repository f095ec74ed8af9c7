"""What an operator process knows of simulated clouds, and the port through which it calls them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.spot_pools_status import Slot, SpotpoolStatus
from headroom.model import times
from headroom.model.actions import LaunchInstance
from headroom.model.errors import Refused, Unavailable
from headroom.sim import faults as wrong
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.cloud import Cloud, RequestedLaunch
from headroom.sim.cloud_view import CloudView
from headroom.sim.clouds import Regions, SimClouds, clouds_of
from headroom.sim.faults import Faults
from tests.builders import NOON, a_document, a_resource

KEY = "team-a/one"
LAUNCH = LaunchInstance(pool=KEY, slot=0, token="t0", instance_type="GN7", zone="a")


def pool(*ids: str, **spec: Any) -> AnyResource:
    slots = tuple(Slot(slot=number, state="Running", instance_id=each) for number, each in enumerate(ids))
    return structs.replace(a_resource("Spotpool", **spec), uid="u", status=SpotpoolStatus(slots=slots))


class Told:
    """A view on one region, and a clock that stands still."""

    def __init__(self) -> None:
        self.now = NOON
        self.cloud = Cloud(lambda: self.now, "ap-singapore")
        self.view = CloudView({"ap-singapore": self.cloud}, "c", lambda: self.now)


def test_a_machine_is_known_from_the_answer_until_a_list_tells_more() -> None:
    told = Told()
    told.view.launch(pool(), LAUNCH)
    launched = told.view.launches["t0"]
    assert (launched.outcome, launched.pool) == ("Accepted", KEY)
    assert told.view.instances[launched.instance].state == "PENDING"
    told.now += 2 * times.MINUTE
    told.cloud.lag = lambda: 10 * times.MINUTE
    told.view.look(pool())
    assert told.view.instances == {}  # absent from a list that lags, and not asked for by id
    told.view.look(pool(launched.instance))
    assert told.view.instances[launched.instance].state == "NOT_FOUND"
    told.cloud.lag = lambda: 0
    told.view.look(pool(launched.instance))
    assert told.view.instances[launched.instance].state == "RUNNING"


def test_a_list_that_breaks_off_changes_nothing_but_that_it_is_said() -> None:
    told = Told()
    told.view.launch(pool(), LAUNCH)
    told.view.look(pool())
    known, at = told.view.instances, told.now
    told.now += times.MINUTE
    told.cloud.wrong = lambda verb: "Throttled" if verb == "list" else ""
    told.view.look(pool())
    assert told.view.instances == known
    assert (told.view.listings[KEY].at, told.view.listings[KEY].problem) == (at, "Throttled")


@pytest.mark.parametrize("wrong_is", ["Lost", "Unreached", "Throttled"])
def test_a_launch_without_an_answer_proves_nothing(wrong_is: Any) -> None:
    told = Told()
    told.cloud.wrong = lambda _verb: wrong_is
    with pytest.raises(Unavailable):
        told.view.launch(pool(), LAUNCH)
    assert told.view.launches["t0"].outcome == "Unknown"
    assert told.view.instances == {}


def test_the_price_limit_of_the_pool_goes_with_the_call() -> None:
    told = Told()
    told.cloud.prices["GN7", "a"] = 600_000
    with pytest.raises(Refused):
        told.view.launch(pool(maxPricePerHour="0.5"), LAUNCH)
    assert told.view.launches["t0"].outcome == "PriceTooLow"


def test_only_a_machine_with_the_tags_of_the_pool_is_ended() -> None:
    told = Told()
    told.view.launch(pool(), LAUNCH)
    ours = told.view.launches["t0"].instance
    foreign = told.cloud.add(
        RequestedLaunch(token="", instance_type="GN7", zone="a", tags={"headroom.dev/cluster": "c"})
    ).id
    with pytest.raises(Refused):
        told.view.terminate(pool(), foreign)
    with pytest.raises(Refused):
        told.view.terminate(pool(), ours, "Orphan")
    told.view.terminate(pool(), ours)
    told.view.terminate(pool(), foreign, "Orphan")
    assert told.cloud.alive({}) == []


def over_a_connection(do: Callable[[SimClouds, Cloud, Faults], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        clock = SimClock(NOON)
        server = ApiServer(clock, random.Random(1))
        regions = Regions(server)
        server.put(a_document("Spotpool"))
        faults = Faults(clock, NOON, 1, [])
        clouds = clouds_of(server.transport("headroom", actor="operator-1", faults=faults), clock)
        assert clouds is not None
        await do(clouds, regions["ap-singapore"], faults)

    run_virtual(play)


def test_faults_of_the_connection_lose_answers_of_the_cloud() -> None:
    async def do(clouds: SimClouds, cloud: Cloud, faults: Faults) -> None:
        news: list[str] = []
        clouds.changed = news.append
        faults.add(wrong.LostReply(verb="launch", nth=1))
        with pytest.raises(Unavailable):
            await clouds.launch(pool(), LAUNCH)
        outcomes = [clouds.launches["t0"].outcome]
        assert not clouds.instances
        await clouds.launch(pool(), LAUNCH)
        outcomes.append(clouds.launches["t0"].outcome)
        assert outcomes == ["Unknown", "Accepted"]
        assert list(clouds.instances) == list(cloud.machines)
        assert len(cloud.machines) == 1
        [machine] = cloud.machines
        await clouds.terminate(pool(), machine)
        assert not cloud.alive({})
        assert news == [KEY, KEY]

    over_a_connection(do)


def test_pools_are_listed_now_and_then_and_a_list_that_fails_grows_old() -> None:
    async def do(clouds: SimClouds, cloud: Cloud, faults: Faults) -> None:
        running = asyncio.create_task(clouds.run())
        await asyncio.sleep(100)
        first = clouds.listings[KEY].at
        assert first >= NOON + 40 * times.SECOND
        faults.add(wrong.Outage(verb="list"))
        await asyncio.sleep(100)
        assert clouds.listings[KEY].problem == "Unavailable"
        assert clouds.listings[KEY].at < NOON + 150 * times.SECOND
        running.cancel()

    over_a_connection(do)

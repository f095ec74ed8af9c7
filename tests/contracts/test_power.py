"""Switches keep one promise, whoever is behind them: what was accepted, refused or lost is told as such, and power is what is seen."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headroom.adapters.egress import Guard, entries
from headroom.adapters.power import Power
from headroom.model.errors import HeadroomError, Unavailable
from headroom.runtime.clock import RealClock
from tests.adapters.power.stage import Vault, a_pool
from tests.certificates import Authority
from tests.contracts.power_sides import FAREWELL_SECONDS, BehindBmc, PowerService, Side, Simulated
from tests.power_service import Bmcs

SIDES = ("simulator", "calls", "redfish")


class Metal(NamedTuple):
    """BMCs, whom to trust about them, and the machines that no test has had yet: each is left as it was made."""

    bmcs: Bmcs
    authority: Path
    left: list[str]


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metal]:
    folder = tmp_path_factory.mktemp("bmcs")
    authority = Authority(folder)
    machines = [f"metal-{number}" for number in range(16)]
    with Bmcs(folder, machines, authority.server("bmc"), authority.file) as found:
        yield Metal(found, authority.file, machines)


@pytest.fixture(params=SIDES)
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    if request.param == "redfish":
        metal: Metal = request.getfixturevalue("metal")
        trust = ssl.create_default_context(cafile=metal.authority)
        made: Side = BehindBmc(metal.bmcs, trust, metal.left.pop())
    else:
        made = Simulated() if request.param == "simulator" else PowerService()
    async with made:
        await made.until(lambda: made.power() == "Off", "the machine is known to be off")
        yield made


async def test_a_machine_is_switched_on_and_off_some_time_after_it_was_told(side: Side) -> None:
    before = side.clock.now()
    await side.wake()
    call = side.switches.calls[side.machine]
    assert (call.machine, call.command, call.outcome, call.message) == (side.machine, "Wake", "Accepted", "")
    assert before <= call.at <= side.clock.now()
    assert side.told == ["Wake"]
    await side.until(lambda: side.power() == "On", "it is on")
    assert (side.switches.machines[side.machine].since or 0) >= call.at
    since = side.switches.machines[side.machine].since
    await side.wake()  # a second time does no harm
    assert side.switches.calls[side.machine].outcome == "Accepted"
    assert side.switches.machines[side.machine].since == since
    await side.sleep()
    assert side.switches.calls[side.machine].command == "Sleep"
    await side.until(lambda: side.power() == "Off", "it is off")
    await side.sleep()
    assert side.switches.calls[side.machine].outcome == "Accepted"
    assert side.told[-1] == "Sleep"


async def test_a_command_that_is_refused_has_failed_and_changes_nothing(side: Side) -> None:
    side.go_wrong("refuse")
    with pytest.raises(HeadroomError, match=side.machine):
        await side.wake()
    call = side.switches.calls[side.machine]
    assert (call.command, call.outcome) == ("Wake", "Failed")
    assert "500" in call.message
    assert (side.told, side.power()) == ([], "Off")
    side.go_wrong("")
    await side.wake()
    assert side.switches.calls[side.machine].outcome == "Accepted"
    assert side.told == ["Wake"]


async def test_a_command_whose_answer_is_lost_is_unknown_and_only_the_machine_can_tell(side: Side) -> None:
    side.go_wrong("lose")
    with pytest.raises(Unavailable, match=side.machine):
        await side.wake()
    call = side.switches.calls[side.machine]
    assert (call.command, call.outcome) == ("Wake", "Unknown")
    assert call.message
    assert side.told == ["Wake"], "it went out once"
    side.go_wrong("")
    await side.until(lambda: side.power() == "On", "it was done all the same")


async def test_what_is_accepted_and_ignored_is_seen_by_its_power(side: Side) -> None:
    side.go_wrong("ignore")
    await side.wake()
    assert side.switches.calls[side.machine].outcome == "Accepted"
    assert side.told == ["Wake"]
    await side.clock.sleep(30)
    assert side.power() == "Off"


async def test_a_machine_that_does_not_say_is_unknown_after_a_while(side: Side) -> None:
    side.go_wrong("silence")
    await side.until(lambda: side.power() == "Unknown", "nothing is known of it")
    side.go_wrong("")
    await side.until(lambda: side.power() == "Off", "it is known again")


async def test_a_call_that_was_not_made_stands_as_one_that_failed_and_all_of_it_is_news(side: Side) -> None:
    before = side.news
    side.switches.refused(side.machine, "Sleep", "pod lab/train-0 is there")
    call = side.switches.calls[side.machine]
    assert (call.command, call.outcome, call.message) == ("Sleep", "Failed", "pod lab/train-0 is there")
    assert side.news == before + 1
    await side.wake()
    assert side.news == before + 2
    assert side.told == ["Wake"]


@pytest.mark.parametrize(
    ("how", "password", "why"),
    [
        ({"certificateAuthority": "{ca}"}, Bmcs.PASSWORD, ""),
        ({"insecure": True}, Bmcs.PASSWORD, ""),
        ({}, Bmcs.PASSWORD, "the certificate of 127.0.0.1 is not trusted"),
        ({"insecure": True}, "wrong", "127.0.0.1 answered 401 Unauthorized"),
        ({"insecure": True, "system": "none"}, Bmcs.PASSWORD, "127.0.0.1 answered 404 Not Found"),
        ({"insecure": True, "system": ""}, Bmcs.PASSWORD, "there are 16 systems behind the BMC"),
    ],
)
async def test_a_bmc_and_its_switch_must_know_one_another(
    metal: Metal, how: dict[str, Any], password: str, why: str
) -> None:
    name = metal.left.pop()
    given = {key: metal.authority.read_text() if value == "{ca}" else value for key, value in how.items()}
    base = {"address": metal.bmcs.url, "system": metal.bmcs.systems[name], "credentialsSecretRef": {"name": "bmc"}}
    pool = a_pool({"name": name, "gpuCount": 4, "redfish": base | given})
    vault = Vault(bmc={"username": Bmcs.USER, "password": password})
    vault.usable_by = f"PowerPool/rack@{metal.bmcs.url}"
    switches = Power(Guard(entries(metal.bmcs.url)), vault, RealClock(), random.Random(1), allow_insecure=True)
    if why:
        with pytest.raises(HeadroomError, match=why):
            await switches.wake(pool, name)
    else:
        await switches.wake(pool, name)
    assert switches.calls[name].outcome == ("Failed" if why else "Accepted")
    assert metal.bmcs.resets(name) == ([] if why else [204])
    await asyncio.sleep(FAREWELL_SECONDS)

"""Whether machines are on is asked at a gentle pace, more often while they change, and forgotten when it grows old."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.power import polling
from headroom.adapters.power.orders import State, SwitchTarget
from headroom.adapters.power.polling import AT_ONCE, PowerPolling, askable
from headroom.api.power_status import MachineStatus, PowerPoolStatus
from headroom.model.errors import Unavailable
from headroom.sim.clock import SimClock
from tests.adapters.listening import listening
from tests.adapters.power.stage import View, a_pool, by_calls, by_redfish, power
from tests.adapters.simulated import virtual
from tests.builders import NOON


def asked(*names: str) -> list[dict[str, Any]]:
    return [by_calls(80, name, statusEndpoint=f"http://power/{name}") for name in names]


class Machines:
    """What machines answer, and when each was asked."""

    def __init__(self, *names: str, state: str = "On") -> None:
        self.clock = SimClock(NOON)
        self.view = View(a_pool(*asked(*names), state=state))
        self.power: dict[str, State] = dict.fromkeys(names, "On")
        self.failures = 0
        """Of the next answers so many fail."""
        self.times: list[tuple[float, str]] = []
        self.at_once = self.most_at_once = 0
        self.takes = 0.1
        self.news = 0
        self.unread: list[tuple[str, str]] = []
        self.polling = PowerPolling(
            self._ask, self.clock, random.Random(1), self._changed, lambda *told: self.unread.append(told)
        )

    async def _ask(self, order: SwitchTarget) -> State:
        name = order.machine.name
        self.times.append((self.clock.monotonic(), name))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.clock.sleep(self.takes)
        finally:
            self.at_once -= 1
        if self.failures:
            self.failures -= 1
            raise Unavailable("nobody answers")
        return self.power[name]

    def _changed(self, _machine: str) -> None:
        self.news += 1

    async def live(self, seconds: float) -> None:
        for _ in range(round(seconds / polling.STEP_SECONDS)):
            self.polling.step(self.view.world(self.clock.now()))
            await self.clock.sleep(polling.STEP_SECONDS)

    def intervals(self, name: str) -> list[float]:
        at = [when for when, whose in self.times if whose == name]
        return [after - before for before, after in pairwise(at)]


@virtual
async def test_each_machine_is_asked_about_twice_a_minute_and_not_all_at_the_same_moment() -> None:
    names = [f"w{number}" for number in range(40)]
    machines = Machines(*names)
    await machines.live(300)
    counts = Counter(name for _, name in machines.times)
    assert set(counts) == set(names)
    assert all(9 <= count <= 12 for count in counts.values())
    assert all(26 <= each <= 35 for name in names for each in machines.intervals(name))
    assert max(Counter(round(when) for when, _ in machines.times).values()) < len(names)


@virtual
async def test_those_that_change_are_asked_more_often() -> None:
    machines = Machines("w1", "w2", state="On")
    pool = machines.view.pools[0]
    states = (MachineStatus(name="w1", state="Booting"), MachineStatus(name="w2", state="On"))
    machines.view.pools = [structs.replace(pool, status=PowerPoolStatus(machines=states))]
    await machines.live(60)
    assert all(5 <= each <= 7 for each in machines.intervals("w1"))
    assert len(machines.intervals("w1")) > 4 * len(machines.intervals("w2"))


@virtual
async def test_a_large_fleet_is_asked_a_few_at_a_time_and_those_that_change_come_first() -> None:
    names = [f"w{number:04d}" for number in range(500)]
    machines = Machines(*names)
    machines.takes = 0.4
    await machines.live(30)
    pool = machines.view.pools[0]
    booting = tuple(MachineStatus(name=name, state="Booting" if name == "w0499" else "On") for name in names)
    machines.view.pools = [structs.replace(pool, status=PowerPoolStatus(machines=booting))]
    machines.times.clear()
    await machines.live(60)
    assert machines.most_at_once == AT_ONCE
    assert all(5 <= each <= 8 for each in machines.intervals("w0499"))
    assert set(machines.polling.known) == set(names)


@virtual
async def test_since_when_is_when_it_was_first_seen_so() -> None:
    machines = Machines("w1")
    await machines.live(20)
    first = machines.polling.known["w1"]
    assert (first.power, machines.news) == ("On", 1)
    await machines.live(100)
    assert machines.polling.known["w1"] is first
    machines.power["w1"] = "Off"
    await machines.live(40)
    second = machines.polling.known["w1"]
    assert (second.power, machines.news) == ("Off", 2)
    assert (second.since or 0) > (first.since or 0) + 100_000


@virtual
async def test_one_failure_is_passed_over_and_two_make_it_unknown() -> None:
    machines = Machines("w1")
    powers: list[str] = []
    await machines.live(20)
    for failures in (1, 1, 2, 3):
        machines.failures = failures
        while machines.failures:
            await machines.live(1)
        powers.append(machines.polling.known["w1"].power)
        await machines.live(40)
        powers.append(machines.polling.known["w1"].power)
    assert powers == ["On"] * 4 + ["Unknown", "On"] * 2
    assert machines.unread == [("w1", "nobody answers")] * 2, "told once, not at every try"


@virtual
async def test_a_bug_in_one_question_blinds_nobody_and_is_told() -> None:
    machines = Machines("w1", "w2")
    await machines.live(20)
    del machines.power["w1"]  # the answer raises
    await machines.live(100)
    assert {name: each.power for name, each in machines.polling.known.items()} == {"w1": "Unknown", "w2": "On"}
    assert machines.unread == [("w1", "KeyError('w1')")]


@virtual
async def test_what_is_no_longer_there_is_forgotten() -> None:
    machines = Machines("w1", "w2")
    await machines.live(20)
    machines.view.pools = [a_pool(*asked("w2"), state="On")]
    await machines.live(1)
    assert set(machines.polling.known) == {"w2"}
    machines.takes = 50
    await machines.live(35)
    assert machines.at_once == 1
    machines.view.pools = []
    await machines.live(60)
    assert (machines.polling.known, machines.at_once) == ({}, 0), "a late answer brings nothing back"
    machines.view.pools = [a_pool(*asked("w2"), state="On")]
    await machines.live(20)
    await machines.polling.stop()
    assert (machines.polling.known, machines.at_once) == ({}, 0)


def test_only_those_are_asked_that_can_be_and_the_first_pool_has_a_machine() -> None:
    first = a_pool(*asked("w1"), by_calls(80, "w2"), by_redfish(80, "w3"), name="b", order=1)
    second = a_pool(*asked("w1", "w4"), name="a", order=2)
    broken = structs.replace(a_pool(*asked("w9"), name="c"), spec=None)
    found = askable(View(second, first, broken).world(NOON))
    assert {name: order.pool.name for name, (order, _) in found.items()} == {"w1": "b", "w3": "b", "w4": "a"}


async def test_the_status_endpoint_is_asked_with_the_same_headers() -> None:
    async with listening() as server:
        url = f"http://127.0.0.1:{server.port}/w1/power"
        pool = a_pool(by_calls(server.port, statusEndpoint=url), webhook={"headers": [{"name": "X-Key", "value": "k"}]})
        switches = power(server.port)
        [(order, soon)] = askable(View(pool).world(NOON)).values()
        assert (await switches._ask(order), soon) == ("On", True)
        assert server.requests[0].startswith(b"GET /w1/power ")
        assert b"\r\nx-key: k\r\n" in server.requests[0].lower()
        server.answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\non" + b" " * 100_000
        assert await switches._ask(order) == "Unknown", "more than is ever read"
        server.answer = b"HTTP/1.1 302 Found\r\nLocation: /on\r\nContent-Length: 2\r\n\r\non"
        with pytest.raises(Exception, match="answered 302 Found; redirects are not followed"):
            await switches._ask(order)


@virtual
async def test_only_who_leads_asks() -> None:
    leads = True
    clock, view = SimClock(NOON), View(a_pool(*asked("w1"), state="On"))
    switches = power(80, clock=clock)
    questions = 0

    async def ask(order: SwitchTarget) -> State:
        nonlocal questions
        questions += 1
        return "On"

    switches._polling._ask = ask
    switches.connect(view, lambda: leads)
    running = asyncio.create_task(switches.run())
    await clock.sleep(60)
    assert (switches.machines["w1"].power, questions) == ("On", 2)
    leads = False
    await clock.sleep(60)
    assert (dict(switches.machines), questions) == ({}, 2)
    leads = True
    await clock.sleep(20)
    assert switches.machines["w1"].power == "On"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert dict(switches.machines) == {}
    assert view.news == ["machines"] * 4

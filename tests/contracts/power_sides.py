"""Machines as the contract tests see them, whoever switches them: the simulator, calls to a power service, or BMCs that speak Redfish.

The power service and the BMCs are real servers behind the real adapter; only its clock runs faster, so that it asks more often. What
goes wrong is put in between: a command that is refused, one whose answer is lost, one that is accepted and ignored, and silence.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Literal, Self

import aiohttp
from aiohttp import web
from msgspec import structs

from headroom.adapters.egress import Guard, entries
from headroom.adapters.power import Power
from headroom.api.kinds import AnyResource
from headroom.api.power_status import MachineStatus, PowerPoolStatus
from headroom.model import times
from headroom.model.changes import Topic
from headroom.model.ports import Switches
from headroom.sim import faults as wrong
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from headroom.sim.faults import Faults
from headroom.sim.kubelet import PodLifecycle
from headroom.sim.power import SimSwitches, SimulatedMachines
from tests.adapters.power.stage import Vault, View
from tests.builders import a_document, a_resource
from tests.power_service import Bmcs
from tests.processes import PATIENCE_SECONDS

Wrong = Literal["", "refuse", "lose", "ignore", "silence"]
START_MS: Final = 1_767_225_600_000
SPEED: Final = 20.0
FAREWELL_SECONDS: Final = 0.2
"""Both ends of a TLS connection say goodbye; the loop must live for that long."""
_NUMBERS: Final = itertools.count(1)


class Side(ABC):
    """One machine that is off, `machine`, and whoever switches it."""

    def __init__(self) -> None:
        self.machine = f"w{next(_NUMBERS)}"
        self.clock = SimClock(START_MS, SPEED)
        self.told: list[str] = []
        """The commands that reached the machine."""
        self.news = 0
        self.state: Literal["Booting", "Sleeping"] = "Booting"
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.switches = await self.start()
        self._watching = asyncio.create_task(self.watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._stack.aclose()

    @property
    def pool(self) -> AnyResource:
        """As it stands when a command is sent: with the intent in its status."""
        now = times.text(self.clock.now())
        known = MachineStatus(name=self.machine, state=self.state, woken_at=now, slept_at=now)
        found = a_resource("PowerPool", machines=[self.document()])
        return structs.replace(found, status=PowerPoolStatus(machines=(known,)))

    async def wake(self) -> None:
        """Tell the machine."""
        self.state = "Booting"
        await self.switches.wake(self.pool, self.machine)

    async def sleep(self) -> None:
        """Tell the machine."""
        self.state = "Sleeping"
        await self.switches.sleep(self.pool, self.machine)

    def power(self) -> str:
        """What is known of it."""
        found = self.switches.machines.get(self.machine)
        return found.power if found else ""

    async def until(self, what: Callable[[], bool], said: str) -> None:
        """Wait in real time."""
        for _ in range(round(PATIENCE_SECONDS / 0.02)):
            if what():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {said}")

    def document(self) -> dict[str, Any]:
        """The machine as it stands in the pool's spec."""
        ways = ("scaleUpEndpoint", "scaleDownEndpoint", "statusEndpoint")
        return {"name": self.machine, "gpuCount": 4} | {way: f"{self.url}/{self.machine}/{way}" for way in ways}

    url: str = "http://power"

    @abstractmethod
    async def start(self) -> Switches:
        """Make the machine and its switches."""

    @abstractmethod
    async def watch(self) -> None:
        """Watch its power until cancelled."""

    @abstractmethod
    def go_wrong(self, how: Wrong) -> None:
        """From now on; empty for all is well."""


class Simulated(Side):
    """The simulator's machines and switches."""

    async def start(self) -> Switches:
        server = ApiServer(self.clock, random.Random(1))
        faults = Faults(self.clock, START_MS, 1, [])
        self._machines = SimulatedMachines(server, PodLifecycle(server), faults)
        self._machines.on_told.append(lambda told: self.told.append(told.command))
        off = {"kind": "Machine", "metadata": {"name": self.machine}, "spec": {"power": "Off"}}
        server.put({"apiVersion": "sim.headroom.dev/v1"} | off)
        server.put(a_document("PowerPool", machines=[self.document()]))
        self._machines.begin()
        self._stack.callback(self._machines.stop)
        self._transport = server.transport("headroom", actor="operator-1", faults=faults)
        self._switches = SimSwitches(self._machines, self._transport, self.clock)
        self._switches.changed = self._note
        return self._switches

    def _note(self, _machine: str) -> None:
        self.news += 1

    async def watch(self) -> None:
        await self._switches.run()

    def go_wrong(self, how: Wrong) -> None:
        faults: dict[Wrong, list[wrong.Fault]] = {
            "refuse": [wrong.Refusal(verb=verb, status=500) for verb in ("wake", "sleep")],
            "lose": [wrong.LostReply(verb=verb) for verb in ("wake", "sleep")],
            "ignore": [wrong.Ignored(verb=verb) for verb in ("wake", "sleep")],
            "silence": [wrong.Refusal(verb="status", status=500)],
        }
        self._transport._faults = Faults(self.clock, START_MS, 1, faults.get(how, []))


class Real(Side):
    """The real adapter, and a server of the test between it and what it switches."""

    how: Wrong = ""

    async def start(self) -> Switches:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        vault = Vault(bmc={"username": Bmcs.USER, "password": Bmcs.PASSWORD})
        guard = Guard(entries(self.url))
        self._stack.callback(guard.close)
        vault.usable_by = f"PowerPool/{self.pool.name}@{self.url}"
        self._power = Power(guard, vault, self.clock, random.Random(1))
        self._power.connect(self, lambda: True)
        return self._power

    def world(self, now: int) -> Any:
        """The view in which the machine is changing, so that it is asked often."""
        return View(self.pool).world(now)

    def tell(self, topic: Topic, name: str = "") -> None:
        """Told of news."""
        assert topic is Topic.MACHINES
        self.news += 1

    async def watch(self) -> None:
        await self._power.run()

    def go_wrong(self, how: Wrong) -> None:
        self.how = how

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        command = request.method == "POST"
        if (self.how == "refuse" and command) or (self.how == "silence" and not command):
            return web.Response(status=500)
        if self.how == "ignore" and command:
            self.told.append(self.command_in(request.path, await request.read()))
            return web.Response(status=202)
        answer = await self.answer(request)
        if command:
            self.told.append(self.command_in(request.path, await request.read()))
        if self.how == "lose" and command and request.transport is not None:
            request.transport.abort()
        return answer

    @abstractmethod
    async def answer(self, request: web.Request) -> web.Response:
        """What the machine's side does and says."""

    @abstractmethod
    def command_in(self, path: str, body: bytes) -> str:
        """Wake or Sleep."""


class PowerService(Real):
    """A service that switches a machine a moment after it was told."""

    SECONDS: Final = 0.3

    def __init__(self) -> None:
        super().__init__()
        self._is_on = False

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"power": "on" if self._is_on else "off"})
        timer = asyncio.get_running_loop().call_later(self.SECONDS, self._turn, request.path.endswith("UpEndpoint"))
        self._stack.callback(timer.cancel)
        return web.Response(status=202, text="<html>on my way</html>")

    def _turn(self, on: bool) -> None:
        self._is_on = on

    def command_in(self, path: str, body: bytes) -> str:
        return "Wake" if path.endswith("UpEndpoint") else "Sleep"


class BehindBmc(Real):
    """A machine of the emulator; what it accepts, it does 1 to 11 s later."""

    def __init__(self, bmcs: Bmcs, trust: ssl.SSLContext, name: str) -> None:
        super().__init__()
        self._bmcs, self._trust, self._system = bmcs, trust, bmcs.systems[name]

    async def start(self) -> Switches:
        self._stack.push_async_callback(asyncio.sleep, FAREWELL_SECONDS)
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        return await super().start()

    def document(self) -> dict[str, Any]:
        how = {"address": self.url, "system": self._system, "credentialsSecretRef": {"name": "bmc"}}
        return {"name": self.machine, "gpuCount": 4, "redfish": how}

    async def answer(self, request: web.Request) -> web.Response:
        kept = {name: value for name, value in request.headers.items() if name in ("Authorization", "Content-Type")}
        url, body = self._bmcs.url + request.path, await request.read()
        async with self._session.request(request.method, url, headers=kept, data=body, ssl=self._trust) as answer:
            return web.Response(status=answer.status, body=await answer.read())

    def command_in(self, path: str, body: bytes) -> str:
        return "Wake" if b'"On"' in body else "Sleep"

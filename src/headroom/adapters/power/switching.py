"""The switches of all machines: each is told once, what came of it is noted, and their power is watched."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, Protocol

from headroom.adapters.egress import Guard, NoAnswer
from headroom.adapters.power import redfish, wake_on_lan, webhook
from headroom.adapters.power.orders import Command, Means, PowerSecrets, State, SwitchTarget, order_of, status_of
from headroom.adapters.power.polling import STEP_SECONDS, PowerPolling
from headroom.api.kinds import AnyResource
from headroom.model import times
from headroom.model.changes import Topic
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.facts import Machine, SwitchCall
from headroom.model.ports import Clock
from headroom.model.world import World

_DOING: Final = {"Wake": "waking machine {}", "Sleep": "putting machine {} to sleep"}
Outcome = Literal["Accepted", "Failed", "Unknown"]


class SwitchRuntime(Protocol):
    """The port, as far as it is needed here."""

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def tell(self, topic: Topic, name: str = "") -> None:
        """Some facts are new."""
        ...


class Power:
    """Implements `Switches` for real machines."""

    def __init__(
        self,
        guard: Guard,
        secrets: PowerSecrets,
        clock: Clock,
        rng: random.Random,
        unread: Callable[[str, str], None] = lambda _machine, _why: None,
        *,
        allow_insecure: bool = False,
    ) -> None:
        """`unread` is told when the power of a machine cannot be read any more, and why."""
        self._means, self._clock = Means(guard, secrets, allow_insecure), clock
        self._port: SwitchRuntime | None = None
        self._may_act: Callable[[], bool] = lambda: True
        self._calls: dict[str, SwitchCall] = {}
        self._polling = PowerPolling(self._ask, clock, rng, self._changed, unread)
        self.machines: Mapping[str, Machine] = MappingProxyType(self._polling.known)
        self.calls: Mapping[str, SwitchCall] = MappingProxyType(self._calls)

    def connect(self, port: SwitchRuntime, may_act: Callable[[], bool]) -> None:
        """Learn whose machines there are, whom to tell of news, and whether we lead; before `run`."""
        self._port, self._may_act = port, may_act

    async def run(self) -> None:
        """Watch the power of all machines while we may act. Whoever may not would only disturb them."""
        assert self._port is not None, "connect comes first"
        try:
            while True:
                if self._may_act():
                    self._polling.step(self._port.world(self._clock.now()))
                else:
                    await self._polling.stop()
                await self._clock.sleep(STEP_SECONDS)
        finally:
            await self._polling.stop()

    async def wake(self, pool: AnyResource, machine: str) -> None:
        """Switch it on; returns once that was accepted."""
        await self._switch("Wake", pool, machine)

    async def sleep(self, pool: AnyResource, machine: str) -> None:
        """Switch it off; whoever calls has made sure that nothing runs there."""
        await self._switch("Sleep", pool, machine)

    def refused(self, machine: str, command: Command, why: str) -> None:
        """Note that a call was not made at all."""
        self._note(machine, command, self._clock.now(), "Failed", why)

    async def _switch(self, command: Command, pool: AnyResource, machine: str) -> None:
        began = self._clock.now()
        try:
            await self._tell(command, order_of(pool, machine), began)
        except HeadroomError as problem:
            self._note(machine, command, began, "Unknown" if isinstance(problem, NoAnswer) else "Failed", str(problem))
            kind = Unavailable if isinstance(problem, Unavailable) else Refused
            raise kind(f"{_DOING[command].format(machine)}: {problem}") from problem
        except asyncio.CancelledError:
            self._note(machine, command, began, "Unknown", "the call was abandoned")
            raise
        self._note(machine, command, began, "Accepted")

    async def _tell(self, command: Command, order: SwitchTarget, began: int) -> None:
        machine = order.machine
        if machine.redfish:
            await redfish.switch(self._means, order, machine.redfish, command)
        elif command == "Wake" and machine.wake_on_lan:
            await wake_on_lan.wake(self._means, machine.wake_on_lan)
        else:
            known = status_of(order.pool, machine.name)
            at = (known.woken_at if command == "Wake" else known.slept_at) if known else ""
            await webhook.switch(self._means, order, command, at or times.text(began))

    async def _ask(self, order: SwitchTarget) -> State:
        """The status endpoint knows best: whoever gives one beside a BMC has a reason."""
        if order.machine.status_endpoint:
            return await webhook.power(self._means, order)
        if order.machine.redfish:
            return await redfish.power(self._means, order, order.machine.redfish)
        raise Refused("there is no switch to ask")

    def _note(self, machine: str, command: Command, at: int, outcome: Outcome, message: str = "") -> None:
        self._calls[machine] = SwitchCall(machine=machine, command=command, at=at, outcome=outcome, message=message)
        self._changed(machine)

    def _changed(self, machine: str) -> None:
        if self._port is not None:
            self._port.tell(Topic.MACHINES, machine)

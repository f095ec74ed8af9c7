"""Asks machines whether they are on: all of them at a gentle pace, those that should be changing more often."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from headroom.adapters.power.orders import State, SwitchTarget
from headroom.api.power import PowerPool, PowerPoolSpec
from headroom.api.power_status import PowerPoolStatus
from headroom.model.errors import HeadroomError
from headroom.model.facts import Machine
from headroom.model.ports import Clock
from headroom.model.world import World

EVERY_SECONDS: Final = 30.0
SOON_SECONDS: Final = 5.0
"""For a machine that boots or goes to sleep."""
FIRST_SECONDS: Final = 5.0
"""Over so long the first questions are spread."""
STEP_SECONDS: Final = 1.0
AT_ONCE: Final = 16
MOST_BEGUN: Final = 50
"""Machines whose turn has begun; so a step begins with no more, and a large fleet has a slower pace."""
MOST_FAILURES: Final = 2
"""After so many in a row nothing is known any more."""


class _Asked(Struct):
    """When a machine is asked next, and how often it did not answer."""

    at: float
    """When it was asked last; of one that was not asked yet, so long ago that its turn is soon."""
    stretch: float
    """Its own pace, so that they do not all come at once for ever."""
    failures: int = 0


class PowerPolling:
    """Keeps what is known of the power of machines."""

    def __init__(
        self,
        ask: Callable[[SwitchTarget], Awaitable[State]],
        clock: Clock,
        rng: random.Random,
        changed: Callable[[str], None],
        unread: Callable[[str, str], None],
    ) -> None:
        """`changed` hears of which machine something is new, `unread` when a machine's power cannot be read any more, and why."""
        self._ask, self._clock, self._rng, self._changed, self._unread = ask, clock, rng, changed, unread
        self.known: dict[str, Machine] = {}
        self._asked: dict[str, _Asked] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(AT_ONCE)

    def step(self, world: World) -> None:
        """Ask those whose turn it is, as many as may be asked at once."""
        orders = askable(world)
        for name in [name for name in self._asked if name not in orders]:
            self._forget(name)
        now = self._clock.monotonic()
        for name in orders:
            if name not in self._asked:
                first = now - EVERY_SECONDS + self._rng.uniform(0, FIRST_SECONDS)
                self._asked[name] = _Asked(first, self._rng.uniform(0.9, 1.1))
        due = sorted(
            (not soon, turn, name) for name, (_, soon) in orders.items() if (turn := self._turn(name, soon)) <= now
        )
        waiting = [name for *_, name in due if name not in self._asking]
        for name in waiting[: max(0, MOST_BEGUN - len(self._asking))]:
            look = self._look(orders[name][0], self._asked[name])
            self._asking[name] = asyncio.create_task(look, name=f"power of {name}")

    def _turn(self, name: str, soon: bool) -> float:
        asked = self._asked[name]
        return asked.at + (SOON_SECONDS if soon else EVERY_SECONDS * asked.stretch)

    async def _look(self, order: SwitchTarget, asked: _Asked) -> None:
        name = order.machine.name
        try:
            async with self._free:
                self._note(name, await self._ask(order))
            asked.failures = 0
        except Exception as problem:  # noqa: BLE001 - whatever went wrong, an old answer must not stand for ever
            asked.failures += 1
            if asked.failures == MOST_FAILURES:
                self._note(name, "Unknown")
                self._unread(name, str(problem) if isinstance(problem, HeadroomError) else repr(problem))
        finally:
            asked.at = self._clock.monotonic()
            self._asking.pop(name, None)

    def _note(self, name: str, power: State) -> None:
        before = self.known.get(name)
        if name in self._asked and (before is None or before.power != power):
            self.known[name] = Machine(name=name, power=power, since=self._clock.now())
            self._changed(name)

    def _forget(self, name: str) -> None:
        del self._asked[name]
        if self.known.pop(name, None) is not None:
            self._changed(name)

    async def stop(self) -> None:
        """Ask nobody any more, and forget what was known: it grows old."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in list(self._asked):
            self._forget(name)


def askable(world: World) -> dict[str, tuple[SwitchTarget, bool]]:
    """Every machine that says whether it is on, and whether it should be changing. One that two pools have belongs to the first."""
    found: dict[str, tuple[SwitchTarget, bool]] = {}
    pools = [
        (pool, pool.spec) for _, pool in world.of_kind(PowerPool.kind.name) if isinstance(pool.spec, PowerPoolSpec)
    ]
    for pool, spec in sorted(pools, key=lambda each: (each[1].order, each[0].name)):
        known = pool.status.machines if isinstance(pool.status, PowerPoolStatus) else ()
        changing = {each.name for each in known if each.state in ("Booting", "Sleeping")}
        for machine in spec.machines:
            if machine.status_endpoint or machine.redfish:
                order = SwitchTarget(pool=pool, spec=spec, machine=machine)
                found.setdefault(machine.name, (order, machine.name in changing))
    return found

"""Keeps what became of machines in the ledger, and tells the World what all clusters that share it have seen. Idle without a LeftoverNodePool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from headroom.core.offers import KIND, news_of, records_of, with_zone_ids, with_zone_names
from headroom.model import times
from headroom.model.cloud_facts import Experience
from headroom.model.errors import HeadroomError
from headroom.model.machine_records import WEEK, MachineRecord
from headroom.model.ports import Clock, Ledger
from headroom.model.world import World
from headroom.runtime.clock import Due

STEP_SECONDS: Final = 10.0
READ_SECONDS: Final = 60.0
SEEN_MS: Final = 10 * times.MINUTE
"""So often the ledger hears that a machine still runs."""
AT_ONCE: Final = 2000
"""Records in one write."""

Key = tuple[str, str, str, str, str]


class Learnt(Protocol):
    """The port, as far as it is needed here."""

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def learn(self, found: Mapping[str, Experience]) -> None:
        """What is known of offers from their machines, in place of what was."""
        ...


class Learning:
    """Watches machines come and go while we may act."""

    def __init__(self, ledger: Ledger, port: Learnt, clock: Clock, may_act: Callable[[], bool]) -> None:
        self._ledger, self._port, self._clock, self._may_act = ledger, port, clock, may_act
        self._due = Due(clock)
        self._seen: dict[Key, MachineRecord] = {}
        """As of the last look."""
        self._written: dict[Key, MachineRecord] = {}

    async def run(self) -> None:
        """Look every few seconds, for ever."""
        while True:
            if self._may_act():
                await self.step(self._port.world(self._clock.now()))
            else:
                self._seen, self._written = {}, {}
            await self._clock.sleep(STEP_SECONDS)

    async def step(self, world: World) -> None:
        """Write what is new, and read what others wrote. A ledger that is away is asked again at the next step."""
        if not world.of_kind(KIND) or not world.complete:
            return
        # What could not be written is still due at the next look.
        try:
            await self._write(world)
            if self._due.is_time("read", READ_SECONDS):
                found = await self._ledger.experience(world.now - WEEK, world.now)
                self._due.did("read")
                self._port.learn(with_zone_names(found, world.offers.values()))
        except HeadroomError:
            return

    async def _write(self, world: World) -> None:
        now = {each.key: each for each in with_zone_ids(records_of(world), world.offers.values())}
        gone = {key: each for key, each in self._seen.items() if key not in now and self._written.get(key) != each}
        news = [*gone.values(), *news_of(now.values(), self._written, SEEN_MS)]
        self._seen = gone | now
        for begin in range(0, len(news), AT_ONCE):
            part = news[begin : begin + AT_ONCE]
            await self._ledger.record_machines(part)
            self._written |= {each.key: each for each in part}
        self._seen = now
        self._written = {key: each for key, each in self._written.items() if key in now}

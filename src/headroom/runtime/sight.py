"""Says in the log what is not seen any more and why, and what is seen again: once for each turn, and now and then if it lasts."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from headroom.model.ports import Clock
from headroom.model.world import World
from headroom.runtime.logs import Log

REPEAT_SECONDS: Final = 60.0
"""A cause that changed is told again so often at most."""


class _Unseen(Struct):
    since: float
    told_at: float
    why: str


class SightLog:
    """Begins with the first complete view: until then there is nothing to lose sight of."""

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock, self._log = clock, log
        self._unseen: dict[str, _Unseen] = {}
        self._was_complete: bool | None = None

    def look(self, world: World) -> bool:
        """Log what turned; True if any kind did."""
        if self._was_complete is None and not world.complete:
            return False
        now, before = self._clock.monotonic(), set(self._unseen)
        for kind, why in sorted(world.unseen.items()):
            known = self._unseen.get(kind)
            if known is None:
                self._unseen[kind] = _Unseen(now, now, why)
                self._log.warning("a kind cannot be read", kind=kind, why=why)
            elif why != known.why and now - known.told_at >= REPEAT_SECONDS:
                known.why, known.told_at = why, now
                self._log.warning("a kind still cannot be read", kind=kind, why=why, seconds=round(now - known.since))
        for kind in sorted(before - world.unseen.keys()):
            seconds = round(now - self._unseen.pop(kind).since)
            self._log.info("a kind can be read again", kind=kind, seconds=seconds)
        self._tell_completeness(world)
        return before != set(self._unseen)

    def _tell_completeness(self, world: World) -> None:
        before, self._was_complete = self._was_complete, world.complete
        if before and not world.complete:
            why = dict(sorted(world.unseen.items()))
            self._log.warning("the view of the cluster is not complete: no effects until it is", why=why)
        elif before is False and world.complete:
            self._log.info("the view of the cluster is complete again")

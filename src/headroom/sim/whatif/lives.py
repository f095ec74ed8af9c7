"""Lives: the course of each pod, and the effects of each resource."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct, field

from headroom.model.usage import UsageRow
from headroom.sim.whatif.work import RequestedPod

FINISHED: Final = "Finished"
EVICTED: Final = "Evicted"
SUSPENDED: Final = "Suspended"


class Life(Struct, kw_only=True):
    """One pod from its creation to its end; recreated work has several."""

    work: RequestedPod
    uid: str
    made: int
    gpus: int
    """Millionths."""
    node: str = ""
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    """None if it is still running at the end."""
    end: str = ""
    """How it ended: Finished, Evicted or Suspended."""
    row: UsageRow | None = None
    """Its row in the ledger, as of its start."""
    held_by: str = ""
    """The budget that queued it, namespace/name."""
    released: int | None = None

    @property
    def price(self) -> int | None:
        """Its price per hour, in millionths of a dollar; None if unknown."""
        return None if self.row is None else self.row.price


class Shift(Struct, kw_only=True):
    """A time in which a machine of a PowerPool was on, from the command that woke it to its going dark."""

    machine: str
    begin: int
    end: int | None = None
    """None if it is still on at the end."""


class ReplayLog(Struct, kw_only=True):
    """All that happened."""

    lives: list[Life] = field(default_factory=list)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By the kind of action and by who had it done: how often it changed something."""
    shifts: list[Shift] = field(default_factory=list)
    passes: int = 0
    """How often the plans were asked."""

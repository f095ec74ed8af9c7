"""What the pages may look at: the last world, the last decisions and the journal. Nothing is decided here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from headroom.model import conditions
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.runtime.journal import Journal
from headroom.runtime.loop import Bell
from headroom.runtime.metrics import Metrics
from headroom.web.page import Page


class Observed(Protocol):
    """A port that knows how good its view is."""

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def problems(self) -> list[str]:
        """Why the view is not complete, a sentence each."""
        ...

    def watched(self) -> dict[str, bool]:
        """Every kind that the cluster has, or should have, and whether it is seen now."""
        ...

    def age_seconds(self) -> float:
        """Time since the slowest watch was heard."""
        ...


class Deciding(Protocol):
    """The loop, as far as it is shown."""

    decisions: dict[Ref, Decision]
    ticks: int
    bell: Bell


class Gate(Protocol):
    """The right to act."""

    def may_act(self) -> bool:
        """Whether an effect may begin now."""
        ...


class Clock(Protocol):
    """The time."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...


class View(Struct, frozen=True, kw_only=True):
    """One operator, as far as the pages may look at it."""

    port: Observed
    loop: Deciding
    gate: Gate
    clock: Clock
    journal: Journal
    title: str = "Headroom"
    speed: Callable[[], float] | None = None
    """How much faster than life its time passes just now; None where it is life."""

    def world(self) -> World:
        """The view at this instant; good until the next await."""
        return self.port.world(self.clock.now())

    def ready(self) -> Counter[tuple[str, str]]:
        """How many resources of each kind are Ready, are not, or are not known to be."""
        found: Counter[tuple[str, str]] = Counter()
        for ref, decision in self.loop.decisions.items():
            condition = conditions.find(decision.status.conditions, "Ready")
            found[ref.kind, condition.status if condition else "Unknown"] += 1
        return found


class Showing(Struct):
    """What an app shows; another view takes its place when another process does."""

    view: View
    metrics: Metrics
    pages: Sequence[Page]

"""What the pages may look at: the last world, the last decisions and the journal. Nothing is decided here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from headroom.model import conditions
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.runtime.dashboard_settings import Presentation
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

    @property
    def decisions(self) -> Mapping[Ref, Decision]:
        """The newest decision on every resource."""
        ...

    @property
    def ticks(self) -> int:
        """How often it has looked."""
        ...

    @property
    def bell(self) -> Bell:
        """Rung when there is news."""
        ...


class ViewGate(Protocol):
    """The right to act."""

    def may_act(self) -> bool:
        """Whether an effect may begin now."""
        ...


class ViewClock(Protocol):
    """The time."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...


class OperatorView(Struct, frozen=True, kw_only=True):
    """One operator, as far as the pages may look at it."""

    port: Observed
    loop: Deciding
    gate: ViewGate
    clock: ViewClock
    journal: Journal
    title: str = "Headroom"
    presentation: Presentation = Presentation()
    speed: Callable[[], float] | None = None
    """How much faster than life its time passes just now; None where it is life."""
    moment: World | None = None
    """The only instant that it shows, for pages that are made together; None to show each as it comes."""

    def world(self) -> World:
        """The view at this instant; good until the next await."""
        return self.port.world(self.clock.now()) if self.moment is None else self.moment

    def ready(self) -> Counter[tuple[str, str]]:
        """How many resources of each kind are Ready, are not, or are not known to be."""
        found: Counter[tuple[str, str]] = Counter()
        for ref, decision in self.loop.decisions.items():
            condition = conditions.find(decision.status.conditions, "Ready")
            found[ref.kind, condition.status if condition else "Unknown"] += 1
        return found


class Showing(Struct):
    """What an app shows; another view takes its place when another process does."""

    view: OperatorView
    metrics: Metrics
    pages: Sequence[Page]

"""Where pages come from: the operator in the same process, or in another one at the end of a link."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct, structs

from headroom.model import times
from headroom.model.world import World
from headroom.runtime.journal import Noted
from headroom.web.moments import at_one_moment
from headroom.web.page import Page
from headroom.web.pages import Model, Pages, frame, nodes
from headroom.web.scope import Scope
from headroom.web.view import OperatorView, Showing

REST: Final = 9
"""A page takes at most a tenth of the operator's time: so many times as long as one took to make, no other is made."""
BROKEN: Final = "making this page: a bug in Headroom; see the operator's log"
TOGETHER_SECONDS: Final = 0.5
"""Pages of one moment take so much of the operator's processor time at most, and then the page that is being made. Those of a usual
poll take a tenth of that; on a busy machine, or where memory is tidied up meanwhile, several times as much."""
MOST_REASONS: Final = 20
LONGEST_REASON: Final = 500

Address = tuple[Any, ...]
"""Which page is meant, in one form whatever the request looked like: its kind, then names or a `Search`."""


METRICS: Final[Address] = ("metrics",)
"""The metrics as a page, so that they can be of one moment with others."""


class Pulse(Struct, frozen=True, kw_only=True):
    """What the operator says of itself all the time."""

    ticks: int = 0
    complete: bool = False
    reasons: list[str] = []
    """What is not seen, and why: the first of them."""
    rings: int = 0
    """How often there was news."""
    told_at: float = 0.0
    """When the last of it came."""
    epoch: int = 0
    """Another one: another operator has taken over, so nothing that was made before holds."""
    now: int = 0
    frame: Model = {}
    """What every page says, with all that only some may see."""


class Sheet(Struct, frozen=True, kw_only=True):
    """A page without its frame, for all who may see the same."""

    body: Model | None
    """None: there is no such page for them."""
    rings: int
    told_at: float
    epoch: int
    took: float
    """Seconds of the processor."""
    rest: float = 0.0
    """Seconds for which the operator should be left alone after it."""
    at: int = 0
    """The moment that it is true for."""
    made_at: float = 0.0
    """The same by the machine's monotonic clock, which all its processes share."""
    is_broken: bool = False
    """It cannot be made because of a bug in Headroom."""


class PageSource(Protocol):
    """Makes pages."""

    pages: Sequence[Page]
    """All that there are."""

    def pulse(self) -> Pulse:
        """What the operator said last."""
        ...

    def namespaces(self) -> set[str]:
        """Those in which there is something to see."""
        ...

    async def make(self, address: Address, scope: Scope) -> Sheet:
        """Make a page. Raises a `HeadroomError` if the operator does not answer."""
        ...

    async def make_together(self, addresses: Sequence[Address], scope: Scope) -> dict[Address, Sheet]:
        """Make several pages of one moment: the first of them at least, and as many more as take no longer than a moment."""
        ...

    async def metrics(self) -> bytes:
        """All metrics as Prometheus reads them."""
        ...

    async def news(self, heard: int, seconds: float) -> None:
        """Until there was news more often than was heard, or so much time has passed."""
        ...


def _reasons(view: OperatorView, world: World) -> list[str]:
    lines = [f"not seen: {kind}: {why}" for kind, why in sorted(world.unseen.items())]
    if not world.complete:
        named = set(world.unseen.values())
        lines += [each for each in view.port.problems() if each not in named]
    return [each[:LONGEST_REASON] for each in lines[:MOST_REASONS]]


class Local:
    """The operator in this process: what it makes takes time from its loop."""

    def __init__(self, showing: Showing) -> None:
        self._showing, self.pages = showing, showing.pages
        self._makers = Pages(showing.pages)
        self._exact = Pages(showing.pages)
        """For pages of one moment: what these remember of an earlier one is never shown."""
        self._shown: OperatorView = showing.view
        self._epoch = 0

    def _view(self) -> OperatorView:
        if self._showing.view is not self._shown:
            self._shown = self._showing.view
            self._epoch += 1
        return self._shown

    def pulse(self) -> Pulse:
        """What the operator says now."""
        view = self._view()
        world, bell = view.world(), view.loop.bell
        return Pulse(
            ticks=view.loop.ticks,
            complete=world.complete,
            reasons=_reasons(view, world),
            rings=bell.rings,
            told_at=bell.rung_at,
            epoch=self._epoch,
            now=world.now,
            frame=frame(view),
        )

    def namespaces(self) -> set[str]:
        """Those of our resources, and of pods that ask for GPUs."""
        world = self._view().world()
        return {ref.namespace for ref in world.resources if ref.namespace} | nodes.namespaces(world)

    async def make(self, address: Address, scope: Scope) -> Sheet:
        """Make a page."""
        return self.made(address, scope)

    def made(self, address: Address, scope: Scope) -> Sheet:
        """Make a page now."""
        return self._sheet(address, scope, self._view())

    def _sheet(self, address: Address, scope: Scope, view: OperatorView) -> Sheet:
        # By the processor's time: on a busy machine the clock runs on while nothing is made.
        made_at, began = time.monotonic(), time.thread_time()
        bell, now = view.loop.bell, view.world().now
        rings, told_at = bell.rings, bell.rung_at
        body: Model | None
        if address == METRICS:
            body = {"text": self.measured(view).decode()}
        else:
            body = (self._makers if view.moment is None else self._exact).of(address)(view, scope)
        took = time.thread_time() - began
        return Sheet(
            body=body,
            rings=rings,
            told_at=told_at,
            epoch=self._epoch,
            took=took,
            rest=took * REST,
            at=now,
            made_at=made_at,
        )

    async def make_together(self, addresses: Sequence[Address], scope: Scope) -> dict[Address, Sheet]:
        """Make several pages of one moment."""
        return self.made_together(addresses, scope)

    def made_together(
        self, addresses: Sequence[Address], scope: Scope, failed: Callable[[Exception], None] | None = None
    ) -> dict[Address, Sheet]:
        """Make several pages of one moment, now: all from one world, and nothing in them kept from before.

        `failed` hears of a page that cannot be made, which takes no other page away; without it, it is raised.
        """
        looked_at, began = time.monotonic(), time.thread_time()
        view, found = self._of_now(failed), dict[Address, Sheet]()
        decided = time.thread_time()
        for address in addresses:
            try:
                found[address] = structs.replace(self._sheet(address, scope, view), made_at=looked_at)
            except Exception as error:
                if failed is None:
                    raise
                failed(error)
                found[address] = Sheet(
                    body=None, rings=0, told_at=0.0, epoch=self._epoch, took=0.0, made_at=looked_at, is_broken=True
                )
            if time.thread_time() - decided >= TOGETHER_SECONDS:
                break
        for address in list(found)[:1]:  # deciding is counted with the first of them
            took = found[address].took + decided - began
            found[address] = structs.replace(found[address], took=took, rest=took * REST)
        return found

    def _of_now(self, failed: Callable[[Exception], None] | None) -> OperatorView:
        view = self._view()
        try:
            return at_one_moment(view)
        except Exception as error:
            if failed is None:
                raise
            failed(error)
            return structs.replace(view, moment=view.world())  # as the loop has it, which goes on after such a mistake

    async def metrics(self) -> bytes:
        """All metrics, measured now."""
        return self.measured()

    def measured(self, view: OperatorView | None = None) -> bytes:
        """All metrics, measured now."""
        metrics, view = self._showing.metrics, view or self._view()
        metrics.view_age.set(view.port.age_seconds())
        metrics.watch_up.clear()
        for kind, seen in view.port.watched().items():
            metrics.watch_up.labels(kind).set(seen)
        world = view.world()
        metrics.moment.set(world.now / times.SECOND)
        for each in metrics.measures:
            each.measure(world, view.loop.decisions)
        metrics.resources.clear()
        for (kind, ready), count in view.ready().items():
            metrics.resources.labels(kind, ready).set(count)
        return metrics.render()

    async def news(self, heard: int, seconds: float) -> None:
        """Until the loop has decided something."""
        await self._view().loop.bell.wait(heard, seconds)

    def journal(self, after: int) -> tuple[int, int, list[Noted]]:
        """The moment, how many entries there are, and those that were taken down after so many."""
        view = self._view()
        return view.clock.now(), *view.journal.since(after)

"""A pool as a supply of machines: its terms, its machines as rooms, and what it makes of a round."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from headroom.core.capacity import Outcome, Source, Stage, Terms, Why
from headroom.core.demand import Candidate, Room, Unit
from headroom.core.spot_pools import deciding, launching, rooms, trying, unserved
from headroom.core.spot_pools.alternatives import Alternative, Choice, choice_of
from headroom.core.spot_pools.fleet import Fleet
from headroom.core.spot_pools.gathering import concerned, pools_of
from headroom.core.spot_pools.launching import Order
from headroom.core.spot_pools.places import KIND, Place, Pool, when
from headroom.model import times
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

LEAD_MS: Final = 5 * times.MINUTE
"""From a launch until pods can use the machine."""
PRIORITY_FLOOR: Final = -10
"""Pods of less are there to be displaced: nothing is bought for them."""


class SpotSupply:
    """One pool in a round."""

    def __init__(self, world: World, pool: Pool, fleet: Fleet) -> None:
        self.world, self.pool, self.ref, self.fleet = world, pool, pool.ref, fleet
        self.outcome: Outcome | None = None
        """Once it has settled."""

    @cached_property
    def choice(self) -> Choice:
        """What it could launch."""
        return choice_of(self.pool, self.fleet)

    @cached_property
    def terms(self) -> Terms:
        """As its spec says."""
        pool = self.pool
        at_most = self._at_most() if pool.on_demand else 0
        return Terms(
            order=pool.spec.order,
            gpu_resource=pool.spec.template.gpu_resource_name,
            lead_ms=LEAD_MS,
            halted=pool.halted,
            priority_floor=PRIORITY_FLOOR,
            namespaces=rooms.namespaces(pool),
            floor_gap=min(at_most, max(0, pool.least - pool.counted())),
            at_most=at_most,
            trials=tuple(trying.known(pool)) if pool.before.trials else (),
        )

    def _at_most(self) -> int:
        """How many may be launched for pods now; those for which there is none pass on to the next supply."""
        pool = self.pool
        if pool.halted or not pool.may_act:
            return 0
        return max(0, min(pool.spec.maximum - pool.counted(), launching.limit(pool).machines))

    def nodes(self) -> Mapping[str, int | None]:
        """Only what has joined and stays can be used, and only since it joined."""
        return {
            each.node.name: when(each.slot.joined_at, self.pool.now) if each.state == "Running" else None
            for each in self.pool.places
            if each.node is not None
        }

    def rooms(self, stage: Stage, ready: Mapping[str, Room]) -> Iterable[Candidate]:
        """Its machines at a stage."""
        match stage:
            case Stage.READY:
                return rooms.opening(self.pool)
            case Stage.LEAVING:
                return rooms.leaving(self.pool)
            case Stage.COMING:
                return rooms.coming(self.pool, ready)
            case Stage.CLOSED:
                return rooms.closed(self.pool, self.choice, self._at_most() if self.pool.on_demand else 0)

    def settle(self, outcome: Outcome) -> Decision:
        """Launch, keep and end."""
        pool, self.outcome = self.pool, outcome
        self._keep(outcome)
        orders = [Order(self._alternative(each.name), each.assigned) for each in outcome.opened]
        before = len(pool.places)
        deciding.turn(pool, self.fleet, outcome, self.choice, orders)
        unserved.tell(pool, outcome, self.choice)
        new = [each for each in pool.places if each.is_new] if len(pool.places) != before else []
        opened: dict[str, Place] = dict(zip((each.name for each in outcome.opened), new, strict=False))
        return deciding.decided(pool, outcome, trying.status(pool, outcome, opened) if outcome.trials else ())

    def _alternative(self, name: str) -> Alternative:
        plain = name.partition("#")[0]
        return next(
            each for each in self.choice.open if rooms.closed_name(self.pool, each.instance_type, each.zone) == plain
        )

    def _keep(self, outcome: Outcome) -> None:
        """Machines that were drained only because nobody needed them stay if pods do; what has come is not awaited any more."""
        by_name = {each.slot.node: each for each in self.pool.places if each.slot.node} if outcome.kept else {}
        for each in outcome.kept:
            by_name[each.name].change(state="Running", since=self.pool.text_now, cause="", idle_since="")
        for place in self.pool.places:
            if place.slot.assigned and not rooms.is_coming(place) and not rooms.is_fresh(self.pool, place):
                place.change(assigned=())

    def why(self, unit: Unit, reason: str) -> Why:
        """Why it launches nothing for a unit."""
        assert self.outcome is not None, "it has settled"
        return unserved.why(self.pool, self.outcome, self.choice, unit, reason)


def supplies(world: World, without: Collection[Ref] = ()) -> Iterator[SpotSupply]:
    """One for each pool that can be read."""
    return (SpotSupply(world, pool, fleet) for pool, fleet in pools_of(world, without))


def lead_ms(world: World) -> int:
    """How long before they start announced pods matter."""
    return LEAD_MS if world.of_kind(KIND) else 0


SOURCE = Source(kind=KIND, supplies=supplies, concerned=concerned, lead_ms=lead_ms, undecided=deciding.undecided)

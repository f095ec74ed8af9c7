"""A pool as a supply of machines: its terms, its machines as rooms, and what it makes of a round."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from headroom.core.capacity import RoomStage, SupplyOutcome, SupplySource, SupplyTerms, Why
from headroom.core.demand import Candidate, Room, Unit
from headroom.core.spot_pools import announced, deciding, launching, rooms, trying, unserved
from headroom.core.spot_pools.alternatives import Alternative, LaunchChoice, choice_of
from headroom.core.spot_pools.fleet import SpotFleet
from headroom.core.spot_pools.gathering import concerned, pools_of
from headroom.core.spot_pools.launching import LaunchOrder
from headroom.core.spot_pools.places import KIND, LEAD_MS, PoolSlot, SpotPoolState, when
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

PRIORITY_FLOOR: Final = -10
"""Pods of less are there to be displaced: nothing is bought for them."""


class SpotSupply:
    """One pool in a round."""

    def __init__(self, world: World, pool: SpotPoolState, fleet: SpotFleet) -> None:
        self.world, self.pool, self.ref, self.fleet = world, pool, pool.ref, fleet
        self.outcome: SupplyOutcome | None = None
        """Once it has settled."""

    @cached_property
    def choice(self) -> LaunchChoice:
        """What it could launch."""
        return choice_of(self.pool, self.fleet)

    def _choose(self) -> LaunchChoice:
        return self.choice

    @cached_property
    def terms(self) -> SupplyTerms:
        """As its spec says."""
        pool = self.pool
        at_most = self._at_most() if pool.on_demand else 0
        return SupplyTerms(
            order=pool.spec.order,
            gpu_resource=pool.spec.template.gpu_resource_name,
            lead_ms=LEAD_MS,
            halted=pool.halted,
            priority_floor=PRIORITY_FLOOR,
            namespaces=rooms.namespaces(pool),
            unheeded=announced.unheeded(pool) if pool.missed else frozenset(),
            floor_gap=min(at_most, max(0, pool.least - pool.counted())),
            at_most=at_most,
            at_once=launching.purchases(pool).machines if self._may_keep_waiting else None,
            trials=tuple(trying.known(pool)) if pool.before.trials else (),
        )

    def _at_most(self) -> int:
        """How many may be launched for pods now; those for which there is none pass on to the next supply."""
        pool = self.pool
        if pool.halted or not pool.may_act:
            return 0
        limit = launching.room(pool) if self._may_keep_waiting else launching.limit(pool)
        return max(0, min(pool.spec.maximum - pool.counted(), limit.machines))

    @property
    def _may_keep_waiting(self) -> bool:
        """Pods wait for its next hour. Where it serves others' too they do not: its owner could keep them from every other pool."""
        return self.pool.on_demand and rooms.namespaces(self.pool) == frozenset({self.ref.namespace})

    def nodes(self) -> Mapping[str, int | None]:
        """Only what has joined and stays can be used, and only since it joined."""
        return {
            each.node.name: when(each.slot.joined_at, self.pool.now) if each.state == "Running" else None
            for each in self.pool.places
            if each.node is not None
        }

    def rooms(self, stage: RoomStage, ready: Mapping[str, Room]) -> Iterable[Candidate]:
        """Its machines at a stage."""
        match stage:
            case RoomStage.READY:
                return rooms.opening(self.pool)
            case RoomStage.LEAVING:
                return rooms.leaving(self.pool)
            case RoomStage.COMING:
                return rooms.coming(self.pool, ready)
            case RoomStage.CLOSED:
                return rooms.closed(self.pool, self._choose, self._at_most() if self.pool.on_demand else 0)

    def settle(self, outcome: SupplyOutcome) -> Decision:
        """Launch, keep and end."""
        pool, self.outcome = self.pool, outcome
        self._keep(outcome)
        orders = [LaunchOrder(self._alternative(each.name), each.assigned) for each in outcome.opened]
        announced.expect(pool, outcome)
        before = len(pool.places)
        deciding.transition(pool, self.fleet, outcome, self._choose, orders)
        unserved.tell(pool, outcome, self._choose)
        new = [each for each in pool.places if each.is_new] if len(pool.places) != before else []
        opened: dict[str, PoolSlot] = dict(zip((each.name for each in outcome.opened), new, strict=False))
        return deciding.decided(pool, outcome, trying.status(pool, outcome, opened) if outcome.trials else ())

    def _alternative(self, name: str) -> Alternative:
        plain = name.partition("#")[0]
        return next(
            each for each in self.choice.open if rooms.closed_name(self.pool, each.instance_type, each.zone) == plain
        )

    def _keep(self, outcome: SupplyOutcome) -> None:
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
        return unserved.why(self.pool, self.outcome, self._choose, unit, reason)


def supplies(world: World, without: Collection[Ref] = ()) -> Iterator[SpotSupply]:
    """One for each pool that can be read."""
    return (SpotSupply(world, pool, fleet) for pool, fleet in pools_of(world, without))


def lead_ms(world: World) -> int:
    """How long before they start announced pods matter."""
    return LEAD_MS if world.of_kind(KIND) else 0


SOURCE = SupplySource(kind=KIND, supplies=supplies, concerned=concerned, lead_ms=lead_ms, undecided=deciding.undecided)

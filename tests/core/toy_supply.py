"""A third supply, as small as one can be: a market that sells machines of one kind while it has some, and takes back what is idle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headroom.api.kinds import AnyResource
from headroom.core import machines
from headroom.core.capacity import RoomStage, Supply, SupplyOutcome, SupplySource, SupplyTerms, Why
from headroom.core.demand import Candidate, Room, Unit
from headroom.model.actions import Action, LaunchInstance, TerminateInstance
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, standing
from headroom.model.world import World

KIND = "Spotpool"
GPU, WHOLE = "nvidia.com/gpu", 1_000_000


def plan_of(sources: Sequence[SupplySource]) -> Plan:
    """A capacity plan that asks these, and has no chores."""
    return machines.plan_of([each.kind for each in sources], lambda: sources)


class Bought(NamedTuple):
    """A machine that was bought."""

    at: int
    assigned: Mapping[str, int]


class Market:
    """What can be bought, and what was."""

    def __init__(self, *, stock: int = 1, gpus: int = 8, **terms: object) -> None:
        self.stock, self.gpus, self.terms = stock, gpus, terms
        self.bought: dict[str, Bought] = {}
        self.sales: list[tuple[int, str]] = []
        self.raises = ""
        """The call in which every supply of the market raises."""

    def room(self, name: str) -> Room:
        """A machine."""
        return Room(name=name, source="Launch", free=((GPU, self.gpus * WHOLE),), partly_known=True)

    def supplies(self, world: World, without: Collection[Ref]) -> Iterator[Supply]:
        """One for each resource."""
        return (ToySupply(self, world, ref) for ref, _ in world.of_kind(KIND) if ref not in without)

    @property
    def source(self) -> SupplySource:
        """What the plan asks."""
        return SupplySource(kind=KIND, supplies=self.supplies, undecided=_undecided)


def _undecided(world: World, ref: Ref, resource: AnyResource) -> Decision:
    return standing(world, ref, resource, "Nothing was decided.")


class ToySupply:
    """One resource of the market in a round."""

    def __init__(self, market: Market, world: World, ref: Ref) -> None:
        self.market, self.world, self.ref = market, world, ref

    @property
    def terms(self) -> SupplyTerms:
        """As the market says."""
        self._may_raise("terms")
        return SupplyTerms(gpu_resource=GPU, **self.market.terms)  # type: ignore[arg-type]  # a test says which

    def nodes(self) -> Mapping[str, int | None]:
        """What has joined is a node like any other."""
        self._may_raise("nodes")
        return {}

    def rooms(self, stage: RoomStage, ready: Mapping[str, Room]) -> Iterable[Candidate]:
        """What was bought and has not joined, and what could be."""
        self._may_raise(stage.value)
        if stage is RoomStage.COMING:
            for name, each in self._mine():
                if name not in ready and self.world.nodes.get(name) is None:
                    yield Candidate(room=self.market.room(name), assigned=each.assigned)
        if stage is RoomStage.CLOSED and self.market.stock:
            yield Candidate(room=self.market.room(self.ref.name), cost=(1,), count=self.market.stock)

    def settle(self, outcome: SupplyOutcome) -> Decision:
        """Buy what was chosen, and give back what nobody uses."""
        self._may_raise("settle")
        due: list[Action] = []
        for each in outcome.opened:
            number = len(self.market.sales)
            name = f"{self.ref.name}-{number}"
            self.market.sales.append((self.world.now, name))
            self.market.bought[name] = Bought(self.world.now, each.assigned)
            due.append(LaunchInstance(pool=self.ref.name, slot=number, token=name, instance_type="toy", zone="a"))
        for name, _ in list(self._mine()):
            if self.world.nodes.get(name) and name not in outcome.needed and not self.world.pods.by_node[name]:
                del self.market.bought[name]
                due.append(TerminateInstance(pool=self.ref.name, instance=name))
        found = _undecided(self.world, self.ref, self.world.resources[self.ref])
        reasons = ", ".join(reason or "NoRoom" for _, reason in outcome.unserved)
        return Decision(resource=self.ref, status=found.status, reason="Settled", message=reasons, actions=tuple(due))

    def why(self, unit: Unit, reason: str) -> Why:
        """Why it buys nothing."""
        return Why(reason or "SoldOut", f"Nothing is for sale for {unit.first}.")

    def _mine(self) -> Iterator[tuple[str, Bought]]:
        return ((name, each) for name, each in sorted(self.market.bought.items()) if name.startswith(self.ref.name))

    def _may_raise(self, where: str) -> None:
        if self.market.raises == where:
            raise RuntimeError(f"no {where} today")

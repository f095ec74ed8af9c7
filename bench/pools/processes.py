"""Operator processes, which decide on views of their own, and whoever watches what comes of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model import actions
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.sim.cloud import SimMachine
from headroom.sim.cloud_view import CloudView

if TYPE_CHECKING:
    from bench.pools.stage import Stage

KIND: Final = "Spotpool"
REF: Final = Ref(KIND, "team", "pool")
CLUSTER: Final = "c"
REGION: Final = "sim-1"

Planner = Callable[[World], Decision | None]


class Violation(Exception):
    """Something happened that must never happen."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class Process:
    """One operator process."""

    def __init__(self, stage: Stage, skew: int) -> None:
        self.stage, self.skew = stage, skew
        self.alive = True
        self.begin()

    def begin(self) -> None:
        """A new process knows nothing."""
        self.view: AnyResource | None = self.stage.pool
        self.clouds = CloudView({REGION: self.stage.cloud}, CLUSTER, self.now)
        self.work: deque[Status | actions.Action] = deque()
        self.basis: AnyResource | None = None

    def now(self) -> int:
        """By its own clock."""
        return self.stage.now + self.skew

    def decide(self, planner: Planner) -> None:
        """Decide on what it sees, in place of what is left of an earlier decision."""
        self.work.clear()
        if self.view is None:
            return
        world = World(
            now=self.now(),
            cluster=CLUSTER,
            stopped=self.stage.stopped,
            resources={REF: self.view},  # type: ignore[arg-type]  # given as any mapping, they are kept by kind
            pods=self.stage.pods,
            nodes=self.stage.nodes,
            instances=self.clouds.instances,
            offers=self.clouds.offers,
            listings=self.clouds.listings,
            launches=self.clouds.launches,
            instances_given=False,
        )
        decision = planner(world)
        if decision is None:
            return
        self.stage.watch.decided(self, world, decision)
        self.basis = self.view
        if decision.status != self.view.status:
            self.work.append(decision.status)
        if not self.stage.stopped:
            self.work.extend(each for each in decision.actions if not isinstance(each, actions.EmitEvent))


class Watch:
    """Whoever checks what happens; this one does not mind."""

    def decided(self, process: Process, world: World, decision: Decision) -> None:
        """A process decided."""

    def wrote(self, before: AnyResource, after: AnyResource) -> None:
        """A status was written."""

    def ends(self, machine: SimMachine) -> None:
        """A machine is about to be ended by us."""

    def drains(self, node: str) -> None:
        """A node is about to be drained by us."""

    def released(self, pool: AnyResource) -> None:
        """Our finalizer is about to be removed."""

    def made(self, machine: SimMachine) -> None:
        """A machine was launched by us."""

    def stands(self) -> None:
        """Something was done: whatever must hold now."""

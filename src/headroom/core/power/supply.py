"""A pool as a supply of machines: its terms, its machines as rooms, and what it makes of a round."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from headroom.api import power_status
from headroom.core import demand
from headroom.core.capacity import RoomStage, SupplyOutcome, SupplySource, SupplyTerms, Trial, Why
from headroom.core.demand import Candidate, Room, Unit
from headroom.core.power import coming, deciding, fruitless, sleeping, states, unserved, waking
from headroom.core.power.gathering import concerned, lead_ms, pools_of
from headroom.core.power.members import KIND, Cordon, PoolMachine, PowerPoolState, moment_of
from headroom.core.power.states import ABORT_MS
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World


class PowerSupply:
    """One pool in a round."""

    def __init__(self, world: World, pool: PowerPoolState) -> None:
        self.world, self.pool, self.ref = world, pool, pool.ref
        self.outcome: SupplyOutcome | None = None
        """Once it has settled."""

    @cached_property
    def terms(self) -> SupplyTerms:
        """As its spec says."""
        pool = self.pool
        return SupplyTerms(
            order=pool.spec.order,
            gpu_resource=pool.spec.gpu_resource_name,
            schedulers=pool.policy.schedulers,
            lead_ms=pool.boot_ms,
            halted=pool.halted,
            priority_floor=pool.policy.priority_floor,
            over_quota=pool.policy.wake_for_exhausted_budgets,
            beside_karpenter=pool.policy.share_with_karpenter,
            device_classes=pool.spec.device_classes,
            rations=pool.rations,
            floor_gap=max(0, pool.floor - len(pool.are("On", "Booting"))),
            at_once=waking.slots(pool),
            trials=tuple(_known(pool, each) for each in pool.before.trials),
        )

    def nodes(self) -> Mapping[str, int | None]:
        """Only what is on can be used, and only since its last turn."""
        return {
            machine.name: max(machine.since, machine.idle_since or 0) if machine.state == "On" else None
            for machine in self.pool.members
        }

    def rooms(self, stage: RoomStage, ready: Mapping[str, Room]) -> Iterable[Candidate]:
        """Its machines at a stage."""
        match stage:
            case RoomStage.READY:
                nodes = [
                    machine.node for machine in self.pool.members if machine.node is not None and self._opens(machine)
                ]
                rooms = demand.reopened(self.world, nodes)
                return [Candidate(room=coming.with_devices(self.world, self.pool, room)) for room in rooms]
            case RoomStage.LEAVING:
                return self._leaving(ready)
            case RoomStage.COMING:
                return self._coming(ready)
            case RoomStage.CLOSED:
                return waking.candidates(self.world, self.pool)

    def _opens(self, machine: PoolMachine) -> bool:
        """Whether a machine that stays on is about to lose our cordon; one that keeps it for long is no room."""
        return (
            machine.state == "On"
            and machine.is_up
            and machine.cordon is Cordon.OURS
            and self.world.now - machine.since < ABORT_MS
        )

    def _leaving(self, ready: Mapping[str, Room]) -> Iterator[Candidate]:
        pool = self.pool
        for machine in pool.members:
            if machine.name in ready and states.was_kept(machine, pool.now):
                yield Candidate(room=ready[machine.name])
        # One that was kept for an hour, and used by none of those it was kept for, is not kept for the next.
        going = [
            machine
            for machine in pool.are("Draining")
            if not sleeping.was_kept_in_vain(pool, machine) and not pool.halted
        ]
        draining = [machine.node for machine in going if machine.node is not None]
        for room in demand.reopened(self.world, sorted(draining, key=lambda node: node.name)):
            yield Candidate(room=coming.with_devices(self.world, pool, room))

    def _coming(self, ready: Mapping[str, Room]) -> Iterator[Candidate]:
        pool, now = self.pool, self.pool.now
        for machine in pool.members:
            if machine.state == "Booting" or states.is_joining(machine, now, pool.boot_ms):
                yield _candidate(machine, coming.room_of(self.world, pool, machine))
            elif machine.state == "On" and machine.before is not None and machine.name in ready:
                is_new = now - machine.since < states.NEW_MS
                if not is_new and now - (machine.woken_at or 0) >= pool.boot_ms:
                    continue
                room = coming.arriving(pool, machine, ready[machine.name])
                # It is ready; but what runs on every node may not have started there yet.
                if is_new or room != ready[machine.name]:
                    yield _candidate(machine, room)

    def settle(self, outcome: SupplyOutcome) -> Decision:
        """Wake, keep, fill up and let sleep."""
        pool, self.outcome = self.pool, outcome
        pool.trials = [*outcome.trials]
        _forget_tried(pool)
        waking.wake(self.world, pool, outcome)
        unserved.tell(pool, outcome)
        sleeping.let_sleep(pool, outcome)
        fruitless.expect(pool, outcome)
        return deciding.decided(pool, outcome)

    def why(self, unit: Unit, reason: str) -> Why:
        """Why it wakes nothing for a unit."""
        assert self.outcome is not None, "it has settled"
        return unserved.why(self.pool, self.outcome, unit, reason, unserved.fleet_of(self.pool, self.outcome.round))


def _candidate(machine: PoolMachine, room: Room) -> Candidate:
    return Candidate(room=room, failed=bool(machine.failures), assigned=machine.assigned)


def _known(pool: PowerPoolState, trial: power_status.TrialStatus) -> Trial:
    """What is remembered of a trial, with what its machines are doing now."""
    woken = [it for it in pool.members if trial.shape in it.tried_for]
    machine = next((it for it in woken if it.name == trial.machine), None)
    rooms = frozenset[str]()
    if machine is not None and not trial.until and _is_open(machine):
        rooms = frozenset(it.name for it in woken if _is_open(it))
    return Trial(
        shape=trial.shape,
        room=trial.machine,
        at=moment_of(trial.at) or 0,
        in_vain=trial.in_vain,
        refused_at=moment_of(trial.refused_at) or 0,
        until=moment_of(trial.until) or 0,
        placed=bool(trial.placed),
        rooms=rooms,
        here_since=machine.since if machine is not None and machine.state == "On" else None,
        is_full=machine is not None and machine.busy,
    )


def _forget_tried(pool: PowerPoolState) -> None:
    """A trial that failed, that nobody remembers or that has another machine now, is no matter of a machine any more."""
    running = {(name, trial.shape) for trial in pool.trials if not trial.until for name in (trial.room, *trial.rooms)}
    for machine in pool.members:
        if machine.tried_for:
            machine.tried_for = tuple(shape for shape in machine.tried_for if (machine.name, shape) in running)


def _is_open(machine: PoolMachine) -> bool:
    """Whether pods can go to a machine, or will be able to."""
    return machine.state == "Booting" or (
        machine.state == "On" and machine.cordon in (Cordon.NOBODY, Cordon.LIFTED, Cordon.OURS)
    )


def supplies(world: World, without: Collection[Ref] = ()) -> Iterator[PowerSupply]:
    """One for each pool that can be read."""
    return (PowerSupply(world, pool) for pool in pools_of(world, without))


SOURCE = SupplySource(kind=KIND, supplies=supplies, concerned=concerned, lead_ms=lead_ms, undecided=deciding.undecided)

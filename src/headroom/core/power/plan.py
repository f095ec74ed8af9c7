"""The plan: one round over all pools together, since they share the pods that wait, and one decision for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.core.power import energy, serving, sleeping, states, telling, unserved, waking, warmth
from headroom.core.power.gathering import left_over, pools_of
from headroom.core.power.members import CHANGING, KIND, Member, Pool
from headroom.core.power.serving import Service
from headroom.core.power.states import ABORT_MS
from headroom.model import conditions, sight, times
from headroom.model.actions import Action, CordonNode, DrainNode, SleepMachine, UncordonNode, WakeMachine
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, judgement
from headroom.model.world import Changes, World

LOOK_AGAIN_MS: Final = 30 * times.SECOND
"""While anything is on or changing: pods may end without anybody telling."""
SOONEST_MS: Final = times.SECOND
LATEST_MS: Final = 24 * times.HOUR
_ORDER: Final = (WakeMachine, UncordonNode, CordonNode, DrainNode, SleepMachine)
"""Who waits is served first."""


def decide(world: World, _changes: Changes) -> Iterator[Decision]:
    """One decision for each pool, whatever changed: what one pool does, the others must know."""
    service = round_of(world) if world.complete else None
    pools = {pool.ref: pool for pool in service.pools} if service else {}
    for ref, resource in world.of_kind(KIND):
        if service is not None and ref in pools:
            yield _decided(service, pools[ref])
        else:
            yield _undecided(world, ref, resource)


def round_of(world: World) -> Service:
    """Who waits, where they go, and what becomes of every machine."""
    service = serving.begin(world, pools_of(world))
    waking.serve(service)
    unserved.tell(service)
    sleeping.let_sleep(service)
    return service


def chores(world: World) -> Iterator[Action]:
    """What pools that are gone have left behind."""
    return left_over(world)


def _undecided(world: World, ref: Ref, resource: AnyResource) -> Decision:
    if resource.problems:
        listed = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return judgement(world, ref, resource, (False, "InvalidSpec", listed))
    reason, why = sight.incomplete(world)
    says = f"{why}, so nothing is woken or sent to sleep; the last states stand."
    decision = judgement(world, ref, resource, (False, reason, says))
    braked = conditions.judged(resource, "Braked", True, reason, says, world.now)
    others = tuple(each for each in decision.status.conditions if each.type != "Braked")
    return structs.replace(
        decision,
        status=structs.replace(decision.status, conditions=(*others, braked)),
        actions=(),
        look_again_ms=LOOK_AGAIN_MS,
    )


def _decided(service: Service, pool: Pool) -> Decision:
    said = telling.sentence(service, pool)
    ready = judgement(service.world, pool.ref, pool.resource, (True, pool.halted or "Reconciled", said.message))
    status = structs.replace(
        pool.before,
        observed_generation=pool.resource.generation,
        conditions=telling.judged(pool, ready.status.conditions[0]),
        machines=tuple(it.status() for it in pool.members),
        on=len(pool.are("On")),
        off=len(pool.are("Off")),
        changing=len(pool.are("Booting", "Draining", "Sleeping")),
        failed=len(pool.are("Failed")),
        energy=energy.counted(pool),
        unserved=tuple(pool.unserved),
        trials=tuple(pool.trials),
    )
    next_turn = max(0, min(_turns(service, pool), default=pool.now + LATEST_MS) - pool.now)
    rests = all(it.state not in ("On", *CHANGING) for it in pool.members) and not pool.wants
    return Decision(
        resource=pool.ref,
        status=status,
        reason=said.reason,
        message=said.message,
        actions=() if pool.halted else (*_due(pool), *ready.actions, *telling.events(pool)),
        look_again_ms=max(SOONEST_MS, min(2 * LOOK_AGAIN_MS if rests else LOOK_AGAIN_MS, next_turn)),
        next_turn_ms=max(SOONEST_MS, next_turn),
    )


def _due(pool: Pool) -> list[Action]:
    """All that is due, by kind: alike actions are carried out side by side."""
    return sorted(pool.actions(), key=lambda action: _ORDER.index(type(action)))


# --- when the clock alone changes something -------------------------------------------------------------------------------------


def _turns(service: Service, pool: Pool) -> Iterator[int]:
    known = [pool.floor_turns_at, pool.brake_ends_at, service.turns_at]
    known += [each for it in pool.members for each in _turns_of(pool, it)]
    known += [it.since + states.NEW_MS for it in pool.are("On") if it.name in service.into]
    if pool.wants:
        known += [bar.until for bar in waking.bars(pool).values()]
    return (each for each in known if each is not None and each > pool.now)


def _turns_of(pool: Pool, it: Member) -> Iterator[int | None]:
    if it.state == "Booting":
        yield (it.woken_at or it.since) + pool.boot_ms
    elif it.state == "Sleeping":
        yield (it.slept_at or it.since) + pool.boot_ms
    elif it.state == "Draining":
        yield from (it.since + sleeping.SETTLE_MS, it.since + ABORT_MS)
    elif it.state == "On":
        why = sleeping.awake(pool, it)
        yield why.until if why is not None else None
        if it.held:
            yield from warmth.turns(pool, it)
    elif states.is_joining(it, pool.now, pool.boot_ms):
        yield states.may_still_join_until(it, pool.boot_ms)


PLAN: Final = Plan(
    name="power",
    kind=KIND,
    wakes_on=frozenset({KIND, "unbound", "nodes", "outside"}),
    at_most_every_ms=1000,
    decide=decide,
    chores=chores,
)

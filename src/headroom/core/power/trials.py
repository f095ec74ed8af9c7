"""Trials: one machine for pods whose needs we do not understand wholly, no more until one of them is bound, and longer pauses each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct, structs

from headroom.api.power_status import Trial
from headroom.core import demand
from headroom.core.demand import Part, Unit, Verdict, Wanted
from headroom.core.power.members import Cordon, Member, Pool, moment_of, told, when
from headroom.core.power.states import doubled
from headroom.model import times
from headroom.model.facts import Pod
from headroom.model.world import World

OUTCOME_MS: Final = 2 * times.MINUTE
"""So long after a machine has come, it shows whether it was any help."""
FIRST_PAUSE_MS: Final = 15 * times.MINUTE
LONGEST_PAUSE_MS: Final = 24 * times.HOUR
NEWCOMERS_PAUSE_MS: Final = times.HOUR
"""Pods that were not refused themselves do not wait longer for the next try."""
FORGOTTEN_MS: Final = times.HOUR
"""While nobody waits for its outcome."""
MOST: Final = 256


class Standing(Struct, frozen=True, kw_only=True):
    """A trial that is not over, or that was in vain."""

    pool: Pool
    trial: Trial
    runs: bool
    """Its machine is on or coming, and the outcome is not known."""
    is_awaited: bool
    """And somebody waits for it."""
    machine: Member | None = None
    """What is tried, while it is still on or coming for that."""
    refused_at: int
    until: int
    """Before when no other machine is tried."""

    def until_for(self, *, refused: bool) -> int:
        """Before when no other machine is tried for those that were refused themselves, or for who came later."""
        return self.until if refused else self.until - max(0, _pause(self.trial.in_vain) - NEWCOMERS_PAUSE_MS)


Tried = dict[str, Standing]
"""By the digest of the shape."""


def standing(world: World, pools: list[Pool], wanted: Wanted) -> Tried:
    """Let go of trials that are over; those that stand."""
    if not any(pool.before.trials for pool in pools):
        return {}
    waiting = _waiting(world, wanted)
    found: Tried = {}
    for pool in pools:
        for trial in pool.before.trials:
            known = _known(world, pool, trial, waiting.get(trial.shape))
            # Where a status was lost on its way, two pools may remember a trial of one shape: the later one counts.
            if known is not None and (trial.shape not in found or trial.at > found[trial.shape].trial.at):
                found[trial.shape] = known
    for known in found.values():
        known.pool.trials.append(known.trial)
    return found


def _waiting(world: World, wanted: Wanted) -> dict[str, int]:
    """Shapes, by digest, of which pods wait, and since when the first of them is refused."""
    found: dict[str, int] = {}
    for unit in (*wanted.units, *wanted.exhausted):
        for part in unit.parts:
            pods = (world.pods.get(uid) for uid in part.pods)
            since = min((pod.unschedulable_since or world.now for pod in pods if pod is not None), default=world.now)
            found[part.digest] = min(since, found.get(part.digest, world.now))
    return found


def _known(world: World, pool: Pool, trial: Trial, refused_since: int | None) -> Standing | None:
    now, at = world.now, when(trial.at, world.now) or 0
    refused_at, until = when(trial.refused_at, now) or 0, moment_of(trial.until) or 0
    if until > now + LONGEST_PAUSE_MS:
        # A clock was turned back: nobody waits longer than the longest pause.
        until = now + LONGEST_PAUSE_MS
        trial = structs.replace(trial, until=told(until))
    machine = next((it for it in pool.members if it.name == trial.machine and told(it.woken_at) == trial.at), None)
    runs = machine is not None and not trial.until and _is_open(machine)
    if refused_since is None and now - at >= (LONGEST_PAUSE_MS if trial.in_vain else FORGOTTEN_MS):
        return None
    bound = list(_bound(world, trial.shape))
    if not (runs or trial.in_vain) or _is_proved(bound, trial, at, refused_at):
        # It failed, which proves nothing, or it was a help: the next one may be tried at once.
        return None
    if trial.in_vain and not trial.placed and _was_placed(bound, refused_at):
        trial = structs.replace(trial, placed=True)
    is_awaited = runs and refused_since is not None
    return Standing(
        pool=pool, trial=trial, runs=runs, is_awaited=is_awaited, machine=machine, refused_at=refused_at, until=until
    )


def _is_open(machine: Member) -> bool:
    """Whether pods can go to a machine, or will be able to."""
    return machine.state == "Booting" or (
        machine.state == "On" and machine.cordon in (Cordon.NOBODY, Cordon.LIFTED, Cordon.OURS)
    )


def conclude(now: int, tried: Tried, verdicts: Mapping[str, Verdict]) -> None:
    """End the trials whose outcome shows: pods are still refused beside the machine, or others have filled it."""
    for shape, known in list(tried.items()):
        machine = known.machine
        if not known.runs or machine is None or machine.state != "On" or now - machine.since < OUTCOME_MS:
            continue
        verdict = verdicts.get(shape)
        if verdict is not None and machine.name in verdict.rooms:
            _keep(known.pool, _in_vain(known.trial, now), tried, runs=False)
        elif machine.busy:
            known.pool.trials.remove(known.trial)
            del tried[shape]
            if known.trial.in_vain:
                _keep(known.pool, known.trial, tried, runs=False)


def _in_vain(trial: Trial, now: int) -> Trial:
    times_in_vain = trial.in_vain + 1
    return structs.replace(trial, in_vain=times_in_vain, refused_at=told(now), until=told(now + _pause(times_in_vain)))


def _pause(in_vain: int) -> int:
    return doubled(FIRST_PAUSE_MS, in_vain - 1, LONGEST_PAUSE_MS)


# --- whom it concerns -----------------------------------------------------------------------------------------------------------


def apart(world: World, unit: Unit, tried: Tried) -> Iterator[Unit]:
    """The pods of a unit that were refused themselves, apart from those that came later."""
    known = tried.get(unit.parts[0].digest)
    if unit.gang or known is None or not known.trial.in_vain:
        yield unit
        return
    [part] = unit.parts
    refused = [_was_refused(world, uid, known) for uid in part.pods]
    for which in (True, False):
        rows = [row for row, each in enumerate(refused) if each is which]
        if rows:
            pods, names = tuple(part.pods[row] for row in rows), tuple(part.names[row] for row in rows)
            yield structs.replace(unit, parts=(structs.replace(part, pods=pods, names=names),), first=names[0])


def judges(world: World, part: Part, tried: Tried, verdicts: Mapping[str, Verdict]) -> bool:
    """Whether these pods are among those that are refused, or that nobody can tell from them."""
    known = tried.get(part.digest)
    if known is not None and known.trial.placed and not _was_refused(world, part.pods[0], known):
        return False
    return known is not None or part.digest in verdicts


def may_be_tried(world: World, part: Part, tried: Tried) -> bool:
    """Whether the last try for such pods is over, and long enough ago."""
    known = tried.get(part.digest)
    return known is None or (not known.runs and until_for(world, part, known) <= world.now)


def until_for(world: World, part: Part, known: Standing) -> int:
    """Before when no other machine is tried for these pods."""
    return known.until_for(refused=_was_refused(world, part.pods[0], known))


def running(tried: Tried) -> set[str]:
    """Machines that are on or coming to be tried, while somebody waits for the outcome."""
    return {name for known in tried.values() if known.is_awaited for name in woken_for(known, tried)}


def woken_for(known: Standing, tried: Tried) -> set[str]:
    """Machines that were woken to be tried; for a gang, whatever its pool woke at that moment and not to be tried for others."""
    trial = known.trial
    if not trial.shape.startswith(demand.OF_GANGS):
        return {trial.machine}
    others = {each.trial.machine for each in tried.values() if each.runs and each.trial.machine != trial.machine}
    return {it.name for it in known.pool.members if told(it.woken_at) == trial.at} - others


def in_vain(tried: Tried, part: Part) -> int:
    """How often a machine was no help to such pods."""
    known = tried.get(part.digest)
    return known.trial.in_vain if known else 0


def _was_refused(world: World, uid: str, known: Standing) -> bool:
    """Whether a pod had waited beside a machine for long enough when that was seen."""
    pod = world.pods.get(uid)
    return pod is not None and (pod.unschedulable_since or world.now) <= known.refused_at - demand.VERDICT_MS


# --- what is remembered ---------------------------------------------------------------------------------------------------------


def begin(pool: Pool, shape: str, machine: str, tried: Tried) -> None:
    """Remember that a machine is tried for a shape."""
    known = tried.get(shape)
    new = structs.replace(known.trial, until="") if known else Trial(shape=shape, machine="", at="")
    _keep(pool, structs.replace(new, machine=machine, at=told(pool.now)), tried, runs=True)


def remember(pool: Pool, it: Member, verdicts: Mapping[str, Verdict], tried: Tried) -> None:
    """A machine goes to sleep beside which pods were refused: for them none is woken for a while."""
    for verdict in verdicts.values():
        known = tried.get(verdict.digest)
        if it.name not in verdict.rooms or (known is not None and known.runs):
            continue
        if known is None:
            new = _in_vain(Trial(shape=verdict.digest, machine=it.name, at=told(it.woken_at or it.since)), pool.now)
            _keep(pool, new, tried, runs=False)
        else:
            _keep(known.pool, structs.replace(known.trial, refused_at=told(pool.now)), tried, runs=False)


def _keep(pool: Pool, trial: Trial, tried: Tried, *, runs: bool) -> None:
    known = tried.get(trial.shape)
    if known is not None and known.trial in known.pool.trials:
        known.pool.trials.remove(known.trial)
    if len(pool.trials) >= MOST:
        oldest = min(pool.trials, key=lambda each: (when(each.at, pool.now) or 0, each.shape))
        pool.trials.remove(oldest)
        tried.pop(oldest.shape, None)
    pool.trials.append(trial)
    tried[trial.shape] = Standing(
        pool=pool,
        trial=trial,
        runs=runs,
        is_awaited=runs,
        refused_at=moment_of(trial.refused_at) or 0,
        until=moment_of(trial.until) or 0,
    )


# --- what kube-scheduler did since ----------------------------------------------------------------------------------------------


def _is_proved(bound: list[Pod], trial: Trial, at: int, refused_at: int) -> bool:
    """Whether it has placed one of those that were refused since. That a container began anew says nothing."""
    refused_before = (refused_at if trial.in_vain else at) - demand.VERDICT_MS
    since = max(at, refused_at)
    for pod in bound:
        is_new = pod.started is not None and pod.started >= since and pod.started_after is None
        is_there = pod.node == trial.machine and pod.started is None
        if pod.created < refused_before and (is_new or is_there):
            return True
    return False


def _was_placed(bound: list[Pod], since: int) -> bool:
    """Whether it has placed one anywhere since."""
    return any(
        pod.created >= since or (pod.started is not None and pod.started_after is None and pod.started >= since)
        for pod in bound
    )


def _bound(world: World, digest: str) -> Iterator[Pod]:
    pods, wanted = world.pods, digest.removeprefix(demand.OF_GANGS)
    alike = [number for number, shape in pods.shapes.items() if demand.digest_of(shape) == wanted]
    rows = np.flatnonzero(np.isin(pods.column("shape"), alike) & (pods.column("node") != pods.names.number("")))
    return map(pods.at, rows.tolist())

"""Trials: one machine for pods whose needs we do not understand wholly, no more until one of them is bound, and longer pauses each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct, structs

from headroom.api.power_status import Trial
from headroom.core import demand
from headroom.core.demand import Part, Unit, Verdict, Wanted
from headroom.core.power.members import Pool, told, when
from headroom.core.power.states import doubled
from headroom.model import times
from headroom.model.world import World

OUTCOME_MS: Final = 2 * times.MINUTE
"""After so long on a machine, others have shown what they want of it."""
FIRST_PAUSE_MS: Final = 15 * times.MINUTE
LONGEST_PAUSE_MS: Final = 24 * times.HOUR
FORGOTTEN_MS: Final = times.HOUR
"""While nobody waits for its outcome."""
MOST: Final = 64


class Standing(Struct, frozen=True, kw_only=True):
    """A trial that is not over."""

    pool: Pool
    trial: Trial
    at: int
    runs: bool
    """Its machine is on or coming, and the outcome is awaited."""

    @property
    def until(self) -> int:
        """Before when no other machine is tried, once this one was no help."""
        return self.at + (
            doubled(FIRST_PAUSE_MS, self.trial.in_vain - 1, LONGEST_PAUSE_MS) if self.trial.in_vain else 0
        )


Tried = dict[str, Standing]
"""By the digest of the shape."""


def standing(world: World, pools: list[Pool], wanted: Wanted) -> Tried:
    """Let go of trials that are over; those that stand."""
    if not any(pool.before.trials for pool in pools):
        return {}
    waiting = {part.digest for unit in (*wanted.units, *wanted.exhausted) for part in unit.parts}
    found: Tried = {}
    for pool in pools:
        for trial in pool.before.trials:
            known = _known(world, pool, trial)
            if known is not None and not _is_forgotten(trial, trial.shape in waiting, world.now - known.at):
                found[trial.shape] = known
                pool.trials.append(known.trial)
    return found


def _known(world: World, pool: Pool, trial: Trial) -> Standing | None:
    at = when(trial.at, world.now) or 0
    machine = next((each for each in pool.are("Booting", "On") if each.name == trial.machine), None)
    # A machine that failed, or that others fill, has proved nothing: the next one may be tried.
    runs = machine is not None and not (machine.busy and world.now - machine.since >= OUTCOME_MS)
    placed = trial.placed or _is_proved(world, trial, at)
    if not trial.in_vain and (placed or not runs):
        return None
    trial = structs.replace(trial, placed=True) if placed else trial
    return Standing(pool=pool, trial=trial, at=at, runs=runs and not placed)


def apart(world: World, unit: Unit, tried: Tried) -> Iterator[Unit]:
    """The pods of a unit that were refused before others like them found a place, apart from those that came later."""
    known = tried.get(unit.parts[0].digest)
    if unit.gang or known is None or not known.trial.placed:
        yield unit
        return
    [part] = unit.parts
    refused = [_was_refused(world, uid, known) for uid in part.pods]
    for which in (True, False):
        rows = [row for row, each in enumerate(refused) if each is which]
        if rows:
            pods, names = tuple(part.pods[row] for row in rows), tuple(part.names[row] for row in rows)
            yield structs.replace(unit, parts=(structs.replace(part, pods=pods, names=names),), first=names[0])


def binds(world: World, part: Part, tried: Tried) -> bool:
    """Whether what was tried says something of these pods."""
    known = tried.get(part.digest)
    return known is not None and (not known.trial.placed or _was_refused(world, part.pods[0], known))


def _was_refused(world: World, uid: str, known: Standing) -> bool:
    """Whether a pod had waited beside a machine for long enough when that was let go."""
    pod, let_go = world.pods.get(uid), when(known.trial.refused_at, world.now) or 0
    return pod is not None and (pod.unschedulable_since or let_go) <= let_go - demand.VERDICT_MS


def begin(pool: Pool, shape: str, machine: str, tried: Tried) -> None:
    """Remember that a machine is tried for a shape."""
    known = tried.get(shape)
    new = Trial(shape=shape, machine=machine, at=told(pool.now))
    if known is not None:
        new = structs.replace(new, in_vain=known.trial.in_vain, refused_at=known.trial.refused_at)
    _keep(pool, new, tried, runs=True)


def remember(pool: Pool, machine: str, verdicts: Mapping[str, Verdict], tried: Tried) -> None:
    """A machine goes to sleep on which kube-scheduler did not place pods that wait: for them none is woken for a while."""
    for verdict in verdicts.values():
        known = tried.get(verdict.digest)
        was_tried = known is not None and known.runs and known.trial.machine == machine
        if was_tried or (machine in verdict.rooms and (known is None or not known.runs)):
            # Others that go to sleep beside it say nothing new.
            in_vain = max(1, (known.trial.in_vain if known else 0) + was_tried)
            now = told(pool.now)
            new = Trial(shape=verdict.digest, machine=machine, at=now, in_vain=in_vain, refused_at=now)
            if known is not None:
                new = structs.replace(new, placed=known.trial.placed)
            _keep(pool, new, tried, runs=False)


def _keep(pool: Pool, trial: Trial, tried: Tried, *, runs: bool) -> None:
    known = tried.get(trial.shape)
    if known is not None:
        known.pool.trials.remove(known.trial)
    while len(pool.trials) >= MOST:
        oldest = min(pool.trials, key=lambda each: (when(each.at, pool.now) or 0, each.shape))
        pool.trials.remove(oldest)
        tried.pop(oldest.shape, None)
    pool.trials.append(trial)
    tried[trial.shape] = Standing(pool=pool, trial=trial, at=pool.now, runs=runs)


def _is_proved(world: World, trial: Trial, at: int) -> bool:
    """Whether kube-scheduler has placed such a pod since: on the machine, or anywhere."""
    pods = world.pods
    alike = [number for number, shape in pods.shapes.items() if demand.digest_of(shape) == trial.shape]
    rows = np.flatnonzero(np.isin(pods.column("shape"), alike) & (pods.column("node") != pods.names.number("")))
    for row in rows.tolist():
        pod = pods.at(row)
        is_new = pod.created >= at if pod.started is None else pod.started >= at
        if is_new or (pod.node == trial.machine and pod.started is None):
            return True
    return False


def _is_forgotten(trial: Trial, waits: bool, age: int) -> bool:
    return not waits and age >= (LONGEST_PAUSE_MS if trial.in_vain else FORGOTTEN_MS)

"""Trials: one machine for pods whose needs we do not understand wholly, and no more until one of them is bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from headroom.api.power_status import Trial
from headroom.core import demand
from headroom.core.demand import Verdict, Wanted
from headroom.core.power.members import Pool, told, when
from headroom.model import times
from headroom.model.world import World

FORGOTTEN_MS: Final = times.HOUR
MOST: Final = 64


def standing(world: World, pools: list[Pool], wanted: Wanted) -> dict[str, str]:
    """Let go of trials that are over; the shapes, by digest, of those that stand, each with its machine."""
    if not any(pool.before.trials for pool in pools):
        return {}
    waiting = {part.digest for unit in (*wanted.units, *wanted.exhausted) for part in unit.parts}
    for pool in pools:
        of = {each.name: each.state for each in pool.members}
        pool.trials = [
            trial
            for trial in pool.before.trials
            # A machine that failed has proved nothing: the next one may be tried.
            if of.get(trial.machine, "Failed") != "Failed"
            and not _is_proved(world, trial)
            and not _is_forgotten(trial, waiting, world.now)
        ]
    return {trial.shape: trial.machine for pool in pools for trial in pool.trials}


def begin(pool: Pool, shape: str, machine: str, tried: dict[str, str]) -> None:
    """Remember that a machine is tried for a shape."""
    if shape not in tried and len(pool.trials) < MOST:
        pool.trials.append(Trial(shape=shape, machine=machine, at=told(pool.now)))
        tried[shape] = machine


def remember(pool: Pool, machine: str, verdicts: Mapping[str, Verdict], tried: dict[str, str]) -> None:
    """A machine goes to sleep on which kube-scheduler did not place pods that wait: it is not to be woken for them again."""
    for verdict in verdicts.values():
        if machine in verdict.rooms:
            begin(pool, verdict.digest, machine, tried)


def _is_proved(world: World, trial: Trial) -> bool:
    """Whether kube-scheduler has placed such a pod since: on the machine, or anywhere."""
    at, pods = when(trial.at, world.now) or 0, world.pods
    alike = [number for number, shape in pods.shapes.items() if demand.digest_of(shape) == trial.shape]
    rows = np.flatnonzero(np.isin(pods.column("shape"), alike) & (pods.column("node") != pods.names.number("")))
    for row in rows.tolist():
        pod = pods.at(row)
        is_new = pod.created >= at if pod.started is None else pod.started >= at
        if is_new or (pod.node == trial.machine and pod.started is None):
            return True
    return False


def _is_forgotten(trial: Trial, waiting: set[str], now: int) -> bool:
    return trial.shape not in waiting and now - (when(trial.at, now) or 0) >= FORGOTTEN_MS

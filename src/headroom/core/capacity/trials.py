"""Trials: one room for pods whose needs we do not understand wholly, no more until one of them is bound, and longer pauses each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct, structs

from headroom.core import demand
from headroom.core.capacity.supplies import Trial
from headroom.core.demand import PendingPods, SchedulerVerdict, Unit, Wanted
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.world import World

OUTCOME_MS: Final = 2 * times.MINUTE
"""So long after a room has come, it shows whether it was any help."""
FIRST_PAUSE_MS: Final = 15 * times.MINUTE
LONGEST_PAUSE_MS: Final = 24 * times.HOUR
NEWCOMERS_PAUSE_MS: Final = times.HOUR
"""Pods that were not refused themselves do not wait longer for the next try."""
FORGOTTEN_MS: Final = times.HOUR
"""While nobody waits for its outcome."""
MOST: Final = 256
"""So many a supply remembers."""
_MOST_DOUBLINGS: Final = 20


class TrialRecord(Struct, frozen=True, kw_only=True):
    """A trial that is not over, or that did not help."""

    ref: Ref
    """Whose room it is, or was."""
    trial: Trial
    is_awaited: bool
    """It runs, and somebody waits for its outcome."""

    @property
    def runs(self) -> bool:
        """Its room is open or coming, and the outcome is not known."""
        return bool(self.trial.rooms)

    def until_for(self, *, refused: bool) -> int:
        """Before when no other room is tried for those that were refused themselves, or for who came later."""
        trial = self.trial
        return trial.until if refused else trial.until - max(0, _pause(trial.in_vain) - NEWCOMERS_PAUSE_MS)


Tried = dict[str, TrialRecord]
"""By the digest of the shape."""


def standing(world: World, remembered: Iterable[tuple[Ref, Trial]], wanted: Wanted) -> Tried:
    """The trials that are not over, and those that did not help."""
    every = list(remembered)
    if not every:
        return {}
    waiting = _waiting(world, wanted)
    found: Tried = {}
    for ref, trial in every:
        known = _known(world, ref, trial, waiting.get(trial.shape))
        # Two supplies may remember a trial of one shape: the later one counts.
        if known is not None and (trial.shape not in found or _age(trial) > _age(found[trial.shape].trial)):
            found[trial.shape] = known
    return found


def _age(trial: Trial) -> tuple[int, int]:
    return trial.at, trial.refused_at


def _waiting(world: World, wanted: Wanted) -> dict[str, int]:
    """Shapes, by digest, of which pods wait, and since when the first of them is refused."""
    found: dict[str, int] = {}
    for part in wanted.parts:
        pods = (world.pods.get(uid) for uid in part.pods)
        since = min((pod.unschedulable_since or world.now for pod in pods if pod is not None), default=world.now)
        found[part.digest] = min(since, found.get(part.digest, world.now))
    return found


def _known(world: World, ref: Ref, trial: Trial, refused_since: int | None) -> TrialRecord | None:
    now = world.now
    # A clock that was turned back must not make anybody wait longer than the longest pause.
    trial = structs.replace(trial, until=min(trial.until, now + LONGEST_PAUSE_MS))
    if refused_since is None and now - trial.at >= (LONGEST_PAUSE_MS if trial.in_vain else FORGOTTEN_MS):
        return None
    bound = list(_bound(world, trial.shape))
    if not (trial.rooms or trial.in_vain) or _is_proved(bound, trial, now):
        # It failed, which proves nothing, or it was a help: the next one may be tried at once.
        return None
    if trial.in_vain and not trial.placed and _was_placed(bound, min(trial.refused_at, now)):
        trial = structs.replace(trial, placed=True)
    return TrialRecord(ref=ref, trial=trial, is_awaited=bool(trial.rooms) and refused_since is not None)


def conclude(now: int, tried: Tried, verdicts: Mapping[str, SchedulerVerdict]) -> None:
    """End the trials whose outcome shows: pods are still refused beside the room, or others have filled it."""
    for shape, known in list(tried.items()):
        trial = known.trial
        if not known.runs or trial.here_since is None or now - trial.here_since < OUTCOME_MS:
            continue
        verdict = verdicts.get(shape)
        if verdict is not None and trial.room in verdict.rooms:
            _keep(known.ref, _in_vain(trial, now), tried)
        elif trial.is_full:
            del tried[shape]
            if trial.in_vain:
                _keep(known.ref, _over(trial), tried)


def _over(trial: Trial) -> Trial:
    return structs.replace(trial, rooms=frozenset(), here_since=None, is_full=False)


def _in_vain(trial: Trial, now: int) -> Trial:
    count = trial.in_vain + 1
    return structs.replace(_over(trial), in_vain=count, refused_at=now, until=now + _pause(count))


def _pause(in_vain: int) -> int:
    return min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(max(in_vain - 1, 0), _MOST_DOUBLINGS))


# --- whom it concerns -----------------------------------------------------------------------------------------------------------


def apart(world: World, unit: Unit, tried: Tried) -> Iterator[Unit]:
    """The pods of a unit that were refused themselves, apart from those that came later."""
    known = tried.get(unit.parts[0].digest)
    if unit.gang or known is None or not known.trial.in_vain:
        yield unit
        return
    refused = {uid for uid in unit.parts[0].pods if _was_refused(world, uid, known)}
    for pods in (refused, {*unit.parts[0].pods} - refused):
        half = unit.only(pods)
        if half is not None:
            yield half


def judges(world: World, part: PendingPods, tried: Tried, verdicts: Mapping[str, SchedulerVerdict]) -> bool:
    """Whether these pods are among those that are refused, or that nobody can tell from them."""
    known = tried.get(part.digest)
    if known is not None and known.trial.placed and not _was_refused(world, part.pods[0], known):
        return False
    return known is not None or part.digest in verdicts


def may_be_tried(world: World, part: PendingPods, tried: Tried) -> bool:
    """Whether the last try for such pods is over, and long enough ago."""
    known = tried.get(part.digest)
    return known is None or (not known.runs and next_trial_at(world, part, known) <= world.now)


def next_trial_at(world: World, part: PendingPods, known: TrialRecord) -> int:
    """Before when no other room is tried for these pods."""
    return known.until_for(refused=_was_refused(world, part.pods[0], known))


def running(tried: Tried) -> set[str]:
    """Rooms that are open or coming to be tried, while somebody waits for the outcome."""
    return {name for known in tried.values() if known.is_awaited for name in known.trial.rooms}


def times_in_vain(tried: Tried, part: PendingPods) -> int:
    """How often a room was no help to such pods."""
    known = tried.get(part.digest)
    return known.trial.in_vain if known else 0


def _was_refused(world: World, uid: str, known: TrialRecord) -> bool:
    """Whether a pod had waited beside a room for long enough when that was seen."""
    pod = world.pods.get(uid)
    refused_at = min(known.trial.refused_at, world.now)
    return pod is not None and (pod.unschedulable_since or world.now) <= refused_at - demand.VERDICT_MS


# --- what is remembered ---------------------------------------------------------------------------------------------------------


def begin(ref: Ref, shape: str, rooms: tuple[str, ...], now: int, tried: Tried) -> None:
    """Remember that rooms are tried for a shape."""
    known = tried.get(shape)
    new = known.trial if known else Trial(shape=shape, room="", at=0)
    new = structs.replace(new, room=rooms[0], at=now, until=0, rooms=frozenset(rooms), here_since=None)
    _keep(ref, new, tried)


def if_closed(trial: Trial | None, verdict: SchedulerVerdict, room: str, now: int) -> Trial:
    """What is to be remembered of a room that closes beside which pods were refused: for them none is opened for a while."""
    if trial is None:
        return _in_vain(Trial(shape=verdict.digest, room=room, at=now), now)
    return structs.replace(trial, refused_at=now)


def newest_trials(trials: Iterable[Trial]) -> list[Trial]:
    """One for each shape, the newest of them as far as there is room, in the order in which they came."""
    by_shape: dict[str, Trial] = {}
    for each in trials:
        by_shape.pop(each.shape, None)
        by_shape[each.shape] = each
    oldest = sorted(by_shape.values(), key=lambda each: (each.at, each.shape))
    gone = {each.shape for each in oldest[: max(0, len(oldest) - MOST)]}
    return [each for each in by_shape.values() if each.shape not in gone]


def _keep(ref: Ref, trial: Trial, tried: Tried) -> None:
    tried.pop(trial.shape, None)
    tried[trial.shape] = TrialRecord(ref=ref, trial=trial, is_awaited=bool(trial.rooms))


# --- what kube-scheduler did since ----------------------------------------------------------------------------------------------


def _is_proved(bound: list[Pod], trial: Trial, now: int) -> bool:
    """Whether it has placed one of those that were refused since. That a container began anew says nothing."""
    # What was written lies ahead once a clock was turned back.
    at, refused_at = min(trial.at, now), min(trial.refused_at, now)
    refused_before = (refused_at if trial.in_vain else at) - demand.VERDICT_MS
    since = max(at, refused_at)
    for pod in bound:
        is_new = pod.started is not None and pod.started >= since and pod.started_after is None
        is_there = pod.node == trial.room and pod.started is None
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

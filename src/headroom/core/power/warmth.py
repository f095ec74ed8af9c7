"""Warm spares: machines stay on up to the recent peak of use and a few more, so that new pods find one and power cycling stays rare.

Past use stands in the status (`inUse`, `peaks`), so a restart changes nothing. docs/decisions/0017 says how the rule and its numbers were found.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from headroom.api.power import PowerPolicy
from headroom.api.power_status import MOST_PEAKS, Peak
from headroom.core.power.members import PowerPoolState, told, when
from headroom.core.power.wording import of_machines
from headroom.model import times

PERCENT: Final = 5
ONE_OF: Final = 5
"""Where so many machines are left beyond the peak, one is a spare at least; a pool with fewer keeps none warm unless it says otherwise."""
USED_FOR_ONE_AHEAD: Final = 100
"""Of the spares, one for so many machines in use is woken where none is on, and at least one; the others only stay on."""
WINDOW: Final = 4
"""The peak is that of so many idleSeconds."""
STEPS: Final = 30
"""Moments of past use are kept in so many steps of that window, which bounds how many there are."""
LONGEST_MS: Final = 24 * times.HOUR
"""A pool that was not in use for so long keeps nothing warm."""


def warm_percent(policy: PowerPolicy, machines: int) -> int:
    """Of the machines beyond the peak, how many are spares, in a pool of so many."""
    if policy.warm_percent is not None:
        return policy.warm_percent
    return PERCENT if machines >= ONE_OF else 0


def measure(pool: PowerPoolState, coming: int) -> None:
    """Say how many machines are in use, or about to be, how many were lately, and how many stay on or are woken beside them."""
    pool.busy = sum(machine.busy for machine in pool.members)
    pool.used = used = pool.busy + coming
    # Only what ran is evidence: pods that no machine helps must not keep any warm once they are gone.
    pool.peaks = _peaks(pool, pool.busy)
    since = pool.now - _window_ms(pool)
    pool.peak = max([used, *(machines for until, machines in pool.peaks if until > since)])
    pool.warm_percent = warm_percent(pool.policy, len(pool.members))
    left = len(pool.members) - pool.peak
    least = 1 if pool.warm_percent and left >= ONE_OF else 0
    pool.spares = max(least, left * pool.warm_percent // 100) if used or pool.peaks else 0
    pool.ahead = min(pool.spares, max(1, used // USED_FOR_ONE_AHEAD)) if pool.busy else 0


def _window_ms(pool: PowerPoolState) -> int:
    return min(WINDOW * pool.policy.idle_seconds * times.SECOND, LONGEST_MS)


def _peaks(pool: PowerPoolState, used: int) -> list[tuple[int, int]]:
    """Until when more machines were in use than now, and how many: the highest first, each lower one later. The last is kept for a day."""
    now, before = pool.now, pool.before
    known = [(when(each.until, now) or 0, each.machines) for each in before.peaks]
    if before.in_use is not None:
        step = max(times.SECOND, _window_ms(pool) // STEPS)
        known.append((now - now % step, before.in_use))
    found: list[tuple[int, int]] = []
    for until, machines in known:
        # Of those of one moment the first is the highest; moments may be one after the clock was turned back.
        if machines > used and not (found and found[-1][0] >= until):
            found.append((until, machines))
    within = [each for each in found if each[0] > now - _window_ms(pool)]
    return within[:MOST_PEAKS] or [each for each in found[-1:] if not used and each[0] > now - LONGEST_MS]


def in_use(pool: PowerPoolState) -> int | None:
    """What is remembered of use; a pool that is halted was not measured."""
    return pool.before.in_use if pool.halted else pool.busy


def peaks(pool: PowerPoolState) -> tuple[Peak, ...]:
    """What is remembered of higher use."""
    if pool.halted:
        return pool.before.peaks
    return tuple(Peak(machines=machines, until=told(until)) for until, machines in pool.peaks)


def recheck_at(pool: PowerPoolState) -> int | None:
    """When the peak falls, or nothing is kept warm any more, if nothing else happens."""
    if not pool.peaks or not pool.warm_percent:
        return None
    falls = pool.peaks[0][0] + _window_ms(pool)
    return falls if falls > pool.now else pool.peaks[-1][0] + LONGEST_MS


class Least(NamedTuple):
    """How many machines must be on now, and why."""

    machines: int
    why: str


def least_on(pool: PowerPoolState) -> Least:
    """As many as the policy says, or those in use and the spares that are woken ahead."""
    if pool.used + pool.ahead > pool.floor and pool.ahead:
        used = f"{of_machines(pool.used)} {'is' if pool.used == 1 else 'are'} in use"
        return Least(pool.used + pool.ahead, f"{used} and {of_spares(pool.ahead)} must be on")
    return Least(pool.floor, f"{of_machines(pool.floor)} must be on now")


def of_spares(count: int) -> str:
    """So many warm spares."""
    return "1 warm spare" if count == 1 else f"{count} warm spares"


def usual_size(pool: PowerPoolState) -> int:
    """GPUs of the machines that are used most."""
    sizes = Counter(machine.gpus for machine in pool.members if machine.busy)
    return max(sizes, key=lambda gpus: (sizes[gpus], -gpus), default=0)


class Warm:
    """Which of the machines that are idle for long enough stay on."""

    def __init__(self, pool: PowerPoolState) -> None:
        self._pool = pool
        self._more = len(pool.are("On", "Booting")) - max(pool.floor, pool.peak + pool.spares)

    def holds(self) -> str:
        """Why the next idle machine stays on all the same; empty if it may go."""
        pool = self._pool
        if not pool.warm_percent or self._more > 0:
            return ""
        minutes = max(1, _window_ms(pool) // times.MINUTE)
        return f"{of_machines(pool.peak)} in use at the peak of the last {minutes}m, and {of_spares(pool.spares)}"

    def let_go(self) -> None:
        """One goes."""
        self._more -= 1

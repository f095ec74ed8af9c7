"""The breaker: after three boots in a row that brought no node, or one without its GPUs, a pool wakes one machine at a time, and ever more rarely.

Whatever keeps machines from joining, a broken image or a network, is then the same for all of them: to wake one after the other only
costs energy. A node that comes closes it.
"""

from __future__ import annotations

from typing import Final

from headroom.api.power_status import Breaker
from headroom.core.power.members import PoolMachine, PowerPoolState, moment_of, told
from headroom.core.power.states import doubled
from headroom.model import times

IN_A_ROW: Final = 3
FIRST_PAUSE_MS: Final = 30 * times.MINUTE
LONGEST_PAUSE_MS: Final = 24 * times.HOUR


def observe(pool: PowerPoolState) -> None:
    """Count the boots that have just ended, one way or the other."""
    known = pool.before.breaker
    failed, until = (known.failed, moment_of(known.until)) if known else (0, None)
    if any(
        machine.state == "On" and not machine.failures and machine.was in ("Booting", "Failed", "Unknown")
        for machine in pool.members
    ):
        failed, until = 0, None  # one has come, be it late
    else:
        new = sum(map(_has_failed, pool.members))
        if new:
            failed += new
            until = (
                pool.now + doubled(FIRST_PAUSE_MS, failed - IN_A_ROW, LONGEST_PAUSE_MS) if failed >= IN_A_ROW else None
            )
    # A clock that was turned back must not make anybody wait longer than the longest pause.
    pool.boots_failed = failed
    pool.breaker_until = None if until is None else min(until, pool.now + LONGEST_PAUSE_MS)


def _has_failed(machine: PoolMachine) -> bool:
    """Whether its boot has just ended without a node, or with one that lacks its GPUs."""
    before = machine.before
    if before is None:
        return False
    is_short = machine.state == "On" and machine.failures > before.failures
    never = machine.cause == "NeverJoined" != before.cause
    return (before.state == "Booting" and (never or is_short)) or (before.state == "Failed" and never)


def is_open(pool: PowerPoolState) -> bool:
    """Whether nothing is woken now."""
    return pool.breaker_until is not None and pool.breaker_until > pool.now


def at_once(pool: PowerPoolState) -> int | None:
    """How many machines may boot at a time because of it; None if it is closed."""
    if pool.boots_failed < IN_A_ROW:
        return None
    return 0 if is_open(pool) else 1


def status(pool: PowerPoolState) -> Breaker | None:
    """What is remembered."""
    if not pool.boots_failed:
        return None
    return Breaker(failed=pool.boots_failed, until=told(pool.breaker_until))

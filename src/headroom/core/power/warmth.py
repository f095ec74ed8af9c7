"""Warm machines: in large pools a few that nobody uses stay on, so that who comes finds one, and hardly any is switched back and forth.

docs/decisions/0013 says how the rule and its numbers were found.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from headroom.api.power import PowerPolicy
from headroom.core.power.members import Member, Pool
from headroom.core.power.wording import of_machines
from headroom.model import times

LARGE: Final = 100
"""From so many machines on, a pool keeps some warm unless it says otherwise."""
PERCENT: Final = 6
USED_FOR_ONE_AHEAD: Final = 50
"""For so many machines in use, one is woken ahead, if so many may be warm."""
LATELY: Final = 3
"""Machines that were used within so many halves of idleSeconds count as in use."""
LONGEST_MS: Final = 24 * times.HOUR
"""What nobody used for so long need not be warm."""


def warm_percent(policy: PowerPolicy, machines: int) -> int:
    """Of the machines that nobody uses in a pool of so many, how many stay on."""
    if policy.warm_percent is not None:
        return policy.warm_percent
    return PERCENT if machines >= LARGE else 0


def measure(pool: Pool, used: int) -> None:
    """Say how many machines stay on beside those in use, and how many of them are woken ahead."""
    pool.warm_percent = warm_percent(pool.policy, len(pool.members))
    pool.used = used
    pool.warm = (len(pool.members) - used) * pool.warm_percent // 100
    pool.ahead = min(pool.warm, used // USED_FOR_ONE_AHEAD)


class Least(NamedTuple):
    """How many machines must be on now, and why."""

    machines: int
    why: str


def least_on(pool: Pool) -> Least:
    """As many as the policy says, or those in use and what is woken ahead."""
    if pool.used + pool.ahead > pool.floor and pool.ahead:
        ready = f"{of_machines(pool.ahead)} {'is' if pool.ahead == 1 else 'are'} kept ready for who comes"
        return Least(pool.used + pool.ahead, f"{of_machines(pool.used)} are in use and {ready}")
    return Least(pool.floor, f"{of_machines(pool.floor)} must be on now")


def usual_size(pool: Pool) -> int:
    """GPUs of the machines that are used most."""
    sizes = Counter(it.gpus for it in pool.members if it.busy)
    return max(sizes, key=lambda gpus: (sizes[gpus], -gpus), default=0)


def _lately_ms(pool: Pool) -> int:
    return pool.policy.idle_seconds * times.SECOND * LATELY // 2


def turns(pool: Pool, it: Member) -> tuple[int, ...]:
    """When a machine that is kept warm no longer counts as used lately, and when nobody has used it for too long."""
    return () if it.idle_since is None else (it.idle_since + _lately_ms(pool), it.idle_since + LONGEST_MS)


class Warm:
    """Which of the machines that are idle for long enough stay on."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # What was used a short time ago may be again: while demand trembles, nothing is switched.
        lately_ms = _lately_ms(pool)
        lately = sum(it.idle_since is not None and pool.now - it.idle_since < lately_ms for it in pool.are("On"))
        self._more = len(pool.are("On", "Booting")) - max(pool.floor, pool.used + lately + pool.warm)

    def holds(self, it: Member) -> str:
        """Why an idle machine stays on all the same; empty if it may go."""
        pool = self._pool
        if not pool.warm_percent or self._more > 0 or pool.now - (it.idle_since or pool.now) >= LONGEST_MS:
            return ""
        return f"{pool.warm_percent} % of the {of_machines(len(pool.members) - pool.used)} that nobody uses stay warm"

    def let_go(self) -> None:
        """One goes."""
        self._more -= 1

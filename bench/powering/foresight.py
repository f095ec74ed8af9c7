"""How much of the future a policy would have to know to reach all goals of the power benchmark at once.

Minute by minute, for demands whose pods fill machines. Each rule has as many machines on as were in use at most in the last minutes, or
will be in the next ones that it knows, and a few more; a machine is there three minutes after it is wanted, if it is wanted all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bench.powering.demand import BOOT_MS, Demand
from bench.powering.measures import Ints, in_use
from headroom.model import times
from headroom.sim.hardware import SHUTDOWN_SECONDS

HIGHS: Final = (5, 8, 10, 12, 15, 20, 30, 45)
"""Over how many of the last minutes a rule looks."""
MORE: Final = range(9)
"""How many machines more it has on."""
BOOT: Final = BOOT_MS // times.MINUTE
SHUTDOWN: Final = SHUTDOWN_SECONDS / 60
"""Minutes."""


class Rule(NamedTuple):
    """What a rule comes to."""

    knows: int
    """Minutes ahead."""
    high: int
    more: int
    kept: float
    """Of the possible saving, in percent."""
    starts: float
    """Of those of following demand each minute, in percent."""
    wait: float
    """Seconds, on average."""


def rules(demand: Demand, knows: int, possible_hours: float) -> Iterator[Rule]:
    """What each rule that knows so many minutes ahead comes to; so many machine-hours can be saved at most."""
    used, machines = in_use(demand.case), len(demand.case.nodes)
    coming = sliding_window_view(np.append(used, np.full(knows, used[-1])), knows + 1).max(axis=1)
    for high in HIGHS:
        seen = sliding_window_view(np.append(np.full(high - 1, used[0]), used), high).max(axis=1)
        for more in MORE:
            wanted = np.minimum(np.maximum(seen, coming) + more, machines)
            yield Rule(knows, high, more, *came_to(used, wanted, machines, possible_hours))


def came_to(used: Ints, wanted: Ints, machines: int, possible_hours: float) -> tuple[float, float, float]:
    """Saving kept and starts in percent, and seconds of waiting, if so many machines are wanted in each minute."""
    there = sliding_window_view(np.append(np.full(BOOT, wanted[0]), wanted), BOOT + 1).min(axis=1)
    starts, pods = np.diff(wanted).clip(min=0).sum(), np.diff(used).clip(min=0).sum()
    on = wanted.sum() + SHUTDOWN * starts
    kept = (machines * len(used) - on) / 60 / possible_hours
    return 100 * float(kept), 100 * float(starts / pods), float((used - there).clip(min=0).sum() * 60 / pods)

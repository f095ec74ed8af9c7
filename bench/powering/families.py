"""Families of warm rules, minute by minute, and how their settings are chosen.

For demands whose pods fill machines. A rule says for each minute how many machines are on at least and at most; one is there three
minutes after it is wanted, if it is wanted all the time. Constant rules have as many on as were in use at most in the last minutes, and
a few more. Ours has the same form, with spares that scale (core/power/warmth.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bench.powering.demand import BOOT_MS, Demand
from bench.powering.measures import Ints, in_use
from bench.powering.offline import offline
from headroom.core.power import warmth
from headroom.model import times
from headroom.sim.hardware import SHUTDOWN_SECONDS

BOOT: Final = BOOT_MS // times.MINUTE
SHUTDOWN: Final = SHUTDOWN_SECONDS / 60
IDLE: Final = 10
"""Minutes; idleSeconds by default."""
LEAST_KEPT: Final = 90
WAIT_DIGITS: Final = 2
"""Seconds of waiting are compared with so many digits; of equal ones the rule with fewer starts is taken."""


class Setting(NamedTuple):
    """A rule of a family."""

    window: int
    """Minutes over which it looks for the peak."""
    spares: int
    """Machines beyond the peak; for ours, in percent of what is left."""
    ahead: int = 0
    """Ours: one of the spares is woken ahead for so many machines in use."""


CONSTANT: Final = tuple(Setting(*each) for each in product((5, 8, 10, 12, 15, 20, 30, 40, 45, 60, 90), range(9)))
OURS: Final = tuple(Setting(IDLE * idles, *each) for idles, *each in product(range(2, 7), range(2, 9), (50, 100)))
SHIPPED: Final = Setting(IDLE * warmth.WINDOW, warmth.PERCENT, warmth.USED_FOR_ONE_AHEAD)


class Outcome(NamedTuple):
    """What a rule comes to."""

    setting: Setting
    kept: float
    """Of the possible saving, in percent."""
    starts: float
    """Of those of following demand each minute, in percent."""
    wait: float
    """Seconds, on average."""


def chosen(outcomes: Iterable[Outcome], least_kept: float = LEAST_KEPT) -> Outcome | None:
    """Of those that keep enough of the saving, the one under which pods wait least."""
    enough = (each for each in outcomes if each.kept >= least_kept)
    return min(enough, key=lambda each: (round(each.wait, WAIT_DIGITS), each.starts), default=None)


def outcomes(demand: Demand, settings: Iterable[Setting]) -> Iterator[Outcome]:
    """What each rule comes to on a demand."""
    used, machines = in_use(demand.case), len(demand.case.nodes)
    possible = machines * demand.days * 24 - offline(demand, None).machine_hours
    for setting in settings:
        bounds = _ours(used, machines, setting) if setting.ahead else _constant(used, setting)
        yield Outcome(setting, *came_to(used, levels(*bounds, machines), machines, possible))


def _peak(used: Ints, window: int) -> Ints:
    found: Ints = sliding_window_view(np.append(np.full(window - 1, used[0]), used), window).max(axis=1)
    return found


def _constant(used: Ints, setting: Setting) -> tuple[Ints, Ints]:
    wanted = _peak(used, setting.window) + setting.spares
    return wanted, wanted


def _ours(used: Ints, machines: int, setting: Setting) -> tuple[Ints, Ints]:
    peak = _peak(used, setting.window)
    left = machines - peak
    spares = np.maximum(left >= warmth.ONE_OF, left * setting.spares // 100)
    return used + np.minimum(spares, np.maximum(1, used // setting.ahead)), peak + spares


def levels(least: Ints, most: Ints, machines: int) -> Ints:
    """How many machines are on in each minute, if no more are switched than the bounds make necessary."""
    on, found = int(least[0]), []
    for low, high in zip(least.tolist(), most.tolist(), strict=True):
        on = min(machines, max(low, min(on, high)))
        found.append(on)
    return np.array(found, np.int64)


def came_to(used: Ints, on: Ints, machines: int, possible_hours: float) -> tuple[float, float, float]:
    """Saving kept and starts in percent, and seconds of waiting, if so many machines are on or coming in each minute."""
    there = sliding_window_view(np.append(np.full(BOOT, on[0]), on), BOOT + 1).min(axis=1)
    starts, pods = np.diff(on).clip(min=0).sum(), np.diff(used).clip(min=0).sum()
    kept = (machines * len(used) - on.sum() - SHUTDOWN * starts) / 60 / possible_hours
    return 100 * float(kept), 100 * float(starts / pods), float((used - there).clip(min=0).sum() * 60 / pods)

"""The settings that were compared, on prices up to 2024 alone: which front they reach, and which one is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from headroom.core.offers import SwitchRules
from headroom.core.offers.ranking import MILLION
from headroom.core.offers.switching import DAY
from headroom.sim.backtest.rules import Margin, Paid, Production, play
from headroom.sim.backtest.timeline import Timeline

MOST_COST: Final = 0.8
"""Settings may cost so much more than always the cheapest in each set, in percent: less than the goal of 1, since other years differ."""
MARGINS: Final = (30_000, 50_000, 70_000)
LIMITS: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Setting(NamedTuple):
    """Of the account: the allowance and the most saving needed, in percent of the threshold, and what it holds, in days' bills."""

    allowed: int
    patience: int
    days: int

    @property
    def rules(self) -> SwitchRules:
        """As the operator takes it; all else as shipped."""
        return SwitchRules(allowed=self.allowed, patience=self.patience, account=self.days * DAY * MILLION)


FAMILY: Final = tuple(Setting(*each) for each in product((8, 10, 12, 14, 16, 18), (200, 300, 400, 600), (1, 2, 4, 7)))
_AS_SHIPPED: Final = SwitchRules()
SHIPPED: Final = Setting(_AS_SHIPPED.allowed, _AS_SHIPPED.patience, _AS_SHIPPED.account // DAY // MILLION)


class Came(NamedTuple):
    """What a setting came to in all sets."""

    setting: Setting
    switches: int
    most: float
    """The most that it cost over always the cheapest in any set, in percent."""
    mean: float


class Quick(Production):
    """The same decisions in less time: only the costs of three offers can matter, its own, the challenger's and the lowest."""

    def __init__(self, line: Timeline, rules: SwitchRules) -> None:
        super().__init__(line, rules)
        self._rows = line.ranks.tolist()
        ranked = np.where(line.ranks > 0, line.ranks, np.iinfo(np.int64).max)
        self._lowest = [line.keys[place] for place in ranked.argmin(axis=1).tolist()]

    def costs(self, number: int) -> Mapping[str, int]:
        row = self._rows[number]
        names = {self._lowest[number], self.tenure.chosen, self.tenure.challenger} - {""}
        return {name: cost for name in sorted(names) if (cost := row[self._places[name]])}


def came(setting: Setting, lines: Mapping[str, Timeline], cheapest: Mapping[str, Paid]) -> Came:
    """One setting in every set."""
    return _came(setting, {name: play(line, Quick(line, setting.rules)) for name, line in lines.items()}, cheapest)


def with_margin(margin: int, lines: Mapping[str, Timeline], cheapest: Mapping[str, Paid]) -> Came:
    """A plain margin in every set, for comparison."""
    return _came(SHIPPED, {name: play(line, Margin(line, margin)) for name, line in lines.items()}, cheapest)


def _came(setting: Setting, paid: Mapping[str, Paid], cheapest: Mapping[str, Paid]) -> Came:
    over = [100 * (each.usd / cheapest[name].usd - 1) for name, each in paid.items()]
    return Came(setting, sum(len(each.switches) for each in paid.values()), max(over), sum(over) / len(over))


def best(found: Iterable[Came], limit: float) -> Came | None:
    """Of those that cost so little more in each set: the fewest switches, then the lowest cost."""
    good = [each for each in found if each.most <= limit]
    return min(good, key=lambda each: (each.switches, each.mean, each.setting), default=None)

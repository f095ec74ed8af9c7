"""Rules that choose an offer at each moment, and what each of them pays: ours, and those that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headroom.core.offers import SwitchRules, Tenure, next_tenure, recheck_at
from headroom.model.times import HOUR
from headroom.sim.backtest.timeline import NOBODY, Ints, Timeline

_MILLION: Final = 1_000_000
_NEVER: Final = np.iinfo(np.int64).max


class OfferSwitch(NamedTuple):
    """One offer was left for another."""

    at: int
    before: str
    after: str


class Paid(NamedTuple):
    """What a rule came to."""

    usd: float
    """Dollars for one GPU, all hours together."""
    hours: float
    """For so long there was an offer."""
    switches: tuple[OfferSwitch, ...]
    each: NDArray[np.float64]
    """Dollars per GPU-hour, on average between each moment and the next."""

    @property
    def mean(self) -> float:
        """Dollars per GPU-hour."""
        return self.usd / self.hours if self.hours else 0.0


class OfferRule(Protocol):
    """Chooses offers."""

    def stays(self, number: int) -> Iterator[tuple[int, int]]:
        """The offers that it has from a moment of the timeline to the next, each with the time until which it has it."""


def play(timeline: Timeline, rule: OfferRule, told: Callable[[int], None] = lambda _: None) -> Paid:
    """Let a rule move through a timeline."""
    usd, switches, last = 0.0, list[OfferSwitch](), NOBODY
    paid = timeline.usd()
    hours, each = 0.0, np.zeros(timeline.moments)
    for number in range(timeline.moments):
        told(number)
        begin = now = int(timeline.at[number])
        for offer, until in rule.stays(number):
            if offer == NOBODY or until <= now:  # had for no time at all, where a history ends
                now = until
                continue
            if last not in (NOBODY, offer):
                switches.append(OfferSwitch(now, timeline.keys[last], timeline.keys[offer]))
            each[number] += float(paid[number, offer]) * (until - now) / HOUR
            hours += (until - now) / HOUR
            last, now = offer, until
        usd += float(each[number])
        each[number] /= max(now - begin, 1) / HOUR
    return Paid(usd, hours, tuple(switches), each)


class Production:
    """The switching of the operator itself, which is asked at every change and whenever it says that time alone changes its answer."""

    def __init__(self, timeline: Timeline, rules: SwitchRules) -> None:
        self._timeline, self._rules, self.tenure = timeline, rules, Tenure()
        self._places = {key: number for number, key in enumerate(timeline.keys)}

    def costs(self, number: int) -> Mapping[str, int]:
        """What is ranked at a moment."""
        return self._timeline.costs(number)

    def stays(self, number: int) -> Iterator[tuple[int, int]]:
        """As the operator would choose."""
        now, end = (int(each) for each in self._timeline.at[number : number + 2])
        costs = self.costs(number)
        while True:
            self.tenure = next_tenure(self.tenure, costs, now, self._rules)
            offer = self._places[self.tenure.chosen] if costs else int(self._timeline.fallback[number])
            again = recheck_at(self.tenure, costs, self._rules, now)
            if again is None or again >= end:
                yield offer, end
                return
            yield offer, again
            now = again


class _Simple:
    """A rule that looks at each moment, once."""

    def __init__(self, timeline: Timeline, by: Ints) -> None:
        self._timeline, self._offer = timeline, NOBODY
        self._by = np.where(timeline.ranks > 0, by, _NEVER)
        self._cheapest = self._by.argmin(axis=1)
        self._is_offered = timeline.ranks.max(axis=1) > 0

    def stays(self, number: int) -> Iterator[tuple[int, int]]:
        """One offer, or what there is to fall back to."""
        end = int(self._timeline.at[number + 1])
        if not self._is_offered[number]:
            yield int(self._timeline.fallback[number]), end
            return
        best = int(self._cheapest[number])
        if self._offer == NOBODY or self._leaves(*(int(self._by[number, each]) for each in (self._offer, best))):
            self._offer = best
        yield self._offer, end

    def _leaves(self, now: int, best: int) -> bool:
        raise NotImplementedError  # each rule below has its own


class AlwaysCheapest(_Simple):
    """Takes the cheapest offer at every moment, but stays where another costs just as much."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline, timeline.ranks)

    def _leaves(self, now: int, best: int) -> bool:
        return best < now


class Margin(_Simple):
    """Leaves for the cheapest offer when that saves so much at the moment, in millionths."""

    def __init__(self, timeline: Timeline, margin: int) -> None:
        super().__init__(timeline, timeline.ranks)
        self._margin = margin

    def _leaves(self, now: int, best: int) -> bool:
        return now == _NEVER or (now - best) * _MILLION > self._margin * now


class Original(_Simple):
    """What the project chose that this capability comes from: the cheapest machine, however few GPUs it has.

    Without scores in a history none of them is good enough for it, so it takes the cheapest of all. Of machines at one price it takes
    any; here the first by name, so it switches less than it would.
    """

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline, timeline.prices)

    def _leaves(self, now: int, best: int) -> bool:
        del now, best
        return True

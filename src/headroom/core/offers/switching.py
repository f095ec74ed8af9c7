"""When to leave one offer for a cheaper one, and in which order a ladder stands: neither by every move of a price.

The cheapest offer changes far more often than it pays to follow. So a pool keeps an account of what staying has cost: it grows by the
relative saving that is missed and shrinks by a small allowance, and holds four days' bill at most. While the account is in credit, a
switch needs up to three times the threshold; when it is overdrawn, down to half of it suffices. See
docs/decisions/0018-switching-by-account.md.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from headroom.core.offers.ranking import MILLION
from headroom.model import times

DAY: Final = 24 * times.HOUR
ACCOUNT: Final = 4 * MILLION * DAY
"""The most that the account holds either way: four days' bill, in millionths of it times milliseconds."""
STEPS: Final = 50
"""The account is kept with savings rounded to this part of the threshold, so a price that trembles changes nothing in a status."""


class SwitchRules(Struct, frozen=True, kw_only=True):
    """What a switch takes.

    `haste` is more than `allowed`: a saving that is enough lets the account grow, so it stays enough. `patience` is 200 at least: a
    saving of `haste` is enough in the end.
    """

    threshold: int = 50_000
    """The relative saving that a switch needs, in millionths, while the account is even."""
    after_ms: int = 30 * times.MINUTE
    dwell_ms: int = 2 * times.HOUR
    per_day: int = 6
    allowed: int = 16
    """What staying may cost in the long run, in percent of the threshold: 0.8% of the bill with a threshold of 5%."""
    patience: int = 300
    """The saving that a switch needs while the account is full of credit, in percent of the threshold."""
    haste: int = 50
    """The saving that it needs at least, however much staying has cost, in percent of the threshold."""
    account: int = ACCOUNT
    """The most that the account holds either way."""

    @property
    def allowance(self) -> int:
        """What staying may cost in the long run, in millionths of the bill."""
        return self.threshold * self.allowed // 100

    @property
    def least(self) -> int:
        """The saving that a switch needs at least, in millionths."""
        return -(-self.threshold * self.haste // 100)

    @property
    def most(self) -> int:
        """The saving that is always enough, in millionths."""
        return self.threshold * self.patience // 100

    @property
    def slope(self) -> int:
        """How much less saving a switch needs when the account rises from even to full, in millionths."""
        return self.most - self.threshold


class Tenure(Struct, frozen=True, kw_only=True):
    """Which offer a pool is on, and what it must remember to leave it at the right moment."""

    chosen: str = ""
    since: int = 0
    challenger: str = ""
    """An offer that is cheap enough to switch to."""
    challenger_since: int = 0
    missed: int = 0
    """The account at `as_of`: what staying has cost, less the allowance, in millionths of the bill times milliseconds."""
    as_of: int = 0
    saving: int = 0
    """What the cheapest offer has saved since `as_of`, in millionths, rounded."""
    switches: tuple[int, ...] = ()
    """The switches of the last day that rules had to permit; an offer that was gone is left without them."""


def next_tenure(before: Tenure, costs: Mapping[str, int], now: int, rules: SwitchRules) -> Tenure:
    """Stay or switch, with the costs of all candidates now. An offer that is not among them is left at once.

    As long as nothing changes, it returns what it was given, so nothing needs to be written.
    """
    if not costs:
        return _settled(before, "", 0, now, rules)
    if before.chosen not in costs:
        first = Tenure(chosen=_cheapest(costs), since=now, as_of=now, switches=before.switches)
        return structs.replace(first, missed=account(before, now, rules)) if before.chosen else first
    best = _cheapest(costs)
    challenger = before.challenger if _is_enough(before, before.challenger, costs, now, rules) else best
    if not _is_enough(before, challenger, costs, now, rules):
        challenger = ""
    elif challenger == before.challenger and now >= _due(before, rules):
        recent = tuple(moment for moment in before.switches if now - moment < DAY)
        moved = Tenure(chosen=challenger, since=now, as_of=now, switches=(*recent, now))
        return next_tenure(structs.replace(moved, missed=account(before, now, rules)), costs, now, rules)
    after = _settled(before, challenger, _rounded(before.chosen, costs, rules), now, rules)
    if after.challenger and now >= _due(after, rules):  # nothing to wait for
        return next_tenure(after, costs, now, rules)
    return after


def recheck_at(tenure: Tenure, costs: Mapping[str, int], rules: SwitchRules, now: int) -> int | None:
    """When the answer changes by time alone, given that costs stay as they are; None if it does not."""
    if tenure.chosen not in costs:
        return now if costs else None
    if tenure.challenger:
        return max(_due(tenure, rules), now)
    saving = _saving(tenure.chosen, _cheapest(costs), costs)
    rate = tenure.saving - rules.allowance
    if saving <= 0 or saving < rules.least or rate <= 0 or not rules.slope:
        return None
    return max(tenure.as_of - -(_wanted(saving, rules) - tenure.missed) // rate, now)


def needed_saving(tenure: Tenure, now: int, rules: SwitchRules) -> int:
    """The saving that a switch needs now, in millionths: between the least and the most that the rules say, by the account."""
    needed = rules.threshold - rules.slope * account(tenure, now, rules) // rules.account
    return min(max(needed, rules.least), rules.most)


def account(tenure: Tenure, now: int, rules: SwitchRules) -> int:
    """What staying has cost so far, less the allowance; below zero there is credit."""
    grown = tenure.missed + (tenure.saving - rules.allowance) * max(0, now - tenure.as_of)
    return min(max(grown, -rules.account), rules.account)


def settled_order(before: Sequence[str], costs: Mapping[str, int], threshold: int) -> tuple[str, ...]:
    """The order of a ladder: as before, unless one is cheaper than one above it by more than the threshold (millionths).

    Newcomers come after those that they do not beat, by cost and name. What is not in `costs` is left out.
    """
    known = [name for name in dict.fromkeys(before) if name in costs]
    by_cost = sorted((cost, name) for name, cost in costs.items())
    places = {name: place for place, name in enumerate(known)}
    order: list[str] = []
    taken: set[str] = set()
    earlier: list[int] = []
    newcomers: deque[str] = deque()
    cheapest = reached = 0
    while len(order) < len(by_cost):
        while by_cost[cheapest][1] in taken:
            cheapest += 1
        least = by_cost[cheapest][0] * MILLION
        # Whoever the cheapest one left does not beat may stand here; the first of them by the earlier order does.
        while reached < len(by_cost) and by_cost[reached][0] * (MILLION - threshold) <= least:
            name = by_cost[reached][1]
            if name in places:
                heapq.heappush(earlier, places[name])
            else:
                newcomers.append(name)
            reached += 1
        name = known[heapq.heappop(earlier)] if earlier else newcomers.popleft()
        taken.add(name)
        order.append(name)
    return tuple(order)


def _cheapest(costs: Mapping[str, int]) -> str:
    least = min(costs.values())
    return min(name for name, cost in costs.items() if cost == least)


def _saving(chosen: str, other: str, costs: Mapping[str, int]) -> int:
    """What the other one saves, in millionths, rounded down."""
    return (costs[chosen] - costs[other]) * MILLION // max(costs[chosen], 1)


def _rounded(chosen: str, costs: Mapping[str, int], rules: SwitchRules) -> int:
    step = max(rules.threshold // STEPS, 1)
    return (_saving(chosen, _cheapest(costs), costs) + step // 2) // step * step


def _wanted(saving: int, rules: SwitchRules) -> int:
    """How far the account must have come for such a saving to be enough."""
    return -(-rules.account * (rules.threshold - saving) // rules.slope)


def _is_enough(tenure: Tenure, other: str, costs: Mapping[str, int], now: int, rules: SwitchRules) -> bool:
    if other not in costs:
        return False
    saving = _saving(tenure.chosen, other, costs)
    if saving <= 0 or saving < rules.least:
        return False
    return saving >= rules.most or account(tenure, now, rules) >= _wanted(saving, rules)


def _due(tenure: Tenure, rules: SwitchRules) -> int:
    """When the challenger may be switched to, if it stays cheap enough."""
    if rules.per_day <= 0:
        return times.LAST
    moment = max(tenure.challenger_since + rules.after_ms, tenure.since + rules.dwell_ms)
    return max(moment, tenure.switches[-rules.per_day] + DAY) if len(tenure.switches) >= rules.per_day else moment


def _settled(before: Tenure, challenger: str, saving: int, now: int, rules: SwitchRules) -> Tenure:
    """Stay; the account is brought forward only when it goes on at another rate."""
    after = before
    if saving != before.saving:
        after = structs.replace(after, saving=saving, missed=account(before, now, rules), as_of=now)
    if challenger != before.challenger:
        after = structs.replace(after, challenger=challenger, challenger_since=now if challenger else 0)
    return after

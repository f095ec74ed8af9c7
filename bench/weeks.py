"""Whether what the power benchmark shows of one week of Philly holds in the others: each whole week by itself, under ours and the seed.

    make bench NAME=weeks                              about a quarter of an hour on two free cores

A week is so many recorded minutes; in one of them the record has a gap of some hours.
The last column is a yardstick that nobody could have used: of the plain rules of bench/powering/foresight.py that know nothing ahead and
meet the other two goals in that week, the one that turned out best there.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Final

from bench import results
from bench.power import DEFAULT, LEAST_KEPT, MOST_STARTS, SEED, Compared, Stretch, compare, say
from bench.powering.measures import short
from bench.results import Row, keep_table

WEEKS: Final = 10
KEPT: Final = "weeks-table"
COLUMNS: Final = (
    "week",
    "ours: saving kept",
    "starts",
    "mean wait",
    "the seed: saving kept",
    "mean wait",
    "best plain rule: mean wait",
)


class Together:
    """All weeks as if they were one demand."""

    def __init__(self, weeks: Sequence[Compared]) -> None:
        self._weeks = weeks

    def kept(self, policy: str) -> float:
        """Of the possible saving, in percent."""
        saved = sum(week.saved(week.played[policy].came.machine_hours) for week in self._weeks)
        return 100 * saved / sum(week.saved(week.possible) for week in self._weeks)

    def starts(self, policy: str) -> float:
        """Of those of following demand each minute, in percent."""
        ours = sum(week.played[policy].came.starts_a_day for week in self._weeks)
        return 100 * ours / sum(week.followed.starts_a_day for week in self._weeks)

    def wait(self, policy: str) -> float:
        """Of all pods, in seconds."""
        waits = [wait for week in self._weeks for wait in week.played[policy].came.waits]
        return sum(waits) / len(waits)


def rows_of(weeks: Sequence[Compared]) -> list[Row]:
    """What all weeks come to, and in how many of them each goal is met."""
    both = Together(weeks)
    waits = [[week.played[policy].came.mean_wait for policy in (DEFAULT, SEED)] for week in weeks]
    row = f"Philly, {len(weeks)} weeks"
    return [
        Row(
            figure=f"{row}: possible saving kept",
            value=short(both.kept(DEFAULT)),
            unit="%",
            goal=LEAST_KEPT,
            sense="min",
            peer=SEED,
            peer_value=short(both.kept(SEED)),
        ),
        Row(
            figure=f"{row}: starts, of those of following demand each minute",
            value=short(both.starts(DEFAULT)),
            unit="%",
            goal=MOST_STARTS,
            peer=SEED,
            peer_value=short(both.starts(SEED)),
        ),
        Row(
            figure=f"{row}: mean wait",
            value=short(both.wait(DEFAULT)),
            unit="s",
            goal=short(both.wait(SEED)),
            peer=SEED,
            peer_value=short(both.wait(SEED)),
        ),
        Row(
            figure="weeks in which 90 % are kept",
            value=sum(week.kept(DEFAULT) >= LEAST_KEPT for week in weeks),
            unit="weeks",
        ),
        Row(
            figure="weeks with no more starts than a tenth",
            value=sum(week.starts(DEFAULT) <= MOST_STARTS for week in weeks),
            unit="weeks",
        ),
        Row(
            figure="weeks in which pods wait no longer than with the seed",
            value=sum(mine <= seeds for mine, seeds in waits),
            unit="weeks",
        ),
    ]


def lines(weeks: Sequence[Compared]) -> Iterator[tuple[str, ...]]:
    """Every week as text, then all of them."""
    for number, week in enumerate(weeks, 1):
        waits = [f"{week.played[policy].came.mean_wait:,.2f} s" for policy in (DEFAULT, SEED)]
        kept = [f"{week.kept(policy):.1f} %" for policy in (DEFAULT, SEED)]
        best = [f"{rule.wait:,.2f} s" for rule in week.foreseeing if not rule.knows] or ["none meets both"]
        yield str(number), kept[0], f"{week.starts(DEFAULT):.1f} %", waits[0], kept[1], waits[1], *best
    both = Together(weeks)
    waits = [f"{both.wait(policy):,.2f} s" for policy in (DEFAULT, SEED)]
    kept = [f"{both.kept(policy):.1f} %" for policy in (DEFAULT, SEED)]
    yield "**all**", kept[0], f"{both.starts(DEFAULT):.1f} %", waits[0], kept[1], waits[1], ""


def main(_arguments: list[str]) -> int:
    """Measure; write the results if the demand is the recorded one."""
    side_by_side = min(2, os.cpu_count() or 1)
    with ProcessPoolExecutor(side_by_side) as workers, ThreadPoolExecutor(side_by_side) as asking:

        def one(week: int) -> Compared:
            found = compare(Stretch("Philly", 7 * week, 7), workers, (SEED,), (DEFAULT,))
            say(f"week {week + 1} of {WEEKS} is done")
            return found

        weeks = list(asking.map(one, range(WEEKS)))
    rows = rows_of(weeks)
    if not all(week.demand.is_recorded for week in weeks):
        for row in rows:
            say(f"{row.figure}: {row.value:g} {row.unit}{' (missed)' if row.is_missed else ''}")
        return 0
    keep_table(KEPT, COLUMNS, list(lines(weeks)))
    return 1 if results.write("weeks", rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

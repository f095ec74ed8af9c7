"""The warm rule on the weeks of Philly that were not used to choose its settings, beside the best constant rule, chosen in the same way.

    make bench NAME=weeks                              about ten minutes of CPU

Settings of both are chosen on weeks 1 to 5 (bench/powering/families.py); weeks 6 to 10 are played here, each by itself. A week is so
many recorded minutes; in one of them the record has a gap of some hours.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Final

import numpy as np

from bench import results
from bench.power import DEFAULT, Compared, Stretch, chosen_constant, compare, constant_name, figures, say
from bench.powering.families import LEAST_KEPT
from bench.powering.measures import short
from bench.results import Row, keep_table

WEEKS: Final = range(6, 11)
KEPT: Final = "weeks-table"
FIGURES: Final = ("saving kept", "starts", "mean wait", "pods that wait", "999 of 1000")
COLUMNS: Final = ("week", *(f"ours: {each}" for each in FIGURES), *(f"constant: {each}" for each in FIGURES))
UNITS: Final = ("%", "%", "s", "%", "s")


def told(week: Compared, policy: str) -> tuple[float, ...]:
    """The figures of a week."""
    return tuple(value for value, _ in figures(week, policy).values())


def together(weeks: Sequence[Compared], policy: str) -> tuple[float, ...]:
    """The figures of all weeks as if they were one demand."""
    came = [week.played[policy].came for week in weeks]
    saved = sum(week.saved(each.machine_hours) for week, each in zip(weeks, came, strict=True))
    starts = sum(each.starts_a_day for each in came)
    waits = np.array([wait for each in came for wait in each.waits])
    return (
        100 * saved / sum(week.saved(week.possible) for week in weeks),
        100 * starts / sum(week.followed.starts_a_day for week in weeks),
        float(waits.mean()),
        100 * float((waits > 0).mean()),
        float(np.percentile(waits, 99.9, method="higher")),
    )


def rows_of(weeks: Sequence[Compared], constant: str) -> list[Row]:
    """What all weeks come to: with 90 % of the saving kept, no more starts and no longer waits than the constant rule."""
    ours, peers = (together(weeks, policy) for policy in (DEFAULT, constant))
    rows = []
    for figure, unit, mine, peer in zip(FIGURES, UNITS, ours, peers, strict=True):
        value, other = short(mine), short(peer)
        is_kept = figure == FIGURES[0]
        row = Row(
            figure=f"Philly, weeks {WEEKS[0]} to {WEEKS[-1]}: {figure}",
            value=value,
            unit=unit,
            goal=LEAST_KEPT if is_kept else other,
            sense="min" if is_kept else "max",
            peer=constant,
            peer_value=other,
        )
        rows.append(row)
    return rows


def lines(weeks: Sequence[Compared], constant: str) -> Iterator[tuple[str, ...]]:
    """Every week as text, then all of them."""
    for number, week in zip(WEEKS, weeks, strict=True):
        yield str(number), *_cells(told(week, DEFAULT)), *_cells(told(week, constant))
    yield "**all**", *_cells(together(weeks, DEFAULT)), *_cells(together(weeks, constant))


def _cells(values: Sequence[float]) -> Iterator[str]:
    kept, starts, wait, waiting, longest = values
    yield from (f"{kept:.1f} %", f"{starts:.1f} %", f"{wait:,.2f} s", f"{waiting:.2f} %", f"{longest:,.0f} s")


def main(_arguments: list[str]) -> int:
    """Measure; write the results if the demand is the recorded one."""
    side_by_side = min(2, os.cpu_count() or 1)
    with ProcessPoolExecutor(side_by_side) as workers, ThreadPoolExecutor(side_by_side) as asking:
        setting = chosen_constant()

        def one(week: int) -> Compared:
            found = compare(Stretch("Philly", 7 * (week - 1), 7), workers, setting, (), (DEFAULT,))
            say(f"week {week} of {WEEKS[-1]} is done")
            return found

        weeks = list(asking.map(one, WEEKS))
    constant = constant_name(setting)
    rows = rows_of(weeks, constant)
    if not all(week.demand.is_recorded for week in weeks):
        for row in rows:
            say(f"{row.figure}: {row.value:g} {row.unit}{' (missed)' if row.is_missed else ''}")
        return 0
    keep_table(KEPT, COLUMNS, list(lines(weeks, constant)))
    return 1 if results.write("weeks", rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

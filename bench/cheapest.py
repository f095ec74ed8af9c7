"""Cheapest capacity: switches and dollars over recorded prices beside other rules, and the cost of ranking 2,000 offers.

    make bench NAME=cheapest                         all of it, where HEADROOM_DATA names a folder that has the prices
    make bench NAME=cheapest ARGS=--choose           the choice of settings, on prices up to 2024; exit code 1 if others ship

Settings were chosen on prices of December 2022 to 2024 (bench/offering/families.py), and the figures are those of 2025 and 2026. A switch is any
change of the offer, also when the old one is gone. Always the cheapest stays on a tie. A margin leaves for the cheapest offer whenever that is 5% cheaper.
The best possible with as many switches knows all prices beforehand; it is exact.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from bench import region, results
from bench.offering import families, sets, sizes
from bench.offering.families import SHIPPED, Came
from bench.results import Row, keep_table
from headroom.core.offers import SwitchRules
from headroom.sim.backtest.hindsight import least_paid
from headroom.sim.backtest.rules import AlwaysCheapest, Margin, Original, Paid, Production, play
from headroom.sim.backtest.timeline import Timeline

MARGIN, WIDE = 50_000, 70_000
MARGIN_NAME: Final = "a margin of 5%"
TABLE, FRONT = "cheapest-sets", "cheapest-front"
COLUMNS: Final = (
    "offers",
    "always the cheapest",
    "ours",
    "fewer",
    "cost",
    "above the best possible",
    "5% margin",
    "fewer",
    "cost",
    "the original",
    "its cost",
    "most fewer for 1%",
)
FRONT_COLUMNS: Final = ("at most", "allowance", "patience", "account", "switches", "most cost", "mean cost")


class Compared(NamedTuple):
    """One set of offers under every rule."""

    ours: Paid
    cheapest: Paid
    margin: Paid
    wide: Paid
    """A larger margin, of 7%."""
    original: Paid
    regret: float
    """Of ours over the best with as many switches, in percent."""
    least: int
    """The fewest switches with which anybody, knowing all prices, could stay within one percent of always the cheapest."""

    def over(self, paid: Paid) -> float:
        """How much more than always the cheapest, in percent."""
        return 100 * (paid.usd / self.cheapest.usd - 1)

    def fewer(self, switches: int) -> float:
        """Than always the cheapest, in percent."""
        return 100 * (1 - switches / max(len(self.cheapest.switches), 1))


def say(text: str) -> None:
    """A line of progress."""
    print(f"cheapest: {text}", file=sys.stderr, flush=True)


def compare(line: Timeline) -> Compared:
    """All rules over one stretch of prices."""
    ours, cheapest = play(line, Production(line, SwitchRules())), play(line, AlwaysCheapest(line))
    margin, wide = play(line, Margin(line, MARGIN)), play(line, Margin(line, WIDE))
    original = play(line, Original(line))
    least = least_paid(line, max(len(cheapest.switches), len(ours.switches)))
    within = int(np.flatnonzero(least <= 1.01 * cheapest.usd)[0])
    regret = 100 * (ours.usd / float(least[len(ours.switches)]) - 1)
    return Compared(ours, cheapest, margin, wide, original, regret, within)


# --- what is told ---------------------------------------------------------------------------------------------------------------


def rows_of(found: Mapping[str, Compared]) -> Iterator[Row]:
    """The five sets of the goals, one by one and together."""
    for name, each in found.items():
        yield Row(
            figure=f"{name}: fewer switches than always the cheapest ({len(each.ours.switches)} of {len(each.cheapest.switches)})",
            value=round(each.fewer(len(each.ours.switches)), 1),
            unit="%",
            goal=75,
            sense="min",
            peer=MARGIN_NAME,
            peer_value=round(each.fewer(len(each.margin.switches)), 1),
        )
        yield Row(
            figure=f"{name}: cost over always the cheapest",
            value=round(each.over(each.ours), 2),
            unit="%",
            goal=1,
            peer=MARGIN_NAME,
            peer_value=round(each.over(each.margin), 2),
        )
        yield Row(figure=f"{name}: cost over the best with as many switches", value=round(each.regret, 2), unit="%")
        yield Row(
            figure=f"{name}: most fewer switches for 1 % more cost, all prices known beforehand",
            value=round(each.fewer(each.least), 1),
            unit="%",
        )
    ours, margin, base = (sum(len(paid.switches) for paid in each) for each in _paid(found))
    yield Row(
        figure=f"all five: fewer switches than always the cheapest ({ours} of {base})",
        value=round(100 * (1 - ours / base), 1),
        unit="%",
        goal=88,
        sense="min",
        peer=MARGIN_NAME,
        peer_value=round(100 * (1 - margin / base), 1),
    )
    wide = [len(each.wide.switches) for each in found.values()]
    yield Row(
        figure="all five, a margin of 7 %: fewer switches than always the cheapest",
        value=round(100 * (1 - sum(wide) / base), 1),
        unit="%",
    )
    yield Row(
        figure="all five, a margin of 7 %: most cost over always the cheapest in one of them",
        value=round(max(each.over(each.wide) for each in found.values()), 2),
        unit="%",
    )


def span_rows(found: Mapping[str, Compared]) -> Iterator[Row]:
    """Each set over the longer span, of which a part was used for the choice."""
    for name, each in found.items():
        ours, margin = len(each.ours.switches), len(each.margin.switches)
        yield Row(
            figure=f"{name}, from 2024 on: fewer switches than always the cheapest ({ours} of {len(each.cheapest.switches)})",
            value=round(each.fewer(ours), 1),
            unit="%",
            peer=MARGIN_NAME,
            peer_value=round(each.fewer(margin), 1),
        )
    yield Row(
        figure="the five from 2024 on: most cost over always the cheapest in one of them",
        value=round(max(each.over(each.ours) for each in found.values()), 2),
        unit="%",
        peer=MARGIN_NAME,
        peer_value=round(max(each.over(each.margin) for each in found.values()), 2),
    )


def _paid(found: Mapping[str, Compared]) -> tuple[list[Paid], list[Paid], list[Paid]]:
    each = found.values()
    return [it.ours for it in each], [it.margin for it in each], [it.cheapest for it in each]


def lines(found: Mapping[str, Compared]) -> Iterator[tuple[str, ...]]:
    """Every set as text."""
    for name, each in found.items():
        ours, margin = len(each.ours.switches), len(each.margin.switches)
        yield (
            name,
            str(len(each.cheapest.switches)),
            str(ours),
            f"{each.fewer(ours):.1f}%",
            f"{each.over(each.ours):+.2f}%",
            f"{each.regret:.2f}%",
            str(margin),
            f"{each.fewer(margin):.1f}%",
            f"{each.over(each.margin):+.2f}%",
            str(len(each.original.switches)),
            f"{each.over(each.original):+.2f}%",
            f"{each.fewer(each.least):.1f}%",
        )


def size_rows() -> Iterator[Row]:
    """The cost of many offers."""
    ms, count = sizes.ranking()
    assert count == sizes.OFFERS, "all of them are ranked"
    yield Row(figure=f"ranking {sizes.OFFERS:,} offers, CPU", value=round(ms, 1), unit="ms", goal=10)
    yield Row(
        figure=f"the whole decision on {sizes.OFFERS:,} offers, CPU", value=round(sizes.deciding(1), 1), unit="ms"
    )
    many = sizes.deciding(sizes.SHARED)
    yield Row(
        figure=f"the same for each of {sizes.SHARED} pools in one region, CPU",
        value=round(many / sizes.SHARED, 1),
        unit="ms",
    )
    yield Row(figure=f"facts of {sizes.OFFERS:,} offers", value=round(sizes.megabytes(), 2), unit="MB", goal=20)
    read = region.region_memory()
    yield Row(
        figure=f"a region of {read['offers']:,.0f} offers, with all that was read of it",
        value=round(read["kept"], 2),
        unit="MB",
        goal=20,
    )
    yield Row(
        figure="lists of AWS that are read for 100 objects in one region",
        value=region.lists_read(100),
        unit="lists",
        goal=region.lists_read(1),
    )


# --- the choice -----------------------------------------------------------------------------------------------------------------


def choose(folder: Path) -> int:
    """The front of the family on early prices; whether the setting that ships is the one that is chosen there."""
    early = {name: sets.early(line) for name, line in sets.read(folder, sets.FIVE).items()}
    cheapest = sets.cheapest(early)
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as workers:
        one = partial(families.came, lines=early, cheapest=cheapest)
        found = list(workers.map(one, families.FAMILY, chunksize=24))
    front = [(f"{limit:g}%", it) for limit in families.LIMITS if (it := families.best(found, limit)) is not None]
    shipped = next(each for each in found if each.setting == SHIPPED)
    told = [_front_line(name, it) for name, it in [*front, ("**ships**", shipped)]]
    told += [_margin_line(margin, families.with_margin(margin, early, cheapest)) for margin in families.MARGINS]
    keep_table(FRONT, FRONT_COLUMNS, told)
    for each in told:
        say(", ".join(f"{name} {cell}" for name, cell in zip(FRONT_COLUMNS, each, strict=True) if cell))
    picked = families.best(found, families.MOST_COST)
    assert picked is not None, "some cost so little"
    say(f"chosen: {picked.setting}; shipped: {SHIPPED}")
    return int(picked.setting != SHIPPED)


def _front_line(name: str, found: Came) -> tuple[str, ...]:
    allowed, patience, days = found.setting
    return name, f"{allowed}%", f"{patience}%", f"{days}d", *_came_to(found)


def _margin_line(margin: int, found: Came) -> tuple[str, ...]:
    return f"a margin of {margin // 10_000}%", "", "", "", *_came_to(found)


def _came_to(found: Came) -> tuple[str, str, str]:
    return str(found.switches), f"{found.most:+.2f}%", f"{found.mean:+.2f}%"


def main(arguments: list[str]) -> int:
    """Measure; write the results if it was everything."""
    parser = argparse.ArgumentParser(prog="bench.cheapest")
    parser.add_argument("--choose", action="store_true", help="choose settings on prices up to 2024")
    given, named = parser.parse_args(arguments), os.environ.get("HEADROOM_DATA")
    folder = Path(named) if named else None
    if given.choose:
        assert folder is not None, "HEADROOM_DATA names the folder with the prices"
        return choose(folder)
    rows = list(size_rows())
    if folder is None:
        for row in rows:
            say(f"{row.figure}: {row.value:g} {row.unit}{' (missed)' if row.is_missed else ''}")
        return int(any(row.is_missed for row in rows))
    every = sets.read(folder, (*sets.FIVE, *sets.OTHERS))
    found = {name: compare(sets.late(line)) for name, line in every.items()}
    keep_table(TABLE, COLUMNS, list(lines(found)))
    five = {each.name: found[each.name] for each in sets.FIVE}
    span = {each.name: compare(sets.longer(every[each.name])) for each in sets.FIVE}
    return 1 if results.write("cheapest", [*rows_of(five), *span_rows(span), *rows]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

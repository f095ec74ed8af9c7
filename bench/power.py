"""What power saves and costs: two recorded demands under our plan, the seed's algorithm and plain ones, and the cost of deciding.

    make bench NAME=power                              a week of Philly and two weeks of openb (about ten minutes on two free cores)
    make bench NAME=power ARGS=--full                  all of Philly, and all of openb; nothing is kept
    make bench NAME=power ARGS="--only plan"           deciding alone, as make bench NAME=planning

The demands are recorded ones where HEADROOM_DATA names a folder that has them, else made up of the same form; bench/powering/demand.py
says how they become pods. All policies have the same pods, the same scheduler (the first node by name with room), and machines that take
three minutes to boot; at the begin only machines with work are on. Ours is the production plan with its defaults, played by what-if.
Watts are nominal. What is possible is a bound: nobody waits, machines boot in no time, and at each moment the fewest machines are on
that together have the GPUs, CPU and memory asked for. For Philly that is exact.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import planning, results
from bench.powering import demand as demands
from bench.powering import foresight, rivals
from bench.powering.demand import Demand
from bench.powering.foresight import Rule
from bench.powering.measures import Came, Followed, Least, came, followed, least, short
from bench.results import FOLDER, Row
from headroom.sim.whatif.replay import SHORTEST_MS, replay

DEFAULT: Final = "ours"
OURS: Final[Mapping[str, Mapping[str, int]]] = {
    DEFAULT: {},
    "ours, warmPercent 8": {"warm_percent": 8},
    "ours, warmPercent 0": {"warm_percent": 0},
    "ours, warmPercent 0, idleSeconds 1800": {"warm_percent": 0, "idle_seconds": 1800},
}
"""Our policies: the default, and what it would be with other settings."""
KEPT: Final = "power-policies"
LEAST_KEPT, MOST_STARTS = 90, 10
FORESEEN: Final = range(4)
LEAST, ALWAYS, SEED, MINUTE = "least possible", "always on", "the seed", "demand, each minute"


def say(text: str) -> None:
    """A line of progress."""
    print(f"power: {text}", file=sys.stderr, flush=True)


class Stretch(NamedTuple):
    """Which part of which demand."""

    name: str
    first_day: int
    days: int | None

    def read(self) -> Demand:
        """The demand, recorded if there is a record."""
        named = os.environ.get("HEADROOM_DATA")
        folder = Path(named) if named else None
        if self.name == "Philly":
            return demands.philly(self.first_day, self.days, folder)
        return demands.openb(self.days, folder)


USUAL: Final = (Stretch("Philly", 0, 7), Stretch("openb", 0, 14))
FULL: Final = (Stretch("Philly", 0, None), Stretch("openb", 0, None))


class Played(NamedTuple):
    """What one policy came to."""

    policy: str
    came: Came
    wasted_calls: int = 0


class Compared(NamedTuple):
    """A demand under every policy."""

    demand: Demand
    least: Least
    followed: Followed
    played: dict[str, Played]
    foreseeing: tuple[Rule, ...] = ()
    """For each number of minutes that a rule could know ahead, the best one."""

    def kept(self, policy: str) -> float:
        """How much of the possible saving of machine-hours a policy keeps, in percent."""
        return self.share(self.played[policy].came.machine_hours)

    def share(self, machine_hours: float) -> float:
        """How much of the possible saving is kept by who takes so many hours."""
        all_hours = self.played[ALWAYS].came.machine_hours
        return 100 * (all_hours - machine_hours) / (all_hours - self.least.machine_hours)

    def starts(self, policy: str) -> float:
        """How often a policy starts machines, in percent of following demand each minute."""
        return 100 * self.played[policy].came.starts_a_day / self.followed.starts_a_day

    def frugal(self) -> str:
        """Of our settings that save at least as much as the seed the one under which pods wait least."""
        enough = [name for name in OURS if self.kept(name) >= self.kept(SEED)]
        return min(enough, key=lambda name: self.played[name].came.mean_wait, default=DEFAULT)


def play_all_on(stretch: Stretch) -> tuple[Played, Followed]:
    """Everything is on; and what power that follows demand from minute to minute would come to."""
    demand = stretch.read()
    demand = demand._replace(case=demands.all_on(demand.case))
    log, _ = rivals.play(demand.case, demand.pools, rivals.AlwaysOn())
    return Played(ALWAYS, came(demand, log)), followed(demand, log)


def play_rival(stretch: Stretch, policy: str) -> Played:
    """The turn of the seed, or of what follows demand."""
    demand = stretch.read()
    rival = rivals.seed_of(demand.pools) if policy == SEED else rivals.EachMinute()
    log, switches = rivals.play(demand.case, demand.pools, rival)
    return Played(policy, came(demand, log), switches.wasted)


def play_ours(stretch: Stretch, policy: str) -> Played:
    """The turn of the production plan."""
    demand = stretch.read()
    log = replay(demand.case, demands.under(demand, **OURS[policy]), every=SHORTEST_MS)
    return Played(policy, came(demand, log))


def compare(stretch: Stretch, workers: ProcessPoolExecutor) -> Compared:
    """One demand under all policies."""
    demand = stretch.read()
    say(
        f"{demand.name}, {'recorded' if demand.is_recorded else 'made up'}: {len(demand.case.works):,} pods, "
        f"{len(demand.case.nodes):,} machines, {demand.days:.1f} days"
    )
    all_on = workers.submit(play_all_on, stretch)
    turns = [workers.submit(play_rival, stretch, policy) for policy in (SEED, MINUTE)]
    turns += [workers.submit(play_ours, stretch, policy) for policy in OURS]
    first, rises = all_on.result()
    played = {ALWAYS: first}
    for turn in turns:
        one = turn.result()
        say(f"{demand.name}: {one.policy}: {one.came.machine_hours:,.0f} machine-hours")
        played[one.policy] = one
    return Compared(demand, least(demand), rises, played, tuple(foreseeing(demand)))


def foreseeing(demand: Demand) -> Iterator[Rule]:
    """What rules come to that know the future, up to the first one that nobody waits for; only where pods fill machines."""
    if demand.name == "Philly":
        found = (foresight.best(demand, minutes, LEAST_KEPT, MOST_STARTS) for minutes in FORESEEN)
        yield from (rule for rule in found if rule is not None)


# What is told of it


def rows_of(found: Compared) -> list[Row]:
    """The figures of one demand, ours beside the seed's."""
    name = found.demand.name if found.demand.is_recorded else f"{found.demand.name}, made up"
    mine, seed, frugal = (found.played[each].came for each in (DEFAULT, SEED, found.frugal()))

    def row(figure: str, value: float, unit: str, seeds: float, **goal: Any) -> Row:
        return Row(
            figure=f"{name}: {figure}", value=short(value), unit=unit, peer=SEED, peer_value=short(seeds), **goal
        )

    return [
        row("possible saving kept", found.kept(DEFAULT), "%", found.kept(SEED), goal=LEAST_KEPT, sense="min"),
        row(
            "starts, of those of following demand each minute",
            found.starts(DEFAULT),
            "%",
            found.starts(SEED),
            goal=MOST_STARTS,
        ),
        row("machine-hours", mine.machine_hours, "h", seed.machine_hours),
        row("energy", mine.kwh, "kWh", seed.kwh),
        row("mean wait", mine.mean_wait, "s", seed.mean_wait, goal=short(seed.mean_wait)),
        row("wait of 99 of 100", mine.wait(99), "s", seed.wait(99), goal=short(seed.wait(99))),
        row(
            f"where it saves no less than the seed ({found.frugal()}): mean wait",
            frugal.mean_wait,
            "s",
            seed.mean_wait,
            goal=short(seed.mean_wait),
        ),
        row("the same: wait of 99 of 100", frugal.wait(99), "s", seed.wait(99), goal=short(seed.wait(99))),
    ]


COLUMNS: Final = (
    "policy",
    "machine-hours",
    "possible saving kept",
    "starts a day",
    "kWh",
    "wait: mean",
    "50 of 100",
    "99 of 100",
    "longest",
    "never placed",
    "lost",
    "needless calls",
)


def lines(found: Compared) -> Iterator[tuple[str, ...]]:
    """Every policy as text, under the name of its demand."""
    demand, ideal = found.demand, found.followed
    origin = "recorded" if demand.is_recorded else "made up"
    size = f"{len(demand.case.nodes):,} machines, {len(demand.case.works):,} pods, {demand.days:.1f} days"
    yield f"**{demand.name}** ({origin}; {size})", *[""] * (len(COLUMNS) - 1)
    yield (
        LEAST,
        f"{found.least.machine_hours:,.0f}",
        "100 %",
        "",
        f"{found.least.kwh:,.0f}",
        *["0 s"] * 4,
        "0",
        "0",
        "0",
    )
    followed_hours = f"{ideal.machine_hours:,.0f}", f"{found.share(ideal.machine_hours):.1f} %"
    yield (
        f"{MINUTE}, as if boots took no time",
        *followed_hours,
        f"{ideal.starts_a_day:,.1f}",
        "",
        *["0 s"] * 4,
        "0",
        "0",
        "0",
    )
    yield from map(_line_of, found.foreseeing, repeat(ideal))
    for policy, each in found.played.items():
        waits = (each.came.mean_wait, *(each.came.wait(percent) for percent in (50, 99, 100)))
        yield (
            policy + (" (the default)" if policy == DEFAULT else ""),
            f"{each.came.machine_hours:,.0f}",
            f"{found.kept(policy):.1f} %",
            f"{each.came.starts_a_day:,.1f}",
            f"{each.came.kwh:,.0f}",
            *(f"{wait:,.4g} s" for wait in waits),
            str(each.came.unplaced),
            str(each.came.lost),
            f"{each.wasted_calls:,}",
        )


def _line_of(rule: Rule, ideal: Followed) -> tuple[str, ...]:
    knows = "nothing" if not rule.knows else "one minute" if rule.knows == 1 else f"{rule.knows} minutes"
    return (
        f"the best of {len(foresight.HIGHS) * len(foresight.MORE)} plain rules that know {knows} ahead",
        "",
        f"{rule.kept:.1f} %",
        f"{rule.starts * ideal.starts_a_day / 100:,.1f}",
        "",
        f"{rule.wait:,.4g} s",
        *[""] * 6,
    )


def show(all_found: Sequence[Compared], keep: bool) -> None:
    """Print every policy, and keep it for the docs."""
    text = [line for found in all_found for line in lines(found)]
    table = Table(*COLUMNS, title="policies")
    for line in text:
        table.add_row(*(cell.replace("**", "") for cell in line))
    Console(width=200).print(table)
    if keep:
        ruler = "|" + "---|" * len(COLUMNS)
        head, *body = (f"| {' | '.join(cells)} |" for cells in (COLUMNS, *text))
        (FOLDER / f"{KEPT}.md").write_text("\n".join([head, ruler, *body]) + "\n")


def main(arguments: list[str]) -> int:
    """Measure; write the results if it was everything, on recorded demand."""
    parser = argparse.ArgumentParser(prog="bench.power")
    parser.add_argument("--only", choices=("plan", "demand"), help="one half, which is kept")
    parser.add_argument("--full", action="store_true", help="all days of both records; nothing is kept")
    given = parser.parse_args(arguments)
    missed = planning.main([]) if given.only != "demand" else 0
    if given.only == "plan":
        return missed
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as workers:
        found = [compare(stretch, workers) for stretch in (FULL if given.full else USUAL)]
    rows = [row for each in found for row in rows_of(each)]
    keep = not given.full and all(each.demand.is_recorded for each in found)
    show(found, keep)
    if keep:
        return 1 if results.write("power", rows) or missed else 0
    for row in rows:
        say(f"{row.figure}: {row.value:g} {row.unit}{' (missed)' if row.is_missed else ''}")
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What power saves and costs: two recorded demands under our plan, the seed's algorithm and plain ones, and the cost of deciding.

    make bench NAME=power                              a week of Philly and two weeks of openb (about ten minutes on two free cores)
    make bench NAME=power ARGS=--full                  all of Philly, and all of openb; nothing is kept
    make bench NAME=power ARGS="--only plan"           deciding alone, as make bench NAME=planning

The demands are recorded ones where HEADROOM_DATA names a folder that has them, else made up of the same form; bench/powering/demand.py
says how they become pods. All policies have the same pods, the same scheduler (the first node by name with room), and machines that take
three minutes to boot; at the begin only machines with work are on. Ours is the production plan with its defaults, played by what-if.
Watts are nominal. What can be saved at most is what the optimum saves that bench/powering/offline.py computes from all that will come; where
pods share machines nobody can compute it, and a bound takes its place: nobody waits, machines boot in no time, and at each moment the
fewest machines are on that together have the GPUs, CPU and memory asked for. `make bench NAME=weeks` plays the other weeks of Philly.
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
from bench.powering.offline import Offline, offline
from bench.results import Row
from headroom.sim.whatif.replay import SHORTEST_MS, replay

DEFAULT: Final = "ours"
OURS: Final[Mapping[str, Mapping[str, int]]] = {
    DEFAULT: {},
    "ours, warmPercent 4": {"warm_percent": 4},
    "ours, warmPercent 0": {"warm_percent": 0},
    "ours, warmPercent 0, idleSeconds 1800": {"warm_percent": 0, "idle_seconds": 1800},
}
"""Our policies: the default, and what it would be with other settings."""
KEPT: Final = "power-policies"
LEAST_KEPT, MOST_STARTS = 90, 10
FORESEEN: Final = range(4)
LEAST, ALWAYS, SEED, MINUTE = "bound: boots take no time", "always on", "the seed", "demand, each minute"
OPTIMUM, KNOWS_ALL = "the optimum, computed offline", "knows all that comes, first fit"


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
    offline: Offline
    followed: Followed
    played: dict[str, Played]
    foreseeing: tuple[Rule, ...] = ()
    """For each number of minutes that a rule could know ahead, the best one."""

    @property
    def possible(self) -> float:
        """The fewest machine-hours that anybody could do with: the optimum, or a bound where nobody knows it."""
        return self.offline.machine_hours if self.offline.is_optimum else self.least.machine_hours

    def kept(self, policy: str) -> float:
        """How much of the possible saving of machine-hours a policy keeps, in percent."""
        return self.share(self.played[policy].came.machine_hours)

    def share(self, machine_hours: float) -> float:
        """How much of the possible saving is kept by who takes so many hours, in percent."""
        return 100 * self.saved(machine_hours) / self.saved(self.possible)

    def of_bound(self, machine_hours: float) -> float:
        """The same of what could be saved if machines took no time to boot."""
        return 100 * self.saved(machine_hours) / self.saved(self.least.machine_hours)

    def saved(self, machine_hours: float) -> float:
        """Hours in which machines are off that would else be on."""
        return self.played[ALWAYS].came.machine_hours - machine_hours

    def starts(self, policy: str) -> float:
        """How often a policy starts machines, in percent of following demand each minute."""
        return 100 * self.played[policy].came.starts_a_day / self.followed.starts_a_day


def play_all_on(stretch: Stretch) -> tuple[Played, Followed, Offline]:
    """Everything is on; and what following demand from minute to minute, and knowing all of it, would come to."""
    demand = stretch.read()
    all_on = demand._replace(case=demands.all_on(demand.case))
    log, _ = rivals.play(all_on.case, all_on.pools, rivals.AlwaysOn())
    return Played(ALWAYS, came(all_on, log)), followed(all_on, log), offline(demand, log)


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


def compare(stretch: Stretch, workers: ProcessPoolExecutor, others: Sequence[str], ours: Sequence[str]) -> Compared:
    """One demand under these policies and with all machines on."""
    demand = stretch.read()
    say(
        f"{demand.name}, {'recorded' if demand.is_recorded else 'made up'}: {len(demand.case.works):,} pods, "
        f"{len(demand.case.nodes):,} machines, {demand.days:.1f} days"
    )
    all_on = workers.submit(play_all_on, stretch)
    turns = [workers.submit(play_rival, stretch, policy) for policy in others]
    turns += [workers.submit(play_ours, stretch, policy) for policy in ours]
    first, rises, known = all_on.result()
    played = {ALWAYS: first}
    for turn in turns:
        one = turn.result()
        say(f"{demand.name}: {one.policy}: {one.came.machine_hours:,.0f} machine-hours")
        played[one.policy] = one
    found = Compared(demand, least(demand), known, rises, played)
    return found._replace(foreseeing=tuple(foreseeing(found)))


def foreseeing(found: Compared) -> Iterator[Rule]:
    """Of the rules that know so many minutes ahead and meet the other two goals, the one under which pods wait least."""
    if not found.offline.is_optimum:
        return  # pods share machines, which these rules do not know
    for minutes in FORESEEN:
        rules = foresight.rules(found.demand, minutes, found.saved(found.possible))
        fine = [rule for rule in rules if rule.kept >= LEAST_KEPT and rule.starts <= MOST_STARTS]
        yield from sorted(fine, key=lambda rule: rule.wait)[:1]


# What is told of it


def rows_of(found: Compared) -> list[Row]:
    """The figures of one demand, ours beside the seed's."""
    name = found.demand.name if found.demand.is_recorded else f"{found.demand.name}, made up"
    mine, seed = (found.played[each].came for each in (DEFAULT, SEED))
    bounds = [found.of_bound(each.machine_hours) for each in (mine, seed)]

    def row(figure: str, value: float, unit: str, seeds: float, **goal: Any) -> Row:
        return Row(
            figure=f"{name}: {figure}", value=short(value), unit=unit, peer=SEED, peer_value=short(seeds), **goal
        )

    return [
        row("possible saving kept", found.kept(DEFAULT), "%", found.kept(SEED), goal=LEAST_KEPT, sense="min"),
        row("saving kept, of a bound with boots in no time", bounds[0], "%", bounds[1]),
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
    ]


COLUMNS: Final = (
    "policy",
    "machine-hours",
    "possible saving kept",
    "of the bound",
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
    nobody_waits = *["0 s"] * 4, "0", "0", "0"
    yield LEAST, *_hours(found, found.least.machine_hours), "", f"{found.least.kwh:,.0f}", *nobody_waits
    plan, starts = found.offline, f"{found.offline.starts_a_day:,.1f}"
    name = OPTIMUM if plan.is_optimum else KNOWS_ALL
    yield name, *_hours(found, plan.machine_hours), starts, f"{plan.kwh:,.0f}", *nobody_waits
    yield (
        f"{MINUTE}, as if boots took no time",
        *_hours(found, ideal.machine_hours),
        f"{ideal.starts_a_day:,.1f}",
        "",
        *nobody_waits,
    )
    yield from map(_line_of, found.foreseeing, repeat(found))
    for policy, each in found.played.items():
        waits = (each.came.mean_wait, *(each.came.wait(percent) for percent in (50, 99, 100)))
        yield (
            policy + (" (the default)" if policy == DEFAULT else ""),
            *_hours(found, each.came.machine_hours),
            f"{each.came.starts_a_day:,.1f}",
            f"{each.came.kwh:,.0f}",
            *(f"{wait:,.4g} s" for wait in waits),
            str(each.came.unplaced),
            str(each.came.lost),
            f"{each.wasted_calls:,}",
        )


def _hours(found: Compared, machine_hours: float) -> tuple[str, str, str]:
    """Hours, and which part of the saving that is."""
    share = found.share(machine_hours)
    kept = f"{share:.1f} %" if machine_hours >= found.possible else ""  # nobody can do better than the possible
    return f"{machine_hours:,.0f}", kept, f"{found.of_bound(machine_hours):.1f} %"


def _line_of(rule: Rule, found: Compared) -> tuple[str, ...]:
    knows = "nothing" if not rule.knows else "one minute" if rule.knows == 1 else f"{rule.knows} minutes"
    hours = found.played[ALWAYS].came.machine_hours - rule.kept / 100 * found.saved(found.possible)
    return (
        f"the best of {len(foresight.HIGHS) * len(foresight.MORE)} plain rules that know {knows} ahead",
        *_hours(found, hours),
        f"{rule.starts * found.followed.starts_a_day / 100:,.1f}",
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
        results.keep_table(KEPT, COLUMNS, text)


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
        found = [compare(stretch, workers, (SEED, MINUTE), tuple(OURS)) for stretch in (FULL if given.full else USUAL)]
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

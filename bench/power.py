"""What power saves and costs: recorded demands under our plan, constant warm rules, the seed's algorithm and plain ones, and the cost of deciding.

    make bench NAME=power                              two weeks of openb and two clusters of Helios (about a quarter of an hour of CPU)
    make bench NAME=power ARGS=--full                  all of openb, and of Philly; nothing is kept
    make bench NAME=power ARGS="--only plan"           deciding alone, as make bench NAME=planning

The demands are recorded ones where HEADROOM_DATA names a folder that has them, else made up of the same form; bench/powering/demand.py
says how they become pods. None of them was used to choose the settings of ours; `make bench NAME=weeks` plays Philly. All policies have
the same pods, the same scheduler (the first node by name with room), and machines that take three minutes to boot; at the begin only
machines with work are on. Ours is the production plan with its defaults, played by what-if. The constant warm rule is the one of
bench/powering/families.py that was best on weeks 1 to 5 of Philly, as ours was chosen. Watts are nominal. What can be saved at most is
what the optimum saves that bench/powering/offline.py computes from all that will come; where pods share machines nobody can compute it, and
a bound takes its place: nobody waits, machines boot in no time, and at each moment the fewest machines are on that together have the GPUs,
CPU and memory asked for.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import planning, results
from bench.powering import demand as demands
from bench.powering import families, rivals
from bench.powering.demand import Demand
from bench.powering.families import Setting
from bench.powering.measures import Came, Followed, Least, came, followed, least, short
from bench.powering.offline import Offline, offline
from bench.results import Row
from headroom.sim.whatif.replay import SHORTEST_MS, replay

DEFAULT: Final = "ours"
OURS: Final[Mapping[str, Mapping[str, int]]] = {
    DEFAULT: {},
    "ours, warmPercent 0": {"warm_percent": 0},
}
"""Our policies: the default, and what it would be with other settings."""
KEPT: Final = "power-policies"
LEAST, ALWAYS, SEED, MINUTE = "bound: boots take no time", "always on", "the seed", "demand, each minute"
CONSTANT: Final = "constant: "
"""So begins the name of a constant rule."""
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
        if self.name in demands.HELIOS:
            return demands.helios(self.name, self.days, folder)
        return demands.openb(self.days, folder)


USUAL: Final = (*(Stretch(name, 0, None) for name in demands.HELIOS), Stretch("openb", 0, 14))
FULL: Final = (Stretch("Philly", 0, None), Stretch("openb", 0, None))
CHOSEN_ON: Final = Stretch("Philly", 0, 35)
"""Weeks 1 to 5: what settings are chosen on."""


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
    hindsight: families.Outcome | None = None
    """Of the constant rules that keep as much as ours, the best one on this very demand, where pods fill machines."""

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


def chosen_constant() -> Setting:
    """The constant rule that was best on the weeks for choosing; and whether ours is the one that was."""
    demand = CHOSEN_ON.read()
    constant, ours = (families.chosen(families.outcomes(demand, each)) for each in (families.CONSTANT, families.OURS))
    assert constant is not None, "some keep enough"
    assert ours is not None, "and of ours"
    for name, each in (("constant", constant), ("ours", ours)):
        say(f"weeks 1 to 5: {name}: {each}")
    if demand.is_recorded and ours.setting != families.SHIPPED:
        say(f"the settings that ship are others: {families.SHIPPED}")
    return constant.setting


def constant_name(setting: Setting) -> str:
    """What a constant rule is called."""
    return f"{CONSTANT}peak of {setting.window}m + {setting.spares}"


def play_constant(stretch: Stretch, setting: Setting) -> Played:
    """The turn of a constant rule."""
    demand = stretch.read()
    log, switches = rivals.play(demand.case, demand.pools, rivals.Constant(setting.window, setting.spares))
    return Played(constant_name(setting), came(demand, log), switches.wasted)


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


def compare(
    stretch: Stretch, workers: ProcessPoolExecutor, setting: Setting, others: Sequence[str], ours: Sequence[str]
) -> Compared:
    """One demand under these policies, a constant rule, and with all machines on."""
    demand = stretch.read()
    say(
        f"{demand.name}, {'recorded' if demand.is_recorded else 'made up'}: {len(demand.case.works):,} pods, "
        f"{len(demand.case.nodes):,} machines, {demand.days:.1f} days"
    )
    all_on = workers.submit(play_all_on, stretch)
    turns = [workers.submit(play_ours, stretch, policy) for policy in ours]
    turns.append(workers.submit(play_constant, stretch, setting))
    turns += [workers.submit(play_rival, stretch, policy) for policy in others]
    first, rises, known = all_on.result()
    played = {ALWAYS: first}
    for turn in turns:
        one = turn.result()
        say(f"{demand.name}: {one.policy}: {one.came.machine_hours:,.0f} machine-hours, {one.came.mean_wait:.2f} s")
        played[one.policy] = one
    found = Compared(demand, least(demand), known, rises, played)
    if not known.is_optimum:
        return found  # pods share machines, which the minute model does not know
    best = families.chosen(families.outcomes(demand, families.CONSTANT), found.kept(DEFAULT))
    return found._replace(hindsight=best)


# What is told of it


def rows_of(found: Compared) -> list[Row]:
    """The figures of one demand, ours beside the constant rule's."""
    name = found.demand.name if found.demand.is_recorded else f"{found.demand.name}, made up"
    peer = next(policy for policy in found.played if policy.startswith(CONSTANT))
    told = {policy: figures(found, policy) for policy in (DEFAULT, peer)}
    return [
        Row(
            figure=f"{name}: {figure}",
            value=short(value),
            unit=unit,
            peer=peer,
            peer_value=short(told[peer][figure][0]),
        )
        for figure, (value, unit) in told[DEFAULT].items()
    ]


def figures(found: Compared, policy: str) -> dict[str, tuple[float, str]]:
    """What is told of a policy, with units."""
    each = found.played[policy].came
    return {
        "possible saving kept": (found.kept(policy), "%"),
        "starts, of those of following demand each minute": (found.starts(policy), "%"),
        "mean wait": (each.mean_wait, "s"),
        "pods that wait": (each.waiting, "%"),
        "wait of 999 of 1000": (each.wait(99.9), "s"),
    }


COLUMNS: Final = (
    "policy",
    "machine-hours",
    "possible saving kept",
    "of the bound",
    "starts a day",
    "kWh",
    "wait: mean",
    "pods that wait",
    "99 of 100",
    "999 of 1000",
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
    nobody_waits = "0 s", "0 %", *["0 s"] * 3, "0", "0", "0"
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
    if found.hindsight:
        yield _line_of(found.hindsight, found)
    for policy, each in found.played.items():
        waits = (each.came.wait(percent) for percent in (99, 99.9, 100))
        yield (
            policy + (" (the default)" if policy == DEFAULT else ""),
            *_hours(found, each.came.machine_hours),
            f"{each.came.starts_a_day:,.1f}",
            f"{each.came.kwh:,.0f}",
            f"{each.came.mean_wait:,.4g} s",
            f"{each.came.waiting:.2f} %",
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


def _line_of(best: families.Outcome, found: Compared) -> tuple[str, ...]:
    hours = found.played[ALWAYS].came.machine_hours - best.kept / 100 * found.saved(found.possible)
    name = f"of {len(families.CONSTANT)} constant rules that keep as much as ours, the best here by a minute model"
    return (
        f"{name}: peak of {best.setting.window}m + {best.setting.spares}",
        *_hours(found, hours),
        f"{best.starts * found.followed.starts_a_day / 100:,.1f}",
        "",
        f"{best.wait:,.4g} s",
        *[""] * (len(COLUMNS) - 7),
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
    parser.add_argument("--full", action="store_true", help="all days of Philly and openb; nothing is kept")
    given = parser.parse_args(arguments)
    missed = planning.main([]) if given.only != "demand" else 0
    if given.only == "plan":
        return missed
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as workers:
        setting = chosen_constant()
        stretches = FULL if given.full else USUAL
        found = [compare(stretch, workers, setting, (SEED, MINUTE), tuple(OURS)) for stretch in stretches]
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

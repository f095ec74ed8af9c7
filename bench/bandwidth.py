"""Pods per second of the real kube-scheduler: plain, with bandwidth in each mode, and as DRA consumable capacity.

    make bench NAME=bandwidth                     500 and 5,000 nodes (about eighteen minutes)
    make bench NAME=bandwidth ARGS="500"          one size; nothing is kept
    make bench NAME=bandwidth ARGS="500 --only native --only extender --pods 300"    some ways, against plain; nothing is kept

Each turn has a kube-scheduler that knows pods of one GPU each, all held by a scheduling gate, lifts the gates as fast as the API server
takes it, as when a budget is back under quota, and counts the pods as they are bound. The ways take turns, in one order and then in the other, with plain first and last in each round, and a way is compared with the plain turns of its
own round: what else the machine does, hits them alike. The method stands in docs/figures.md.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bench import results
from bench.placing import ways
from bench.placing.stage import Stage
from bench.placing.turns import Fleet, Turn
from bench.placing.ways import PLAIN, Way
from bench.results import Row

PODS, ROUNDS = 2_000, 3
COMPARED = (ways.NATIVE, ways.NEAR, ways.EXTENDER, ways.BESIDE_NATIVE, ways.BESIDE_EXTENDER)
"""In every round."""
ONCE = (ways.WIDE_PLAIN, ways.WIDE_NEAR, ways.WIDE)
"""In the last round only, with fewer pods: they tell of locality, and are slow."""
TAKERS = {"kube-scheduler": "kube-scheduler", "API server": "kube-apiserver", "extender": "extender"}
COLUMNS = (
    *("nodes", "way", "pods/s", "of plain", "nodes per ten siblings", "cores that kube-scheduler uses"),
    *(f"CPU of {taker}, ms a pod" for taker in TAKERS),
)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """So many nodes, and what is promised there, in percent of plain."""

    nodes: int
    goals: Mapping[str, float]
    others: tuple[Way, ...] = ()


BESIDE = {ways.BESIDE_NATIVE.name: 95.0, ways.BESIDE_EXTENDER.name: 95.0}
SIZES = (
    Size(nodes=500, goals={ways.NATIVE.name: 85.0, ways.EXTENDER.name: 85.0, **BESIDE}, others=(ways.CLAIMED,)),
    Size(nodes=5_000, goals={ways.NATIVE.name: 75.0, ways.EXTENDER.name: 80.0, **BESIDE}),
)
Round = Sequence[Turn]
"""The plain ones among them are what the others are compared with."""


def say(text: str) -> None:
    """A line of progress."""
    print(f"bandwidth: {text}", file=sys.stderr, flush=True)


# What is measured


def plan(size: Size, rounds: int, only: Collection[str] = ()) -> Iterator[list[Way]]:
    """The ways of each round, in their order."""
    for number in range(rounds):
        some = [*COMPARED, *(() if number < rounds - 1 else (*ONCE, *size.others))]
        chosen = [each for each in some if not only or each.name in only]
        yield [PLAIN, *(chosen[::-1] if number % 2 else chosen), PLAIN]


async def measure(size: Size, pods: int, rounds: int, only: Collection[str]) -> list[Round]:
    """All rounds on one API server."""
    found: list[Round] = []
    async with Stage.opened() as stage:
        fleet = Fleet(stage, size.nodes)
        await fleet.prepare()
        await fleet.turn(PLAIN, pods)  # for the API server to be warm
        for chosen in plan(size, rounds, only):
            taken = []
            for way in chosen:
                taken.append(await fleet.turn(way, pods // 2 if way in ONCE else pods))
                say(f"{size.nodes} nodes, {way.name}: {taken[-1].rate:.0f} pods/s")
            found.append(taken)
    return found


# What it says


def share(rounds: Iterable[Round], way: str) -> float:
    """The speed of a way in percent of the plain turns of its round; of all rounds, the middle one."""
    found = []
    for each in rounds:
        plain = statistics.mean(turn.rate for turn in each if turn.way == PLAIN.name)
        found += [turn.rate / plain * 100 for turn in each if turn.way == way]
    return statistics.median(found)


def names(rounds: Iterable[Round]) -> list[str]:
    """The ways that were measured."""
    return list(dict.fromkeys(turn.way for each in rounds for turn in each))


def rows(size: Size, rounds: Sequence[Round]) -> list[Row]:
    """The figures of one size."""
    found = []
    for name in names(rounds):
        head = f"{size.nodes:,} nodes, {name}"
        if name == PLAIN.name:
            rate = statistics.median(turn.rate for each in rounds for turn in each if turn.way == name)
            found.append(Row(figure=head, value=round(rate), unit="pods/s"))
            continue
        goal, part = size.goals.get(name), round(share(rounds, name), 1)
        found.append(Row(figure=f"{head}: speed of plain", value=part, unit="%", goal=goal, sense="min"))
    return found


def lines(size: Size, rounds: Sequence[Round]) -> list[list[str]]:
    """The table of one size: what every way gave, in the middle of its turns."""
    return [
        _line(size, rounds, name, [turn for each in rounds for turn in each if turn.way == name])
        for name in names(rounds)
    ]


def _line(size: Size, rounds: Sequence[Round], name: str, turns: Sequence[Turn]) -> list[str]:
    def middle(amount: Callable[[Turn], float]) -> float:
        return statistics.median(map(amount, turns))

    def taken(taker: str) -> str:
        return f"{middle(lambda turn: turn.cores[taker] / turn.rate * 1000):.2f}" if taker in turns[0].cores else ""

    cells = [f"{size.nodes:,}", name, f"{middle(lambda turn: turn.rate):.0f}", f"{share(rounds, name):.0f}%"]
    cells += [
        f"{middle(lambda turn: turn.nodes_per_group):.1f}",
        f"{middle(lambda turn: turn.cores['kube-scheduler']):.2f}",
    ]
    return cells + [taken(taker) for taker in TAKERS.values()]


def main() -> int:
    """Measure, and write the results where everything was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, help="only these numbers of nodes")
    parser.add_argument("--only", action="append", default=[], help="only this way, against plain")
    parser.add_argument("--pods", type=int, default=PODS, help="in a turn")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    busy = Row(figure="load average of the machine at the start", value=round(os.getloadavg()[0], 1), unit="")
    every, told = [busy], []
    for size in SIZES:
        if not given.sizes or size.nodes in given.sizes:
            rounds = asyncio.run(measure(size, given.pods, given.rounds, given.only))
            every += rows(size, rounds)
            told += lines(size, rounds)
    for line in told:
        say(", ".join(f"{what} {cell}" for what, cell in zip(COLUMNS, line, strict=True) if cell))
    if given.sizes or given.only or (given.pods, given.rounds) != (PODS, ROUNDS):
        with tempfile.TemporaryDirectory() as scratch:
            results.write("bandwidth", every, Path(scratch))
        return 0
    results.keep_table("bandwidth-ways", COLUMNS, told)
    return 1 if results.write("bandwidth", every) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Spot pools: a search for runs that buy too much, leak or touch what is not theirs; and what they cost and reach.

    make bench NAME=spotpools                            100,000 runs of the search, and make bench NAME=spotcosts
    make bench NAME=spotpools ARGS="--only search --runs 5000 --first 7000000"     other runs; nothing is kept

The search makes a script of each seed (bench/pools/scripts.py): what the cloud, the API server, the owner of the pool and one or two operator
processes without a lease do, and which effects are lost, refused, late, or die half way. It is played with the production plan, and
again with the seed's loop, and every promise is checked after every effect (bench/pools/checks.py). A run that fails is shortened and
printed, so that it can become a test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from bench import results, spotcosts
from bench.pools.scripts import script
from bench.pools.searching import Searched, play_seed, search, shortened, told
from bench.results import Row

RUNS: Final = 100_000
SEED_RUNS: Final = 10_000
SEED: Final = "the seed's loop, as a model"
SHOWN: Final = 5
RULES: Final = {
    "S1": "over-bought",
    "leak": "leaked",
    "S3": "touched what is not the pool's",
}
"""Rules that have a figure of their own; all others are one."""


def say(text: str) -> None:
    """A line of progress."""
    print(f"spotpools: {text}", file=sys.stderr, flush=True)


def share(found: Searched, *rules: str) -> float:
    """Runs that broke these rules, in percent."""
    return round(100 * sum(found.rules[rule] for rule in rules) / found.runs, 3)


def search_rows(first: int, runs: int) -> Iterator[Row]:
    """The search, ours beside the seed's loop."""
    ours = search(first, runs)
    say(f"{ours.runs:,} runs, {ours.cpu:,.0f} s of CPU: {dict(ours.rules) or 'nothing found'}")
    show(ours)
    seed = search(first, min(runs, SEED_RUNS), play_seed)
    say(f"the seed's loop, {seed.runs:,} runs: {dict(seed.rules)}")
    yield Row(figure="simulated pool runs", value=ours.runs, unit="", goal=RUNS, sense="min")
    yield Row(
        figure="time for 100,000 runs on two cores",
        value=round(ours.cpu / 2 / 60 * RUNS / ours.runs, 1),
        unit="min",
        goal=20,
    )
    for rule, name in RULES.items():
        yield Row(
            figure=f"runs that {name}",
            value=share(ours, rule),
            unit="%",
            goal=0,
            peer=SEED,
            peer_value=share(seed, rule),
        )
    others = [rule for rule in {**ours.rules, **seed.rules} if rule not in RULES]
    yield Row(
        figure="runs that broke another promise, or did not come back to the minimum",
        value=share(ours, *others),
        unit="%",
        goal=0,
        peer=SEED,
        peer_value=share(seed, *others),
    )


def show(found: Searched) -> None:
    """Print what failed, shortened."""
    shown: set[str] = set()
    for seed, finding in found.failed:
        if finding.rule not in shown and len(shown) < SHOWN:
            shown.add(finding.rule)
            short = shortened(script(seed))
            say(f"seed {seed}: {finding.what}\n{told(short)}")


def main(arguments: list[str]) -> int:
    """Measure; write the results if it was everything."""
    parser = argparse.ArgumentParser(prog="bench.spotpools")
    parser.add_argument("--only", choices=("search", "costs"), help="one half, which is kept")
    parser.add_argument("--runs", type=int, default=RUNS, help="fewer than usual: nothing is kept")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args(arguments)
    missed = spotcosts.main([]) if given.only != "search" else 0
    if given.only == "costs":
        return missed
    rows = list(search_rows(given.first, given.runs))
    if given.runs >= RUNS:
        return 1 if results.write("spotpools", rows) or missed else 0
    for row in rows:
        say(f"{row.figure}: {row.value:g} {row.unit}{' (missed)' if row.is_missed else ''}")
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Spot pools: a search for runs that buy too much, leak or touch what is not theirs; the cost of deciding; zones of a recorded trace.

    make bench NAME=spotpools                            all of it: 100,000 runs of the search (about half an hour on two cores)
    make bench NAME=spotpools ARGS="--only search --runs 5000 --first 7000000"     a part of it; nothing is kept
    make bench NAME=spotpools ARGS="--only zones"        the trace alone, where HEADROOM_DATA names a folder that has it
    make bench NAME=spotpools ARGS="--only rests"        the choice of rests, on the other half of the trace

The search makes a script of each seed (bench/pools/scripts.py): what the cloud, the API server, the owner of the pool and one or two operator
processes without a lease do, and which effects are lost, refused, late, or die half way. It is played with the production plan, and
again with the seed's loop, and every promise is checked after every effect (bench/pools/checks.py). A run that fails is shortened and
printed, so that it can become a test.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from bench import results
from bench.pools import sizes, zones
from bench.pools.scripts import script
from bench.pools.searching import Searched, play_seed, search, shortened, told
from bench.results import Row
from headroom.core.spot_pools import resting
from headroom.model import times

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


def size_rows() -> Iterator[Row]:
    """The cost of many pools."""
    instances, megabytes = sizes.facts()
    decisions, ms = sizes.decided(sizes.world(instances))
    acting = [it for it in decisions if it.actions or it.reason == "InternalError"]
    assert len(decisions) == sizes.POOLS, "every pool is decided on"
    assert not acting, acting[0]
    name = f"{len(instances):,} machines in {sizes.POOLS:,} pools"
    yield Row(figure=f"deciding on {name}, CPU", value=round(ms), unit="ms", goal=500)
    yield Row(figure=f"facts of {name}", value=round(megabytes, 1), unit="MB", goal=40)


SHIPPED: Final = tuple(each // times.MINUTE for each in resting.RESTS_MS)


def zone_rows(folder: Path) -> Iterator[Row]:
    """The second half of the recorded trace, beside rests as they grow in other places."""
    regions = zones.part(zones.read(folder), 0.5, 1)
    for name, each in shares(regions, SHIPPED, zones.LONGER).items():
        ours, longer = each[SHIPPED], each[zones.LONGER]
        say(f"{ours}: {ours.way:.0f} % of the way, {longer.way:.0f} % with rests of up to half an hour")
        yield Row(
            figure=f"{name}, {len(regions[name])} zones: way from the best single zone to any zone",
            value=round(ours.way, 1),
            unit="%",
            goal=60,
            sense="min",
            peer="rests of 5, 10, 20 and 30 minutes",
            peer_value=round(longer.way, 1),
        )
        yield Row(
            figure=f"{name}: time with a machine",
            value=round(100 * ours.ours, 1),
            unit="%",
            peer="best single zone",
            peer_value=round(100 * ours.best_zone, 1),
        )
        yield Row(
            figure=f"{name}: launches refused for each hour without a machine",
            value=round(ours.refused, 1),
            unit="",
            peer="rests of 5, 10, 20 and 30 minutes",
            peer_value=round(longer.refused, 1),
        )


def shares(
    regions: Mapping[str, list[zones.Zone]], *rests: tuple[int, ...]
) -> dict[str, dict[tuple[int, ...], zones.Share]]:
    """What comes of regions under several rests."""
    found: dict[str, dict[tuple[int, ...], zones.Share]] = {name: {} for name in regions}
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as workers:
        turns = {
            (name, each): workers.submit(zones.share, name, regions[name], each) for each in rests for name in regions
        }
        for (name, each), turn in turns.items():
            found[name][each] = turn.result()
    return found


def choose_rests(folder: Path) -> int:
    """The longest rests that lose little on the first half of the trace; whether they are those that ship."""
    found = shares(zones.part(zones.read(folder), 0, 0.5), *zones.RESTS)
    good = []
    for rests in zones.RESTS:
        ways = [each[rests].way for each in found.values()]
        say(f"rests of {rests} minutes: {', '.join(f'{way:.1f} %' for way in ways)} of the way")
        good += [rests] if min(ways) >= zones.ENOUGH else []
    say(f"chosen: {good[-1]}; shipped: {SHIPPED}")
    return int(good[-1] != SHIPPED)


def main(arguments: list[str]) -> int:
    """Measure; write the results if it was everything."""
    parser = argparse.ArgumentParser(prog="bench.spotpools")
    parser.add_argument("--only", choices=("search", "sizes", "zones", "rests"), help="a part; nothing is kept")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args(arguments)
    folder, rows = os.environ.get("HEADROOM_DATA"), list[Row]()
    if given.only == "rests":
        assert folder, "HEADROOM_DATA names the folder with the trace"
        return choose_rests(Path(folder))
    if given.only in (None, "search"):
        rows += search_rows(given.first, given.runs)
    if given.only in (None, "sizes"):
        rows += size_rows()
    if folder and given.only in (None, "zones"):
        rows += zone_rows(Path(folder))
    if given.only is None and folder and given.runs >= RUNS:
        return 1 if results.write("spotpools", rows) else 0
    for row in rows:
        say(f"{row.figure}: {row.value:g} {row.unit}{' (missed)' if row.is_missed else ''}")
    return int(any(row.is_missed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What spot pools cost and reach: the time and memory of many machines, and a pool of one machine in the zones of a recorded trace.

    make bench NAME=spotcosts                            all of it, where HEADROOM_DATA names a folder that has the trace
    make bench NAME=spotcosts ARGS=--rests               the choice of rests, on the other half of the trace; nothing is kept

A zone that is sold out rests for a while. Rests were chosen on the first half of the trace; the figures are those of the second.
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
from bench.results import Row
from headroom.core.spot_pools import resting
from headroom.model import times
from headroom.model.actions import LaunchInstance


def say(text: str) -> None:
    """A line of progress."""
    print(f"spotcosts: {text}", file=sys.stderr, flush=True)


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
    for namespaces, goal in ((1, 5000), (50, 2500)):
        decisions, ms = sizes.decided(sizes.demanding(namespaces), tries=2)
        launched = sum(isinstance(action, LaunchInstance) for it in decisions for action in it.actions)
        assert launched > sizes.DEMANDING, "they are launched for"
        where = "one namespace" if namespaces == 1 else f"{namespaces} namespaces"
        what = f"{sizes.DEMANDING} Demand pools and {sizes.PODS:,} pending pods that all differ, in {where}"
        yield Row(figure=f"deciding on {what}, CPU", value=round(ms), unit="ms", goal=goal)


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
    parser = argparse.ArgumentParser(prog="bench.spotcosts")
    parser.add_argument("--rests", action="store_true", help="choose rests on the first half of the trace")
    given, named = parser.parse_args(arguments), os.environ.get("HEADROOM_DATA")
    folder = Path(named) if named else None
    if given.rests:
        assert folder is not None, "HEADROOM_DATA names the folder with the trace"
        return choose_rests(folder)
    rows = list(size_rows())
    if folder is not None:
        return 1 if results.write("spotcosts", [*rows, *zone_rows(folder)]) else 0
    for row in rows:
        say(f"{row.figure}: {row.value:g} {row.unit}{' (missed)' if row.is_missed else ''}")
    return int(any(row.is_missed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

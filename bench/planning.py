"""What deciding about machines costs: 5,000 of them in ten pools, 10,000 waiting pods of 200 shapes.

make bench NAME=planning                           half a minute
"""

import sys

from bench import results
from bench.powering.measures import short
from bench.powering.planning import CHANGES_A_SECOND, PENDING, POOLS, SIZE, Planned, planned
from bench.results import Row


def rows_of(found: Planned) -> list[Row]:
    """The figures of deciding."""
    what = f"{POOLS * SIZE:,} machines, {PENDING:,} waiting pods"
    return [
        Row(figure=f"{what}: CPU of a full pass", value=short(found.busy.median), unit="ms", goal=500),
        Row(figure="the same, slowest of seven", value=short(found.busy.worst), unit="ms", goal=500),
        Row(
            figure="the same: CPU of plain first fit over pods and machines / ours",
            value=short(found.peer / found.busy.median),
            unit="x",
            peer="plain first fit (ms)",
            peer_value=short(found.peer),
        ),
        Row(
            figure="the same: machines woken",
            value=found.busy.woken,
            unit="machines",
            peer="plain first fit",
            peer_value=found.peer_woken,
        ),
        Row(figure="nobody waits: CPU of a full pass", value=short(found.quiet.median), unit="ms"),
        Row(
            figure="nobody waits: CPU of a pass over one changed node",
            value=short(found.changed.median),
            unit="ms",
            goal=11,
        ),
        Row(
            figure=f"nobody waits: CPU of capacity while {CHANGES_A_SECOND:,} pods a second change, of one core",
            value=short(found.churn),
            unit="%",
            goal=1,
        ),
    ]


def main(_arguments: list[str]) -> int:
    """Measure, and write the results."""
    print(f"planning: {POOLS * SIZE:,} machines, {PENDING:,} waiting pods", file=sys.stderr, flush=True)
    return 1 if results.write("planning", rows_of(planned())) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

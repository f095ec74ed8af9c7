"""A production trace with real RDMA requests, replayed: what is placed, and which NICs are promised more than they have.

    HEADROOM_DATA=FOLDER make bench NAME=dlrm                      every fourth service, three ways (about eight minutes)
    HEADROOM_DATA=FOLDER make bench NAME=dlrm ARGS="--one-in 16"    fewer of them; nothing is kept

The trace is of 156 services for recommendations, with and without GPUs, in 31 days (alibaba/clusterdata, cluster-trace-gpu-v2025). The
real kube-scheduler places the instances in their order, on nodes without a kubelet: alone, with bandwidth as extended resources, and
with the extender. The method stands in docs/figures.md.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import results
from bench.placing import trace
from bench.placing.policies import OFF
from bench.placing.replay import WAYS, Replay, Replayed
from bench.placing.stage import Stage
from bench.results import Row

ONE_IN = 4


def say(text: str) -> None:
    """A line of progress."""
    print(f"dlrm: {text}", file=sys.stderr, flush=True)


async def replayed(plan: Sequence[trace.Step], ways: Sequence[str]) -> dict[str, Replayed]:
    """The trace in each way, on the same nodes."""
    found = {}
    nodes = dict(trace.machines(plan))
    async with Stage.opened() as stage:
        replay = Replay(stage, plan, nodes)
        await replay.prepare()
        for way in ways:
            found[way] = await replay.play(WAYS[way])
            say(f"{way}: {len(found[way].books.placed)} placed in {found[way].seconds:.0f} s")
    return found


def rows(plan: Sequence[trace.Step], found: Mapping[str, Replayed]) -> list[Row]:
    """What it says."""
    count = sum(len(step.comes) for step in plan)
    kinds = [kind.role for _, kind in trace.machines(plan)]
    every = [
        Row(figure="instances replayed", value=count, unit=""),
        Row(figure="nodes with GPUs", value=kinds.count("HN"), unit=""),
        Row(figure="nodes without", value=kinds.count("CN"), unit=""),
        Row(figure="steps", value=len(plan), unit=""),
    ]
    for way, each in found.items():
        books, is_ours = each.books, WAYS[way] != OFF
        goal = 0.0 if is_ours else None
        every += [
            Row(figure=f"{way}: instances placed", value=round(len(books.placed) / count * 100, 2), unit="%"),
            Row(figure=f"{way}: without a place at first", value=each.refused, unit="instances"),
            Row(figure=f"{way}: oversubscribed NICs, most at once", value=books.most_nics, unit="", goal=goal),
            Row(figure=f"{way}: instances that shared an oversubscribed NIC", value=len(books.crowded), unit=""),
            Row(figure=f"{way}: oversubscribed NICs, over time", value=round(books.mean_nics, 1), unit=""),
            Row(figure=f"{way}: the worst NIC is promised beyond its capacity", value=books.most_percent, unit="%"),
            Row(figure=f"{way}: promised beyond NICs, of all promised", value=round(books.beyond, 2), unit="%"),
        ]
    return every


def main() -> int:
    """Replay, and write the results where it was the usual part of the trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-in", type=int, default=ONE_IN, help="how many services one is taken of")
    parser.add_argument("--only", action="append", choices=WAYS, help="only this way")
    given = parser.parse_args()
    folder = os.environ.get("HEADROOM_DATA")
    if not folder:
        print("dlrm: HEADROOM_DATA names no folder with the trace", file=sys.stderr)
        return 2
    plan = trace.steps(trace.read(Path(folder), given.one_in))
    found = asyncio.run(replayed(plan, given.only or [*WAYS]))
    is_usual = given.one_in == ONE_IN and not given.only
    with tempfile.TemporaryDirectory() as scratch:
        missed = results.write("dlrm", rows(plan, found), results.FOLDER if is_usual else Path(scratch))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

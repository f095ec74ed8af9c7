"""What budgets cost: deciding on up to a million rows of usage, and the whole operator on a real API server.

    make bench NAME=budgets                                   everything (about seven minutes)
    make bench NAME=budgets ARGS="--only plan"                deciding alone; nothing is kept
    make bench NAME=budgets ARGS="--only jobs"                Jobs with labels of their own alone; kept by themselves
    make bench NAME=budgets ARGS="--pods 500 --seconds 10"    a smaller fleet for a shorter time; nothing is kept

Deciding is measured in CPU time of one full pass over all budgets, each time at a later moment and with a new row, so that nothing of
the pass before can be handed out again. A plain Python loop over the same rows is the peer, and must find the same sums. The live
figures are those that the Go original gave on the same kind of machine, at the same size.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from bench import jobs, results
from bench.live.fleet import Figures, Fleet, Sizes
from bench.live.operators import Operators
from bench.live.server import Server
from bench.results import FOLDER, ROOT, Row
from headroom.api import kinds
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import API_VERSION
from headroom.core import budgets
from headroom.model import facts, usage
from headroom.model.changes import EVERYTHING
from headroom.model.tables import PodTable
from headroom.model.times import HOUR
from headroom.model.usage_table import UsageTable
from headroom.model.world import World, by_ref
from tests.control_plane import ControlPlane, wait_until

NOW = 1_800_000_000_000
WINDOW_HOURS = 7 * 24
NAMESPACES = 20
BUDGETS = 100
MOST_PODS = 100_000
"""However many rows there are, so many of them are pods that still run."""
PASSES = 7
MICRO_MS = 10**6 * HOUR
KIND = "GPUWorkloadBudget"


def say(text: str) -> None:
    """A line of progress."""
    print(f"budgets: {text}", file=sys.stderr, flush=True)


# Deciding


def a_row(number: int, live: int) -> usage.UsageRow:
    """One row of usage somewhere in the window; the first `live` ones are of pods that run."""
    begin = NOW - (number * 7919 % (WINDOW_HOURS * 3600)) * 1000 - 60_000
    ended = None if number < live else min(begin + (60 + number * 31 % 7200) * 1000, NOW)
    tier = ("gold", "silver", "bronze", "iron")[number // NAMESPACES % 4]
    job, gpus = number // 8, 1 + number // (4 * NAMESPACES) % 8
    return usage.UsageRow(
        cluster="default",
        uid=f"{number:08x}-0000-4000-8000-000000000000",
        start=begin,
        namespace=f"team-{number % NAMESPACES:02d}",
        pod=f"train-{number:07d}",
        created=begin - 5000,
        observed=begin,
        earliest=begin,
        seen_until=begin if ended is None else ended,
        ended=ended,
        evidence=usage.Evidence.NONE if ended is None else usage.Evidence.CONTAINER_FINISH,
        amounts=(("nvidia.com/gpu", gpus * 10**6),),
        labels=(("app", "train"), ("job", f"job-{job}"), ("tier", tier)),
        price=gpus * 2_500_000 if number % NAMESPACES % 4 else None,
    )


def a_pod(row: usage.UsageRow) -> facts.Pod:
    """The running pod of a row."""
    return facts.Pod(
        uid=row.uid,
        namespace=row.namespace,
        name=row.pod,
        labels=row.labels,
        shape=facts.Shape(requests=row.amounts),
        node=f"node-{row.start % 1000}",
        phase="Running",
        created=row.created,
        started=row.start,
    )


def selectors() -> Iterator[tuple[str, dict[str, str]]]:
    """The namespace and labels of each budget: in every namespace one for all of its pods, and one for each tier."""
    for number in range(BUDGETS):
        tier = ({}, {"tier": "gold"}, {"tier": "silver"}, {"tier": "bronze"}, {"tier": "iron"})[number // NAMESPACES]
        yield f"team-{number % NAMESPACES:02d}", {"app": "train", **tier}


def a_budget(number: int, namespace: str, labels: dict[str, str]) -> AnyResource:
    """A budget as it comes from the API server."""
    spec = {
        "selector": {"matchLabels": labels},
        "quota": {"gpuHours": "100000000", "windowHours": WINDOW_HOURS},
        "enforcement": {"action": "AlertOnly"},
    }
    name = f"budget-{number:03d}"
    metadata = {"name": name, "namespace": namespace}
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    assert not kinds.problems(document)
    return AnyResource(
        kind=KIND,
        namespace=namespace,
        name=name,
        uid=name,
        generation=1,
        spec=kinds.spec_of(KIND, spec),
        status=KINDS[KIND].status(),
    )


class Case:
    """A world with so many rows of usage."""

    def __init__(self, rows: int) -> None:
        self.live = min(rows, MOST_PODS)
        self.rows = [a_row(number, self.live) for number in range(rows)]
        self.table, self.pods = UsageTable(), PodTable()
        for row in self.rows:
            self.table.put(row)
        for row in self.rows[: self.live]:
            self.pods.put(a_pod(row))
            self.table.set_alive(row.uid, alive=True)
        made = [a_budget(number, *which) for number, which in enumerate(selectors())]
        self.resources = by_ref(made)

    def decide(self, now: int) -> tuple[float, dict[str, Fraction]]:
        """One full pass: its CPU milliseconds, and what each budget has consumed."""
        world = World(now=now, resources=self.resources, pods=self.pods, usage=self.table)
        began = time.process_time()
        budgets.PLAN.prepare(world)
        decisions = list(budgets.PLAN.decide(world, EVERYTHING))
        took = (time.process_time() - began) * 1000
        found = {}
        for decision in decisions:
            if isinstance(decision.status, GPUWorkloadBudgetStatus):
                found[decision.resource.name] = Fraction(decision.status.consumed_gpu_hours)
        return took, found

    def add(self, number: int) -> None:
        """One more row that ended, so that the next pass is about something new."""
        row = a_row(number, live=0)
        self.rows.append(row)
        self.table.put(row)

    def looped(self, now: int) -> tuple[float, dict[str, Fraction]]:
        """The same in plain Python: its CPU milliseconds, and what each budget has consumed."""
        wanted: dict[str, list[tuple[str, set[tuple[str, str]]]]] = {}
        for number, (namespace, labels) in enumerate(selectors()):
            wanted.setdefault(namespace, []).append((f"budget-{number:03d}", set(labels.items())))
        sums = {name: 0 for of_namespace in wanted.values() for name, _ in of_namespace}
        since = now - WINDOW_HOURS * HOUR
        began = time.process_time()
        for row in self.rows:
            held = min(now if row.ended is None else row.ended, now) - max(row.start, since)
            if held <= 0:
                continue
            has, used = set(row.labels), row.amounts[0][1] * held
            for name, needed in wanted[row.namespace]:
                if needed <= has:
                    sums[name] += used
        took = (time.process_time() - began) * 1000
        return took, {name: Fraction(total, MICRO_MS) for name, total in sums.items()}


def same(one: dict[str, Fraction], other: dict[str, Fraction]) -> bool:
    """Whether all sums agree; a status has twelve decimals."""
    return one.keys() == other.keys() and all(abs(one[name] - other[name]) < Fraction(1, 10**12) for name in one)


def measure_plan(rows: int) -> tuple[list[float], float]:
    """CPU milliseconds of some full passes, and of the plain loop."""
    say(f"{rows:,} rows and {BUDGETS} budgets")
    case = Case(rows)
    case.decide(NOW)  # the first pass sorts all rows into groups, once for the life of the process
    # As the operator does once its first view is complete.
    gc.collect()
    gc.freeze()
    passes = []
    for number in range(PASSES):
        case.add(rows + number)
        now = NOW + 250 * (number + 1)
        took, sums = case.decide(now)
        passes.append(took)
    loop, expected = case.looped(now)
    gc.unfreeze()
    if not same(sums, expected):
        wrong = [(name, float(sums[name]), float(expected[name])) for name in sums if sums[name] != expected[name]]
        raise SystemExit(f"the sums differ from the plain loop's: {wrong[:5]}")
    return passes, loop


def plan_rows() -> list[Row]:
    """10,000, 100,000 and a million rows, how the cost grows, and Jobs with labels of their own."""
    goals = {10_000: None, 100_000: 100.0, 1_000_000: 250.0}
    out, medians = [], []
    for rows, goal in goals.items():
        passes, loop = measure_plan(rows)
        median = statistics.median(passes)
        medians.append(median)
        what = f"{rows:,} rows, {BUDGETS} budgets: full re-plan"
        out += [
            Row(
                figure=f"{what}, median",
                value=round(median, 2),
                unit="ms",
                goal=goal,
                peer="plain Python loop",
                peer_value=round(loop, 1),
            ),
            Row(figure=f"{what}, best", value=round(min(passes), 2), unit="ms"),
        ]
    for step, (less, more) in {"10,000 to 100,000": medians[:2], "100,000 to 1,000,000": medians[1:]}.items():
        out.append(Row(figure=f"growth of the cost, {step} rows", value=round(more / less, 2), unit="x"))
    return out + jobs.rows(NOW, a_budget, say)


# The whole operator


async def measure_live(plane: ControlPlane, folder: Path, sizes: Sizes) -> Figures:
    """The operator on a fleet of running pods."""
    operators = Operators(plane, folder / "operator")
    try:
        async with Server(plane) as server:
            return await Fleet(plane, server, operators, sizes).measure()
    finally:
        operators.close()


def live_rows(sizes: Sizes) -> list[Row]:
    """What was promised of the operator, beside what the Go original gave."""
    say(f"{sizes.pods:,} running pods on a real API server")
    results.compile_modules()
    with tempfile.TemporaryDirectory() as folder, ControlPlane(components=()) as plane:
        for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
            plane.apply(yaml.safe_load(file.read_text()))
        plane.kubectl("create", "namespace", "headroom-system")
        wait_until(lambda: "gpuworkloadbudgets" in plane.kubectl("api-resources"), "the kinds are served")
        found = asyncio.run(measure_live(plane, Path(folder), sizes))
    for when, lags in (("at rest", found.lags_at_rest), ("under load", found.lags_under_load)):
        say(f"lags {when}: {' '.join(f'{lag:.2f}' for lag in lags)} s")
    fleet = f"{sizes.pods:,} pods, 20 budgets"
    rest, load = found.lags_at_rest, found.lags_under_load
    table: Sequence[tuple[str, float, str, float | None, float | None]] = (
        ("CPU at rest", found.cpu_at_rest, "s/min", 5, 77),
        (f"CPU at {sizes.ends_per_second} pod ends/s", found.cpu_under_load, "s/min", 15, 59),
        ("most memory", found.peak_mib, "MiB", 280, 281),
        ("start to the first status", found.first_status, "s", None, 1.25),
        ("start to the last of 20 statuses (original: 2 of 20 after 90 s)", found.all_statuses, "s", 5, 90),
        ("pod end to last budget, under load, median", statistics.median(load), "s", None, 2.95),
        ("pod end to last budget, under load, worst", max(load), "s", 1, 3.56),
        ("pod end to last budget, at rest, median", statistics.median(rest), "s", None, 1.83),
        ("pod end to last budget, at rest, worst", max(rest), "s", 1, 2.12),
        ("status writes at rest", found.writes_at_rest, "per min", 60, 720),
        ("status writes under load", found.writes_under_load, "per min", None, 421),
        ("pod ends made", found.ends_per_second, "per s", None, 100),
    )
    return [
        Row(figure=f"{fleet}: {what}", value=round(value, 2), unit=unit, goal=goal, peer="Go original", peer_value=peer)
        for what, value, unit, goal, peer in table
    ]


def main(arguments: list[str]) -> int:
    """Measure; write the results if everything was measured in full."""
    parser = argparse.ArgumentParser(prog="bench.budgets")
    parser.add_argument("--only", choices=("plan", "live", "jobs"), help="one part; only that of jobs is kept")
    parser.add_argument("--pods", type=int, default=Sizes().pods, help="how many pods run")
    parser.add_argument("--seconds", type=float, default=Sizes().seconds, help="how long rest and load last")
    given = parser.parse_args(arguments)
    if given.only == "jobs":
        return 1 if results.write("jobs", jobs.rows(NOW, a_budget, say)) else 0
    sizes = Sizes(pods=given.pods, seconds=given.seconds)
    rows = [] if given.only == "live" else plan_rows()
    rows += [] if given.only == "plan" else live_rows(sizes)
    with tempfile.TemporaryDirectory() as folder:
        keep = given.only is None and sizes == Sizes()
        missed = results.write("budgets", rows, folder=FOLDER if keep else Path(folder))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

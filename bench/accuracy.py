"""How far a budget's figures are from what pods really used: steady, with the operator killed, with pods that vanish.

    make bench NAME=accuracy                     all scenarios (about eight minutes)
    make bench NAME=accuracy ARGS=--quick        fewer pods and shorter times (about three minutes); nothing is kept
    make chaos                                   only the scenario in which the operator is killed; nothing is kept

Real etcd, API server, controllers and scheduler; KWOK plays the kubelets; `headroom bench workload` makes the pods and `headroom run`
is the operator, a process that is killed with SIGKILL. The truth comes from the API's own timestamps, for the moment that the
status names in `asOf`; ratios are not cut off. docs/accuracy.md says more.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml
from msgspec import structs
from rich.console import Console
from rich.table import Table

from bench import results
from bench.live.scenarios import Run, Scenario, Snapshot, Wave
from bench.live.server import Server
from bench.results import FOLDER, ROOT, Row
from tests.control_plane import ControlPlane, wait_until

GOAL = 0.001
QUICK = 0.4
QUICK_PODS = 12
GO_OFF_TIMETABLE = {15.0: 0.77, 45.0: 0.008}
"""Of its status, by the second of the snapshot."""
POLICIES = ROOT / "deploy" / "policies.yaml"
KEPT = "accuracy-snapshots"

STEADY = Scenario(name="steady", waves=(Wave(prefix="steady", runtime=30),), snapshots=(5, 15, 25, 35, 45))
KILLED = Scenario(
    name="killed",
    # The second wave comes after the recovery: what was remembered and what is seen must add up.
    waves=(Wave(prefix="before", runtime=60), Wave(prefix="after", runtime=30, after=70)),
    snapshots=(10, 15, 25, 45, 60, 75, 85, 95, 105, 120),
    killed=18,
    back=23,
)
RECOVERED_SECONDS = 70
"""Snapshots of that scenario from here on are those after the recovery."""
_SOME = (
    Wave(prefix="short", runtime=8, count=20),
    Wave(prefix="middle", runtime=50, count=20),
    Wave(prefix="long", runtime=105, count=20),
)
DELETED = Scenario(name="deleted", waves=_SOME, snapshots=(16, 50, 100, 110, 125), killed=20, back=80, deletes=True)
DELETED_EXACT = structs.replace(
    DELETED,
    name="deleted-exact",
    # Born and gone while no operator ran; only a finalizer keeps these.
    waves=(*_SOME, Wave(prefix="unseen", runtime=15, count=20, after=40)),
    exact=True,
)
SCENARIOS = {scenario.name: scenario for scenario in (STEADY, KILLED, DELETED, DELETED_EXACT)}


def shortened(scenario: Scenario) -> Scenario:
    """The same with fewer pods and in less time."""
    waves = tuple(
        structs.replace(wave, runtime=wave.runtime * QUICK, count=min(wave.count, QUICK_PODS), after=wave.after * QUICK)
        for wave in scenario.waves
    )
    killed = None if scenario.killed is None else scenario.killed * QUICK
    snapshots = tuple(seconds * QUICK for seconds in scenario.snapshots)
    return structs.replace(scenario, waves=waves, snapshots=snapshots, killed=killed, back=scenario.back * QUICK)


def install(plane: ControlPlane, *, exact: bool) -> None:
    """The kinds, the operator's namespace, nodes for the pods, and the policies where they are needed."""
    for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
        plane.apply(yaml.safe_load(file.read_text()))
    plane.kubectl("create", "namespace", "headroom-system")
    for number in range(2):
        plane.add_node(f"kwok-{number}")
    wait_until(lambda: "gpuworkloadbudgets" in plane.kubectl("api-resources"), "the kinds are served")
    if exact:
        plane.apply(*(each for each in yaml.safe_load_all(POLICIES.read_text()) if each))


async def measure(plane: ControlPlane, folder: Path, scenarios: Sequence[Scenario]) -> tuple[list[Snapshot], int]:
    """Snapshots of every scenario, and how many deleted pods a finalizer still held at the end."""
    found: list[Snapshot] = []
    held = 0
    async with Server(plane) as server:
        for scenario in scenarios:
            print(f"accuracy: {scenario.name}, {max(scenario.snapshots):.0f} s", file=sys.stderr, flush=True)
            run = Run(plane, server, folder, scenario)
            found += await run.run()
            held += run.left_over if scenario.exact else 0
    return found, held


def rows(snapshots: Sequence[Snapshot], held: int, *, quick: bool) -> list[Row]:
    """What was promised, scenario by scenario."""
    recovered = RECOVERED_SECONDS * (QUICK if quick else 1)
    by_name = {name: [each for each in snapshots if each.scenario == name] for name in SCENARIOS}
    during = [each for each in by_name["killed"] if each.seconds < recovered]
    after = [each for each in by_name["killed"] if each.seconds >= recovered]
    out = []
    for figure, some, peer, peer_value in (
        ("steady: ratio off 1, worst of five", by_name["steady"], "", None),
        ("operator killed: ratio off 1, worst of five", during, "", None),
        ("after the recovery: ratio off 1, worst of five", after, "", None),
        ("pods deleted, Exact: ratio off 1, worst of five", by_name["deleted-exact"], "Go original", 1.0),
    ):
        if some:
            worst = float(f"{max(each.error for each in some):.2g}")
            out.append(Row(figure=figure, value=worst, unit="", goal=GOAL, peer=peer or None, peer_value=peer_value))
    out += [] if quick else by_the_timetable(by_name["steady"])
    if by_name["deleted-exact"]:
        out.append(Row(figure="pods deleted, Exact: pods still held at the end", value=held, unit="pods", goal=0))
    if some := by_name["deleted"]:
        outside = sum(not each.bounded for each in some)
        width = max(float((each.upper - each.consumed) / each.truth) for each in some if each.truth)
        out += [
            Row(figure="pods deleted, BestEffort: truth outside the bounds", value=outside, unit="of 5", goal=0),
            Row(figure="pods deleted, BestEffort: bounds apart at most", value=round(width, 4), unit="of the truth"),
        ]
    empty = sum(not each.truth for each in snapshots)
    # Such a snapshot compares nothing with nothing. The quick form is too short for the pace at which statuses are written.
    before = "snapshots at which the newest status was from before the first pod"
    out.append(Row(figure=before, value=empty, unit="", goal=None if quick else 0))
    age = max((each.age for each in snapshots if each.alive), default=0.0)
    out.append(Row(figure="oldest status that a living operator left standing", value=round(age, 1), unit="s"))
    return out


def by_the_timetable(steady: Sequence[Snapshot]) -> list[Row]:
    """The seed's own measure, where the Go original was measured by it too: it asks how far a status lags, not whether it is right."""
    return [
        Row(
            figure=f"steady: status off the timetable at T = {each.seconds:g} s",
            value=round(abs(1 - float(each.consumed / each.timetable)), 4),
            unit="",
            peer="Go original",
            peer_value=GO_OFF_TIMETABLE[each.seconds],
        )
        for each in steady
        if each.seconds in GO_OFF_TIMETABLE
    ]


COLUMNS = ("scenario", "T s", "asOf s ago", "pods", "consumed", "upper", "truth", "ratio", "timetable", "seed's ratio")


def lines(snapshots: Sequence[Snapshot]) -> list[tuple[str, ...]]:
    """Every snapshot as text; the last two columns are the seed's formula, which knows only the timetable."""
    return [
        (
            each.scenario + ("" if each.alive else ", operator dead"),
            f"{each.seconds:g}",
            f"{each.age:.1f}",
            str(each.tracked),
            f"{float(each.consumed):.6f}",
            f"{float(each.upper):.6f}",
            f"{float(each.truth):.6f}",
            "none" if each.ratio is None else f"{each.ratio:.5f}",
            f"{float(each.timetable):.6f}",
            f"{float(each.consumed / each.timetable):.4f}" if each.timetable else "none",
        )
        for each in snapshots
    ]


def show(snapshots: Sequence[Snapshot], keep: bool) -> None:
    """Print all snapshots, and keep them for the docs."""
    table = Table(*COLUMNS, title="snapshots, in GPU-hours")
    for line in lines(snapshots):
        table.add_row(*line)
    Console(width=160).print(table)
    if keep:
        ruler = "|" + "---|" * len(COLUMNS)
        text = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, *lines(snapshots))]
        (FOLDER / f"{KEPT}.md").write_text("\n".join([text[0], ruler, *text[1:]]) + "\n")


def main(arguments: list[str]) -> int:
    """Measure; write the results if everything was measured in full."""
    parser = argparse.ArgumentParser(prog="bench.accuracy")
    parser.add_argument("--quick", action="store_true", help="fewer pods and shorter times; nothing is kept")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="some scenarios; nothing is kept")
    given = parser.parse_args(arguments)
    chosen = [SCENARIOS[name] for name in given.only or SCENARIOS]
    if given.quick:
        chosen = [shortened(scenario) for scenario in chosen]
    keep = not given.quick and not given.only
    with tempfile.TemporaryDirectory() as folder, ControlPlane() as plane:
        install(plane, exact=any(scenario.exact for scenario in chosen))
        snapshots, held = asyncio.run(measure(plane, Path(folder), chosen))
        missed = results.write(
            "accuracy", rows(snapshots, held, quick=given.quick), folder=FOLDER if keep else Path(folder)
        )
    show(snapshots, keep)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

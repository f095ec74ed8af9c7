"""What the operator does while an API server answers wrongly: every fault on every path, for seconds and for minutes.

    make bench NAME=blindness                          # every cell of 10 s and of 5 minutes: hours
    make bench NAME=blindness ARGS="--seconds 10"      # only those of one length
    make bench NAME=blindness ARGS="--only 404 pods"   # one cell of each length

A proxy stands between the operator and a real API server while a budget holds pods, a Job is suspended, pods are evicted and machines
are switched. A cell is one wrong answer on one path for one length. What the operator did is read from the API server's audit log and
from the power service, and compared with what is due in every cell, with or without a fault. Cells run side by side, each worker with
a control plane of its own. Every cell is written to a file as it ends, and cells that are in it already are not run again.
"""

import argparse
import contextlib
import json
import queue
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from bench import results
from bench.results import Row
from tests.fault_proxy import FAULTS, Fault
from tests.integration.blinded import PATHS, WELL_SECONDS, Outcome, blinded

SHORT, LONG = 10.0, 300.0
WORKERS = 5
STARTS = 3
"""So many control planes start at a time: a start takes all the processor that there is, what follows is waiting."""
Cell = tuple[Fault | None, str, float]


def cells(lengths: Sequence[float]) -> list[Cell]:
    """Those of each length; one without a fault begins."""
    found: list[Cell] = []
    for seconds in lengths:
        found.append((None, "none", seconds))
        found += [(fault, path, seconds) for path in PATHS for fault in FAULTS]
    return found


class Bench:
    """Workers that take cells until there are none."""

    def __init__(self, wanted: Sequence[Cell], file: Path) -> None:
        self._file, self._lock, self._starts = file, threading.Lock(), threading.Semaphore(STARTS)
        self.done = [Outcome(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        known = {(each.fault, each.path, each.seconds) for each in self.done}
        self._cells: queue.SimpleQueue[Cell] = queue.SimpleQueue()
        for fault, path, seconds in wanted:
            if (fault or "none", path, seconds) not in known:
                self._cells.put((fault, path, seconds))

    def run(self, workers: int) -> None:
        """Until all cells are done."""
        threads = [threading.Thread(target=self._work, args=(number,)) for number in range(workers)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def _work(self, number: int) -> None:
        while not self._cells.empty():
            try:
                with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
                    with self._starts:
                        stage = stack.enter_context(blinded(Path(folder) / str(number)))
                    while True:
                        self._note(stage.cell(*self._cells.get_nowait()))
            except queue.Empty:
                return
            except (OSError, TimeoutError, AssertionError) as problem:
                # That control plane is of no use any more; the cell counts as not run.
                print(f"blindness: worker {number} begins anew: {problem}", file=sys.stderr, flush=True)

    def _note(self, outcome: Outcome) -> None:
        with self._lock:
            self.done.append(outcome)
            with self._file.open("a") as file:
                file.write(json.dumps(outcome._asdict()) + "\n")
        print(f"blindness: {outcome}", file=sys.stderr, flush=True)


def figures(done: Sequence[Outcome]) -> list[Row]:
    """One row of each kind for each length."""
    rows: list[Row] = []
    for seconds in sorted({each.seconds for each in done}):
        of_length = [each for each in done if each.seconds == seconds and each.fault != "none"]
        name = f"faults of {seconds:g} s"
        effects = sum(len(each.effects) for each in of_length)
        slowest = max((each.well_after for each in of_length), default=0.0)
        rows += [
            Row(figure=f"{name}: cells run, of {len(cells([seconds])) - 1}", value=len(of_length), unit="cells"),
            Row(figure=f"{name}: effects that would not have come", value=effects, unit="effects", goal=0),
            Row(figure=f"{name}: well again after, worst", value=slowest, unit="s", goal=WELL_SECONDS),
        ]
    return rows


def table(done: Sequence[Outcome]) -> None:
    """For each path and length: how many faults were played, and the worst of them."""
    lines = []
    lengths = sorted({each.seconds for each in done})
    for path in PATHS:
        line = [path]
        for seconds in lengths:
            found = [each for each in done if (each.path, each.seconds) == (path, seconds)]
            effects = sum(len(each.effects) for each in found)
            slowest = max((each.well_after for each in found), default=0.0)
            line.append(f"{len(found)} faults, {effects} effects, well after {slowest:.1f} s" if found else "not run")
        lines.append(line)
    results.keep_table("blindness-cells", ["path", *(f"for {seconds:g} s" for seconds in lengths)], lines)


def main() -> int:
    """Run the cells and write the results."""
    options = argparse.ArgumentParser(description="what the operator does while the API server answers wrongly")
    options.add_argument("--seconds", type=float, action="append", help="only cells of this length")
    options.add_argument("--only", nargs=2, metavar=("FAULT", "PATH"), help="only this fault on this path")
    options.add_argument("--workers", type=int, default=WORKERS, help="0 only writes what was measured before")
    options.add_argument("--cells", type=Path, default=Path(tempfile.gettempdir()) / "headroom-blindness.jsonl")
    given = options.parse_args()
    wanted = cells(given.seconds or (SHORT, LONG))
    if given.only:
        wanted = [each for each in wanted if each[:2] == tuple(given.only)]
    bench = Bench(wanted, given.cells)
    bench.run(given.workers)
    # In this order: the table itself would make the commit that is written down a dirty one.
    missed = results.write("blindness", figures(bench.done))
    table(bench.done)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What `headroom plan` and `headroom check` of 43,000 budgets cost, and whether a budget costs the same however many there are.

make bench NAME=manifests                          a minute
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import results
from bench.results import Row

SIZES: Final = (10_000, 20_000, 43_000)
NAMESPACES: Final = 1_000
GOAL_SECONDS: Final = 20.0
MOST_FOR_ONE: Final = 1.2
"""What one of the most budgets may cost, by one of the fewest; the start of the process left out."""
NOW: Final = "2026-11-15T12:00:00Z"
BUDGET: Final = """\
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata:
  name: team-{number}
  namespace: space-{namespace}
spec:
  selector:
    matchLabels:
      team: team-{number}
  quota:
    gpuHours: "100"
    windowHours: 24
  enforcement:
    action: Hold
"""


def written(folder: Path, count: int) -> Path:
    """A file of so many budgets."""
    file = folder / f"{count}.yaml"
    budgets = (BUDGET.format(number=number, namespace=number % NAMESPACES) for number in range(count))
    file.write_text("---\n".join(budgets))
    return file


def seconds(*words: str) -> float:
    """The processor time of a command, its start included."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "headroom", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    said = process.stderr.read() if process.stderr else b""
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(said.decode())
    return used.ru_utime + used.ru_stime


def rows_of(folder: Path, sizes: Sequence[int]) -> list[Row]:
    """The figures of both commands."""
    files = {count: written(folder, count) for count in (1, *sizes)}
    found = []
    for command, more in (("check", ()), ("plan", ("--now", NOW))):
        cost = {count: seconds(command, "-f", str(file), *more) for count, file in files.items()}
        for count in sizes:
            what = f"{command} of {count:,} budgets, {files[count].stat().st_size / 1e6:.1f} MB: CPU"
            goal = GOAL_SECONDS if count == sizes[-1] else None
            found.append(Row(figure=what, value=round(cost[count], 1), unit="s", goal=goal))
        first, last = ((cost[count] - cost[1]) / count for count in (sizes[0], sizes[-1]))
        what = f"{command}: one of {sizes[-1]:,} budgets, by one of {sizes[0]:,}"
        found.append(Row(figure=what, value=round(last / first, 2), unit="x", goal=MOST_FOR_ONE))
    return found


def main() -> int:
    """Measure, and write what was found."""
    results.compile_modules()
    with tempfile.TemporaryDirectory() as folder:
        return len(results.write("manifests", rows_of(Path(folder), SIZES)))


if __name__ == "__main__":
    sys.exit(main())

"""What `headroom plan` and `headroom check` of 43,000 budgets cost, and whether twice as many cost twice as much.

make bench NAME=manifests                          two minutes
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench import results
from bench.results import Row

BUDGETS: Final = 43_000
NAMESPACES: Final = 1_000
GOAL_SECONDS: Final = 20.0
MOST_FOR_TWICE: Final = 2.3
"""Times the processor time for twice the budgets, the start of the process left out."""
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


def rows_of(folder: Path, budgets: int) -> list[Row]:
    """The figures of both commands."""
    whole, half, one = (written(folder, count) for count in (budgets, budgets // 2, 1))
    found = []
    for command, more in (("check", ()), ("plan", ("--now", NOW))):
        start, shorter, longer = (seconds(command, "-f", str(file), *more) for file in (one, half, whole))
        what = f"{command} of {budgets:,} budgets, {whole.stat().st_size / 1e6:.0f} MB"
        found += [
            Row(figure=f"{what}: CPU", value=round(longer, 1), unit="s", goal=GOAL_SECONDS),
            Row(
                figure=f"{what}, by that of half as many",
                value=round((longer - start) / max(shorter - start, 0.01), 2),
                unit="x",
                goal=MOST_FOR_TWICE,
            ),
        ]
    return found


def main() -> int:
    """Measure, and write what was found."""
    results.compile_modules()
    with tempfile.TemporaryDirectory() as folder:
        return len(results.write("manifests", rows_of(Path(folder), BUDGETS)))


if __name__ == "__main__":
    sys.exit(main())

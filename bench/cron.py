"""Who reads a CronJob's schedule as Kubernetes does: our own reader, cronsim and croniter against robfig/cron.

    make bench NAME=cron

The answers of robfig/cron, the library that Kubernetes uses, stand in tests/core/cron_runs.json; tools/kube/cron asked it for them. They
are about odd schedules, about days on which clocks are turned, and about schedules that were drawn by lot. What it costs is the CPU time of
our own reader for one CronJob and one hour, with nothing remembered.
"""

import json
import subprocess
import time

from bench import results
from bench.listwatch import peers_python
from bench.results import ROOT, Row
from headroom.core.demand import cron
from headroom.model.times import HOUR, SECOND

RUNS = ROOT / "tests" / "core" / "cron_runs.json"
REACH = 400 * 24 * 3600
"""Seconds: ours looks no further ahead here."""
READER = ROOT / "bench" / "readers" / "cron_reader.py"


def ours(cases: list[tuple[str, str, int]]) -> list[int]:
    """The answers of our own."""
    found = []
    for schedule, zone, after in cases:
        if cron.schedule_of(schedule) is None or cron.zone_of(zone) is None:
            found.append(-1)
            continue
        begin = after * SECOND
        found.append((cron.first_run(schedule, zone, begin, begin, begin + REACH * SECOND) or 0) // SECOND)
    return found


def peer(name: str, cases: list[tuple[str, str, int]]) -> list[int]:
    """The answers of a library in the environment of the peers."""
    command = [peers_python(), str(READER), name]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=True)
    answers: list[int] = json.loads(done.stdout)
    return answers


def wrong(answers: list[int], runs: list[tuple[str, str, int, int]]) -> tuple[int, int]:
    """How many schedules are read or refused unlike Kubernetes does, and how many runs of the others are at another moment."""
    refused = moments = 0
    for answer, (_, _, after, run) in zip(answers, runs, strict=True):
        if (answer == -1) != (run == -1):
            refused += 1
        elif run != -1 and run <= after + REACH and answer != run:
            moments += 1
    return refused, moments


def cpu_us(cases: list[tuple[str, str, int]]) -> float:
    """CPU time of one CronJob for one hour that nobody asked for before."""
    readable = [each for each in cases if cron.schedule_of(each[0]) and cron.zone_of(each[1])]
    begun = time.process_time()
    for schedule, zone, after in readable:
        later = after * SECOND + 1000 * HOUR
        cron.first_run(schedule, zone, 0, later, later + HOUR)
    return (time.process_time() - begun) / len(readable) * 1e6


def main() -> None:
    """Compare them all."""
    runs: list[tuple[str, str, int, int]] = [(*each,) for each in json.loads(RUNS.read_text())]
    cases = [(schedule, zone, after) for schedule, zone, after, _ in runs]
    rows = [Row(figure="cases", value=len(runs), unit="cases", goal=1000, sense="min")]
    for name, answers in (("ours", ours(cases)), *((each, peer(each, cases)) for each in ("cronsim", "croniter"))):
        refused, moments = wrong(answers, runs)
        is_ours = name == "ours"
        rows.append(
            Row(
                figure=f"{name}: read or refused unlike Kubernetes",
                value=refused,
                unit="cases",
                goal=0 if is_ours else None,
            )
        )
        rows.append(
            Row(figure=f"{name}: runs at another moment", value=moments, unit="cases", goal=2 if is_ours else None)
        )
    rows.append(Row(figure="ours: CPU of one CronJob and one hour", value=round(cpu_us(cases), 1), unit="us", goal=200))
    asked = "import importlib.metadata as m; print(m.version('cronsim'), m.version('croniter'))"
    told = subprocess.run([peers_python(), "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    results.write("cron", rows, also=dict(zip(("cronsim", "croniter"), told, strict=True)))


if __name__ == "__main__":
    main()

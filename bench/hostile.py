"""What a hostile tenant gains: a scripted hour against a budget at its limit, on a real API server.

    make bench NAME=hostile                          the hour; keeps the figures
    make bench NAME=hostile ARGS="--minutes 3"       a shorter one; nothing is kept

The tenant is a service account with the ClusterRole `edit` in one namespace. What it ran is read off the pods and off the API server's
audit log, GPUs by claims included; the goal is what was running when the hold began, had all of it gone on. The one Job that was released
is held to what was judged then, by itself.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench import results
from bench.results import Row
from tests.integration.besieged import RELEASED, Siege, besieged

MINUTES = 60


def rows(siege: Siege) -> list[Row]:
    """What is kept of an hour."""
    tenant = siege.tenant
    return [
        Row(figure="writes tried", value=tenant.tried, unit=""),
        Row(figure="writes refused", value=tenant.refused, unit=""),
        Row(figure="writes granted that must be refused", value=len(tenant.breaches), unit="", goal=0),
        Row(
            figure="GPU-hours past the quota, against all that ran when the hold began",
            value=round(siege.past_quota, 4),
            unit="GPU-hours",
            goal=round(siege.running, 4),
        ),
        Row(
            figure="GPU-hours of a released Job, against what was judged at its release",
            value=round(siege.used_released, 4),
            unit="GPU-hours",
            goal=round(siege.judged, 4),
        ),
        Row(figure="pods started past the hold", value=len(siege.intruders), unit="pods", goal=0),
        Row(
            figure="GPUs of a released Job at once, its parallelism raised up to tenfold",
            value=siege.peak_released,
            unit="GPUs",
            goal=RELEASED,
        ),
        Row(figure="evictions of the tenant's pods that the API server granted", value=siege.evictions, unit=""),
        Row(figure="pods that other tenants lost", value=len(siege.lost()), unit="pods", goal=0),
    ]


def main(arguments: list[str]) -> int:
    """Play it, and write the results if it was the whole hour."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, besieged(Path(folder), given.seed) as siege:
        siege.play(given.minutes * 60)
        found = rows(siege)
        for what in (*siege.tenant.breaches, *siege.intruders, *siege.lost()):
            print(f"hostile: {what}", file=sys.stderr)
    if given.minutes >= MINUTES:
        return 1 if results.write("hostile", found) else 0
    for row in found:
        goal = "" if row.goal is None else f" (at most {row.goal:g})"
        print(f"hostile: {row.figure}: {row.value:g} {row.unit}{goal}", file=sys.stderr)
    return 1 if any(row.is_missed for row in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

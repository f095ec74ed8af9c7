"""Asks a library for the next runs of schedules: `cron_reader.py LIBRARY < cases`, in the environment of the peers.

A case is [schedule, zone, seconds]; the answers are seconds, -1 where the library cannot read it, and 0 where it finds no run.
"""

import json
import sys
from datetime import datetime
from zoneinfo import ZoneInfo


def by_cronsim(schedule: str, place: ZoneInfo, after: int) -> int:
    """By cronsim."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415  # only where it is asked for

    try:
        found = CronSim(schedule, datetime.fromtimestamp(after, place))
    except CronSimError:
        return -1
    run = next(found, None)
    return 0 if run is None else int(run.timestamp())


def by_croniter(schedule: str, place: ZoneInfo, after: int) -> int:
    """By croniter."""
    from croniter import CroniterBadDateError, croniter  # noqa: PLC0415  # only where it is asked for

    if not croniter.is_valid(schedule):
        return -1
    try:
        return int(croniter(schedule, datetime.fromtimestamp(after, place), day_or=True).get_next(float))
    except CroniterBadDateError:
        return 0


def main() -> None:
    """Answer every case."""
    ask = {"cronsim": by_cronsim, "croniter": by_croniter}[sys.argv[1]]
    answers = []
    for schedule, zone, after in json.load(sys.stdin):
        try:
            place = ZoneInfo(zone or "UTC")
        except (KeyError, OSError, ValueError):
            answers.append(-1)
            continue
        answers.append(ask(schedule, place, after))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

"""Schedules as Kubernetes reads them: `cron_runs.json` has the answers of its own library, which tools/kube/cron asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headroom.core.demand.cron import LONGEST, first_run, problem_of, schedule_of, zone_of
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON

DAY = 24 * HOUR
RUNS: list[tuple[str, str, int, int]] = json.loads((Path(__file__).parent / "cron_runs.json").read_text())
REACH = 32 * 24 * 3600
"""Seconds: beyond this the library's answer is only taken as `not before`."""
HALF_AN_HOUR = "Australia/Lord_Howe"
"""Where clocks turn by half an hour, the library misses a day that begins or ends so."""


def test_every_schedule_and_zone_is_read_or_refused_as_the_library_does() -> None:
    odd = [each for each in RUNS if (each[3] == -1) != (schedule_of(each[0]) is None or zone_of(each[1]) is None)]
    assert odd == []
    assert 200 < sum(each[3] == -1 for each in RUNS) < len(RUNS) // 2


def test_the_next_run_is_the_one_that_the_library_says() -> None:
    odd, seen = [], 0
    for schedule, zone, after, run in RUNS:
        begin, end = after * SECOND, (after + REACH) * SECOND
        found, wanted = first_run(schedule, zone, begin, begin, end), run * SECOND if 0 < run <= after + REACH else None
        seen += wanted is not None
        if found != wanted:
            odd.append((schedule, zone, found, wanted))
    assert {zone for _, zone, _, _ in odd} <= {HALF_AN_HOUR}
    assert len(odd) <= 2
    assert seen > 600


@pytest.mark.parametrize(
    "text", ["0 0 * * 7", "60 * * * *", "@Daily", "@reboot", "TZ=UTC 0 0 * * *", "0 " * 200, "1,2 " * 5 + "é"]
)
def test_what_the_api_server_refuses_is_not_read(text: str) -> None:
    assert schedule_of(text) is None


def test_a_schedule_that_lists_everything_many_times_over_is_not_read() -> None:
    assert schedule_of(f"{','.join(['1'] * LONGEST)} * * * *") is None


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("@every 90m", 90 * MINUTE),
        ("@every 1.5h", 90 * MINUTE),
        ("@every .5m", 30 * SECOND),
        ("@every 1h1m1s", HOUR + MINUTE + SECOND),
        ("@every 1500ms", SECOND),
        ("@every 500us", SECOND),
        ("@every 0", SECOND),
        ("@every -5m", SECOND),
    ],
)
def test_intervals_are_whole_seconds(text: str, ms: int) -> None:
    schedule = schedule_of(text)
    assert schedule is not None
    assert schedule.every_ms == ms
    assert first_run(text, "", NOON, NOON, NOON + 24 * HOUR) == NOON + ms
    assert first_run(text, "", NOON, NOON + ms, NOON + 24 * HOUR) == NOON + 2 * ms


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "America", "Local", "\0", "x" * 9000]
)
def test_zones_that_there_are_not(zone: str) -> None:
    assert zone_of(zone) is None
    assert first_run("* * * * *", zone, 0, NOON, NOON + HOUR) is None


def test_a_schedule_that_never_comes_costs_little() -> None:
    assert first_run("0 0 31 2 *", "", 0, NOON, NOON + 24 * HOUR) is None


@pytest.mark.parametrize(
    ("text", "zone", "field"),
    [
        ("5 13 * * *", "Europe/Berlin", ""),
        ("@every 1h", "", ""),
        ("0 0 29 2 *", "", ""),
        ("0 0 31 */2 *", "", ""),
        ("0 0 30 2 1", "", ""),
        ("0 0 30 2 *", "", "spec.schedule"),
        ("0 0 31 4,6,9,11 *", "", "spec.schedule"),
        ("61 * * * *", "", "spec.schedule"),
        ("* * * *", "", "spec.schedule"),
        ("5 13 * * *", "Europe/Nowhere", "spec.timeZone"),
        ("5 13 * * *", "Local", "spec.timeZone"),
    ],
)
def test_what_never_runs_is_told_with_its_field(text: str, zone: str, field: str) -> None:
    found = problem_of(text, zone)
    assert (found[0] if found else "") == field
    begin = NOON - NOON % DAY
    never = first_run(text, zone, begin, begin, begin + 5 * 366 * DAY) is None
    assert never == bool(field), "it says so of what never runs, and of nothing else"

"""How many machines stay on at which time of the week, and the energy that machines took and saved."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.power_status import Energy, PowerPoolStatus
from headroom.model.times import moment, text
from tests.builders import NOON
from tests.core.power_stage import (
    HOUR,
    MINUTE,
    SECOND,
    Stage,
    a_machine,
    a_pool,
    a_view,
    decided,
    on,
    remembered,
    running,
    wakes,
    was,
)

OFFICE = {"days": ["Mon", "Tue", "Wed", "Thu", "Fri"], "begin": "08:00", "end": "18:00", "timeZone": "Europe/Berlin"}
NIGHT = {"days": ["Fri"], "begin": "22:00", "end": "06:00", "minOn": 1}


def kept(window: dict[str, Any], when: str) -> tuple[int, int | None]:
    """How many of two machines are woken at a moment, and how many seconds later that turns."""
    now = moment(when) or 0
    decision = decided(a_view(a_pool(keepOn=[window]), now=now))["one"]
    return len(wakes(decision)), (decision.next_turn_ms or 0) // SECOND


@pytest.mark.parametrize(
    ("window", "when", "count"),
    [
        (OFFICE, "2026-11-16T06:59:59Z", 0),  # a Monday in winter: UTC+1
        (OFFICE, "2026-11-16T07:00:00Z", 2),
        (OFFICE, "2026-11-16T16:59:59Z", 2),
        (OFFICE, "2026-11-16T17:00:00Z", 0),
        (OFFICE, "2026-11-15T12:00:00Z", 0),  # a Sunday
        (OFFICE, "2026-07-06T06:00:00Z", 2),  # in summer an hour earlier
        (OFFICE, "2026-07-06T05:59:59Z", 0),
        (NIGHT, "2026-11-13T22:00:00Z", 1),
        (NIGHT, "2026-11-14T05:59:59Z", 1),  # the day on which it began counts
        (NIGHT, "2026-11-14T06:00:00Z", 0),
        (NIGHT, "2026-11-14T22:00:00Z", 0),
        ({"begin": "00:00", "end": "00:00"}, "2026-11-14T22:00:00Z", 2),
        ({"begin": "02:30", "end": "03:30", "timeZone": "Europe/Berlin"}, "2026-03-29T01:30:00Z", 0),
        ({"begin": "02:30", "end": "03:30", "timeZone": "Europe/Berlin"}, "2026-03-30T00:45:00Z", 2),
    ],
)
def test_machines_are_kept_on_in_a_window(window: dict[str, Any], when: str, count: int) -> None:
    assert kept(window, when)[0] == count


def test_the_edges_of_windows_are_turns_of_the_clock() -> None:
    assert kept(OFFICE, "2026-11-16T06:59:50Z") == (0, 10)
    pool = remembered(a_pool(keepOn=[OFFICE]), was("w1", "On", 0), was("w2", "On", 0))
    pods = [running("a", "w1"), running("b", "w2")]
    late = moment("2026-11-16T16:59:00Z") or 0
    decision = decided(a_view(pool, nodes=[on("w1", 4), on("w2")], pods=pods, now=late))["one"]
    assert decision.next_turn_ms == MINUTE


def test_what_is_kept_on_does_not_sleep_and_sleeps_after() -> None:
    begin = moment("2026-11-16T16:30:00Z") or 0
    stage = Stage(a_pool(machines={"w2": 8}, keepOn=[OFFICE]), nodes=[on("w2")], now=begin)
    stage.pass_time(35 * MINUTE, every=5 * SECOND)
    [(at, command)] = stage.commands()
    assert command == "sleep w2"
    assert text(NOON + at * SECOND) == "2026-11-16T17:00:15Z"


# --- energy -----------------------------------------------------------------------------------------------------------------------


def drawn(state: Any, ms: int, *, busy: bool = False, **watts: int) -> Energy | None:
    """The energy of one machine that was in a state for so long."""
    listed = [a_machine("w1", 8, **watts)]
    idle = {} if busy else {"idle_since": NOON - HOUR}
    energy = Energy(as_of=text(NOON - NOON % 3600))
    pool = remembered(a_pool(listed=listed), was("w1", state, NOON - HOUR, **idle), energy=energy)
    status: Any = decided(a_view(pool, now=NOON - NOON % 3600 + ms))["one"].status
    assert isinstance(status, PowerPoolStatus)
    return status.energy


@pytest.mark.parametrize(
    ("state", "busy", "used", "saved"),
    [
        ("On", True, "6", "0"),
        ("On", False, "1.5", "0"),
        ("Booting", False, "1.5", "0"),
        ("Draining", False, "1.5", "0"),
        ("Sleeping", False, "1.5", "0"),
        ("Off", False, "0", "1.5"),
        ("Failed", False, "0", "0"),
        ("Unknown", False, "0", "0"),
    ],
)
def test_each_state_takes_or_saves_what_is_said_of_it(state: str, busy: bool, used: str, saved: str) -> None:
    energy = drawn(state, HOUR, busy=busy, idleWatts=1500, busyWatts=6000)
    assert energy is not None
    assert (energy.used_kwh, energy.saved_kwh) == (used, saved)


def test_what_is_not_said_is_not_invented() -> None:
    assert drawn("On", HOUR) is None
    busy = drawn("On", HOUR, busy=True, idleWatts=700)
    assert busy is not None
    assert busy.used_kwh == "0.7", "without busyWatts the idle ones count"
    only = drawn("On", HOUR, busy=True, busyWatts=900)
    assert only is not None
    assert only.used_kwh == "0.9"


def test_counting_begins_on_the_grid() -> None:
    pool = a_pool(listed=[a_machine("w1", 8, idleWatts=700)])
    found: Any = decided(a_view(pool, now=NOON + 5000))["one"].status
    assert found.energy == Energy(used_kwh="0", saved_kwh="0", as_of=text(NOON + 5000 - (NOON + 5000) % 3600))


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=20), st.integers(0, 100_000))
def test_nothing_is_lost_however_often_it_is_counted(steps: list[int], watts: int) -> None:
    begin = NOON - NOON % 3600
    pool = remembered(a_pool(listed=[a_machine("w1", 8, idleWatts=watts)]), was("w1", "Off", begin))
    pool = structs.replace(pool, status=structs.replace(pool.status, energy=Energy(as_of=text(begin))))
    now = begin
    for step in steps:
        now += step
        pool = structs.replace(pool, status=decided(a_view(pool, now=now))["one"].status)
    energy = pool.status.energy
    whole = (now - begin) // 3600
    assert energy.as_of == text(begin + whole * 3600)
    assert round(float(energy.saved_kwh) * 1_000_000) == whole * watts


@pytest.mark.parametrize(
    "energy", [Energy(used_kwh="much", saved_kwh="-1", as_of="yesterday"), Energy(as_of="9999-01-01T00:00:00Z")]
)
def test_an_odd_count_begins_anew(energy: Energy) -> None:
    pool = remembered(a_pool(listed=[a_machine("w1", 8, idleWatts=1)]), was("w1", "Off"), energy=energy)
    found: Any = decided(a_view(pool))["one"].status
    assert (found.energy.used_kwh, found.energy.saved_kwh) == ("0", "0")

"""News of machines is data, and every piece of it has its words."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.power import turns
from headroom.core.power.gathering import pools_of
from headroom.core.power.members import Member, Pool
from headroom.core.power.news import News, Turn
from headroom.core.power.supply import PowerSupply
from headroom.model.facts import Call
from headroom.model.times import MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import a_pool, a_round, a_view, off, on, remembered, was

LONG_AGO = NOON - 20 * MINUTE


def found(state: str, **view: Any) -> Member:
    """A machine that was doing something, as it is found."""
    fields = {"woken_at": LONG_AGO} if state == "Booting" else {"slept_at": LONG_AGO}
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", state, since=LONG_AGO, **fields))
    [one] = pools_of(a_view(pool, **view))
    return one.members[0]


def test_what_is_new_of_a_machine_is_told_in_fields() -> None:
    late = News(machine="w1", state="Failed", cause=Turn.NOT_READY_IN_TIME, at=LONG_AGO, count=900)
    assert found("Booting", nodes=[off("w1")]).news == [late]
    assert found("Booting", nodes=[on("w1", since=NOON)]).news == [
        News(machine="w1", state="On", cause=Turn.JOINED, count=20 * 60)
    ]
    call = Call(machine="w1", command="Sleep", at=NOON - 19 * MINUTE, outcome="Failed", message="it says 503")
    assert found("Sleeping", nodes=[on("w1")], calls=[call]).news == [
        News(machine="w1", state="On", cause=Turn.SLEEP_CALL_FAILED, text="it says 503")
    ]
    assert found("On", nodes=[off("w1", since=NOON - SECOND)]).news == [
        News(machine="w1", state="Unknown", cause=Turn.NOT_READY)
    ]


KEPT = (
    *(Turn.POD_CAME, Turn.PODS_FIT, Turn.MUST_BE_ON, Turn.WARM, Turn.PROTECTED, Turn.NOT_EMPTIED, Turn.UNCORDONED),
    *(Turn.CORDONED, Turn.SLEEP_CALL_FAILED, Turn.STILL_READY),
)
EVENTS: dict[Any, tuple[Turn, ...]] = {
    "Booting": (Turn.FOR_PODS, Turn.ON_TRIAL, Turn.FOR_FLOOR, Turn.UNTAKEN),
    "On": (*KEPT, Turn.SHORT, Turn.JOINED, Turn.AFTER_ALL, Turn.WOKEN_BY_OTHERS, Turn.BACK_BY_OTHERS),
    "Off": (Turn.GIVEN_UP, Turn.WENT_OFF, Turn.OFF_BY_OTHERS),
    "Unknown": (Turn.DARK, Turn.NOT_READY, Turn.ON_NOT_READY, Turn.SHUTTING_DOWN),
    "Failed": (Turn.WAKE_CALL_FAILED, Turn.NOT_READY_IN_TIME, Turn.SLEEP_CALL_FAILED, Turn.STILL_ON),
    "Draining": (Turn.IDLE,),
    "Sleeping": (Turn.IDLE, Turn.PUT_BACK),
}
REASONS: dict[Any, tuple[Turn, ...]] = {
    "Booting": (Turn.STARTING,),
    "On": (*KEPT, Turn.SHORT),
    "Off": (Turn.GIVEN_UP, Turn.NEVER_JOINED),
    "Unknown": EVENTS["Unknown"],
    "Failed": EVENTS["Failed"],
    "Draining": (Turn.IDLE,),
    "Sleeping": (Turn.SHUTTING_DOWN, Turn.PUT_BACK),
}


def a_settled_pool() -> tuple[Pool, Any]:
    found = a_round(a_view(a_pool(machines={"w1": 8}), nodes=[off("w1")]))
    [supply] = found.supplies
    assert isinstance(supply, PowerSupply)
    return supply.pool, supply.outcome


@pytest.mark.parametrize("words", [EVENTS, REASONS])
def test_every_turn_has_words_of_its_own(words: dict[Any, tuple[Turn, ...]]) -> None:
    pool, outcome = a_settled_pool()
    [machine] = pool.members
    told = []
    for state, causes in words.items():
        for cause in causes:
            news = machine.new(state, cause, at=NOON, count=2)
            machine.why = news
            said = (
                turns.event(pool, outcome.round, machine, news, None)
                if words is EVENTS
                else turns.reason_of(pool, machine)
            )
            told.append((turns.EVENTS[state], said))
    assert all(said for _, said in told)
    # Why a machine wakes is told by what was opened in the round, and here nothing was; and the floor keeps as it wakes.
    assert len(told) - len(set(told)) <= (3 if words is EVENTS else 0)


def test_no_turn_is_left_out() -> None:
    assert {cause for words in (EVENTS, REASONS) for causes in words.values() for cause in causes} == {*Turn}

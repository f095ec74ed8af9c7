"""News of machines is data, and every piece of it has its words."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.power import turns
from headroom.core.power.gathering import pools_of
from headroom.core.power.members import PoolMachine, PowerPoolState
from headroom.core.power.news import MachineTransition, TransitionReason
from headroom.core.power.supply import PowerSupply
from headroom.model.facts import SwitchCall
from headroom.model.times import MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import a_pool, a_round, a_view, off, on, remembered, was

LONG_AGO = NOON - 20 * MINUTE


def found(state: str, **view: Any) -> PoolMachine:
    """A machine that was doing something, as it is found."""
    fields = {"woken_at": LONG_AGO} if state == "Booting" else {"slept_at": LONG_AGO}
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", state, since=LONG_AGO, **fields))
    [one] = pools_of(a_view(pool, **view))
    return one.members[0]


def test_what_is_new_of_a_machine_is_told_in_fields() -> None:
    late = MachineTransition(
        machine="w1", state="Failed", cause=TransitionReason.NOT_READY_IN_TIME, at=LONG_AGO, count=900
    )
    assert found("Booting", nodes=[off("w1")]).news == [late]
    assert found("Booting", nodes=[on("w1", since=NOON)]).news == [
        MachineTransition(machine="w1", state="On", cause=TransitionReason.JOINED, count=20 * 60)
    ]
    call = SwitchCall(machine="w1", command="Sleep", at=NOON - 19 * MINUTE, outcome="Failed", message="it says 503")
    assert found("Sleeping", nodes=[on("w1")], calls=[call]).news == [
        MachineTransition(machine="w1", state="On", cause=TransitionReason.SLEEP_CALL_FAILED, text="it says 503")
    ]
    assert found("On", nodes=[off("w1", since=NOON - SECOND)]).news == [
        MachineTransition(machine="w1", state="Unknown", cause=TransitionReason.NOT_READY)
    ]


KEPT = (
    *(
        TransitionReason.POD_CAME,
        TransitionReason.PODS_FIT,
        TransitionReason.MUST_BE_ON,
        TransitionReason.WARM,
        TransitionReason.PROTECTED,
        TransitionReason.NOT_EMPTIED,
        TransitionReason.UNCORDONED,
    ),
    *(TransitionReason.CORDONED, TransitionReason.SLEEP_CALL_FAILED, TransitionReason.STILL_READY),
)
EVENTS: dict[Any, tuple[TransitionReason, ...]] = {
    "Booting": (
        TransitionReason.FOR_PODS,
        TransitionReason.ON_TRIAL,
        TransitionReason.FOR_FLOOR,
        TransitionReason.UNTAKEN,
    ),
    "On": (
        *KEPT,
        TransitionReason.SHORT,
        TransitionReason.JOINED,
        TransitionReason.AFTER_ALL,
        TransitionReason.WOKEN_BY_OTHERS,
        TransitionReason.BACK_BY_OTHERS,
    ),
    "Off": (TransitionReason.GIVEN_UP, TransitionReason.WENT_OFF, TransitionReason.OFF_BY_OTHERS),
    "Unknown": (
        TransitionReason.DARK,
        TransitionReason.NOT_READY,
        TransitionReason.ON_NOT_READY,
        TransitionReason.SHUTTING_DOWN,
    ),
    "Failed": (
        TransitionReason.WAKE_CALL_FAILED,
        TransitionReason.NOT_READY_IN_TIME,
        TransitionReason.SLEEP_CALL_FAILED,
        TransitionReason.STILL_ON,
    ),
    "Draining": (TransitionReason.IDLE,),
    "Sleeping": (TransitionReason.IDLE, TransitionReason.PUT_BACK),
}
REASONS: dict[Any, tuple[TransitionReason, ...]] = {
    "Booting": (TransitionReason.STARTING,),
    "On": (*KEPT, TransitionReason.SHORT),
    "Off": (TransitionReason.GIVEN_UP, TransitionReason.NEVER_JOINED),
    "Unknown": EVENTS["Unknown"],
    "Failed": EVENTS["Failed"],
    "Draining": (TransitionReason.IDLE,),
    "Sleeping": (TransitionReason.SHUTTING_DOWN, TransitionReason.PUT_BACK),
}


def a_settled_pool() -> tuple[PowerPoolState, Any]:
    found = a_round(a_view(a_pool(machines={"w1": 8}), nodes=[off("w1")]))
    [supply] = found.supplies
    assert isinstance(supply, PowerSupply)
    return supply.pool, supply.outcome


@pytest.mark.parametrize("words", [EVENTS, REASONS])
def test_every_turn_has_words_of_its_own(words: dict[Any, tuple[TransitionReason, ...]]) -> None:
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
    assert {cause for words in (EVENTS, REASONS) for causes in words.values() for cause in causes} == {
        *TransitionReason
    }

"""What people read about a machine that turned, or did not: sentences of its events, and the reason in its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headroom.api.power_status import State
from headroom.core.capacity import CapacityRound, OpenedRoom
from headroom.core.power.members import PoolMachine, PowerPoolState, told
from headroom.core.power.news import MachineTransition, TransitionReason
from headroom.core.power.states import ABORT_MS
from headroom.core.power.warmth import least_on
from headroom.core.power.wording import for_pods, of_gpus, of_machines, small
from headroom.model import times

EVENTS: Final[Mapping[State, str]] = {
    "Booting": "WakingMachine",
    "On": "MachineOn",
    "Draining": "DrainingMachine",
    "Sleeping": "SleepingMachine",
    "Off": "MachineOff",
    "Unknown": "MachineUnknown",
    "Failed": "MachineFailed",
}
"""The reason of an event, by what the machine is doing now."""
_WARNS: Final = frozenset(
    {
        TransitionReason.UNTAKEN,
        TransitionReason.GIVEN_UP,
        TransitionReason.SLEEP_CALL_FAILED,
        TransitionReason.STILL_READY,
        TransitionReason.SHORT,
    }
)
_PLAIN: Final = {
    TransitionReason.UNTAKEN: "gets its wake command again, with the same key: its power is still off.",
    TransitionReason.GIVEN_UP: "is still off; other machines serve its pods.",
    TransitionReason.AFTER_ALL: "is on after all.",
    TransitionReason.WOKEN_BY_OTHERS: "is on; Headroom did not wake it.",
    TransitionReason.BACK_BY_OTHERS: "is on again; Headroom did not wake it.",
    TransitionReason.WENT_OFF: "is off.",
    TransitionReason.OFF_BY_OTHERS: "is off; Headroom did not switch it off.",
}
_KEPT: Final = {
    TransitionReason.POD_CAME: "a pod was bound to it",
    TransitionReason.PROTECTED: "it is protected",
    TransitionReason.NOT_EMPTIED: f"its pods did not end within {ABORT_MS // times.MINUTE} minutes",
    TransitionReason.UNCORDONED: "somebody uncordoned its node",
    TransitionReason.CORDONED: "somebody else cordoned its node",
}
_STATES: Final = {
    TransitionReason.NOT_READY: "Its node is not Ready.",
    TransitionReason.ON_NOT_READY: "It is on, and its node is not Ready.",
    TransitionReason.SHUTTING_DOWN: "It is shutting down.",
    TransitionReason.IDLE: "It is being cordoned.",
}


def warns(news: MachineTransition) -> bool:
    """Whether somebody should look."""
    return news.state in ("Unknown", "Failed") or news.cause in _WARNS


def event(
    pool: PowerPoolState,
    round_: CapacityRound,
    machine: PoolMachine,
    news: MachineTransition,
    opened: OpenedRoom | None,
) -> str:
    """What a machine does now, as the rest of a sentence that begins with its name; `opened` is for whom the round wakes it, if it does."""
    if news.cause in _PLAIN:
        return _PLAIN[news.cause]
    match news.state:
        case "Booting":
            return f"({of_gpus(machine.gpus)}) wakes {_purpose(pool, round_, news, opened)}."
        case "Draining":
            return f"({of_gpus(machine.gpus)}) has been idle since {told(news.at)} and is cordoned."
        case "Sleeping":
            if news.cause is TransitionReason.PUT_BACK:
                return f"({of_gpus(machine.gpus)}) {_failing(machine)} and goes to sleep again."
            return f"({of_gpus(machine.gpus)}) goes to sleep; idle since {told(news.at)}."
        case "Unknown":
            return f"does not answer: {small(_reason(pool, machine, news))}"
        case "Failed":
            return f"failed: {small(_reason(pool, machine, news))}"
    if news.cause is TransitionReason.JOINED:
        return f"is on, {news.count}s after its wake command."
    if news.cause is TransitionReason.SHORT:
        return f"is on, but {small(_reason(pool, machine, news))}"
    return f"stays on: {_staying(pool, news)}."


def _purpose(pool: PowerPoolState, round_: CapacityRound, news: MachineTransition, opened: OpenedRoom | None) -> str:
    if opened is None:
        return f"since {least_on(pool).why}"
    if news.cause is TransitionReason.ON_TRIAL:
        return f"on trial for pod {opened.on_trial}"
    return for_pods(round_.asks(pool.spec.gpu_resource_name), opened.pods, round_.announced)


def reason_of(pool: PowerPoolState, machine: PoolMachine) -> str:
    """Why a machine is as it is, where that is not plain."""
    return machine.reason if machine.why is None else _reason(pool, machine, machine.why)


def _reason(pool: PowerPoolState, machine: PoolMachine, why: MachineTransition) -> str:
    if why.cause in _STATES:
        return _STATES[why.cause]
    match why.cause:
        case TransitionReason.GIVEN_UP:
            return f"The wake command of {told(why.at)} had no effect: its power stayed off."
        case TransitionReason.STARTING:
            shows = f"shows {machine.gpus_shown} of {machine.gpus} GPUs"
            return f"Its node is Ready and {shows if machine.gpus_shown < machine.gpus else f'has the taint {machine.starts}'} so far."
        case TransitionReason.SHORT:
            shows = f"shows {machine.gpus_shown} of {machine.gpus} GPUs"
            return (
                f"Its node {shows if machine.gpus_shown < machine.gpus else f'still has the taint {machine.starts}'}."
            )
        case TransitionReason.NEVER_JOINED:
            return f"It woke at {told(why.at)} and never joined."
        case TransitionReason.DARK:
            return (
                f"Its power is {'off' if machine.power_is == 'Off' else 'going off'}, and its node still reports Ready."
            )
        case TransitionReason.PUT_BACK:
            return f"It {_failing(machine)}, so it goes to sleep again."
    return _failure(why) if why.state == "Failed" else f"It stays on: {_staying(pool, why)}."


def _failure(why: MachineTransition) -> str:
    said = why.text or "the call failed"
    match why.cause:
        case TransitionReason.WAKE_CALL_FAILED:
            return f"The wake command failed: {said}"
        case TransitionReason.SLEEP_CALL_FAILED:
            return f"The sleep command failed: {said}"
        case TransitionReason.NOT_READY_IN_TIME:
            return f"Its node was not Ready {why.count}s after the wake command of {told(why.at)}."
    return f"The sleep command of {told(why.at)} had no effect: its power is still on."


def _failing(machine: PoolMachine) -> str:
    return "never joined" if machine.cause == "NeverJoined" else "did not go off"


def _staying(pool: PowerPoolState, why: MachineTransition) -> str:
    match why.cause:
        case TransitionReason.PODS_FIT:
            return f"{'1 pending pod fits' if why.count == 1 else f'{why.count} pending pods fit'} on it"
        case TransitionReason.MUST_BE_ON:
            return f"{of_machines(why.count)} must be on now"
        case TransitionReason.WARM:
            return least_on(pool).why
        case TransitionReason.SLEEP_CALL_FAILED:
            return f"the sleep command failed: {why.text or 'no details'}"
        case TransitionReason.STILL_READY:
            return f"the sleep command of {told(why.at)} had no effect: its node is still Ready"
    return _KEPT[why.cause]

"""What people are told of a machine that turned, or did not: sentences of its events, and the reason in its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headroom.api.power_status import State
from headroom.core.capacity import Opened, Round
from headroom.core.power.members import Member, Pool, told
from headroom.core.power.news import News, Turn
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
_WARNS: Final = frozenset({Turn.UNTAKEN, Turn.GIVEN_UP, Turn.SLEEP_CALL_FAILED, Turn.STILL_READY, Turn.SHORT})
_PLAIN: Final = {
    Turn.UNTAKEN: "is woken again with the same key: its power is still off.",
    Turn.GIVEN_UP: "is still off, and others serve its pods.",
    Turn.AFTER_ALL: "is on after all.",
    Turn.WOKEN_BY_OTHERS: "is on; it was not Headroom that woke it.",
    Turn.BACK_BY_OTHERS: "is on again; it was not Headroom that woke it.",
    Turn.WENT_OFF: "is off.",
    Turn.OFF_BY_OTHERS: "is off; it was not Headroom that switched it off.",
}
_KEPT: Final = {
    Turn.POD_CAME: "a pod has come",
    Turn.PROTECTED: "it is protected",
    Turn.NOT_EMPTIED: f"it could not be emptied within {ABORT_MS // times.MINUTE} minutes",
    Turn.UNCORDONED: "somebody uncordoned its node",
    Turn.CORDONED: "somebody else cordoned its node",
}
_STATES: Final = {
    Turn.NOT_READY: "Its node is not Ready.",
    Turn.ON_NOT_READY: "It is on, and its node is not Ready.",
    Turn.SHUTTING_DOWN: "It is shutting down.",
    Turn.IDLE: "It is being cordoned.",
}


def warns(news: News) -> bool:
    """Whether somebody should look."""
    return news.state in ("Unknown", "Failed") or news.cause in _WARNS


def event(pool: Pool, round_: Round, it: Member, news: News, opened: Opened | None) -> str:
    """What a machine does now, as the rest of a sentence that begins with its name; `opened` is for whom the round wakes it, if it does."""
    if news.cause in _PLAIN:
        return _PLAIN[news.cause]
    match news.state:
        case "Booting":
            return f"({of_gpus(it.gpus)}) wakes {_purpose(pool, round_, news, opened)}."
        case "Draining":
            return f"({of_gpus(it.gpus)}) is idle since {told(news.at)} and gets no new pods."
        case "Sleeping":
            if news.cause is Turn.PUT_BACK:
                return f"({of_gpus(it.gpus)}) {_failing(it)} and is sent to sleep again."
            return f"({of_gpus(it.gpus)}) is sent to sleep; it was idle since {told(news.at)}."
        case "Unknown":
            return f"does not answer: {small(_reason(pool, it, news))}"
        case "Failed":
            return f"failed: {small(_reason(pool, it, news))}"
    if news.cause is Turn.JOINED:
        return f"is on, {news.count} s after it was told to wake."
    if news.cause is Turn.SHORT:
        return f"is on, but {small(_reason(pool, it, news))}"
    return f"stays on: {_staying(pool, news)}."


def _purpose(pool: Pool, round_: Round, news: News, opened: Opened | None) -> str:
    if opened is None:
        return f"since {least_on(pool).why}"
    if news.cause is Turn.ON_TRIAL:
        return f"on trial for pod {opened.on_trial}"
    return for_pods(round_.asks(pool.spec.gpu_resource_name), opened.pods, round_.announced)


def reason_of(pool: Pool, it: Member) -> str:
    """Why a machine is as it is, where that is not plain."""
    return it.reason if it.why is None else _reason(pool, it, it.why)


def _reason(pool: Pool, it: Member, why: News) -> str:
    if why.cause in _STATES:
        return _STATES[why.cause]
    match why.cause:
        case Turn.GIVEN_UP:
            return f"It was told to wake at {told(why.at)}, and its power stayed off."
        case Turn.STARTING:
            shows = f"shows {it.gpus_shown} of {it.gpus} GPUs"
            return f"Its node is Ready and {shows if it.gpus_shown < it.gpus else f'has the taint {it.starts}'} so far."
        case Turn.SHORT:
            shows = f"shows {it.gpus_shown} of {it.gpus} GPUs"
            return f"Its node {shows if it.gpus_shown < it.gpus else f'still has the taint {it.starts}'}."
        case Turn.NEVER_JOINED:
            return f"It was woken at {told(why.at)} and never joined."
        case Turn.DARK:
            return f"Its power is {'off' if it.power_is == 'Off' else 'going off'}, and its node has not noticed yet."
        case Turn.PUT_BACK:
            return f"It {_failing(it)}, so it is sent to sleep again."
    return _failure(why) if why.state == "Failed" else f"It stays on: {_staying(pool, why)}."


def _failure(why: News) -> str:
    said = why.text or "the call failed"
    match why.cause:
        case Turn.WAKE_CALL_FAILED:
            return f"It could not be woken: {said}"
        case Turn.SLEEP_CALL_FAILED:
            return f"It could not be sent to sleep: {said}"
        case Turn.NOT_READY_IN_TIME:
            return f"It was woken at {told(why.at)} and was not Ready {why.count} s later."
    return f"It was told to sleep at {told(why.at)} and its power is still on."


def _failing(it: Member) -> str:
    return "never joined" if it.cause == "NeverJoined" else "did not go off"


def _staying(pool: Pool, why: News) -> str:
    match why.cause:
        case Turn.PODS_FIT:
            return f"{'1 pod that waits fits' if why.count == 1 else f'{why.count} pods that wait fit'} on it"
        case Turn.MUST_BE_ON:
            return f"{of_machines(why.count)} must be on now"
        case Turn.WARM:
            return least_on(pool).why
        case Turn.SLEEP_CALL_FAILED:
            return f"it could not be sent to sleep: {why.text or 'the call failed'}"
        case Turn.STILL_READY:
            return f"it was told to sleep at {told(why.at)} and is still Ready"
    return _KEPT[why.cause]

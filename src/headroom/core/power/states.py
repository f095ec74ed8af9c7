"""What each machine is doing, by its node, its power, and what it was last told. What is observed wins over what is remembered."""

from __future__ import annotations

from typing import Final

from headroom.api.power_status import Cause
from headroom.core.power.members import Cordon, PoolMachine
from headroom.core.power.news import MachineTransition, TransitionReason
from headroom.model import times

HEARTBEAT_MS: Final = 5 * times.MINUTE
"""For so long a node may call itself ready that is off, and for so long one that is not may still come back by itself."""
BACK_AFTER_MS: Final = 30 * times.SECOND
"""A node that became ready so long after its machine was sent to sleep was off in between; nearer than that, clocks may differ."""
FIRST_CALL_PAUSE_MS: Final = 30 * times.SECOND
LONGEST_CALL_PAUSE_MS: Final = times.HOUR
LONGEST_BOOT_PAUSE_MS: Final = 24 * times.HOUR
ABORT_MS: Final = 5 * times.MINUTE
"""A machine that is not empty so long after it was cordoned is uncordoned."""
UNTAKEN_MS: Final = 60 * times.SECOND
"""A machine whose power is still off so long after its wake command has missed it; then twice as long, and so on."""
UNSEEN: Final = 5
UNSEEN_MS: Final = 5 * times.MINUTE
"""So many times minOffSeconds, up to so long, a machine rests of which nobody can say whether it is off: shutting down takes minutes."""
NEW_MS: Final = 60 * times.SECOND
"""For so long a machine that has come counts as coming, and one that was kept on as kept: those it is for are about to be bound to it."""
MOST_DOUBLINGS: Final = 20


def observe(machine: PoolMachine, now: int, boot_ms: int) -> None:
    """Say what a machine is doing now."""
    if machine.is_up:
        _observe_up(machine, now, boot_ms)
    elif machine.was == "Booting":
        _observe_booting(machine, now, boot_ms)
    elif machine.was == "Sleeping":
        _observe_going_down(machine, now, boot_ms)
    elif machine.was == "Failed":
        _observe_failed(machine, now, boot_ms)
    else:
        _observe_down(machine, now, boot_ms)


def doubled(first: int, times_failed: int, longest: int) -> int:
    """A pause that doubles with each failure."""
    return min(longest, first << min(max(times_failed, 0), MOST_DOUBLINGS))


def call_pause(failures: int) -> int:
    """The back-off after N failed calls."""
    return doubled(FIRST_CALL_PAUSE_MS, failures - 1, LONGEST_CALL_PAUSE_MS)


def boot_pause(failures: int, boot_ms: int) -> int:
    """After a machine that did not do what it was told in time; the first time it may be told again at once."""
    return 0 if failures <= 1 else doubled(boot_ms, failures - 2, LONGEST_BOOT_PAUSE_MS)


def rests_until(machine: PoolMachine, min_off_ms: int) -> int:
    """Before when a machine that was sent to sleep is not woken: a wake would be lost on one that is still shutting down."""
    if machine.slept_at is None:
        return 0
    return machine.slept_at + (min_off_ms if machine.power_is else max(min_off_ms, min(UNSEEN * min_off_ms, UNSEEN_MS)))


def resends_at(machine: PoolMachine) -> int:
    """When the wake of a machine that is still off is sent again: the pauses double."""
    sent = machine.woken_at if machine.woken_at is not None else machine.since
    return sent + max(UNTAKEN_MS, 2 * ((machine.resent_at or sent) - sent))


def resend(machine: PoolMachine, now: int) -> None:
    """Its wake is sent again, with the same key."""
    machine.resent_at = now
    machine.tell(TransitionReason.UNTAKEN)


def give_up(machine: PoolMachine, now: int) -> None:
    """It did not hear its wake, and nobody needs it any more."""
    machine.put_off(now, call_pause(machine.failures + 1))
    _turn(machine, now, machine.new("Off", TransitionReason.GIVEN_UP, at=machine.woken_at))


def is_joining(machine: PoolMachine, now: int, boot_ms: int) -> bool:
    """Whether somebody switched it on and its node will most likely come."""
    return (
        machine.state == "Unknown"
        and not machine.is_up
        and machine.power_is == "On"
        and may_still_join_until(machine, boot_ms) > now
    )


def is_awaited(machine: PoolMachine, now: int, boot_ms: int) -> bool:
    """Whether a machine is on its way, or those for whom it has just come or was kept are about to be bound to it."""
    if machine.state == "On":
        return now - machine.since < NEW_MS or now - (machine.woken_at or 0) < boot_ms
    return machine.state == "Booting" or is_joining(machine, now, boot_ms)


def may_still_join_until(machine: PoolMachine, boot_ms: int) -> int:
    """Before when nobody should try to wake a machine of which too little is known."""
    if machine.power_is == "On":
        since = machine.power.since if machine.power is not None and machine.power.since is not None else machine.since
        return since + boot_ms
    unready = machine.node.unready_since if machine.node is not None else None
    return (machine.since if unready is None else unready) + HEARTBEAT_MS


# --- its node is ready ----------------------------------------------------------------------------------------------------------


def _observe_up(machine: PoolMachine, now: int, boot_ms: int) -> None:
    if _is_dark(machine, now):
        if machine.was != "Sleeping":
            _unknown(machine, now, TransitionReason.DARK)
    elif machine.was == "Sleeping":
        _observe_still_up(machine, now, boot_ms)
    elif machine.was == "Draining":
        _observe_draining(machine, now)
    elif machine.was == "Booting" and _is_short(machine) and now < (machine.woken_at or machine.since) + boot_ms:
        machine.become("Booting", now, machine.new("Booting", TransitionReason.STARTING))
    else:
        _on(machine, now, boot_ms)


def _is_dark(machine: PoolMachine, now: int) -> bool:
    """Its power went off after its node became ready: only the heartbeat is late. A node that goes on for long is on."""
    if (
        machine.power is None
        or machine.power.power not in ("Off", "PoweringOff")
        or machine.power.since is None
        or machine.node is None
    ):
        return False
    # Within the second in which the node became ready, of which only the second is known, its power was still on its way.
    return (
        machine.power.since >= (machine.node.ready_since or 0) + times.SECOND
        and now - machine.power.since < HEARTBEAT_MS
    )


def _observe_still_up(machine: PoolMachine, now: int, boot_ms: int) -> None:
    sent = machine.slept_at if machine.slept_at is not None else machine.since
    call = machine.failed_call("Sleep", sent)
    ready_since = machine.node.ready_since if machine.node is not None else None
    if call is not None:
        machine.put_off(now, call_pause(machine.failures + 1))
        stay_on(machine, now, TransitionReason.SLEEP_CALL_FAILED, text=call.message)
    elif ready_since is not None and ready_since >= sent + BACK_AFTER_MS:
        machine.retry_after = None
        machine.become("On", now)
        machine.tell(TransitionReason.BACK_BY_OTHERS)
    elif now - sent >= boot_ms:
        machine.put_off(now, max(times.MINUTE, boot_pause(machine.failures + 1, boot_ms)))
        stay_on(machine, now, TransitionReason.STILL_READY, at=sent)


def _observe_draining(machine: PoolMachine, now: int) -> None:
    if machine.cordon is Cordon.LIFTED:
        machine.retry_after = now + ABORT_MS
        stay_on(machine, now, TransitionReason.UNCORDONED)
    elif machine.cordon is Cordon.FOREIGN:
        stay_on(machine, now, TransitionReason.CORDONED)
    elif machine.cordon is Cordon.OURS and machine.cause == "Cordoning":
        # Settling begins only now that no new pod can come.
        machine.since = now
        machine.become("Draining", now)


def stay_on(
    machine: PoolMachine, now: int, why: TransitionReason, *, at: int | None = None, count: int = 0, text: str = ""
) -> None:
    """Do not let it sleep after all."""
    _turn(machine, now, machine.new("On", why, at=at, count=count, text=text), "Kept")


def _turn(machine: PoolMachine, now: int, why: MachineTransition, cause: Cause = "") -> None:
    """Become something, and tell so."""
    machine.become(why.state, now, why, cause)
    machine.news.append(why)


def was_kept(machine: PoolMachine, now: int) -> bool:
    """Whether it was kept from going to sleep a moment ago."""
    return machine.state == machine.was == "On" and machine.cause == "Kept" and now - machine.since < NEW_MS


def _on(machine: PoolMachine, now: int, boot_ms: int) -> None:
    was, short = machine.was, machine.new("On", TransitionReason.SHORT) if _is_short(machine) else None
    if was == "On":
        # Why it did not go to sleep is worth knowing until it is tried again.
        is_tried_later = machine.retry_after is not None and machine.retry_after > now
        if short or not (is_tried_later or was_kept(machine, now)):
            machine.become("On", now, short)
        return
    woken = machine.woken_at
    machine.become("On", now, short)
    if was is None:
        machine.since = (
            min(now, machine.node.ready_since)
            if machine.node is not None and machine.node.ready_since is not None
            else now
        )
        return
    if short and was == "Booting":
        machine.put_off(now, boot_pause(machine.failures + 1, boot_ms))
        machine.news.append(short)
        return
    machine.failures, machine.retry_after = 0, None
    if was == "Booting" and woken is not None:
        machine.tell(TransitionReason.JOINED, count=max(0, now - woken) // times.SECOND)
    elif was in ("Failed", "Unknown"):
        machine.tell(TransitionReason.AFTER_ALL)
    else:
        machine.tell(TransitionReason.WOKEN_BY_OTHERS)


def _is_short(machine: PoolMachine) -> bool:
    """Whether its node shows too few GPUs, or what runs on every node has not started there."""
    return machine.gpus_shown < machine.gpus or bool(machine.starts)


# --- its node is not ready, or not there ----------------------------------------------------------------------------------------


def _observe_booting(machine: PoolMachine, now: int, boot_ms: int) -> None:
    sent = machine.woken_at if machine.woken_at is not None else machine.since
    call = machine.failed_call("Wake", sent)
    if call is not None:
        machine.put_off(now, call_pause(machine.failures + 1))
        _turn(machine, now, machine.new("Failed", TransitionReason.WAKE_CALL_FAILED, text=call.message))
    elif now - sent >= boot_ms:
        machine.put_off(now, boot_pause(machine.failures + 1, boot_ms))
        late = machine.new("Failed", TransitionReason.NOT_READY_IN_TIME, at=sent, count=boot_ms // times.SECOND)
        _turn(machine, now, late, "NeverJoined")
    elif machine.power_is == "Off" and now >= resends_at(machine):
        machine.is_untaken = True
        if machine.resent_at is not None:
            machine.failures = max(1, machine.failures)  # whoever it was for may pass on


def _observe_going_down(machine: PoolMachine, now: int, boot_ms: int) -> None:
    sent = machine.slept_at if machine.slept_at is not None else machine.since
    call = machine.failed_call("Sleep", sent)
    if machine.power_is not in ("On", "PoweringOff"):
        _off(machine, now)
    elif call is not None:
        machine.put_off(now, call_pause(machine.failures + 1))
        _turn(machine, now, machine.new("Failed", TransitionReason.SLEEP_CALL_FAILED, text=call.message), machine.cause)
    elif now - sent >= boot_ms:
        machine.put_off(now, boot_pause(machine.failures + 1, boot_ms))
        _turn(machine, now, machine.new("Failed", TransitionReason.STILL_ON, at=sent), machine.cause)


def _observe_failed(machine: PoolMachine, now: int, boot_ms: int) -> None:
    is_to_sleep = (machine.slept_at or 0) > (machine.woken_at or 0)
    if machine.power_is == "Off" and (is_to_sleep or machine.cause == "NeverJoined"):
        # Late, but it did what it was told; or it never came on, or somebody has switched it off.
        _off(machine, now)
    elif (
        machine.power_is == "On" and not machine.cause and (is_to_sleep or now - (machine.woken_at or 0) < 2 * boot_ms)
    ):
        # Whatever became of the call: it draws power, and nobody can use it. One that comes on much later somebody else has switched on.
        machine.cause = "StillOn" if is_to_sleep else "NeverJoined"


def _observe_down(machine: PoolMachine, now: int, boot_ms: int) -> None:
    if machine.power_is == "Off":
        _off(machine, now)
    elif machine.power_is == "On":
        _unknown(machine, now, TransitionReason.ON_NOT_READY)
    elif machine.power_is == "PoweringOff":
        if machine.slept_at is not None and now - machine.slept_at < boot_ms:
            machine.become("Sleeping", now, machine.new("Sleeping", TransitionReason.SHUTTING_DOWN))
        else:
            _unknown(machine, now, TransitionReason.SHUTTING_DOWN)
    elif machine.node is None or machine.was == "Off":
        _off(machine, now)
    else:
        _unknown(machine, now, TransitionReason.NOT_READY)


def _off(machine: PoolMachine, now: int) -> None:
    was, has_joined = machine.was, machine.cause != "NeverJoined"
    machine.become(
        "Off", now, None if has_joined else machine.new("Off", TransitionReason.NEVER_JOINED, at=machine.woken_at)
    )
    if was is None:
        machine.since = _went_off(machine, now)
    elif was in ("Sleeping", "Failed"):
        if has_joined and (machine.node is None or not _is_short(machine)):
            # What it was last told it did; only one that came up short would do so again.
            machine.failures, machine.retry_after = 0, None
        machine.tell(TransitionReason.WENT_OFF)
    elif was != "Off":
        machine.tell(TransitionReason.OFF_BY_OTHERS)


def _went_off(machine: PoolMachine, now: int) -> int:
    """As well as it can be known at first sight."""
    seen = machine.power.since if machine.power is not None and machine.power_is == "Off" else None
    if seen is None and machine.node is not None:
        seen = machine.node.unready_since
    return now if seen is None else min(now, seen)


def _unknown(machine: PoolMachine, now: int, why: TransitionReason) -> None:
    is_new, found = machine.was not in (None, "Unknown"), machine.new("Unknown", why)
    machine.become("Unknown", now, found)
    if is_new:
        machine.news.append(found)

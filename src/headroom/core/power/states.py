"""What each machine is doing, by its node, its power, and what it was last told. What is observed wins over what is remembered."""

from __future__ import annotations

from typing import Final

from headroom.api.power_status import Cause
from headroom.core.power.members import Cordon, Member
from headroom.core.power.news import News, Turn
from headroom.model import times

HEARTBEAT_MS: Final = 5 * times.MINUTE
"""For so long a node may call itself ready that is off, and for so long one that is not may still come back by itself."""
BACK_AFTER_MS: Final = 30 * times.SECOND
"""A node that became ready so long after its machine was sent to sleep was off in between; nearer than that, clocks may differ."""
FIRST_CALL_PAUSE_MS: Final = 30 * times.SECOND
LONGEST_CALL_PAUSE_MS: Final = times.HOUR
LONGEST_BOOT_PAUSE_MS: Final = 24 * times.HOUR
ABORT_MS: Final = 5 * times.MINUTE
"""A machine that is not empty so long after it was cordoned is let go again."""
UNTAKEN_MS: Final = 60 * times.SECOND
"""A machine whose power is still off so long after it was told to wake has not heard it; then twice as long, and so on."""
UNSEEN: Final = 5
UNSEEN_MS: Final = 5 * times.MINUTE
"""So many times minOffSeconds, up to so long, a machine rests of which nobody can say whether it is off: shutting down takes minutes."""
NEW_MS: Final = 60 * times.SECOND
"""For so long a machine that has come counts as coming, and one that was kept on as kept: those it is for are about to be bound to it."""
MOST_DOUBLINGS: Final = 20


def observe(it: Member, now: int, boot_ms: int) -> None:
    """Say what a machine is doing now."""
    if it.is_up:
        _observe_up(it, now, boot_ms)
    elif it.was == "Booting":
        _observe_booting(it, now, boot_ms)
    elif it.was == "Sleeping":
        _observe_going_down(it, now, boot_ms)
    elif it.was == "Failed":
        _observe_failed(it, now, boot_ms)
    else:
        _observe_down(it, now, boot_ms)


def doubled(first: int, times_failed: int, longest: int) -> int:
    """A pause that doubles with each failure."""
    return min(longest, first << min(max(times_failed, 0), MOST_DOUBLINGS))


def call_pause(failures: int) -> int:
    """After a call that was not accepted, for the so-manieth time."""
    return doubled(FIRST_CALL_PAUSE_MS, failures - 1, LONGEST_CALL_PAUSE_MS)


def boot_pause(failures: int, boot_ms: int) -> int:
    """After a machine that did not do what it was told in time; the first time it may be told again at once."""
    return 0 if failures <= 1 else doubled(boot_ms, failures - 2, LONGEST_BOOT_PAUSE_MS)


def rests_until(it: Member, min_off_ms: int) -> int:
    """Before when a machine that was sent to sleep is not woken: a wake would be lost on one that is still shutting down."""
    if it.slept_at is None:
        return 0
    return it.slept_at + (min_off_ms if it.power_is else max(min_off_ms, min(UNSEEN * min_off_ms, UNSEEN_MS)))


def resends_at(it: Member) -> int:
    """When the wake of a machine that is still off is sent again: the pauses double."""
    sent = it.woken_at if it.woken_at is not None else it.since
    return sent + max(UNTAKEN_MS, 2 * ((it.resent_at or sent) - sent))


def resend(it: Member, now: int) -> None:
    """Its wake is sent again, with the same key."""
    it.resent_at = now
    it.tell(Turn.UNTAKEN)


def give_up(it: Member, now: int) -> None:
    """It did not hear its wake, and nobody needs it any more."""
    it.put_off(now, call_pause(it.failures + 1))
    _turn(it, now, it.new("Off", Turn.GIVEN_UP, at=it.woken_at))


def is_joining(it: Member, now: int, boot_ms: int) -> bool:
    """Whether somebody switched it on and its node will most likely come."""
    return it.state == "Unknown" and not it.is_up and it.power_is == "On" and may_still_join_until(it, boot_ms) > now


def is_awaited(it: Member, now: int, boot_ms: int) -> bool:
    """Whether a machine is on its way, or those for whom it has just come or was kept are about to be bound to it."""
    if it.state == "On":
        return now - it.since < NEW_MS or now - (it.woken_at or 0) < boot_ms
    return it.state == "Booting" or is_joining(it, now, boot_ms)


def may_still_join_until(it: Member, boot_ms: int) -> int:
    """Before when nobody should try to wake a machine of which too little is known."""
    if it.power_is == "On":
        since = it.power.since if it.power is not None and it.power.since is not None else it.since
        return since + boot_ms
    unready = it.node.unready_since if it.node is not None else None
    return (it.since if unready is None else unready) + HEARTBEAT_MS


# --- its node is ready ----------------------------------------------------------------------------------------------------------


def _observe_up(it: Member, now: int, boot_ms: int) -> None:
    if _is_dark(it, now):
        if it.was != "Sleeping":
            _unknown(it, now, Turn.DARK)
    elif it.was == "Sleeping":
        _observe_still_up(it, now, boot_ms)
    elif it.was == "Draining":
        _observe_draining(it, now)
    elif it.was == "Booting" and _is_short(it) and now < (it.woken_at or it.since) + boot_ms:
        it.become("Booting", now, it.new("Booting", Turn.STARTING))
    else:
        _on(it, now, boot_ms)


def _is_dark(it: Member, now: int) -> bool:
    """Its power went off after its node became ready: only the heartbeat is late. A node that goes on for long is on."""
    if it.power is None or it.power.power not in ("Off", "PoweringOff") or it.power.since is None or it.node is None:
        return False
    # Within the second in which the node became ready, of which only the second is known, its power was still on its way.
    return it.power.since >= (it.node.ready_since or 0) + times.SECOND and now - it.power.since < HEARTBEAT_MS


def _observe_still_up(it: Member, now: int, boot_ms: int) -> None:
    sent = it.slept_at if it.slept_at is not None else it.since
    call = it.failed_call("Sleep", sent)
    ready_since = it.node.ready_since if it.node is not None else None
    if call is not None:
        it.put_off(now, call_pause(it.failures + 1))
        stay_on(it, now, Turn.SLEEP_CALL_FAILED, text=call.message)
    elif ready_since is not None and ready_since >= sent + BACK_AFTER_MS:
        it.retry_after = None
        it.become("On", now)
        it.tell(Turn.BACK_BY_OTHERS)
    elif now - sent >= boot_ms:
        it.put_off(now, max(times.MINUTE, boot_pause(it.failures + 1, boot_ms)))
        stay_on(it, now, Turn.STILL_READY, at=sent)


def _observe_draining(it: Member, now: int) -> None:
    if it.cordon is Cordon.LIFTED:
        it.retry_after = now + ABORT_MS
        stay_on(it, now, Turn.UNCORDONED)
    elif it.cordon is Cordon.FOREIGN:
        stay_on(it, now, Turn.CORDONED)
    elif it.cordon is Cordon.OURS and it.cause == "Cordoning":
        # Settling begins only now that no new pod can come.
        it.since = now
        it.become("Draining", now)


def stay_on(it: Member, now: int, why: Turn, *, at: int | None = None, count: int = 0, text: str = "") -> None:
    """Do not let it sleep after all."""
    _turn(it, now, it.new("On", why, at=at, count=count, text=text), "Kept")


def _turn(it: Member, now: int, why: News, cause: Cause = "") -> None:
    """Become something, and tell so."""
    it.become(why.state, now, why, cause)
    it.news.append(why)


def was_kept(it: Member, now: int) -> bool:
    """Whether it was kept from going to sleep a moment ago."""
    return it.state == it.was == "On" and it.cause == "Kept" and now - it.since < NEW_MS


def _on(it: Member, now: int, boot_ms: int) -> None:
    was, short = it.was, it.new("On", Turn.SHORT) if _is_short(it) else None
    if was == "On":
        # Why it did not go to sleep is worth knowing until it is tried again.
        is_tried_later = it.retry_after is not None and it.retry_after > now
        if short or not (is_tried_later or was_kept(it, now)):
            it.become("On", now, short)
        return
    woken = it.woken_at
    it.become("On", now, short)
    if was is None:
        it.since = min(now, it.node.ready_since) if it.node is not None and it.node.ready_since is not None else now
        return
    if short and was == "Booting":
        it.put_off(now, boot_pause(it.failures + 1, boot_ms))
        it.news.append(short)
        return
    it.failures, it.retry_after = 0, None
    if was == "Booting" and woken is not None:
        it.tell(Turn.JOINED, count=max(0, now - woken) // times.SECOND)
    elif was in ("Failed", "Unknown"):
        it.tell(Turn.AFTER_ALL)
    else:
        it.tell(Turn.WOKEN_BY_OTHERS)


def _is_short(it: Member) -> bool:
    """Whether its node shows too few GPUs, or what runs on every node has not started there."""
    return it.gpus_shown < it.gpus or bool(it.starts)


# --- its node is not ready, or not there ----------------------------------------------------------------------------------------


def _observe_booting(it: Member, now: int, boot_ms: int) -> None:
    sent = it.woken_at if it.woken_at is not None else it.since
    call = it.failed_call("Wake", sent)
    if call is not None:
        it.put_off(now, call_pause(it.failures + 1))
        _turn(it, now, it.new("Failed", Turn.WAKE_CALL_FAILED, text=call.message))
    elif now - sent >= boot_ms:
        it.put_off(now, boot_pause(it.failures + 1, boot_ms))
        late = it.new("Failed", Turn.NOT_READY_IN_TIME, at=sent, count=boot_ms // times.SECOND)
        _turn(it, now, late, "NeverJoined")
    elif it.power_is == "Off" and now >= resends_at(it):
        it.is_untaken = True
        if it.resent_at is not None:
            it.failures = max(1, it.failures)  # whoever it was for may pass on


def _observe_going_down(it: Member, now: int, boot_ms: int) -> None:
    sent = it.slept_at if it.slept_at is not None else it.since
    call = it.failed_call("Sleep", sent)
    if it.power_is not in ("On", "PoweringOff"):
        _off(it, now)
    elif call is not None:
        it.put_off(now, call_pause(it.failures + 1))
        _turn(it, now, it.new("Failed", Turn.SLEEP_CALL_FAILED, text=call.message), it.cause)
    elif now - sent >= boot_ms:
        it.put_off(now, boot_pause(it.failures + 1, boot_ms))
        _turn(it, now, it.new("Failed", Turn.STILL_ON, at=sent), it.cause)


def _observe_failed(it: Member, now: int, boot_ms: int) -> None:
    is_to_sleep = (it.slept_at or 0) > (it.woken_at or 0)
    if it.power_is == "Off" and (is_to_sleep or it.cause == "NeverJoined"):
        # Late, but it did what it was told; or it never came on, or somebody has switched it off.
        _off(it, now)
    elif it.power_is == "On" and not it.cause and (is_to_sleep or now - (it.woken_at or 0) < 2 * boot_ms):
        # Whatever became of the call: it draws power, and nobody can use it. One that comes on much later somebody else has switched on.
        it.cause = "StillOn" if is_to_sleep else "NeverJoined"


def _observe_down(it: Member, now: int, boot_ms: int) -> None:
    if it.power_is == "Off":
        _off(it, now)
    elif it.power_is == "On":
        _unknown(it, now, Turn.ON_NOT_READY)
    elif it.power_is == "PoweringOff":
        if it.slept_at is not None and now - it.slept_at < boot_ms:
            it.become("Sleeping", now, it.new("Sleeping", Turn.SHUTTING_DOWN))
        else:
            _unknown(it, now, Turn.SHUTTING_DOWN)
    elif it.node is None or it.was == "Off":
        _off(it, now)
    else:
        _unknown(it, now, Turn.NOT_READY)


def _off(it: Member, now: int) -> None:
    was, has_joined = it.was, it.cause != "NeverJoined"
    it.become("Off", now, None if has_joined else it.new("Off", Turn.NEVER_JOINED, at=it.woken_at))
    if was is None:
        it.since = _went_off(it, now)
    elif was in ("Sleeping", "Failed"):
        if has_joined and (it.node is None or not _is_short(it)):
            # What it was last told it did; only one that came up short would do so again.
            it.failures, it.retry_after = 0, None
        it.tell(Turn.WENT_OFF)
    elif was != "Off":
        it.tell(Turn.OFF_BY_OTHERS)


def _went_off(it: Member, now: int) -> int:
    """As well as it can be known at first sight."""
    seen = it.power.since if it.power is not None and it.power_is == "Off" else None
    if seen is None and it.node is not None:
        seen = it.node.unready_since
    return now if seen is None else min(now, seen)


def _unknown(it: Member, now: int, why: Turn) -> None:
    is_new, found = it.was not in (None, "Unknown"), it.new("Unknown", why)
    it.become("Unknown", now, found)
    if is_new:
        it.news.append(found)

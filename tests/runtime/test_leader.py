"""Leader election: one at a time, by the monotonic clock, and never past the lease."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.model.errors import Unavailable
from headroom.model.pace import Pace
from headroom.model.ports import Lease, LeaseTaken
from headroom.runtime.leader import MARGIN_SECONDS, Leader
from tests.adapters.simulated import virtual
from tests.runtime.fakes import HandClock

LEASE_SECONDS = Pace().lease_seconds


class OneLease:
    """A lease in memory."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.writes = 0
        self.is_down = False

    async def read(self) -> Lease | None:
        if self.is_down:
            raise Unavailable("reading the lease: no answer")
        return self.lease

    async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
        if self.is_down:
            raise Unavailable("writing the lease: no answer")
        if (before.version if before else "") != (self.lease.version if self.lease else ""):
            raise LeaseTaken
        self.writes += 1
        self.lease = Lease(
            holder=holder,
            duration_seconds=duration_seconds,
            renewals=str(self.writes),
            transitions=0,
            version=str(self.writes),
        )
        return self.lease


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def candidates(clock: HandClock, lease: OneLease, count: int = 2) -> list[Leader]:
    return [Leader(lease, clock, f"op-{index}", random.Random(index)) for index in range(count)]


async def test_the_first_leads_and_the_second_waits(clock: HandClock) -> None:
    first, second = candidates(clock, OneLease())
    await first.attempt()
    await second.attempt()

    assert (first.may_act(), second.may_act()) == (True, False)


async def test_the_right_to_act_ends_before_the_lease_does(clock: HandClock) -> None:
    lease = OneLease()
    first, _ = candidates(clock, lease)
    await first.attempt()
    clock.seconds += LEASE_SECONDS - MARGIN_SECONDS

    assert not first.may_act()


async def test_a_killed_leader_is_followed_after_the_duration_and_not_before(clock: HandClock) -> None:
    lease = OneLease()
    first, second = candidates(clock, lease)
    await first.attempt()
    waited = 0
    await second.attempt()
    while not second.may_act():
        clock.seconds += 1
        waited += 1
        await second.attempt()

    assert not first.may_act()
    assert LEASE_SECONDS <= waited <= LEASE_SECONDS + 1


async def test_a_released_lease_is_taken_at_once(clock: HandClock) -> None:
    first, second = candidates(clock, OneLease())
    await first.attempt()
    await second.attempt()
    await first.release()
    await second.attempt()

    assert (first.may_act(), second.may_act()) == (False, True)


async def test_a_release_waits_for_a_renewal_that_is_under_way(clock: HandClock) -> None:
    """Else it would write on top of a version that the renewal has just replaced, and the next leader would have to wait."""

    class Hesitant(OneLease):
        async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
            done = await super().write(holder, duration_seconds, before)
            await asyncio.sleep(0.01)  # the effect is there, the reply is on its way
            return done

    lease = Hesitant()
    first, second = candidates(clock, lease)
    await first.attempt()
    renewing = asyncio.create_task(first.attempt())
    await asyncio.sleep(0)
    await first.release()
    await renewing

    assert lease.lease is not None
    assert lease.lease.holder == ""
    await second.attempt()
    assert second.may_act()


async def test_a_leader_whose_lease_was_taken_stops_at_once(clock: HandClock) -> None:
    lease = OneLease()
    first, _ = candidates(clock, lease)
    await first.attempt()
    await lease.write("thief", LEASE_SECONDS, lease.lease)
    with pytest.raises(LeaseTaken):
        await first.attempt()

    assert not first.may_act()
    await first.attempt()
    assert not first.may_act()


async def test_a_renewal_counts_from_before_it_was_sent(clock: HandClock) -> None:
    """A slow API server must not stretch the right to act."""
    lease = OneLease()
    _first, _ = candidates(clock, lease)

    class Slow(OneLease):
        async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
            clock.seconds += 3
            return await super().write(holder, duration_seconds, before)

    slow = Leader(Slow(), clock, "slow", random.Random(0))
    await slow.attempt()
    clock.seconds += LEASE_SECONDS - MARGIN_SECONDS - 3

    assert not slow.may_act()


steps = st.lists(st.tuples(st.sampled_from(["0", "1", "down", "up"]), st.floats(0.1, 9.0)), max_size=60)


@given(steps)
async def test_two_never_may_act_at_once(schedule: list[tuple[str, float]]) -> None:
    """Whatever the order of attempts, pauses and outages."""
    clock, lease = HandClock(), OneLease()
    both = candidates(clock, lease)
    for who, pause in schedule:
        if who in ("down", "up"):
            lease.is_down = who == "down"
        else:
            with contextlib.suppress(LeaseTaken, Unavailable):
                await both[int(who)].attempt()
        assert sum(each.may_act() for each in both) <= 1
        clock.seconds += pause
        assert sum(each.may_act() for each in both) <= 1


class Odd(OneLease):
    """Takes what is written and answers with somebody else's lease."""

    answer: Lease | None = None

    async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
        written = await super().write(holder, duration_seconds, before)
        return self.answer or written


async def test_who_is_answered_that_another_holds_the_lease_does_not_lead(clock: HandClock) -> None:
    lease = Odd()
    lease.answer = Lease(holder="op-9", duration_seconds=15, renewals="", transitions=0, version="9")
    (leader,) = candidates(clock, lease, 1)
    with pytest.raises(LeaseTaken, match="op-9 holds it"):
        await leader.attempt()
    assert not leader.may_act()


class Stopping(HandClock):
    """Lets nobody sleep more than once."""

    async def sleep(self, seconds: float) -> None:
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer within 4s"),
        (LeaseTaken(), "LeaseTaken"),
        (Unavailable("reading the lease: it broke"), "reading the lease: it broke"),
    ],
    ids=["timeout", "taken", "broken"],
)
async def test_every_failure_has_a_reason(error: Exception, words: str) -> None:
    class Failing(OneLease):
        async def read(self) -> Lease | None:
            raise error

    (leader,) = candidates(Stopping(), Failing(), 1)
    with pytest.raises(asyncio.CancelledError):
        await leader.run()
    assert leader.problem == f"holding the lease: {words}"
    leader._act_until = 1.0
    await leader.release()
    assert leader.problem == f"releasing the lease: {words}"


@virtual
async def test_a_server_that_takes_three_seconds_to_answer_has_a_leader(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(OneLease):
        async def read(self) -> Lease | None:
            await asyncio.sleep(3)
            return await super().read()

        async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
            await asyncio.sleep(3)
            return await super().write(holder, duration_seconds, before)

    (leader,) = candidates(clock, Slow(), 1)
    await leader.attempt()
    assert leader.may_act()
    monkeypatch.setattr("headroom.runtime.leader.REQUEST_SECONDS", 1)
    with pytest.raises(TimeoutError):
        await leader.attempt()

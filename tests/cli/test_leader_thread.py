"""The lease is held in a thread of its own: a main thread that is busy does not lose it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from headroom.model.ports import Lease, Leases
from headroom.runtime.clock import RealClock
from headroom.runtime.leader_thread import LeaderThread
from tests.processes import PATIENCE_SECONDS


class Memory:
    """One lease in memory."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.writes = 0
        self.closed = False

    async def read(self) -> Lease | None:
        return self.lease

    async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
        assert before == self.lease
        self.writes += 1
        version = str(self.writes)
        self.lease = Lease(
            holder=holder, duration_seconds=duration_seconds, renewals=version, transitions=0, version=version
        )
        return self.lease

    async def close(self) -> None:
        self.closed = True

    def connect(self) -> tuple[Leases, Callable[[], Awaitable[None]]]:
        return self, self.close


def wait(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_it_leads_while_the_main_thread_is_busy_and_gives_the_lease_back() -> None:
    memory, failures = Memory(), list[BaseException]()
    leader = LeaderThread(memory.connect, RealClock(), "me", failures.append)
    assert not leader.may_act()
    leader.start()
    # Not one turn of this event loop until the lease has been renewed.
    wait(lambda: memory.writes >= 2)
    assert leader.may_act()
    await leader.stop()
    assert not leader.may_act()
    assert memory.lease is not None
    assert (memory.lease.holder, memory.closed, failures) == ("", True, [])


async def test_a_failure_is_heard_in_the_other_thread() -> None:
    heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def connect() -> tuple[Leases, Callable[[], Awaitable[None]]]:
        raise RuntimeError("no connection")

    def failed(error: BaseException) -> None:
        loop.call_soon_threadsafe(heard.set_result, error)

    leader = LeaderThread(connect, RealClock(), "me", failed)
    leader.start()
    with pytest.raises(RuntimeError, match="no connection"):
        raise await asyncio.wait_for(heard, PATIENCE_SECONDS)
    assert not leader.may_act()
    await leader.stop()


async def test_stopping_what_never_led_is_quick() -> None:
    memory = Memory()
    memory.lease = Lease(holder="another", duration_seconds=600, renewals="x", transitions=0, version="x")
    leader = LeaderThread(memory.connect, RealClock(), "me", lambda _: None)
    leader.start()
    began = time.monotonic()
    await leader.stop()
    assert time.monotonic() - began < memory.lease.duration_seconds
    assert (memory.writes, memory.lease.holder) == (0, "another")

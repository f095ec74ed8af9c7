"""Leader election in a thread of its own, with its own event loop and connection: a long tick must never cost us the lease."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from headroom.model.ports import Clock, Leases
from headroom.runtime.leader import REQUEST_SECONDS, Leader

STOP_SECONDS: Final = REQUEST_SECONDS + 2.0

Connect = Callable[[], tuple[Leases, Callable[[], Awaitable[None]]]]
"""Called inside the thread: the leases over a connection made there, and how to close it."""


class LeaderThread:
    """A gate that stays open while the lease is ours."""

    def __init__(
        self, connect: Connect, clock: Clock, identity: str, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._connect, self._clock, self._identity, self._on_failure = connect, clock, identity, on_failure
        self._leader: Leader | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._begun = threading.Event()
        # A daemon, so that a hanging request cannot keep the process alive; `stop` waits for it anyway.
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def start(self) -> None:
        """Begin to try to lead."""
        self._thread.start()
        self._begun.wait()

    def may_act(self) -> bool:
        """Whether an effect may begin now."""
        return self._leader is not None and self._leader.may_act()

    @property
    def problem(self) -> str:
        """Why the last attempt failed; empty after one that did not."""
        return self._leader.problem if self._leader else ""

    async def stop(self) -> None:
        """Stop acting, give the lease back, and wait for the thread to end."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._lead())
        except BaseException as error:  # noqa: BLE001  whoever waits in the other thread must hear of anything
            self._on_failure(error)
        finally:
            self._begun.set()

    async def _lead(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        leases, close = self._connect()
        # Not seeded: two replicas must not try at the same moments.
        self._leader = Leader(leases, self._clock, self._identity, random.Random())
        self._begun.set()
        trying = asyncio.create_task(self._leader.run())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((trying, stopping), return_when=asyncio.FIRST_COMPLETED)
            await self._leader.release()
            if trying.done():
                trying.result()
        finally:
            trying.cancel()
            stopping.cancel()
            await asyncio.gather(trying, stopping, return_exceptions=True)
            await close()

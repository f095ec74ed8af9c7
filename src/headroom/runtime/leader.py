"""Leader election on a Lease: who may act, judged by the monotonic clock alone.

Others' timestamps are never compared with our clock: a lease counts as abandoned when it has not changed for its duration as we
measured it. Our own right to act ends `MARGIN_SECONDS` before the lease could be taken over, counted from before the renewal was
sent, so an effect that has begun is over when somebody else begins. A lease is still no fence: every effect must also be safe to
repeat.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from headroom.model.errors import HeadroomError
from headroom.model.pace import Pace
from headroom.model.ports import Clock, Lease, Leases, LeaseTaken

LOOK_EVERY_SECONDS: Final = 1.0
REQUEST_SECONDS: Final = 4.0
MARGIN_SECONDS: Final = 5.0
_PACE: Final = Pace()


class Always:
    """The gate of a process that needs no election: a dry run's counterpart that may act at any time."""

    def may_act(self) -> bool:
        """Yes."""
        return True


class Never:
    """The gate of a dry run."""

    def may_act(self) -> bool:
        """No."""
        return False


class Leader:
    """One candidate for one lease."""

    def __init__(self, leases: Leases, clock: Clock, identity: str, rng: random.Random, pace: Pace = _PACE) -> None:
        self.identity = identity
        self.problem = ""
        """Why the last attempt failed; empty after one that did not."""
        self._leases, self._clock, self._rng, self._pace = leases, clock, rng, pace
        self._act_until = 0.0
        self._lease: Lease | None = None
        self._changed_at = 0.0
        self._stopping = False
        self._turn = asyncio.Lock()
        """A renewal and a release never cross: the later one would write on top of a version that is gone."""

    def may_act(self) -> bool:
        """Whether an effect may begin now."""
        return self._clock.monotonic() < self._act_until and not self._stopping

    async def run(self) -> None:
        """Try to lead, and stay leader, until `release`."""
        while not self._stopping:
            try:
                await self.attempt()
                self.problem = ""
            except (HeadroomError, LeaseTaken, TimeoutError) as error:
                self.problem = f"holding the lease: {_why(error)}"
            pause = self._pace.renew_seconds if self.may_act() else LOOK_EVERY_SECONDS
            await self._clock.sleep(pause * self._rng.uniform(0.8, 1.0))

    async def attempt(self) -> None:
        """Renew the lease, or take it if nobody has it."""
        async with self._turn:
            if not self._stopping:
                await self._attempt()

    async def _attempt(self) -> None:
        if self._lease is None or self._lease.holder != self.identity:
            async with asyncio.timeout(REQUEST_SECONDS):
                found = await self._leases.read()
            self._observe(found)
            if self._is_held_by_another():
                return
        began = self._clock.monotonic()
        try:
            # A time limit of its own: behind a slow server nobody would lead if both had to be done in the same four seconds.
            async with asyncio.timeout(REQUEST_SECONDS):
                written = await self._leases.write(self.identity, self._pace.lease_seconds, self._lease)
            if written.holder != self.identity:
                raise LeaseTaken(f"the server answered that {written.holder or 'nobody'} holds it")
        except LeaseTaken:
            # Whoever wrote it may lead now. Look again before anything else is done.
            self._lease, self._act_until, self._changed_at = None, 0.0, began
            raise
        self._lease = written
        self._act_until = began + self._pace.lease_seconds - MARGIN_SECONDS

    def _observe(self, lease: Lease | None) -> None:
        before = self._lease
        if lease is None or before is None or before.version != lease.version:
            self._changed_at = self._clock.monotonic()
        self._lease = lease

    def _is_held_by_another(self) -> bool:
        lease = self._lease
        if lease is None or lease.holder in ("", self.identity):
            return False
        return self._clock.monotonic() - self._changed_at < lease.duration_seconds

    async def release(self) -> None:
        """Stop acting at once and let the next candidate in without waiting."""
        held = self._act_until > 0
        self._stopping, self._act_until = True, 0.0
        if not held:
            return
        try:
            async with asyncio.timeout(REQUEST_SECONDS), self._turn:
                # Read first: a renewal whose reply was lost has changed the version.
                lease = await self._leases.read()
                if lease is not None and lease.holder == self.identity:
                    await self._leases.write("", 1, lease)
        except (HeadroomError, LeaseTaken, TimeoutError) as error:
            self.problem = f"releasing the lease: {_why(error)}"


def _why(error: Exception) -> str:
    """Many errors, such as a timeout, have no text of their own."""
    if isinstance(error, TimeoutError):
        return f"no answer within {REQUEST_SECONDS:g}s"
    return str(error) or type(error).__name__

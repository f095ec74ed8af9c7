"""Fair shares: how often one tenant may ask, whose page is made next, and who may keep a live page open.

A tenant is a person, or all ServiceAccounts of one namespace: whoever may make one of those may make a hundred.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from typing import Final, TypeVar

from headroom.model.errors import Unavailable

BURST: Final = 100.0
PER_SECOND: Final = 10.0
"""Requests for data of one tenant, at once and in the long run; a browser that opens a page makes two."""
SEARCH_COST: Final = 5.0
"""A search is made for whoever asks; other pages are shared."""
MOST_TENANTS: Final = 4096
MOST_WAITING: Final = 32
"""Pages that one tenant may wait for; those of open streams included."""
_ACCOUNTS: Final = "system:serviceaccount:"

Key = TypeVar("Key", bound=Hashable)


def tenant_of(user: str) -> str:
    """Whose share a user of the API server takes."""
    if not user.startswith(_ACCOUNTS):
        return user
    return _ACCOUNTS + user.removeprefix(_ACCOUNTS).partition(":")[0]


class Allowance:
    """Asks of each tenant, refilled with time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each had left, and when; who came last stands last."""

    def take(self, tenant: str, cost: float = 1.0) -> float:
        """Take from a tenant's allowance. Returns 0.0, or how many seconds to wait if there is not enough left."""
        now = self._monotonic()
        left, at = self._left.pop(tenant, (BURST, now))
        left = min(BURST, left + (now - at) * PER_SECOND)
        enough = left >= cost
        self._left[tenant] = (left - cost if enough else left, now)
        while len(self._left) > MOST_TENANTS:
            self._left.popitem(last=False)
        return 0.0 if enough else (cost - left) / PER_SECOND


class Turns:
    """One at a time, the tenants in turn, whoever of them asks most; and a rest after each."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The tenant whose turn is next stands first."""
        self._is_taken = False

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[list[float]]:
        """Wait for one's turn; what is put into the list is how many seconds nobody has one after it."""
        await self._wait(tenant)
        rest: list[float] = []
        try:
            yield rest
        finally:
            asyncio.get_running_loop().call_later(sum(rest), self._next)

    async def _wait(self, tenant: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        queue = self._queues.setdefault(tenant, deque())
        if len(queue) >= MOST_WAITING:
            raise Unavailable("making a page: too many of your requests are waiting; close some pages")
        mine = asyncio.get_running_loop().create_future()
        queue.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            # Whoever went away in the very moment of their turn hands it on.
            if mine.done() and not mine.cancelled():
                self._next()
            raise

    def _next(self) -> None:
        while self._queues:
            tenant, queue = self._queues.popitem(last=False)
            while queue:
                waiting = queue.popleft()
                if not waiting.done():
                    if queue:
                        self._queues[tenant] = queue
                    waiting.set_result(None)
                    return
        self._is_taken = False


def one_to_close(open_streams: Iterable[tuple[Key, str]], tenant: str) -> Key | None:
    """With no place left: the newest stream of whoever has most, if a newcomer would still have fewer; else None."""
    streams = list(open_streams)
    counts = Counter(owner for _, owner in streams)
    if not counts:
        return None
    most, count = max(counts.items(), key=lambda each: (each[1], each[0]))
    if count <= counts[tenant] + 1:
        return None
    return next(key for key, owner in reversed(streams) if owner == most)

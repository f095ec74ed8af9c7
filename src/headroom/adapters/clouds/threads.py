"""Calls that block, each in a thread of its own, so that one that hangs costs only itself."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from headroom.model.errors import Unavailable

T = TypeVar("T")


class Threads:
    """At most so many threads at once. None of them keeps the process from ending, and nobody waits for a free one."""

    def __init__(self, most: int) -> None:
        self._most, self._alive, self._lock = most, 0, threading.Lock()

    async def run(self, call: Callable[[], T], seconds: float) -> T:
        """What the call returns or raises. After so many seconds `TimeoutError`; the thread then ends when it can."""
        with self._lock:
            if self._alive >= self._most:
                raise Unavailable(f"{self._most} earlier calls have not ended yet")
            self._alive += 1
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def tell(result: T | None, problem: BaseException | None) -> None:
            if done.done():  # nobody waits any more
                return
            if problem is not None:
                done.set_exception(problem)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # without a problem there is a result

        def work() -> None:
            result, problem = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001 - it is raised again where the call was made
                problem = raised
            finally:
                with self._lock:
                    self._alive -= 1
            with contextlib.suppress(RuntimeError):  # the loop has ended, and whoever waited with it
                loop.call_soon_threadsafe(tell, result, problem)

        threading.Thread(target=work, name="cloud call", daemon=True).start()
        async with asyncio.timeout(seconds):
            return await done

"""Single keys of a terminal, as they are pressed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headroom.model.errors import Misconfigured


class TerminalKeys:
    """What is pressed; nothing of it is echoed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def wait(self) -> str:
        """The next key."""
        return os.read(self._descriptor, 1).decode("latin-1")

    async def within(self, seconds: float) -> str:
        """The next key, empty if none is pressed in time."""
        loop = asyncio.get_running_loop()
        pressed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not pressed.done():
                pressed.set_result(self.wait())

        loop.add_reader(self._descriptor, read)
        try:
            with suppress(TimeoutError):
                return await asyncio.wait_for(pressed, seconds)
        finally:
            loop.remove_reader(self._descriptor)
        return ""


@contextmanager
def of_terminal() -> Iterator[TerminalKeys]:
    """The keys of our terminal, which is as before afterwards. Raises `Misconfigured` if there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Misconfigured(
            "showing a live view: input and output must be a terminal; use `headroom status`, or `headroom status --watch`"
        )
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield TerminalKeys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

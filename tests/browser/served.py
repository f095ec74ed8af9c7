"""The real servers over a made-up view, in a thread of their own: a browser cannot wait for a loop that it blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from headroom.model.world import World
from headroom.web.guard import Judge
from headroom.web.listening import Servers
from headroom.web.server import main_app
from headroom.web.source import Local
from tests.processes import free_ports
from tests.web.pools import Left, leave
from tests.web.showing import Made


class Served:
    """A dashboard at an address that stays the same when the operator behind it goes away and comes back."""

    def __init__(self, world: World, judge: Judge | None = None) -> None:
        self._judge = judge
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: Servers | None = None
        self._port = free_ports(1)[0]
        self.made = Made(world)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Served:
        """Listen."""
        self._run(self._start)
        return self

    def stop(self) -> None:
        """Go away, and end what is open."""
        if self._servers is not None:
            self._run(self._servers.close)
            self._servers = None

    def become(self, world: World, *left: Left) -> None:
        """Show another world, with these as the last decisions; no page sees one without the other."""

        async def change() -> None:
            self.made.become(world)
            leave(self.made, *left)

        self._run(change)

    def end(self) -> None:
        """Stop for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._servers = Servers()
        app = main_app(Local(self.made.showing()), self._judge)
        await self._servers.listen(app, f"127.0.0.1:{self._port}", "metrics_address")

    def _run(self, work: Callable[[], Awaitable[Any]]) -> None:
        async def finished() -> None:
            await work()

        asyncio.run_coroutine_threadsafe(finished(), self._loop).result(60)

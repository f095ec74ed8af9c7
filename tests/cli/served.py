"""The simulated API server behind a real port on the loopback, so that whole commands can be run against it as processes or here."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from headroom.adapters.kube.transport import StreamRefused
from headroom.model.errors import Unavailable
from headroom.runtime.clock import RealClock
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from headroom.sim.rights import Right, User
from tests.processes import PATIENCE_SECONDS

T = TypeVar("T")


class Served:
    """A cluster, its address, and who may do what there."""

    def __init__(self, folder: Path, start: int = 0, speed: float = 1.0) -> None:
        self._folder, self._loop = folder, asyncio.new_event_loop()
        self._start, self._speed = start or RealClock().now(), speed
        self._ready = threading.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""
        self.asked = threading.Event()
        """Set by the first request for a list."""
        self.hangs = False
        """Whether lists are never answered."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        if self._loop.is_closed():
            return

        async def close() -> None:
            assert self._runner is not None
            await self._runner.cleanup()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        self.server = ApiServer(SimClock(self._start, speed=self._speed), random.Random(1))
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._ready.set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        user = self.server.users.holder(token, self.server.clock.now())
        if user is None:
            return web.json_response(
                {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized"}, status=401
            )
        transport, query = self.server.transport(user.name), dict(request.query)
        if "limit" in query or "watch" in query:
            self.asked.set()
            if self.hangs:
                await asyncio.sleep(60)
        if query.get("watch") == "true":
            return await self._watch(request, transport, query)
        reply = await transport.request(
            request.method,
            request.path,
            query=query,
            body=await request.read(),
            content_type=request.headers.get("Content-Type", "application/json"),
        )
        return web.Response(status=reply.status, body=reply.body, headers={"Content-Type": "application/json"})

    async def _watch(self, request: web.Request, transport: Any, query: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        lines = transport.stream(request.path, query=query, idle=60.0)
        try:
            first = await anext(lines)
        except StreamRefused as refused:
            return web.Response(status=refused.reply.status, body=refused.reply.body)
        except (StopAsyncIteration, Unavailable):
            return web.Response(status=200, body=b"")
        try:
            await response.prepare(request)
            await response.write(first + b"\n")
            async for line in lines:
                await response.write(line + b"\n")
        except (ConnectionError, Unavailable):
            pass  # whoever watched has gone
        return response

    # --- for tests --------------------------------------------------------------------------------------------------------

    def do(self, work: Callable[[ApiServer], T]) -> T:
        """Do something to the cluster, on its own loop."""

        async def on_loop() -> T:
            return work(self.server)

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(20)

    def put(self, *documents: dict[str, Any]) -> None:
        """Put objects in place."""

        def work(server: ApiServer) -> None:
            for each in documents:
                server.put(each)

        self.do(work)

    def kubeconfig(self, user: str = "admin", rights: tuple[Right, ...] | None = None, url: str = "") -> Path:
        """A kubeconfig for a user, who is made with these rights if nobody knows them yet."""
        if user != "admin":
            self.do(lambda server: server.users.get(user) or server.users.add(User(name=user, rights=rights)))
        file = self._folder / f"{user}.kubeconfig"
        file.write_text(
            f"""\
apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "{url or self.url}"}}}}]
users: [{{name: u, user: {{token: "token-of-{user}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
"""
        )
        return file

"""Kong's Admin API on this machine, as far as Headroom uses it."""

from __future__ import annotations

import itertools
import uuid
from typing import Any, Self

from aiohttp import web


class KongService:
    """Upstreams with targets, services and routes."""

    def __init__(self, token: str = "", page: int = 2) -> None:
        self.token, self._page = token, page
        self.things: dict[str, dict[str, Any]] = {}
        """Upstreams, services and routes by path."""
        self.targets: dict[str, list[dict[str, Any]]] = {}
        self.changes: list[str] = []
        """Calls that change something."""
        self.down = False
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def put(self, upstream: str, *targets: str, tags: list[str]) -> None:
        """Targets that are there from before; an upstream that was not there is made with their tags."""
        self.things.setdefault(f"upstreams/{upstream}", {"name": upstream, "tags": tags})
        for each in targets:
            made = {"id": str(uuid.UUID(int=next(self._numbers))), "target": each, "tags": tags, "weight": 100}
            self.targets.setdefault(upstream, []).append(made)

    def all(self, upstream: str) -> set[str]:
        """The targets of an upstream."""
        return {each["target"] for each in self.targets.get(upstream, [])}

    async def _answer(self, request: web.Request) -> web.Response:
        if self.down:
            return web.json_response({"message": "no"}, status=503)
        if self.token and request.headers.get("Kong-Admin-Token") != self.token:
            return web.json_response({"message": f"bad {dict(request.headers)}"}, status=401)
        path = request.match_info["path"]
        if request.method != "GET":
            self.changes.append(f"{request.method} {path}")
        given = await request.json() if request.method in ("PUT", "POST") else {}
        parts = path.split("/")
        if path == "routes":
            return self._page_of([each for name, each in self.things.items() if name.startswith("routes/")], request)
        if len(parts) >= 3 and parts[2] == "targets":
            return self._target(request, parts, given)
        if request.method == "PUT":
            self.things[path] = given | {"name": parts[1]}
        found = self.things.get(path)
        return web.json_response(found or {"message": "Not found"}, status=200 if found else 404)

    def _target(self, request: web.Request, parts: list[str], given: dict[str, Any]) -> web.Response:
        upstream = parts[1]
        if f"upstreams/{upstream}" not in self.things:
            return web.json_response({"message": "Not found"}, status=404)
        every = self.targets.setdefault(upstream, [])
        if request.method == "POST":
            if given["target"] in self.all(upstream):
                return web.json_response({"message": "unique"}, status=409)
            self.put(upstream, given["target"], tags=given["tags"])
            return web.json_response(every[-1], status=201)
        if request.method == "DELETE":
            every[:] = [each for each in every if each["id"] != parts[3]]
            return web.Response(status=204)
        return self._page_of(every, request)

    def _page_of(self, every: list[dict[str, Any]], request: web.Request) -> web.Response:
        begin = int(request.query.get("offset", "0"))
        more = begin + self._page < len(every)
        rest = {"offset": str(begin + self._page), "next": "/more"} if more else {"next": None}
        return web.json_response({"data": every[begin : begin + self._page]} | rest)

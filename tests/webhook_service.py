"""A cloud behind the webhook protocol, written from docs/spot-pools-webhook.md."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, Final, Self

from aiohttp import web

from headroom.model import times
from tests.cloud_faults import Call, CloudMachine, Faults, How

STATUSES: Final[dict[How, int]] = {"throttled": 429, "denied": 403}
REFUSED: Final[dict[How, str]] = {
    "sold out": "SoldOut",
    "too dear": "PriceTooLow",
    "quota": "QuotaReached",
    "refused": "Refused",
}


class WebhookService:
    """A server with machines."""

    def __init__(self, token: str) -> None:
        self.token, self.faults = token, Faults()
        self.machines: dict[str, CloudMachine] = {}
        self.log: list[str] = []
        self.stock: dict[tuple[str, str], tuple[float, bool]] = {}
        self.lag_seconds = 0.0
        self.ahead_seconds = 0.0
        self.fails_launches = False
        self.echo = False
        self.notices = False
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_route("*", "/v1/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def now(self) -> float:
        """By its own clock."""
        return time.time() + self.ahead_seconds

    def add(self, **tags: str) -> CloudMachine:
        """A machine that somebody launched."""
        made = CloudMachine(f"m-{next(self._numbers):06d}", zone="z-1", kind="gpu-1", tags=tags)
        made.state, made.created_ms = "RUNNING", int(self.now() * 1000)
        self.machines[made.name] = made
        return made

    def settle(self) -> None:
        """Let what is beginning have begun, and what is ending have ended."""
        after = {"PENDING": "LAUNCH_FAILED" if self.fails_launches else "RUNNING", "TERMINATING": "SHUTDOWN"}
        for each in self.machines.values():
            each.state = after.get(each.state, each.state)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, given = request.match_info["path"], await request.json() if request.method == "POST" else {}
        kinds: dict[tuple[str, str], Call] = {
            ("POST", "instances"): "launch",
            ("POST", "instances/terminate"): "terminate",
            ("GET", "offers"): "offers",
        }
        call = kinds.get((request.method, path)) or ("describe" if "ids" in request.query else "list")
        self.log.append(call)
        how = self.faults.take(call)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"error": dict(request.headers)} if self.echo else {}, status=401)
        if how == "hang":
            await asyncio.sleep(3600)
        if how == "drop":
            return await _lost(request)
        if how == "garbage":
            return web.Response(status=500, text="<html>", content_type="text/html")
        if how in STATUSES or how in REFUSED:
            echoed = {"headers": dict(request.headers), "body": given} if self.echo else {}
            said = {"refused": REFUSED[how]} if how in REFUSED else {}
            return web.json_response(said | echoed, status=STATUSES.get(how, 409))
        if call == "launch":
            assert request.headers["Idempotency-Key"] == given["token"]
        found = getattr(self, f"_{call}")(request, given)
        if how == "cut":
            return await _lost(request)
        return web.json_response(found)

    def _list(self, request: web.Request, given: dict[str, Any]) -> dict[str, Any]:
        begin, limit = int(request.query.get("page", "0")), int(request.query["limit"])
        seen = sorted(self._seen(), key=lambda each: each.name)
        seen = [each for each in seen if each.tags.get("headroom.dev/cluster") == request.query["cluster"]]
        page, more = seen[begin : begin + limit], begin + limit < len(seen)
        rest = {"next": str(begin + limit)} if more else {}
        return {"instances": [_shown(each) for each in page], "notices": self.notices} | rest

    def _describe(self, request: web.Request, given: dict[str, Any]) -> dict[str, Any]:
        ids = request.query["ids"].split(",")
        return {"instances": [_shown(each) for each in self._seen() if each.name in ids]}

    def _launch(self, request: web.Request, given: dict[str, Any]) -> dict[str, Any]:
        for each in self.machines.values():
            if each.token == given["token"]:
                return {"instance": _shown(each)}
        name = f"m-{next(self._numbers):06d}"
        zone, kind, token = given["zone"], given["instanceType"], given["token"]
        made = CloudMachine(name, token=token, zone=zone, kind=kind, tags=given["tags"])
        made.created_ms, made.user_data = int(self.now() * 1000), given["userData"]
        self.machines[made.name] = made
        return {"instance": _shown(made)}

    def _terminate(self, request: web.Request, given: dict[str, Any]) -> dict[str, Any]:
        for each in given["ids"]:
            if each in self.machines:
                self.machines[each].state = "TERMINATING"
        return {}

    def _offers(self, request: web.Request, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "offers": [
                {"zone": zone, "instanceType": kind, "pricePerHour": str(price), "available": there, "gpus": 1}
                for (zone, kind), (price, there) in self.stock.items()
                if kind in request.query.getall("instanceType") and zone in request.query.getall("zone", [zone])
            ]
        }

    def _seen(self) -> list[CloudMachine]:
        return [
            each for each in self.machines.values() if self.now() * 1000 - each.created_ms >= self.lag_seconds * 1000
        ]


def _shown(machine: CloudMachine) -> dict[str, Any]:
    number = int(machine.name[-4:], 16)
    running = machine.state != "PENDING"
    return {
        "id": machine.name,
        "instanceType": machine.kind,
        "state": machine.state,
        "zone": machine.zone,
        "tags": machine.tags,
        "privateIp": f"10.1.{number // 250}.{number % 250}" if running else "",
        "publicIp": "",
        "launchedAt": times.text(machine.created_ms),
        "reclaimAt": machine.reclaim_at,
    }


async def _lost(request: web.Request) -> web.StreamResponse:
    """The answer breaks off. Had none begun, the client would ask once more by itself where that does no harm."""
    answer = web.StreamResponse(headers={"Content-Length": "1000"})
    await answer.prepare(request)
    await answer.write(b"{")
    assert request.transport is not None
    request.transport.close()
    return answer

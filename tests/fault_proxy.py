"""A proxy between the operator and a real API server that answers wrongly, on the paths and for as long as it is told to.

What is under way on such a path when the fault begins is cut, so that the operator asks again; so is a stream with a false beginning
when the fault ends. A request that is left hanging stays so for good.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, get_args

import aiohttp
from aiohttp import web

from tests.control_plane import ControlPlane
from tests.processes import free_ports

Fault = Literal["404", "403", "410", "429", "500", "html", "hang", "endless", "empty"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
_REASONS = {403: "Forbidden", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
_PASSED_ON = ("content-type", "retry-after", "date")
_HOPS = ("host", "content-length", "connection", "transfer-encoding")
_PAGE_SECONDS = 0.2


class FaultProxy:
    """Runs in a thread of its own."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._fault: Fault | None = None
        self._meets: Callable[[str], bool] = lambda _: False
        self._under_way: dict[asyncio.Task[None] | None, str] = {}
        self._false_streams: set[asyncio.Task[None]] = set()
        self._pages = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = free_ports(1)[0]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def kubeconfig(self, folder: Path, user: str) -> Path:
        """A kubeconfig file with which a user of the control plane comes through here."""
        document = json.loads(self._plane.kubeconfig(user).read_text())
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        file = folder / f"proxied-{user}.kubeconfig"
        file.write_text(json.dumps(document))
        return file

    def answer_with(self, fault: Fault, meets: Callable[[str], bool]) -> None:
        """From now on, answer so on the paths that it meets."""

        def begin() -> None:
            self._fault, self._meets = fault, meets
            for task, path in list(self._under_way.items()):
                if task is not None and meets(path):
                    task.cancel()

        self._loop.call_soon_threadsafe(begin)

    def heal(self) -> None:
        """Pass everything on again."""

        def end() -> None:
            self._fault = None
            for task in list(self._false_streams):
                task.cancel()

        self._loop.call_soon_threadsafe(end)

    # Serving

    async def _open(self) -> None:
        trust = ssl.create_default_context(cafile=self._plane.ca_file)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        shown.load_cert_chain(*map(str, self._plane.serving_certificate))
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=shown).start()

    async def _close(self) -> None:
        for task in list(self._under_way):
            if task is not None:
                task.cancel()
        await self._session.close()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task: asyncio.Task[None] | None = asyncio.current_task()
        self._under_way[task] = request.path
        try:
            if self._fault is not None and self._meets(request.path):
                wrong = await self._wrong(request, self._fault)
                if wrong is not None:
                    return wrong
            return await self._pass_on(request)
        except asyncio.CancelledError:
            if request.transport:
                request.transport.abort()
            raise
        finally:
            self._under_way.pop(task, None)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
        url, body = self._plane.url + str(request.rel_url), await request.read()
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers, allow_redirects=False
            ) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() in _PASSED_ON}
                out = web.StreamResponse(status=answer.status, headers=kept)
                await out.prepare(request)
                async for chunk in answer.content.iter_any():
                    await out.write(chunk)
                await out.write_eof()
                return out
        except (aiohttp.ClientError, OSError):
            if request.transport:
                request.transport.abort()
            return web.Response(status=502)

    # Answering wrongly

    async def _wrong(self, request: web.Request, fault: Fault) -> web.StreamResponse | None:
        """The wrong answer; None for what this fault leaves alone."""
        match fault:
            case "404":
                return web.Response(status=404, text="default backend - 404")
            case "html":
                page = "<!DOCTYPE html>\n<html><body>Please sign in.</body></html>\n"
                return web.Response(text=page, content_type="text/html")
            case "hang":
                await asyncio.Event().wait()
            case "endless" | "empty":
                return await self._false_list(request, fault)
            case _:
                return _status(int(fault))
        return None

    async def _false_list(self, request: web.Request, fault: Fault) -> web.StreamResponse | None:
        real = await self._list(request)
        if request.method != "GET" or real is None:
            return None
        if "watch" in request.query:
            if fault == "empty":
                return await self._empty_stream(request, real)
            return _status(400 if "sendInitialEvents" in request.query else 410)
        if fault == "endless":
            self._pages += 1
            real["metadata"]["continue"] = f"page-{self._pages}"
            await asyncio.sleep(_PAGE_SECONDS)
        else:
            real["items"] = []
            real["metadata"].pop("continue", None)
        return web.json_response(real)

    async def _list(self, request: web.Request) -> dict[str, Any] | None:
        """The first objects of the collection at an address; None if it is not that of a collection."""
        headers = {"Authorization": request.headers.get("Authorization", ""), "Accept": "application/json"}
        async with self._session.get(f"{self._plane.url}{request.path}?limit=5", headers=headers) as answer:
            found = json.loads(await answer.read()) if answer.status == 200 else {}
        return found if "items" in found else None

    async def _empty_stream(self, request: web.Request, real: dict[str, Any]) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": "application/json"})
        await out.prepare(request)
        if "sendInitialEvents" in request.query:
            about = {"metadata": {"resourceVersion": real["metadata"]["resourceVersion"], "annotations": _ENDS}}
            await out.write(json.dumps({"type": "BOOKMARK", "object": about}).encode() + b"\n")
        task = asyncio.current_task()
        assert task is not None
        self._false_streams.add(task)
        try:
            await asyncio.Event().wait()
        finally:
            self._false_streams.discard(task)
        return out


_ENDS = {"k8s.io/initial-events-end": "true"}


def _status(code: int) -> web.Response:
    reason = _REASONS.get(code, "BadRequest")
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(said | {"message": f"the proxy says {reason}"}, status=code, headers=headers)

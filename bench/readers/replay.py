"""A server that replays recorded watch events over TLS at a steady pace, each with a new resource version."""

import asyncio
import contextlib
import json
import re
import ssl
import tempfile
from pathlib import Path
from typing import Self

from aiohttp import web

VERSION = re.compile(rb'"resourceVersion":"[0-9]+"')
LABEL = re.compile(rb'"touched":"[^"]*"')


class Replay:
    """Lists one recorded pod, then sends recorded events; every other list is empty and every other watch silent."""

    def __init__(self, page: bytes, lines: list[bytes], tls: tuple[Path, Path], ca: Path, per_second: int) -> None:
        self._page, self._lines, self._tls, self._ca, self._per_second = page, lines, tls, ca, per_second
        self._going = asyncio.Event()
        self.sent = 0

    def go(self) -> None:
        """Begin to send."""
        self._going.set()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._tls)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = self._runner.addresses[0][1]
        self._folder = tempfile.TemporaryDirectory()
        self.kubeconfig = Path(self._folder.name) / "kubeconfig"
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(self._ca)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "replay",
            "contexts": [{"name": "replay", "context": {"cluster": "replay", "user": "replay"}}],
            "clusters": [{"name": "replay", "cluster": cluster}],
            "users": [{"name": "replay", "user": {"token": "replay"}}],
        }
        self.kubeconfig.write_text(json.dumps(document))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        self._folder.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/namespaces/kube-system":
            return web.json_response({"metadata": {"uid": "replayed", "name": "kube-system"}})
        if request.query.get("sendInitialEvents"):
            return web.json_response({"kind": "Status", "code": 400, "message": "no WatchList here"}, status=400)
        is_pods = request.path == "/api/v1/pods"
        if not request.query.get("watch"):
            empty = b'{"metadata":{"resourceVersion":"1"},"items":[]}'
            return web.Response(body=self._one_pod() if is_pods else empty, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # the reader was ended
            if is_pods:
                await self._send(response)
            else:
                await asyncio.sleep(3600)
        return response

    def _one_pod(self) -> bytes:
        page = json.loads(self._page)
        page["metadata"] = {"resourceVersion": "1"}
        return json.dumps(page).encode()

    async def _send(self, response: web.StreamResponse) -> None:
        await self._going.wait()
        loop = asyncio.get_running_loop()
        began, first = loop.time(), self.sent
        while True:
            due = int((loop.time() - began) * self._per_second) - (self.sent - first)
            for _ in range(due):
                line = self._lines[self.sent % len(self._lines)]
                self.sent += 1
                # A new version and a new label, so that each is a change that the reader must take in.
                line = VERSION.sub(b'"resourceVersion":"%d"' % (10**9 + self.sent), line, count=1)
                await response.write(LABEL.sub(b'"touched":"%d"' % self.sent, line, count=1) + b"\n")
            await asyncio.sleep(0.001)

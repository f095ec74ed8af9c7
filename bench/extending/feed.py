"""A process that plays the API server for the extender: lists nodes and bound pods, and then changes pods at a steady pace.

python -m bench.extending.feed NODES PODS PER_SECOND prints its port; the changes begin with the first line on its standard input.
"""

import asyncio
import contextlib
import json
import sys
from typing import Any

from aiohttp import web

PAGE = 500
GROUP = 20
"""Pods of one controller."""
RATE = "5M"
FIRST_VERSION = 1_000_000


def pod(number: int, nodes: int) -> dict[str, Any]:
    """A training pod of usual size, on a node."""
    env = [{"name": f"SETTING_{index:02d}", "value": f"value-{index:02d}-" + "x" * 40} for index in range(36)]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": f"set-{number // GROUP}",
        "uid": "u",
        "controller": True,
    }
    rates = {f"kubernetes.io/{way}-bandwidth": RATE for way in ("egress", "ingress")}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"train-{number:06d}",
            "namespace": f"team-{number % 20}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(number + 1),
            "labels": {"app": "train", "job": f"job-{number // GROUP}"},
            "annotations": rates,
            "ownerReferences": [owner],
            "creationTimestamp": "2026-01-31T12:00:00Z",
        },
        "spec": {
            "nodeName": f"node-{number % nodes:05d}",
            "containers": [{"name": "main", "image": "example.com/train:1", "env": env}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }


def node(number: int) -> dict[str, Any]:
    name = f"node-{number:05d}"
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {"kubernetes.io/hostname": name}}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": {}}


class Feed:
    """The lists, and one stream of changes for each watch of pods."""

    def __init__(self, nodes: int, pods: int, per_second: int) -> None:
        self._nodes, self._pods, self._per_second = nodes, pods, per_second
        self.going = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if kind == "version":
            return web.json_response({"major": "1", "minor": "36"})
        if request.query.get("sendInitialEvents"):
            return web.json_response({"kind": "Status", "code": 400, "message": "no WatchList here"}, status=400)
        if not request.query.get("watch"):
            return self._page(kind, int(request.query.get("continue") or 0))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # the reader was ended
            await (self._change(response) if kind == "pods" else self._stay(response))
        return response

    def _page(self, kind: str, first: int) -> web.Response:
        total = {"pods": self._pods, "nodes": self._nodes}.get(kind, 0)
        last = min(first + PAGE, total)
        made = [pod(each, self._nodes) if kind == "pods" else node(each) for each in range(first, last)]
        more = {"continue": str(last)} if last < total else {}
        meta = {"resourceVersion": str(FIRST_VERSION), **more}
        document = {"metadata": meta, "items": made}
        return web.Response(body=json.dumps(document).encode(), content_type="application/json")

    async def _stay(self, response: web.StreamResponse) -> None:
        while True:
            await asyncio.sleep(20)
            bookmark = {"metadata": {"resourceVersion": str(FIRST_VERSION)}}
            await response.write(json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n")

    async def _change(self, response: web.StreamResponse) -> None:
        """Of ten changes eight say something new of a pod, one is its end and one its return."""
        await self.going.wait()
        lines = [self._line(sent) for sent in range(20_000)]
        loop, sent = asyncio.get_running_loop(), 0
        began = loop.time()
        while True:
            for _ in range(int((loop.time() - began) * self._per_second) - sent):
                head, tail = lines[sent % len(lines)]
                await response.write(head + b"%d" % (FIRST_VERSION + sent + 1) + tail)
                sent += 1
            await asyncio.sleep(0.001)

    def _line(self, number: int) -> tuple[bytes, bytes]:
        kind = {8: "DELETED", 9: "ADDED"}.get(number % 10, "MODIFIED")
        found = pod((number - 1 if kind == "ADDED" else number) * 7 % self._pods, self._nodes)
        found["metadata"]["resourceVersion"] = "VERSION"
        head, _, tail = json.dumps({"type": kind, "object": found}).encode().partition(b"VERSION")
        return head, tail + b"\n"


async def main(nodes: int, pods: int, per_second: int) -> None:
    feed, app = Feed(nodes, pods, per_second), web.Application()
    app.router.add_get("/{path:.*}", feed.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    feed.going.set()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))

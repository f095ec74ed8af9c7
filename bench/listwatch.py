"""Holding every pod of a real API server: CPU, memory and the cost of changes, beside kopf and the official informer.

    make bench NAME=listwatch            10,000 pods with the peers, then 100,000 (about 15 minutes)
    make bench NAME=listwatch ARGS=10000 10,000 pods only

The pods are made through the API server, as large as those of a training job (about 6.6 KB). Each reader is a process of its own
and is asked what the kernel says it cost; CPU counts from when all modules are imported, and the start is a row of its own. The machine's two cores are shared by etcd, API server, writer and reader, so wall
times say little; CPU time and memory are the reader's own.
"""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench import results
from bench.readers.replay import Replay
from bench.results import Row
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.control_plane import ControlPlane

ROOT = Path(__file__).parent.parent
AT_ONCE = 24
CHANGES = 10_000
PACED_PER_SECOND = 1000
PACED_SECONDS = 30
PATIENCE_SECONDS = 300


def say(text: str) -> None:
    """A line of progress."""
    print(f"listwatch: {text}", file=sys.stderr, flush=True)


def a_pod(number: int) -> dict[str, Any]:
    """A training pod of the size that real ones have."""
    labels = {"team": f"team-{number % 20}", "app": "train", "job": f"job-{number // 8}", "index": str(number % 8)}
    env = [{"name": f"SETTING_{index:02d}", "value": f"value-{index:02d}-" + "x" * 40} for index in range(36)]
    resources = {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": str(1 + number % 8)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"train-{number:06d}", "namespace": "bench", "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": "example.com/bench"}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{"name": "main", "image": "example.com/train:1", "env": env, "resources": resources}],
        },
    }


class Server:
    """Fast requests to the API server under test."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._headers = {"Authorization": f"Bearer {plane.admin_token}", "Content-Type": "application/json"}

    async def __aenter__(self) -> "Server":
        context = ssl.create_default_context(cafile=self._plane.ca_file)
        connector = aiohttp.TCPConnector(ssl=context, limit=AT_ONCE)
        self._session = aiohttp.ClientSession(self._plane.url, connector=connector, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def create(self, first: int, last: int) -> None:
        """Make pods first..last-1, many at once."""
        numbers = iter(range(first, last))

        async def worker() -> None:
            for number in numbers:
                body = json.dumps(a_pod(number))
                async with self._session.post("/api/v1/namespaces/bench/pods", data=body) as reply:
                    assert reply.status == 201, await reply.text()
                if number % 10_000 == 0:
                    say(f"{number:,} pods made")

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    async def touch(self, count: int, pods: int) -> float:
        """Change `count` pods as fast as the server takes it; returns the seconds that took."""
        numbers, began = iter(range(count)), time.perf_counter()
        headers = {"Content-Type": "application/merge-patch+json"}

        async def worker() -> None:
            for number in numbers:
                path = f"/api/v1/namespaces/bench/pods/train-{number * 7919 % pods:06d}"
                body = json.dumps({"metadata": {"labels": {"touched": f"{began:.0f}-{number}"}}})
                async with self._session.patch(path, data=body, headers=headers) as reply:
                    assert reply.status == 200, await reply.text()

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        return time.perf_counter() - began

    async def watched_lines(self, count: int) -> tuple[bytes, list[bytes]]:
        """A page of one pod, and the next `count` events exactly as the server sends them."""
        async with self._session.get("/api/v1/pods", params={"limit": "1"}) as reply:
            page = await reply.read()
        version = json.loads(page)["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": version}
        lines: list[bytes] = []
        buffer = b""
        async with self._session.get("/api/v1/pods", params=query) as reply:
            touching = asyncio.create_task(self.touch(count, count))
            async for chunk in reply.content.iter_any():
                *whole, buffer = (buffer + chunk).split(b"\n")
                lines += whole
                if len(lines) >= count:
                    break
            await touching
        return page, lines[:count]


class Reader:
    """One program that holds the pods, in a process of its own."""

    def __init__(self, python: str, module: str, kubeconfig: Path, pods: int) -> None:
        self.module = module
        environment = os.environ | {"PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)}
        self.process = subprocess.Popen(
            [python, "-m", f"bench.readers.{module}", str(kubeconfig), str(pods)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd=ROOT,
        )

    def line(self) -> dict[str, float]:
        """The next report."""
        assert self.process.stdout is not None
        deadline = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        deadline.start()
        text = self.process.stdout.readline()
        deadline.cancel()
        if not text:
            raise SystemExit(f"{self.module}: ended, or said nothing for {PATIENCE_SECONDS} s")
        found: dict[str, float] = json.loads(text)
        return found

    def ask(self) -> dict[str, float]:
        """What it cost until now."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.line()

    def end(self) -> None:
        """Stop it by its process id."""
        self.process.kill()
        self.process.wait()


def peers_python() -> str:
    """The interpreter of the environment that has the peers in it."""
    subprocess.run([ROOT / "tools" / "setup", "bench"], check=True)
    return str(ROOT / ".venv-bench" / "bin" / "python")


def peer_versions(python: str) -> dict[str, str]:
    """What the peers' environment holds."""
    code = "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in ('kopf', 'kubernetes')}))"
    found: dict[str, str] = json.loads(subprocess.run([python, "-c", code], capture_output=True, check=True).stdout)
    return found


def measure(python: str, module: str, plane: ControlPlane, pods: int) -> dict[str, float]:
    """The cost of holding all pods, by one reader, once."""
    say(f"{module} reads {pods:,} pods")
    reader = Reader(python, module, plane.kubeconfig(), pods)
    try:
        return reader.line()
    finally:
        reader.end()


async def cost_of_changes(plane: ControlPlane, server: Server, pods: int) -> dict[str, float]:
    """CPU that one change costs Headroom, while the server changes pods as fast as it can."""
    say(f"{CHANGES:,} changes as fast as the server takes them")
    reader = Reader(sys.executable, "headroom_reader", plane.kubeconfig(), pods)
    try:
        await asyncio.to_thread(reader.line)
        await asyncio.sleep(2)
        before = await asyncio.to_thread(reader.ask)
        seconds = await server.touch(CHANGES, pods)
        after = before
        while after["generation"] - before["generation"] < CHANGES:
            await asyncio.sleep(0.5)
            after = await asyncio.to_thread(reader.ask)
            assert after["wall"] - before["wall"] < PATIENCE_SECONDS, "a change was not seen"
    finally:
        reader.end()
    return {"rate": CHANGES / seconds, "cpu_per_change": (after["cpu"] - before["cpu"]) / CHANGES}


async def paced(page: bytes, lines: list[bytes], tls: tuple[Path, Path], ca: Path) -> dict[str, float]:
    """CPU share of Headroom at a steady pace: recorded events replayed over TLS, since the server cannot make them so fast."""
    say(f"{PACED_PER_SECOND:,} recorded changes a second for {PACED_SECONDS} s, replayed over TLS")
    async with Replay(page, lines, tls, ca, PACED_PER_SECOND) as replay:
        reader = Reader(sys.executable, "headroom_reader", replay.kubeconfig, 1)
        try:
            await asyncio.to_thread(reader.line)
            await asyncio.sleep(2)
            before = await asyncio.to_thread(reader.ask)
            replay.go()
            await asyncio.sleep(PACED_SECONDS)
            after = await asyncio.to_thread(reader.ask)
        finally:
            reader.end()
    wall = after["wall"] - before["wall"]
    return {"rate": (after["generation"] - before["generation"]) / wall, "share": (after["cpu"] - before["cpu"]) / wall}


def rows_small(ours: dict[str, float], kopf: dict[str, float], official: dict[str, float]) -> list[Row]:
    """The 10,000-pod figures, with the peers."""
    rows = [
        Row(figure="10,000 pods: CPU", value=round(ours["cpu"], 3), unit="s", goal=1.0),
        Row(figure="start of the process: CPU", value=round(ours["start"], 3), unit="s"),
        Row(figure="10,000 pods: resident", value=round(ours["resident"], 1), unit="MB", goal=80.0),
        Row(figure="10,000 pods: wall", value=round(ours["wall"], 2), unit="s"),
    ]
    for peer, cost in (("kopf", kopf), ("official informer", official)):
        for name, key, unit in (("CPU", "cpu", "s"), ("resident", "resident", "MB")):
            ratio = cost[key] / ours[key]
            rows.append(Row(figure=f"10,000 pods: {name} of {peer} / ours", value=round(ratio, 2), unit="x", goal=1.0,
                            sense="min", peer=f"{peer} ({unit})", peer_value=round(cost[key], 2)))  # fmt: skip
    return rows


async def main(arguments: list[str]) -> int:
    """Measure and write the results."""
    sizes = [int(arguments[0])] if arguments else [10_000, 100_000]
    rows: list[Row] = []
    python = peers_python()
    results.compile_modules()
    with ControlPlane(components=()) as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        plane.kubectl("create", "namespace", "bench")
        async with Server(plane) as server:
            say(f"making {sizes[0]:,} pods")
            await server.create(0, sizes[0])
            readers = (sys.executable, "headroom_reader"), (python, "kopf_reader"), (python, "official_reader")
            ours, kopf, official = [measure(*reader, plane, sizes[0]) for reader in readers]
            rows += rows_small(ours, kopf, official)
            page, lines = await server.watched_lines(2000)
            size = sum(map(len, lines)) / len(lines)
            rows.append(Row(figure="size of a pod on the wire", value=round(size), unit="bytes"))
            changes = await cost_of_changes(plane, server, sizes[0])
            per_change = changes["cpu_per_change"]
            rows += [
                Row(figure="changes the real server made", value=round(changes["rate"]), unit="per s"),
                Row(figure="CPU per change at that rate", value=round(per_change * 1e6, 1), unit="us"),
                Row(
                    figure="cores for 1,000 changes a second at that cost",
                    value=round(per_change * 1000, 3),
                    unit="cores",
                    goal=0.5,
                ),
            ]
            steady = await paced(page, lines, plane.serving_certificate, plane.ca_file)
            rows += [
                Row(figure="replayed changes held", value=round(steady["rate"]), unit="per s", goal=990, sense="min"),
                Row(figure="cores at that pace, over TLS", value=round(steady["share"], 3), unit="cores", goal=0.5),
            ]
            for size_wanted in sizes[1:]:
                say(f"making {size_wanted:,} pods")
                await server.create(sizes[0], size_wanted)
                large = measure(sys.executable, "headroom_reader", plane, size_wanted)
                rows += [
                    Row(figure="100,000 pods: CPU", value=round(large["cpu"], 2), unit="s", goal=10.0),
                    Row(figure="100,000 pods: resident", value=round(large["resident"], 1), unit="MB", goal=350.0),
                    Row(figure="100,000 pods: peak", value=round(large["peak"], 1), unit="MB"),
                    Row(figure="100,000 pods: wall", value=round(large["wall"], 1), unit="s"),
                ]
    missed = results.write("listwatch", rows, also=peer_versions(python))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))

"""The extender alone: how long filter and prioritize take while pods change, and what memory it needs at 5,000 nodes and 100,000 pods.

    make bench NAME=extender

The extender is a process of its own that watches a played API server; another process changes 1,000 pods a second, and this one asks as
kube-scheduler does, one question after the other on one connection. Time is from the first byte sent to the last byte read.
"""

import contextlib
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from bench import results
from bench.extending.feed import pod
from bench.results import Row
from tests.processes import free_ports

PER_SECOND = 1_000
CASES = ((200, 4_000, 5.0), (5_000, 100_000, 25.0))
"""Nodes, pods, and the goal in milliseconds."""
QUESTIONS = 1_500
PAUSE_SECONDS = 0.003
"""kube-scheduler has work of its own between two pods."""
WARM = 100
MOST_MEGABYTES = 250
PATIENCE_SECONDS = 240


@contextlib.contextmanager
def fed(nodes: int, pods: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The played API server, and its address."""
    command = [sys.executable, "-m", "bench.extending.feed", str(nodes), str(pods), str(PER_SECOND)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def extender(server: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`headroom extender` over it, once it answers, and its port."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": server}}],
        "users": [{"name": "bench", "user": {}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    port, health = free_ports(2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
    environment |= {"HEADROOM_ELECT_LEADER": "false", "KUBECONFIG": str(folder / "kubeconfig")}
    addresses = ["--address", f"127.0.0.1:{port}", "--health-address", f"127.0.0.1:{health}"]
    command = [sys.executable, "-m", "headroom", "extender", "--plain", *addresses]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ready(f"http://127.0.0.1:{health}/readyz"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((folder / "log").read_text()[-3000:])
            time.sleep(0.2)
        yield process, port
    finally:
        process.kill()
        process.wait()


def ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def resident_mb(process: subprocess.Popen[bytes]) -> float:
    """Memory that is held now, in millions of bytes."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def ask(connection: http.client.HTTPConnection, verb: str, body: bytes) -> float:
    """Milliseconds that one question takes."""
    began = time.perf_counter()
    connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    took = (time.perf_counter() - began) * 1000
    assert answer.status == 200, text
    assert verb == "prioritize" or json.loads(text)["NodeNames"], text[:500]
    return took


def asked(port: int, nodes: int) -> list[float]:
    """Filter and prioritize together, in milliseconds, for one pod after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    chance, found = random.Random(1), []
    names = [f"node-{number:05d}" for number in range(nodes)]
    for number in range(WARM + QUESTIONS):
        one = pod(number, nodes)
        one["metadata"]["uid"] = f"asked-{number}"
        del one["spec"]["nodeName"]
        # kube-scheduler begins where it ended the last time.
        first = chance.randrange(nodes)
        body = json.dumps({"Pod": one, "Nodes": None, "NodeNames": names[first:] + names[:first]}).encode()
        took = ask(connection, "filter", body) + ask(connection, "prioritize", body)
        if number >= WARM:
            found.append(took)
        time.sleep(PAUSE_SECONDS)
    connection.close()
    return found


def measured(nodes: int, pods: int, goal: float) -> list[Row]:
    """One case."""
    with (
        tempfile.TemporaryDirectory() as folder,
        fed(nodes, pods) as (feed, server),
        extender(server, Path(folder)) as (process, port),
    ):
        at_rest = asked(port, nodes)
        assert feed.stdin is not None
        feed.stdin.write("go\n")
        feed.stdin.flush()
        time.sleep(5)
        busy = asked(port, nodes)
        memory = resident_mb(process)
    place = f"{nodes:,} nodes, {pods:,} pods"
    limit = MOST_MEGABYTES if nodes == CASES[-1][0] else None
    return [
        Row(figure=f"{place}: filter and prioritize, no changes, p50", value=statistics.median(at_rest), unit="ms"),
        Row(
            figure=f"{place}: filter and prioritize, 1,000 pod changes a second, p50",
            value=statistics.median(busy),
            unit="ms",
        ),
        Row(figure=f"{place}: the same, p99", value=statistics.quantiles(busy, n=100)[98], unit="ms", goal=goal),
        Row(figure=f"{place}: memory", value=memory, unit="MB", goal=limit),
    ]


def main() -> int:
    """Measure all cases."""
    rows = [row for case in CASES for row in measured(*case)]
    return len(results.write("extender", rows))


if __name__ == "__main__":
    sys.exit(main())

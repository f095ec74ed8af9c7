"""`headroom demo` as people start it: a process, a page, and Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headroom.cli import demonstration
from tests.cli.conftest import Headroom
from tests.processes import free_ports

DEMO = [sys.executable, "-m", "headroom", "demo"]
SCENARIO = """\
apiVersion: sim.headroom.dev/v1
kind: Scenario
metadata: {name: small}
spec:
  duration: 10m
  expect:
  - {at: 1m, resource: GPUWorkloadBudget/lab/team-a, path: "status.conditions[Ready].status", equals: "True"}
---
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: team-a, namespace: lab}
spec:
  selector: {matchLabels: {team: a}}
  quota: {gpuHours: 1, windowHours: 1}
  enforcement: {action: AlertOnly}
"""


@contextmanager
def demo(*flags: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running demo and the address that it printed."""
    command = [*DEMO, *map(str, flags)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "simulated cluster" in process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found
            yield process, found[0]
        finally:
            process.kill()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as reply:
        text: str = reply.read().decode()
        return text


def state(url: str) -> Any:
    return json.loads(get(f"{url}api/state"))


def test_it_shows_a_fleet_at_work_and_ends_at_ctrl_c() -> None:
    [port] = free_ports(1)
    with demo("--port", port, "--speed", 300) as (process, url):
        deadline = time.monotonic() + 60
        while not (
            all(each["ready"] == "True" for each in state(url)["resources"]) and state(url)["fleet"]["podsRunning"]
        ):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        page = get(url)
        assert "<h1>Headroom demo</h1>" in page
        assert {"GPUWorkloadBudget", "Spotpool", "PowerPool", "Bandwidth", "LeftoverNodePool"} <= set(
            re.findall(r"\w+", page)
        )
        while "headroom_leading 1.0" not in get(f"{url}metrics"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert "color-scheme" in get(f"{url}static/dashboard.css")
        assert process.stdout is not None
        assert "GPUs held" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")


def test_it_takes_the_next_port_and_ends_by_itself() -> None:
    [port] = free_ports(1)
    with demo("--port", port, "--for", 30) as (_, first), demo("--port", port, "--for", 1) as (process, second):
        assert first != second
        taken = second.removesuffix("/").rpartition(":")[2]
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, f"port {port} is taken, using {taken}\n")


@pytest.mark.parametrize(("pods", "said"), [(0, "0 pods running"), (1, "1 pod running"), (2, "2 pods running")])
def test_one_pod_is_not_pods(pods: int, said: str) -> None:
    fleet = {"gpusHeld": 0, "gpus": 0, "podsRunning": pods, "podsUnbound": 0}
    line = demonstration._line({"now": "2026-01-31T12:00:00Z", "fleet": fleet, "resources": []})
    assert f", {said}," in line


def test_it_plays_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO)
    command = [*DEMO, "--scenario", str(file), "--for", "4", "--speed", "100", "--port", str(free_ports(1)[0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 resources Ready" in done.stdout
    assert done.stdout.endswith("1 of 1 expectation held\n")


def test_a_scenario_ends_by_itself_and_says_what_was_not_as_expected(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    wrong = "  - {at: 9m, resource: GPUWorkloadBudget/lab/team-b, exists: true}\n---"
    file.write_text(SCENARIO.replace("---", wrong, 1))
    command = [*DEMO, "--scenario", str(file), "--port", str(free_ports(1)[0])]
    done = subprocess.run([*command, "--speed", "200"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "not as the scenario expects: at 9m, GPUWorkloadBudget/lab/team-b: it is not there\n"
    assert done.stdout.endswith("1 of 2 expectations held\n")
    early = subprocess.run(
        [*command, "--speed", "100", "--for", "3"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (early.returncode, early.stderr) == (0, "")
    assert early.stdout.endswith("1 of 2 expectations held, 1 not reached yet\n")


@pytest.mark.parametrize(
    "text", ["", "x: 1", SCENARIO.replace("10m", "soon"), SCENARIO.replace("windowHours: 1", "windowHours: 0")]
)
def test_a_wrong_scenario_is_one_sentence(headroom: Headroom, tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    done = headroom("demo", "--scenario", file, "--for", 5, "--port", free_ports(1)[0])
    assert done.code == 2
    assert done.err.startswith("headroom: ")
    assert done.err.count("\n") == 1

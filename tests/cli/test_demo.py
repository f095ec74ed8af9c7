"""`headroom demo` as people start it: a process, a page, a story on the terminal, and Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headroom.api.policies import policies
from headroom.sim.fleet import fleet
from tests.cli.conftest import Headroom
from tests.processes import PATIENCE_SECONDS, free_ports
from tests.tiers import DEEP

DEMO = [sys.executable, "-m", "headroom", "demo"]
PATIENCE = PATIENCE_SECONDS
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
STORY = """\
apiVersion: sim.headroom.dev/v1
kind: Scenario
metadata: {name: story}
spec:
  start: 2026-03-03T08:00:00Z
  duration: 100h
  bootSeconds: 30
  timeline:
  - at: 1m
    apply:
      apiVersion: v1
      kind: Pod
      metadata: {name: short, namespace: lab, annotations: {sim.headroom.dev/runs-for: 1m}}
      spec: {restartPolicy: Never, containers: [{name: main, image: "main:1", resources: {limits: {nvidia.com/gpu: 8}}}]}
  - at: 8m
    apply:
      apiVersion: batch/v1
      kind: Job
      metadata: {name: late, namespace: lab}
      spec:
        template:
          metadata: {labels: {team: lab}}
          spec: {restartPolicy: Never, containers: [{name: main, image: "main:1", resources: {limits: {nvidia.com/gpu: 4}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: gpu-1}
status: {allocatable: {cpu: "32", nvidia.com/gpu: "100"}}
---
apiVersion: v1
kind: Pod
metadata: {name: burner, namespace: lab, labels: {team: lab}}
spec: {nodeName: gpu-1, containers: [{name: main, image: "main:1", resources: {limits: {nvidia.com/gpu: 100}}}]}
---
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: lab, namespace: lab}
spec:
  selector: {matchLabels: {team: lab}}
  quota: {gpuHours: "10", windowHours: 24}
  enforcement: {steps: [{at: 80%, action: AlertOnly}, {at: 100%, action: Hold}]}
---
apiVersion: headroom.dev/v1alpha1
kind: PowerPool
metadata: {name: basement}
spec:
  template: {idleWatts: 500, busyWatts: 3000}
  policy: {idleSeconds: 60, bootTimeoutSeconds: 600}
  machines: [{name: metal-1, gpuCount: 8, scaleUpEndpoint: "http://power/1/on", scaleDownEndpoint: "http://power/1/off"}]
---
apiVersion: sim.headroom.dev/v1
kind: Machine
metadata: {name: metal-1}
spec: {power: "Off"}
"""
PAST = """\
---
apiVersion: sim.headroom.dev/v1
kind: Usage
metadata: {name: earlier}
spec: {namespace: lab, pod: earlier, start: "2025-12-31T23:30:00Z", end: "2026-01-01T00:00:00Z", gpus: 1, labels: {team: a}}
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
    with urllib.request.urlopen(url, timeout=60) as reply:
        text: str = reply.read().decode()
        return text


def overview(url: str) -> Any:
    return json.loads(get(f"{url}api/overview"))


def until(url: str, wanted: Callable[[Any], object]) -> Any:
    """The first overview that shows what is wanted."""
    deadline = time.monotonic() + PATIENCE
    while not wanted(found := overview(url)):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def lines_until(process: subprocess.Popen[str], *wanted: str) -> list[str]:
    """What the demo prints up to the line with the last of these words, which come in this order."""
    assert process.stdout is not None
    lines: list[str] = []
    left = list(wanted)
    deadline = time.monotonic() + 5 * PATIENCE  # a fleet that goes on has always something to say
    while left:
        line = process.stdout.readline()
        assert time.monotonic() < deadline, f"it did not say {left[0]!r}: {lines}"
        assert line, f"it ended before it said {left[0]!r}: {lines}"
        lines.append(line)
        if left[0] in line:
            left.pop(0)
    return lines


@pytest.mark.parametrize("seed", range(1, 9))
def test_with_every_seed_a_card_is_too_small_for_what_runs_at_the_start(seed: int) -> None:
    pods = [each for each in fleet(seed, hours=0) if each["kind"] == "Pod" and each["spec"].get("nodeName") == "l4-01"]
    asked = [each["metadata"]["annotations"].get("kubernetes.io/egress-bandwidth", "0G") for each in pods]
    assert sum(int(each.removesuffix("G")) for each in asked) > 25


def test_it_shows_a_fleet_at_work_and_ends_at_ctrl_c() -> None:
    [port] = free_ports(1)
    with demo("--port", port) as (process, url):
        found = until(url, lambda page: page["fleet"]["running"] and page["operator"]["leading"])
        assert found["title"] == "Headroom demo"
        assert 0 < found["speed"] <= 60, "less on a machine that cannot keep up"
        assert (found["fleet"]["gpus"], found["fleet"]["nodes"]) == ("320", 40)
        assert len(found["budgets"]) == 5
        assert {each["kind"] for each in found["others"].values()} == {"Spotpool", "PowerPool", "LeftoverNodePool"}
        deadline = time.monotonic() + PATIENCE
        while "Overcommitted" not in (page := get(f"{url}api/bandwidth")):
            assert time.monotonic() < deadline, page
            time.sleep(0.2)
        links = json.loads(page)["nodes"]
        assert next(iter(links)) == "l4-01"
        assert sum(each.get("linkLocal", False) for each in links["h100-02"]["bar"]) == 3
        assert "<title>Headroom" in get(url)
        # Told at the next tick after it leads, which on a busy machine may be a little later.
        deadline = time.monotonic() + PATIENCE
        while "headroom_leading 1.0" not in (metrics := get(f"{url}metrics")):
            assert time.monotonic() < deadline, metrics
            time.sleep(1)  # metrics may not be asked for more often
        lines_until(process, "Simulated day: Tuesday, 03 March 2026.", "of 320 GPUs allocated")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")


def test_the_terminal_and_the_page_tell_the_same_story(tmp_path: Path) -> None:
    """As fast as the machine can. A deep run tells the demo's own story, of which scenarios/test_demo_story.py knows every line."""
    file = tmp_path / "story.yaml"
    file.write_text("\n---\n".join([STORY, *map(json.dumps, policies())]))
    played: list[object] = [] if DEEP else ["--scenario", file]
    speed, name, quota = (600, "vision", "240 of 240") if DEEP else (60, "lab", "10 of 10")
    [port] = free_ports(1)
    with demo("--port", port, "--speed", speed, *played) as (process, url):
        lines = lines_until(
            process,
            f"forecast: {name} goes over quota at ",
            f"{name} has used 80% of its quota",
            f"{name} is over quota ({quota} GPU-hours in 24h), as forecast at 08:",
            f"queued: {name}/",
        )
        when = re.search(r"quota at (\d\d:\d\d)", next(line for line in lines if f"forecast: {name}" in line))
        full = next(line for line in lines if f"{name} is over quota" in line)
        assert when
        assert full.startswith(when[1])
        machine = "l4-" if DEEP else "metal-1"
        assert any(f" power: {machine}" in line and " goes to sleep" in line for line in lines)
        assert any(f" power: {machine}" in line and " wakes for " in line for line in lines)
        # A slow machine says every few seconds how far it has come; that is no news.
        assert len([line for line in lines if " running, " not in line]) < 60
        budget = until(url, lambda page: page["budgets"][f"{name}/{name}"].get("heldPods"))["budgets"][f"{name}/{name}"]
        assert budget["state"] == "Holding"
        assert "headroom_plan_differences_total{" not in get(f"{url}metrics")


def test_another_seed_is_another_course() -> None:
    ports = free_ports(2)
    with demo("--port", ports[0], "--seed", 1) as (_, first), demo("--port", ports[1], "--seed", 2) as (_, second):
        one, two = (until(url, lambda page: page["fleet"]["running"])["fleet"]["held"] for url in (first, second))
        assert one != two


def test_it_takes_the_next_port_and_ends_by_itself() -> None:
    [port] = free_ports(1)
    with demo("--port", port, "--for", 60) as (_, first), demo("--port", port, "--for", 1) as (process, second):
        assert first != second
        taken = second.removesuffix("/").rpartition(":")[2]
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, f"port {port} is taken, using {taken}\n")


def test_it_plays_a_scenario_with_its_past(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    half = '  - {at: 1m, resource: GPUWorkloadBudget/lab/team-a, path: "status.consumedGpuHours", atLeast: 0.45}\n---'
    file.write_text(SCENARIO.replace("---", half, 1) + PAST)
    command = [*DEMO, "--scenario", str(file), "--speed", "100", "--port", str(free_ports(1)[0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 resources Ready" in done.stdout
    assert done.stdout.endswith("2 of 2 expectations held\n")


def test_a_scenario_ends_by_itself_and_says_what_was_not_as_expected(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    wrong = "  - {at: 9m, resource: GPUWorkloadBudget/lab/team-b, exists: true}\n---"
    file.write_text(SCENARIO.replace("---", wrong, 1))
    command = [*DEMO, "--scenario", str(file), "--port", str(free_ports(1)[0])]
    done = subprocess.run([*command, "--speed", "200"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 1
    assert done.stderr == "expectation failed: at 9m, GPUWorkloadBudget/lab/team-b: it is not there\n"
    assert done.stdout.endswith("1 of 2 expectations held\n")
    early = subprocess.run(
        [*command, "--speed", "40", "--for", "10"], capture_output=True, text=True, timeout=180, check=False
    )
    assert (early.returncode, early.stderr) == (0, "")
    assert early.stdout.endswith("1 of 2 expectations held, 1 not reached yet\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x: 1",
        SCENARIO.replace("10m", "soon"),
        SCENARIO.replace("windowHours: 1", "windowHours: 0"),
        SCENARIO + PAST.replace("gpus: 1", "gpus: many"),
    ],
)
def test_a_wrong_scenario_is_one_sentence(headroom: Headroom, tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    done = headroom("demo", "--scenario", file, "--for", 5, "--port", free_ports(1)[0])
    assert done.code == 2
    assert done.err.startswith("headroom: ")
    assert done.err.count("\n") == 1


def test_a_snapshot_is_something_to_try_the_other_commands_on(headroom: Headroom, tmp_path: Path) -> None:
    world, change = tmp_path / "world.json", tmp_path / "change.yaml"
    command = [*DEMO, "--for", "10", "--port", str(free_ports(1)[0]), "--snapshot", str(world)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(f"bytes to {world}; `headroom status --from {world}` shows it\n")
    status = json.loads(headroom("status", "--from", world, "-o", "json").out)
    assert status["fleet"]["gpus"] == "320"
    used = {each["name"]: each for each in status["budgets"]}
    assert used["vision"]["percent"] > 50, "the day before is in its ledger"
    forecast = json.loads(headroom("forecast", "--from", world, "-o", "json").out)
    assert {each["name"]: each["percent"] for each in forecast["budgets"]} == {
        name: each["percent"] for name, each in used.items()
    }
    assert headroom("replay", world).code == 0
    assert "\n\nGPUWorkloadBudget/vision/vision\n" in headroom("explain", "gwb/vision/vision", "--from", world).out
    change.write_text(SCENARIO.partition("---\n")[2].replace("team-a", "vision").replace("lab", "vision"))
    said = headroom("simulate", "--from", world, "--change", change, "-o", "json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["work"] > 1000
    assert found["changes"][0].startswith("GPUWorkloadBudget/vision/vision: ")
    assert found["recordedGpuHours"] > 1000


def test_a_snapshot_without_a_folder_is_told_at_once(headroom: Headroom, tmp_path: Path) -> None:
    done = headroom("demo", "--snapshot", tmp_path / "no" / "world.json", "--port", free_ports(1)[0])
    assert (done.code, done.out) == (2, "")
    assert "make its folder" in done.err


def test_a_scenario_that_is_not_there_says_what_to_do(headroom: Headroom) -> None:
    done = headroom("demo", "--scenario", "nofile", "--port", free_ports(1)[0])
    assert done.err == "headroom: reading nofile: No such file or directory; check the path and its rights\n"

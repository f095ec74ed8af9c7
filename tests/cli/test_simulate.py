"""`headroom simulate`: what it prints for a snapshot, a trace and a scenario, and what it says of input that is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headroom.model.facts import Usage
from headroom.model.snapshots import save
from headroom.model.times import HOUR
from tests.builders import NOON, a_node, a_used_world
from tests.cli.conftest import Headroom
from tests.control_plane import wait_until
from tests.core.stage import a_budget
from tests.processes import PATIENCE_SECONDS, cpu_seconds

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n-{number},64000,262144,8,T4\n" for number in range(2))
BUDGET = """apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: research, namespace: default}
spec:
  selector: {matchLabels: {team: BE}}
  quota: {gpuHours: "%s", windowHours: 24}
  enforcement: {action: %s}
"""
PRICES = """apiVersion: v1
kind: ConfigMap
metadata: {name: headroom-prices, namespace: headroom-system}
data: {book: '- {pricePerHour: "8"}'}
"""
GOLDEN = """\
What if budget research had 10 GPU-hours instead of 100 and enforcement.action Hold instead of AlertOnly?

With this change BE would queue 15 more pods, spend $20.00 less and start 10 fewer pods.
It would also get 20.0 fewer GPU-hours of work done and wait up to 12h 20m instead of 0s.
Nothing would change for LS.

Overall
                                            BEFORE    AFTER      DIFFERENCE
Better  cost                                $80.00   $60.00  -$20.00 (-25%)
Worse   GPU-hours of work that counted        80.0     60.0    -20.0 (-25%)
        95th percentile wait for a machine      0s  12h 20m        +12h 20m
        longest wait for a machine              0s  12h 20m        +12h 20m
        pods finished                           39       29      -10 (-26%)
        pods not started                         0       10             +10
        pods queued by a budget                  0       15             +15
Other   GPU-hours used                        80.0     60.0    -20.0 (-25%)
        average GPUs allocated                 1.7      1.3     -0.4 (-25%)
        pods released                            0        5              +5
Unchanged: peak GPUs allocated 2.0, pods requested 40. Zero on both sides: GPU-hours lost, median wait for a machine, owners suspended, pods evicted, pods paused, machine and node pool switches.

By team
TEAM                                      BEFORE    AFTER      DIFFERENCE
BE    GPU-hours of work that counted        40.0     20.0    -20.0 (-50%)
      GPU-hours used                        40.0     20.0    -20.0 (-50%)
      cost                                $40.00   $20.00  -$20.00 (-50%)
      median wait for a machine               0s   6h 10m         +6h 10m
      95th percentile wait for a machine      0s  12h 20m        +12h 20m
      pods queued                              0       15             +15
      pods not started                         0       10             +10
Unchanged: LS.

By budget
BUDGET                                                   BEFORE                AFTER    DIFFERENCE
default/research  quota                    100 GPU-hours in 24h  10 GPU-hours in 24h
                  GPU-hours used                           40.0                 20.0  -20.0 (-50%)
                  peak share of its quota                   21%                 100%    +79 points
                  hours over quota                          0.0                 26.2         +26.2
                  pods queued                                 0                   15           +15

Changes
- GPUWorkloadBudget/default/research: quota.gpuHours 100 -> 10, enforcement.action AlertOnly -> Hold

About this replay
- 40 pods on 2 nodes, from 2023-01-01 00:00 to 2023-01-02 23:30 UTC, replayed before and after the change. Source: openb, pods.csv.
"""


def pods(count: int = 40) -> str:
    """Somebody asks for a GPU for two hours, every hour."""
    rows = [
        f"p{n},4000,1024,1,1000,,{('BE', 'LS')[n % 2]},Running,{n * 4200},{n * 4200 + 7200},{n * 4200}"
        for n in range(count)
    ]
    return HEAD + "\n".join(rows) + "\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a trace, its machines, and policies before and after."""
    for name, text in {
        "pods.csv": pods(),
        "nodes.csv": NODES,
        "base.yaml": BUDGET % ("100", "AlertOnly"),
        "prices.yaml": PRICES,
        "change.yaml": BUDGET % ("10", "Hold"),
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def asked(files: Path, *more: str) -> list[str]:
    flags = {"--trace": "pods.csv", "--nodes": "nodes.csv", "--policy": "base.yaml", "--change": "change.yaml"}
    given = [word for flag, name in flags.items() for word in (flag, str(files / name))]
    return ["simulate", *given, "--policy", str(files / "prices.yaml"), "--team-label", "team={qos}", *more]


def test_both_policies_stand_side_by_side(headroom: Headroom, files: Path) -> None:
    done = headroom(*asked(files))
    assert (done.code, done.err) == (0, "")
    assert done.out == GOLDEN


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_data(headroom: Headroom, files: Path, form: str) -> None:
    done = headroom(*asked(files, "-o", form))
    found = json.loads(done.out) if form == "json" else yaml.safe_load(done.out)
    assert found["work"] == 40
    assert found["changes"] == [
        "GPUWorkloadBudget/default/research: quota.gpuHours 100 -> 10, enforcement.action AlertOnly -> Hold"
    ]
    assert found["before"]["total"]["gpuHours"] == pytest.approx(80, abs=0.01)
    assert found["before"]["total"]["usd"] == pytest.approx(80, abs=0.01)
    assert found["after"]["held"] > 0
    assert {each["team"] for each in found["after"]["teams"]} == {"BE", "LS"}
    assert found["after"]["wakes"] == found["after"]["switches"] == 0


def test_a_page_is_written_with_what_is_installed(
    headroom: Headroom, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = headroom(*asked(files, "--html", str(files / "report.html")))
    assert done.err.startswith(f"wrote {files / 'report.html'}")
    assert "<h2>By budget</h2>" in (files / "report.html").read_text()
    monkeypatch.setenv("HEADROOM_UPLOT", str(files / "nowhere"))
    done = headroom(*asked(files, "--html", str(files / "bare.html")))
    assert done.err == (
        f"wrote {files / 'bare.html'}. Charts are missing because uPlot is not installed. The tables have all the numbers.\n"
    )
    refused = headroom(*asked(files, "--html", str(files / "no" / "report.html")))
    assert (refused.code, refused.out) == (2, "")


def test_a_snapshot_is_played_for_its_last_days(headroom: Headroom, tmp_path: Path) -> None:
    rows = [
        Usage(
            name=f"r{n}",
            namespace="team-a",
            pod=f"p{n}",
            start=NOON - (60 - n) * HOUR,
            end=NOON - (56 - n) * HOUR,
            gpus=10**6,
            labels={"team": "a"},
            price_per_hour=2 * 10**6,
        )
        for n in range(40)
    ]
    world = a_used_world(a_budget(hours="100", enforce="AlertOnly"), usage=rows, nodes=[a_node()], now=NOON)
    (tmp_path / "snapshot.json").write_bytes(save(world))
    flags = (
        "simulate",
        "--from",
        tmp_path / "snapshot.json",
        "--days",
        "2",
        "--without",
        "gwb/team-a/one",
        "-o",
        "json",
    )
    found = json.loads(headroom(*flags).out)
    assert found["days"] == pytest.approx(2)
    assert found["changes"] == ["GPUWorkloadBudget/team-a/one removed"]
    assert found["before"]["total"]["gpuHours"] == pytest.approx(found["recordedGpuHours"], rel=0.001)
    assert found["before"]["total"]["usd"] == pytest.approx(2 * found["recordedGpuHours"], rel=0.001)
    assert [each["budget"] for each in found["before"]["budgets"]] == ["team-a/one"]
    assert found["after"]["budgets"] == []


def test_machines_may_be_what_is_changed(headroom: Headroom, files: Path) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "more"},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "memory": "256Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    (files / "node.yaml").write_text(yaml.safe_dump(node))
    (files / "small.csv").write_text(NODES.splitlines()[0] + "\nn-0,64000,262144,1,T4\n")
    flags = (
        "--trace",
        files / "pods.csv",
        "--nodes",
        files / "small.csv",
        "--change",
        files / "node.yaml",
        "-o",
        "json",
    )
    found = json.loads(headroom("simulate", *flags).out)
    assert found["changes"] == ["nodes added or replaced: 1"]
    assert found["before"]["total"]["waits"]["longest"] > found["after"]["total"]["waits"]["longest"] == 0


POOL = """apiVersion: headroom.dev/v1alpha1
kind: PowerPool
metadata: {name: metal}
spec:
  template: {idleWatts: 500, busyWatts: 3000}
  policy: {idleSeconds: 600}
  machines:
  - {name: n-0, gpuCount: 8, scaleUpEndpoint: "http://power/n-0/on", scaleDownEndpoint: "http://power/n-0/off"}
  - {name: n-1, gpuCount: 8, scaleUpEndpoint: "http://power/n-1/on", scaleDownEndpoint: "http://power/n-1/off"}
---
apiVersion: sim.headroom.dev/v1
kind: Machine
metadata: {name: n-1}
spec: {power: Off}
"""


def test_machines_may_sleep(headroom: Headroom, files: Path) -> None:
    (files / "pool.yaml").write_text(POOL)
    # One pod for half an hour, every two hours.
    rows = [f"p{n},4000,1024,1,1000,,BE,Running,{n * 7200},{n * 7200 + 1800},{n * 7200}" for n in range(20)]
    (files / "sparse.csv").write_text(HEAD + "\n".join(rows) + "\n")
    flags = ("--trace", files / "sparse.csv", "--nodes", files / "nodes.csv", "--change", files / "pool.yaml")
    done = headroom("simulate", *flags)
    assert (done.code, done.err) == (0, "")
    assert "machine-hours powered on" in done.out
    found = json.loads(headroom("simulate", *flags, "-o", "json").out)
    assert found["changes"] == ["PowerPool/metal added", "machines with given power: 1"]
    before, after = found["before"], found["after"]
    assert before["machineHours"] == pytest.approx(2 * 24 * found["days"])
    # One is never needed, and the other for less than half of the time.
    assert after["machineHours"] < 0.25 * before["machineHours"]
    assert after["wakes"] > 15
    assert after["total"]["neverStarted"] == 0
    assert (before["energyKwh"], before["savedKwh"]) == (None, None)
    assert after["savedKwh"] > 20
    slow = json.loads(headroom("simulate", *flags, "--boot-time", "20m", "-o", "json").out)["after"]
    longest = [each["total"]["waits"]["longest"] for each in (after, slow)]
    assert longest[1] - longest[0] == pytest.approx(20 * 60 - 90, abs=5)


NAMESPACE = """apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {org: lab}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
---
"""
WIDE = """apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: wide, namespace: headroom-system}
spec:
  namespaceSelector: {matchLabels: {org: lab}}
  selector: {matchLabels: {team: BE}}
  quota: {gpuHours: "10", windowHours: 24}
  enforcement: {action: Hold}
"""


def test_namespaces_are_played_and_what_is_not_is_said(headroom: Headroom, files: Path) -> None:
    (files / "change.yaml").write_text(NAMESPACE + WIDE)
    done = headroom(*asked(files, "-o", "json"))
    assert done.err == "skipped 1 Pod: a replay takes work and everything outside the cluster from the record\n"
    found = json.loads(done.out)
    assert "namespaces added or replaced: 1" in found["changes"]
    assert found["after"]["held"] > 0


SCENARIO = """apiVersion: sim.headroom.dev/v1
kind: Scenario
metadata: {name: small}
spec:
  duration: 2m
  expect: [{resource: GPUWorkloadBudget/default/research, path: "status.conditions[Ready].status", equals: "%s"}]
---
"""


def test_a_scenario_is_played_on_the_full_simulator(headroom: Headroom, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO % "True" + BUDGET % ("1", "AlertOnly"))
    done = headroom("simulate", file)
    assert done.code == 0
    assert done.out.startswith("small: passed; 1 of 1 expectation held.\n0 faults struck; ")
    file.write_text(SCENARIO % "False" + BUDGET % ("1", "AlertOnly"))
    done = headroom("simulate", file, "-o", "json")
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["passed"], found["held"], found["expectations"]) == (False, 0, 1)
    assert len(found["failures"]) == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "choosing the input: give one of SCENARIO, --from and --trace, with a change; for example"),
        (("--trace", "{}/pods.csv", "--from", "x"), "give one of SCENARIO, --from and --trace, not --from and --trace"),
        (("--trace", "{}/none.csv"), "reading {}/none.csv: No such file or directory; check the path and its rights"),
        (("--from", "{}/pods.csv"), "it is not a snapshot"),
        (("--from", "{}/pods.csv", "--nodes", "{}/nodes.csv"), "--nodes is for traces only; a snapshot includes it"),
        (("--trace", "{}/pods.csv", "--every", "soon"), "reading --every: it must be a duration such as 10s or 5m"),
        (
            ("--trace", "{}/pods.csv", "--boot-time", "0"),
            "reading --boot-time: it must be a duration such as 10s or 5m",
        ),
        (("--trace", "{}/pods.csv", "--team-label", "team"), "naming teams: give the label with its value"),
        (
            ("--trace", "{}/pods.csv", "--without", "gwb/a/b"),
            "leaving out gwb/a/b: no such resource; the record has none",
        ),
        (("--trace", "{}/nodes.csv"), "line 1 is not the header of a known trace"),
        (("--trace", "{}/pods.csv", "--days", "inf"), "reading --days: it must be from 0.01 to 3,650, not inf"),
        (("--trace", "{}/pods.csv", "--policy", "-", "--change", "-"), "it can be read only once; give - once"),
        (("--trace", "-", "--nodes", "-"), "it can be read only once; give - once"),
        (
            ("--trace", "{}/pods.csv"),
            "comparing: there is no change to compare with. Give --change FILE with manifests",
        ),
        (("{}/base.yaml",), "it must hold exactly one document of kind Scenario, not 0"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(
    headroom: Headroom, files: Path, flags: tuple[str, ...], says: str
) -> None:
    done = headroom("simulate", *(flag.format(files) for flag in flags))
    assert (done.code, done.out) == (2, "")
    assert says.format(files) in done.err
    assert done.err.count("\n") == 1


def test_a_wrong_policy_is_said_with_its_line(headroom: Headroom, files: Path) -> None:
    (files / "change.yaml").write_text(BUDGET % ("-5", "Hold"))
    done = headroom(*asked(files))
    assert (done.code, done.out) == (1, "")
    assert f"{files / 'change.yaml'}:6: GPUWorkloadBudget/default/research: spec.quota.gpuHours" in done.err


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ((BUDGET % ("10", "Hold")).replace("team: BE", "team: XX"), " after the change"),
        ((BUDGET % ("10", "Hold")).replace("namespace: default", "namespace: lab"), ""),
    ],
    ids=["another label", "another namespace"],
)
def test_a_budget_that_counts_nothing_is_named(headroom: Headroom, files: Path, text: str, when: str) -> None:
    (files / "change.yaml").write_text(text)
    said = headroom(*asked(files)).out
    name = "lab/research" if "lab" in text else "default/research"
    assert f"- Budget {name} matches no pod{when}, so it has no effect: set the namespace of the trace's pods" in said
    assert "--namespace" in said
    assert "--team-label" in said


def test_many_changes_are_told_in_part(headroom: Headroom, files: Path) -> None:
    ladder = "{steps: [{at: 50%, action: AlertOnly}, {at: 90%, action: Hold}, {at: 100%, action: Evict}]}"
    (files / "change.yaml").write_text((BUDGET % ("10", "X")).replace("{action: X}", ladder))
    said = headroom(*asked(files)).out
    assert "quota.gpuHours 100 -> 10, enforcement.action AlertOnly -> (not set), " in said
    assert "enforcement.steps[0].at (not set) -> 50%" in said
    assert " and 3 more\n" in said


def test_ctrl_c_prints_nothing_half(files: Path) -> None:
    (files / "pods.csv").write_text(pods(20_000))
    command = [sys.executable, "-m", "headroom", *asked(files, "--every", "1s", "-o", "json")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    wait_until(lambda: cpu_seconds(process.pid) > 2, "it has read its files and simulates")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, err) == (130, b"", b"")

"""`headroom bench`: the curve of expected use, the report, and pods that come in their time.

Also the truth that the accuracy benchmark measures against: whoever judges must be right first.
"""

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.live import truth
from headroom.adapters.kube.client import Kube
from headroom.cli import bench
from headroom.model.errors import Misconfigured
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from tests.adapters.simulated import virtual
from tests.builders import NOON
from tests.cli.conftest import Headroom

SEED = bench.BenchWorkload(count=50, rate=Fraction(10), runtime=30_000, micro_gpus=100_000)
CHAOS = bench.BenchWorkload(count=50, rate=Fraction(10), runtime=60_000, micro_gpus=100_000)
RUN = ("--count", "50", "--rate", "10", "--gpus", "100m")


@pytest.mark.parametrize(
    ("workload", "elapsed", "hours"),
    [
        (SEED, 45_000, Fraction(150, 3600)),
        (CHAOS, 15_000, Fraction(6275, 360_000)),
        (CHAOS, 120_000, Fraction(300, 3600)),
        (SEED, 0, Fraction(0)),
        (SEED, 100, Fraction(1, 360_000)),  # the second pod is made only now
    ],
)
def test_the_curve_gives_the_figures_that_the_seed_published(
    workload: bench.BenchWorkload, elapsed: int, hours: Fraction
) -> None:
    assert bench.expected(workload, elapsed) == hours


workloads = st.builds(
    bench.BenchWorkload,
    count=st.integers(1, 20),
    rate=st.sampled_from([Fraction(1), Fraction(5), Fraction(10), Fraction(1, 2)]),
    runtime=st.integers(1, 50).map(lambda tenths: tenths * 100),
    micro_gpus=st.integers(1, 8_000_000),
)


@given(workload=workloads, tenths=st.integers(0, 300))
def test_the_curve_agrees_with_counting_tenths_of_a_second(workload: bench.BenchWorkload, tenths: int) -> None:
    running = sum(
        workload.begins(number) <= tenth * 100 < workload.begins(number) + workload.runtime
        for tenth in range(tenths)
        for number in range(workload.count)
    )
    assert bench.expected(workload, tenths * 100) == Fraction(running * 100 * workload.micro_gpus, 3_600_000 * 10**6)


@pytest.mark.parametrize(
    ("reported", "wanted", "ratio"),
    [(0, 0, 1.0), (1, 0, None), (0, 2, 0.0), (1, 2, 0.5), (4, 2, 2.0)],
)
def test_the_ratio_is_never_cut_off(reported: int, wanted: int, ratio: float | None) -> None:
    assert bench.accuracy(Fraction(reported), Fraction(wanted)) == ratio


def report(headroom: Headroom, folder: Path, status: Any, *flags: str) -> dict[str, Any]:
    done = headroom(
        "bench", "report", *RUN, "--status-json", "-", "--out-dir", folder, *flags, stdin=json.dumps(status).encode()
    )
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


STATUS = {"consumedGpuHours": "0.05", "trackedPods": 50}


@pytest.mark.parametrize("document", [STATUS, {"kind": "GPUWorkloadBudget", "spec": {}, "status": STATUS}])
def test_the_report_compares_a_budget_or_its_status_with_the_curve(
    headroom: Headroom, tmp_path: Path, document: Any
) -> None:
    results = report(headroom, tmp_path / "new", document, "--elapsed", "45s", "--label", "steady")
    assert results.pop("generatedAt").endswith("Z")
    assert results == {
        "scenario": {"count": 50, "rate": 10.0, "runtimeSeconds": 30.0, "gpus": "100m"},
        "elapsedSeconds": 45.0,
        "reportedGpuHours": 0.05,
        "expectedGpuHours": pytest.approx(150 / 3600),
        "deltaGpuHours": pytest.approx(0.05 - 150 / 3600),
        "accuracyRatio": pytest.approx(1.2),
        "trackedPods": 50,
        "label": "steady",
    }
    summary = (tmp_path / "new" / "SUMMARY.md").read_text()
    assert summary.startswith("# Accuracy: steady\n")
    assert "| accuracy ratio | 1.2000 |" in summary
    assert "| tracked pods | 50 of 50 |" in summary


@pytest.mark.parametrize(
    ("status", "elapsed", "ratio", "pods"),
    [
        ({"consumedGpuHours": "0"}, "45s", 0.0, 0),
        ({"consumedGpuHours": 0}, "0s", 1.0, 0),
        ({"consumedGpuHours": "1"}, "0s", None, 0),
        ({"consumedGpuHours": 1, "trackedPods": 7}, "0s", None, 7),
    ],
)
def test_missing_pods_and_no_usage_are_zero(
    headroom: Headroom, tmp_path: Path, status: Any, elapsed: str, ratio: float | None, pods: int
) -> None:
    results = report(headroom, tmp_path, status, "--elapsed", elapsed)
    assert (results["accuracyRatio"], results["trackedPods"]) == (ratio, pods)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"consumedGpuHours": "many"}', "standard input: consumedGpuHours must be a quantity"),
        (b'{"status": {"consumedGpuHours": "1e309"}}', "standard input: consumedGpuHours must be at most"),
        (b"kind: Pod", "standard input: not a budget or its status as JSON"),
        (b"[]", "standard input: not a budget or its status as JSON"),
    ],
)
def test_a_status_that_says_nothing_ends_with_1(headroom: Headroom, tmp_path: Path, text: bytes, says: str) -> None:
    done = headroom("bench", "report", "--elapsed", "45s", "--status-json", "-", "--out-dir", tmp_path, stdin=text)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(says)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("workload", "--label", "app"), "--label must be key=value with both parts, not 'app'"),
        (("workload", "--label", "=x"), "--label must be key=value with both parts, not '=x'"),
        (("workload", "--label", "app="), "--label must be key=value with both parts, not 'app='"),
        (("workload", "--label", "managed-by=me"), "--label may not be managed-by, which marks the pods as ours"),
        (("workload", "--rate", "0"), "--rate must be more than 0 and at most 1000 pods a second, not 0"),
        (("workload", "--rate", "nan"), "--rate must be more than 0 and at most 1000 pods a second, not nan"),
        (("workload", "--runtime", "soon"), "--runtime must be a duration such as 45s or 1m30s, not 'soon'"),
        (("workload", "--runtime", "0s"), "--runtime must be a duration such as 45s or 1m30s, not '0s'"),
        (("workload", "--gpus", "lots"), "--gpus must be a quantity such as 8, 500m or 1.5k, not 'lots'"),
        (("workload", "--gpus", "-1"), "--gpus must be a positive number of millionths, not '-1'"),
        (("workload", "--gpus", "1n"), "--gpus must be a positive number of millionths, not '1n'"),
        (("report", "--elapsed", "x", "--status-json", "-"), "--elapsed must be a duration such as 45s or 1m30s"),
        (("report", "--elapsed", "45s", "--status-json", "none.json"), "reading none.json: No such file or directory"),
    ],
)
def test_what_is_wrong_with_a_flag_is_one_sentence(headroom: Headroom, flags: tuple[str, ...], says: str) -> None:
    done = headroom("bench", *flags)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("headroom: ")
    assert says in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["workload", "report"])
def test_each_command_explains_itself_with_an_example(headroom: Headroom, command: str) -> None:
    done = headroom("bench", command, "--help")
    assert done.code == 0
    assert "Examples:\n" in done.out
    assert f"headroom bench {command} --" in " ".join(done.out.split())


@pytest.mark.parametrize("text", [b"{}", b'{"kind": "List", "items": []}', b'{"status": {"phase": "Running"}}'])
def test_what_says_nothing_of_usage_is_no_measurement(headroom: Headroom, tmp_path: Path, text: bytes) -> None:
    done = headroom("bench", "report", "--elapsed", "45s", "--status-json", "-", "--out-dir", tmp_path, stdin=text)
    assert done.code == 1
    assert "there is no consumedGpuHours in it" in done.err
    assert not (tmp_path / "results.json").exists()


def test_a_folder_that_cannot_be_written_is_named(headroom: Headroom, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    flags = ("--elapsed", "45s", "--status-json", "-", "--out-dir", tmp_path / "file")
    done = headroom("bench", "report", *flags, stdin=b'{"consumedGpuHours": "0"}')
    assert done.code == 2
    assert done.err.startswith(f"headroom: writing to {tmp_path / 'file'}: File exists; give another --out-dir")


def seen(second: int) -> str:
    return f"2026-11-15T12:00:{second:02d}Z"


def a_pod(phase: str, *states: dict[str, Any], inits: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """A pod of two containers with 100m and 1 cpu, by the states of its containers."""
    containers = [{"resources": {"requests": {"cpu": amount}}} for amount in ("100m", "1")]
    status: dict[str, Any] = {"phase": phase, "containerStatuses": list(states)}
    if inits:
        status["initContainerStatuses"] = list(inits)
    return {"spec": {"containers": containers}, "status": status}


def ran(start: int, end: int) -> dict[str, Any]:
    return {"terminated": {"startedAt": seen(start), "finishedAt": seen(end)}}


RUNS = {"running": {"startedAt": seen(20)}}
NOON_MS = truth.moment("2026-11-15T12:00:00Z")


@pytest.mark.parametrize(
    ("pod", "start", "end"),
    [
        (a_pod("Pending", {"state": {"waiting": {"reason": "ContainerCreating"}}}), None, None),
        (a_pod("Running", {"state": RUNS}), 20, None),
        (a_pod("Running", {"state": RUNS, "lastState": ran(5, 9)}), 5, None),
        (a_pod("Running", {"state": RUNS}, inits=({"state": ran(2, 4)},)), 2, None),
        (a_pod("Running", {"state": ran(1, 9)}, {"state": RUNS}), 1, None),
        (a_pod("Succeeded", {"state": ran(3, 30)}, {"state": ran(4, 40)}), 3, 40),
        (a_pod("Failed", {"state": ran(3, 30)}), 3, 30),
    ],
)
def test_the_truth_about_a_pod_is_its_earliest_start_and_its_last_end(
    pod: dict[str, Any], start: int | None, end: int | None
) -> None:
    held = truth.held(pod, "cpu")
    if start is None:
        assert held is None
        return
    assert held == (1_100_000, NOON_MS + start * 1000, None if end is None else NOON_MS + end * 1000)


holders = st.builds(truth.Held, st.integers(1, 9), st.integers(0, 40), st.one_of(st.none(), st.integers(0, 40)))


@given(holders=st.lists(holders, max_size=6), as_of=st.integers(0, 50), window=st.integers(1, 50))
def test_the_truth_is_what_counting_moment_by_moment_gives(holders: list[truth.Held], as_of: int, window: int) -> None:
    counted = sum(
        each.micro
        for each in holders
        for moment in range(as_of - window, as_of)
        if each.start <= moment and (each.end is None or moment < each.end)
    )
    assert truth.used(holders, as_of, window) == counted


TEMPLATE = bench.Template(
    namespace="team-a",
    prefix="bench-",
    labels={"team": "a", "managed-by": "headroom-bench"},
    annotations={bench.KWOK_RUN_TIME: "30000ms"},
    resource="cpu",
    gpus="100m",
    image="busybox:1.37",
    seconds="30",
)


def simulated() -> tuple[ApiServer, Kube]:
    clock = SimClock(NOON)
    server = ApiServer(clock, random.Random(1))
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    return server, Kube(server.transport("bench"), clock)


@virtual
async def test_pods_are_made_one_every_so_often() -> None:
    server, kube = simulated()
    plan = bench.BenchWorkload(count=4, rate=Fraction(1, 2), runtime=30_000, micro_gpus=100_000)
    making = bench.Making(TEMPLATE, plan)
    await making.work(kube)

    pods = [server.object("Pod", "team-a", f"bench-{number:04d}") for number in range(4)]
    made = [pod["metadata"]["creationTimestamp"] for pod in pods if pod]
    assert made == [f"2026-11-15T12:00:0{second}Z" for second in (0, 2, 4, 6)]
    assert making.made == 4
    first = pods[0]
    assert first is not None
    assert first["metadata"]["labels"] == TEMPLATE.labels
    assert first["metadata"]["annotations"] == TEMPLATE.annotations
    assert (first["spec"]["restartPolicy"], first["spec"]["terminationGracePeriodSeconds"]) == ("Never", 1)
    [container] = first["spec"]["containers"]
    assert container["command"] == ["sleep", "30"]
    assert container["resources"]["requests"] == {"cpu": "100m"}


@virtual
async def test_pods_of_an_earlier_run_are_not_taken_for_ours() -> None:
    _, kube = simulated()
    plan = bench.BenchWorkload(count=1, rate=Fraction(1), runtime=30_000, micro_gpus=100_000)
    await bench.Making(TEMPLATE, plan).work(kube)
    with pytest.raises(Misconfigured, match=r"bench-0000.*delete the pods of an earlier run, or give another --prefix"):
        await bench.Making(TEMPLATE, plan).work(kube)

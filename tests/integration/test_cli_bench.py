"""`headroom bench workload` on a real control plane: pods that come in their time and end in theirs, and Ctrl-C."""

import json
import random
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.control_plane import ControlPlane, wait_until
from tests.processes import PATIENCE_SECONDS


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    name = f"bench-{random.randrange(10**6)}"
    control_plane.kubectl("create", "namespace", name)
    return name


def command(plane: ControlPlane, namespace: str, *flags: str) -> list[str]:
    base = [sys.executable, "-m", "headroom", "bench", "workload", "--kubeconfig", str(plane.kubeconfig())]
    return [*base, "--namespace", namespace, *flags]


def pods_in(plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(plane.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
    return found


def test_on_kwok_nodes_pods_end_after_their_run_time_and_keep_their_start(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.add_node(f"{namespace}-node")
    flags = ("--count", "3", "--rate", "20", "--runtime", "3s", "--gpus", "100m", "--gpu-resource", "cpu", "--kwok")
    done = subprocess.run(
        command(control_plane, namespace, *flags), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Made 3 pods in ")
    wait_until(
        lambda: [pod["status"]["phase"] for pod in pods_in(control_plane, namespace)] == ["Succeeded"] * 3,
        "all pods have ended",
    )
    for pod in pods_in(control_plane, namespace):
        [container] = pod["status"]["containerStatuses"]
        ended = container["state"]["terminated"]
        assert ended["finishedAt"] > ended["startedAt"] == pod["status"]["startTime"]
    control_plane.kubectl("delete", "node", f"{namespace}-node")
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def test_interrupted_it_says_what_it_made_and_how_to_undo_it(control_plane: ControlPlane, namespace: str) -> None:
    flags = ("--count", "100", "--rate", "2", "--gpus", "100m", "--gpu-resource", "cpu")
    with subprocess.Popen(
        command(control_plane, namespace, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: len(pods_in(control_plane, namespace)) >= 2, "two pods are made")
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE_SECONDS)
    made = len(pods_in(control_plane, namespace))
    assert (process.returncode, out) == (130, "")
    # The last one may have been made while its answer was still on the way.
    assert said in [
        f"headroom: making pods: interrupted after {number} of 100; "
        f"delete them with: kubectl delete pods -n {namespace} -l managed-by=headroom-bench\n"
        for number in (made - 1, made)
    ]
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")

"""The control plane that the other tests stand on does what they take for granted."""

import json
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane import COMPONENTS, ControlPlane, KubectlFailed, wait_until

MakeControlPlane = Callable[..., ControlPlane]


def read(plane: ControlPlane, *args: str) -> Any:
    return json.loads(plane.kubectl("get", *args, "-o", "json"))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_all_parts_run_and_the_server_is_verified(control_plane: ControlPlane) -> None:
    assert set(control_plane.pids) == {"etcd", "kube-apiserver", *COMPONENTS}
    assert control_plane.get("/readyz") == "ok"
    assert "apiserver_request_total" in control_plane.metrics()


@pytest.mark.parametrize("user", ["admin", "admin-cert"])
def test_an_administrator_enters_by_token_and_by_certificate(control_plane: ControlPlane, user: str) -> None:
    assert control_plane.kubectl("auth", "can-i", "*", "*", user=user).strip() == "yes"


@pytest.mark.parametrize("user", ["nobody", "viewer", "tenant"])
def test_others_have_no_rights_at_first(control_plane: ControlPlane, user: str) -> None:
    with pytest.raises(KubectlFailed, match="Forbidden"):
        control_plane.kubectl("get", "nodes", user=user)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        control_plane.get("/api/v1/nodes", user=user)


def test_a_grant_reaches_one_namespace_only(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", "granted")
    control_plane.grant("tenant", "view", namespace="granted")
    wait_until(lambda: _may_list_pods(control_plane, "granted"), "tenant may list pods in granted")
    assert not _may_list_pods(control_plane, "default")


def _may_list_pods(plane: ControlPlane, namespace: str) -> bool:
    try:
        plane.kubectl("get", "pods", "-n", namespace, user="tenant")
    except KubectlFailed:
        return False
    return True


def test_the_scheduler_binds_a_gpu_pod_and_kwok_runs_it(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", "bind")
    control_plane.add_node("bind-1", {"nvidia.com/gpu": "8"})
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "bind"},
        "spec": {"containers": [container]},
    }
    control_plane.apply(pod)

    def is_running() -> bool:
        return bool(read(control_plane, "pod", "trainer", "-n", "bind")["status"]["phase"] == "Running")

    wait_until(is_running, "the pod is Running")
    assert read(control_plane, "pod", "trainer", "-n", "bind")["spec"]["nodeName"] == "bind-1"
    ready = [c["status"] for c in read(control_plane, "node", "bind-1")["status"]["conditions"] if c["type"] == "Ready"]
    assert ready == ["True"]
    control_plane.kubectl("delete", "namespace", "bind", "--wait=false")
    control_plane.kubectl("delete", "node", "bind-1")


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "ended"])
def test_the_api_server_comes_back_with_all_it_had(bare_control_plane: MakeControlPlane, *, kill: bool) -> None:
    plane = bare_control_plane()
    plane.kubectl("create", "namespace", "kept")
    before, url = plane.pids["kube-apiserver"], plane.url
    plane.restart_apiserver(kill=kill)
    assert not is_alive(before)
    assert plane.url == url
    assert read(plane, "namespace", "kept")["metadata"]["name"] == "kept"


def test_a_watch_from_compacted_history_is_expired(bare_control_plane: MakeControlPlane) -> None:
    plane = bare_control_plane(apiserver_flags=["--watch-cache=false"])
    old = json.loads(plane.get("/api/v1/namespaces"))["metadata"]["resourceVersion"]
    plane.kubectl("create", "namespace", "later")
    assert plane.compact() > int(old)
    answer = plane.get(f"/api/v1/namespaces?watch=true&timeoutSeconds=5&resourceVersion={old}")
    assert json.loads(answer)["object"]["code"] == 410


def test_nothing_is_left_after_stop(bare_control_plane: MakeControlPlane) -> None:
    plane = bare_control_plane(components=COMPONENTS, users={"auditor": ["auditors"]})
    assert "auditors" in plane.kubectl("auth", "whoami", user="auditor")
    pids = list(plane.pids.values())
    assert all(map(is_alive, pids))
    plane.stop()
    plane.stop()
    assert not any(map(is_alive, pids))
    assert not plane.folder.exists()


STARTS_ONE_PROCESS = """
import sys, time
from pathlib import Path
from tests.processes import Guard, Process
folder = Path(sys.argv[1])
print(Process(["/bin/sleep", "600"], folder / "log", Guard(folder), {}).pid, flush=True)
time.sleep(600)
"""


def test_nothing_is_left_when_the_tests_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_ONE_PROCESS, str(tmp_path / "plane")]
    (tmp_path / "plane").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        assert is_alive(pid)
        tests.kill()
    wait_until(lambda: not is_alive(pid), "the process is gone")
    wait_until(lambda: not (tmp_path / "plane").exists(), "its folder is gone")

"""The command line against a real API server: the operator as a process, and every way in which it cannot start."""

import contextlib
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest

from headroom.cli.main import main
from tests.control_plane import ControlPlane, wait_until
from tests.processes import PATIENCE_SECONDS, free_ports

# Those of the tests themselves are no settings of the operator.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
PROGRAM = [sys.executable, "-m", "headroom"]
NAMESPACE = "headroom-live"
BUDGET = {
    "apiVersion": "headroom.dev/v1alpha1",
    "kind": "GPUWorkloadBudget",
    "metadata": {"name": "team-a", "namespace": NAMESPACE},
    "spec": {
        "selector": {"matchLabels": {"team": "a"}},
        "quota": {"gpuHours": "10", "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    },
}
HOLD = {
    "apiVersion": "headroom.dev/v1alpha1",
    "kind": "BudgetHold",
    "metadata": {"name": "headroom-live.team-a"},
    "spec": {"budget": f"{NAMESPACE}/team-a", "namespaces": [NAMESPACE], "because": "a test"},
}
READER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "headroom-live-metrics"},
    "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
}


def headroom(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and hold it to its exit code: the operator as a process, all else within this one, as its start is long."""
    words = [*map(str, arguments)]
    if words[0] == "run":
        command = [*PROGRAM, *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_SECONDS, check=False
        )
    else:
        done = _called(words)
    assert done.returncode == code, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def _called(words: list[str]) -> subprocess.CompletedProcess[str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with (
        mock.patch.dict(os.environ, ENVIRONMENT, clear=True),
        mock.patch.object(sys, "argv", ["headroom", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    said = (each.buffer.getvalue().decode() for each in (out, err))
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(words, code, *said)


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that could not run said, beside its log."""
    [said] = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    return said


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with our kinds and one budget in a namespace of our own."""
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=headroom("crds").stdout)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    names = "gpuworkloadbudgets.headroom.dev", "powerpools.headroom.dev"
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", "crd", *names)
    wait_until(lambda: _applies(control_plane), "the API server takes a budget")
    return control_plane


def _applies(plane: ControlPlane) -> bool:
    try:
        plane.apply(BUDGET)
    except Exception:  # noqa: BLE001  the server learns of a kind a moment after it has established it
        return False
    return True


@pytest.fixture(scope="module")
def to(plane: ControlPlane) -> tuple[str, ...]:
    """The flags that lead a command to the plane."""
    return ("--kubeconfig", str(plane.kubeconfig()), "--operator-namespace", NAMESPACE)


class Running:
    def __init__(self, process: subprocess.Popen[str], metrics: int, health: int) -> None:
        self.process, self.metrics, self.health = process, metrics, health

    def get(self, path: str, token: str = "", *, health: bool = False) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.health}{path}" if health else f"https://127.0.0.1:{self.metrics}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        anyone = ssl.create_default_context()
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=60, context=anyone) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()
        except OSError:
            return 0, ""

    def is_ready(self) -> bool:
        assert self.process.poll() is None, "the operator ended by itself"
        # The dashboard is a process of its own, which may begin to answer a little later.
        return self.get("/readyz", health=True)[0] == 200 and self.get("/metrics")[0] == 401


@contextmanager
def running(*flags: str) -> Iterator[Running]:
    metrics, health = free_ports(2)
    addresses = ("--metrics-address", f"127.0.0.1:{metrics}", "--health-address", f"127.0.0.1:{health}")
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(
            [*PROGRAM, "run", *flags, *addresses, "--state-dir", folder],
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        ) as process,
    ):
        found = Running(process, metrics, health)
        try:
            wait_until(found.is_ready, "the operator is ready")
            yield found
        finally:
            process.kill()


def read(plane: ControlPlane, *what: str) -> Any:
    return json.loads(plane.kubectl("get", *what, "-n", NAMESPACE, "-o", "json"))


def reason(plane: ControlPlane) -> str:
    conditions = read(plane, "gwb", "team-a").get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def is_stopped(plane: ControlPlane, operator: Running) -> bool:
    return "headroom_stopped 1.0" in operator.get("/metrics", plane.admin_token)[1]


def test_the_operator_lives_leads_and_ends_in_good_order(plane: ControlPlane, to: tuple[str, ...]) -> None:
    with running(*to) as operator:
        assert operator.get("/healthz", health=True) == (200, "ok\n")
        wait_until(lambda: reason(plane) == "Reconciled", "the budget has a status")
        assert read(plane, "lease", "headroom")["spec"]["holderIdentity"]
        headroom("stop", *to, "--reason", "a test")
        wait_until(lambda: is_stopped(plane, operator), "the operator has stopped all effects")
        assert read(plane, "configmap", "headroom")["data"]["stop-reason"] == "a test"
        wait_until(lambda: reason(plane) == "Stopped", "the status says so")
        assert "\nStopped: Within quota: 0.00 of 10" in headroom("explain", "gwb/team-a", "-n", NAMESPACE, *to).stdout
        plane.apply(HOLD)
        again = headroom("stop", *to).stdout
        assert "Deleted 1 BudgetHold: new pods start as always, since nothing releases pods now." in again
        assert plane.kubectl("get", "budgetholds", "-o", "name") == ""
        assert "recreates the BudgetHolds" in headroom("resume", *to).stdout
        wait_until(lambda: not is_stopped(plane, operator), "effects happen again")
        operator.process.send_signal(signal.SIGTERM)
        assert operator.process.wait(PATIENCE_SECONDS) == 0
        assert operator.process.stderr is not None
        log = [json.loads(line) for line in operator.process.stderr]
    assert read(plane, "lease", "headroom")["spec"]["holderIdentity"] == ""
    events = [line["event"] for line in log]
    assert events[0] == "starting"
    assert events[-1] == "stopped"
    assert not [line for line in log if line["level"] == "error"]


def test_metrics_are_for_those_who_may_read_them(plane: ControlPlane, to: tuple[str, ...]) -> None:
    plane.apply(READER)
    plane.grant("viewer", "headroom-live-metrics")
    with running(*to) as operator:
        assert operator.get("/metrics")[0] == 401
        assert operator.get("/metrics", "made-up")[0] == 401
        assert operator.get("/metrics", plane.token("tenant"))[0] == 403
        # RBAC reaches the API server's own authorizer a moment later, and a no is remembered for ten seconds.
        wait_until(lambda: operator.get("/metrics", plane.token("viewer"))[0] == 200, "the viewer may read metrics")
        assert "headroom_view_complete 1.0" in operator.get("/metrics", plane.token("viewer"))[1]
        assert operator.get("/api/overview", plane.token("viewer"))[0] == 403
        status, page = operator.get("/api/overview", plane.admin_token)
        assert (status, f"{NAMESPACE}/team-a" in page) == (200, True)


def test_a_dry_run_prints_the_plan_and_writes_nothing(plane: ControlPlane, to: tuple[str, ...]) -> None:
    before = read(plane, "gwb", "team-a")["metadata"]["resourceVersion"]
    result = json.loads(headroom("run", *to, "--dry-run", "-o", "json").stdout)
    assert result["problems"] == []
    mine = [each for each in result["decisions"] if each["resource"]["namespace"] == NAMESPACE]
    assert [each["resource"]["name"] for each in mine] == ["team-a"]
    assert "GPUWorkloadBudget/headroom-live/team-a" in headroom("run", *to, "--dry-run").stdout
    assert read(plane, "gwb", "team-a")["metadata"]["resourceVersion"] == before


def test_a_snapshot_can_be_replayed(to: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    headroom("snapshot", *to, "-o", file)
    replayed = json.loads(headroom("replay", file, "-o", "json").stdout)
    assert "team-a" in [each["resource"]["name"] for each in replayed["decisions"]]


@pytest.mark.parametrize("name", ["gwb/team-a", f"gpuworkloadbudgets/{NAMESPACE}/team-a", "GPUWorkloadBudget/team-a"])
def test_explain_knows_every_name_of_a_kind(to: tuple[str, ...], name: str) -> None:
    said = headroom("explain", name, "-n", NAMESPACE, *to).stdout.splitlines()
    name = f"GPUWorkloadBudget/{NAMESPACE}/team-a"
    # Where no operator has looked at it yet, that is said first.
    assert "Within quota: 0.00 of 10 GPU-hours in the last 24h." in said[said.index(name) + 1]
    assert any(line.split() == ["100%", "AlertOnly", "not", "active"] for line in said)


def test_explain_offers_what_is_near(to: tuple[str, ...]) -> None:
    said = sentence(headroom("explain", "gwb/taem-a", *to, code=2))
    assert f"did you mean GPUWorkloadBudget/{NAMESPACE}/team-a?" in said


def _may_list(plane: ControlPlane, user: str) -> bool:
    try:
        plane.kubectl("get", "pods,gwb", "-n", NAMESPACE, user=user)
    except Exception:  # noqa: BLE001  RBAC reaches the API server's own authorizer a moment later
        return False
    return True


def test_explain_tells_a_tenant_why_a_pod_waits(plane: ControlPlane) -> None:
    """One who sees nothing but one namespace learns what the operator has written down there."""
    meta = {"name": "held", "namespace": NAMESPACE}
    spec = {
        "selector": {"matchLabels": {"team": "held"}},
        "quota": {"gpuHours": "10", "windowHours": 24},
        "enforcement": {"action": "Hold"},
    }
    queued = {"unit": f"Pod/{NAMESPACE}/held", "gpus": "1", "startsAt": "2026-11-15T14:30:00Z", "state": "Reserved"}
    status = {"consumedGpuHours": "10.2", "held": {"units": 1, "pods": 1, "queue": [queued]}}
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    notes = {"headroom.dev/held-by": f"{NAMESPACE}/held"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"labels": {"team": "held"}, "annotations": notes},
        "spec": {"schedulingGates": [{"name": "headroom.dev/budget"}], "containers": [container]},
    }
    rules = [
        {"apiGroups": [group], "resources": [plural], "verbs": ["get", "list"]}
        for group, plural in (("", "pods"), ("headroom.dev", "gpuworkloadbudgets"))
    ]
    role = READER | {"metadata": {"name": "headroom-live-tenant"}, "rules": rules}
    plane.apply(BUDGET | {"metadata": meta, "spec": spec}, pod, role)
    plane.grant("tenant", "headroom-live-tenant", NAMESPACE)
    patch = ("--type=merge", "--subresource=status", "-p", json.dumps({"status": status}))
    plane.kubectl("patch", "gwb", "held", "-n", NAMESPACE, *patch)
    asked = (
        "explain",
        f"pod/{NAMESPACE}/held",
        "--kubeconfig",
        plane.kubeconfig("tenant"),
        "--operator-namespace",
        NAMESPACE,
    )
    try:
        wait_until(lambda: _may_list(plane, "tenant"), "the tenant may look")
        lines = headroom(*asked).stdout.splitlines()
        missing = headroom("explain", "pod/held", "-A", "--kubeconfig", plane.kubeconfig("tenant"), code=2)
    finally:
        plane.kubectl("delete", "pod,gwb", "held", "-n", NAMESPACE, "--grace-period=0", "--force")
    assert lines[0] == (
        f"Pod {NAMESPACE}/held is queued by budget {NAMESPACE}/held: 10.2 of 10 GPU-hours in the last 24h; estimated start "
        "2026-11-15T14:30:00Z, alone in the queue."
    )
    assert lines[-1].startswith("- not checked for lack of permission: gpuworkloadbudgets.headroom.dev, ")
    assert sentence(missing).endswith("you may not list those of all namespaces; name one, as in pod/lab/train-0")


def gated(name: str, *gates: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "none"}], "schedulingGates": [{"name": each} for each in gates]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def test_pods_are_released_by_name_and_each_failure_is_a_sentence(plane: ControlPlane, to: tuple[str, ...]) -> None:
    plane.apply(gated("waits", "headroom.dev/budget", "example.com/theirs"), gated("free"))
    there, absent = f"pod/{NAMESPACE}/waits", f"{NAMESPACE}/wait"
    done = headroom("release", absent, there, f"{NAMESPACE}/free", *to[:2], code=2)
    (request,) = json.loads(plane.kubectl("get", "rr", "-n", NAMESPACE, "-o", "json"))["items"]
    assert done.stdout == f"Asked for {there}: releaserequest {NAMESPACE}/{request['metadata']['name']}.\n"
    assert request["spec"]["target"] == {
        "kind": "Pod",
        "name": "waits",
        "uid": read(plane, "pod", "waits")["metadata"]["uid"],
    }
    lists = f"`kubectl get pods -n {NAMESPACE}` lists them"
    assert done.stderr.splitlines() == [
        f"headroom: releasing pod/{NAMESPACE}/wait: not found (did you mean {there}?); {lists}",
        f"headroom: releasing pod/{NAMESPACE}/free: no budget queues it",
    ]
    plane.kubectl("delete", "rr", "--all", "-n", NAMESPACE)
    nobody = ("--kubeconfig", str(plane.kubeconfig("nobody")))
    assert sentence(headroom("release", there, *nobody, code=2)) == (
        "headroom: releasing: you may not release budgetholds.headroom.dev or "
        f"create releaserequests.headroom.dev in namespace {NAMESPACE}; "
        "ask an administrator to bind you to the ClusterRole headroom-releaser"
    )
    plane.kubectl("delete", "pod", "waits", "free", "-n", NAMESPACE, "--wait=false", "--grace-period=0", "--force")


def test_uninstall_refuses_while_an_operator_leads(plane: ControlPlane, to: tuple[str, ...]) -> None:
    with running(*to) as operator:
        wait_until(lambda: read(plane, "lease", "headroom")["spec"]["holderIdentity"], "the operator leads")
        refused = headroom("uninstall", "--yes", *to, code=2)
        assert f"holds the lease {NAMESPACE}/headroom; stop the operator first, or give --force" in refused.stderr
        assert refused.stdout == ""
        assert "would remove" in headroom("uninstall", "--force", *to, code=2).stdout
        operator.process.send_signal(signal.SIGTERM)
        assert operator.process.wait(PATIENCE_SECONDS) == 0


def test_uninstall_takes_back_what_is_ours_only(plane: ControlPlane, to: tuple[str, ...]) -> None:
    headroom("stop", *to)
    held = BUDGET | {
        "metadata": {"name": "held", "namespace": NAMESPACE, "finalizers": ["headroom.dev/x", "example.com/y"]}
    }
    container = {"name": "main", "image": "none"}
    pod_meta = {"name": "held", "namespace": NAMESPACE, "finalizers": ["example.com/y", "headroom.dev/x"]}
    plane.apply(held, {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": {"containers": [container]}})
    refused = headroom("uninstall", *to, code=2)
    assert f"would remove our finalizer from pod {NAMESPACE}/held" in refused.stdout
    assert refused.stdout.splitlines()[-1] == f"would remove ConfigMap {NAMESPACE}/headroom"
    assert sentence(refused).endswith("give --yes")
    assert len(read(plane, "pod", "held")["metadata"]["finalizers"]) == 2
    headroom("uninstall", "--yes", *to)
    for what in ("pod", "gwb"):
        assert read(plane, what, "held")["metadata"]["finalizers"] == ["example.com/y"]
    assert "headroom" not in plane.kubectl("get", "configmaps,leases", "-n", NAMESPACE, "-o", "name").replace(
        "headroom-", ""
    )
    assert headroom("uninstall", "--yes", *to).stdout == "There is nothing to remove.\n"
    for what in ("pod", "gwb"):
        plane.kubectl(
            "patch", what, "held", "-n", NAMESPACE, "--type=merge", "-p", '{"metadata": {"finalizers": null}}'
        )
        plane.kubectl("delete", what, "held", "-n", NAMESPACE, "--wait=false")


def test_without_kinds_rights_or_namespace_it_says_what_to_do(bare_control_plane: Callable[..., ControlPlane]) -> None:
    plane = bare_control_plane()
    admin, nobody = (("--kubeconfig", str(plane.kubeconfig(user))) for user in ("admin", "nobody"))
    said = sentence(headroom("run", *admin, code=2))
    assert "lacks gpuworkloadbudgets.headroom.dev, spotpools.headroom.dev" in said
    assert "kubectl apply -f deploy/crds" in said
    plane.kubectl("apply", "--server-side", "-f", "-", input=headroom("crds").stdout)
    wait_until(lambda: "lonp" in plane.kubectl("api-resources", "--api-group=headroom.dev"), "our kinds are served")
    said = sentence(headroom("run", *admin, code=2))
    assert "run `kubectl create namespace headroom-system` or give --operator-namespace" in said
    for flags in ((), ("--dry-run",)):
        said = sentence(headroom("run", *nobody, *flags, code=2))
        to_do = "list or watch" if flags else "list or watch or get or patch"
        assert f"this user may not {to_do} pods; {to_do} nodes;" in said
        assert ("powerpools/status" in said) == (not flags)
    headroom("stop", *admin, code=2)
    assert "kind bandwidths.headroom.dev" in headroom("uninstall", "--yes", "--crds", *admin).stdout
    assert headroom("uninstall", "--yes", "--crds", *admin).stdout == "There is nothing to remove.\n"


def test_a_server_that_is_not_there_is_one_sentence(plane: ControlPlane, tmp_path: Path) -> None:
    [port] = free_ports(1)
    file = tmp_path / "gone.kubeconfig"
    file.write_text(plane.kubeconfig().read_text().replace(plane.url, f"https://127.0.0.1:{port}"))
    for command in (("run",), ("run", "--dry-run"), ("explain", "gwb/a"), ("stop",), ("uninstall",)):
        said = sentence(headroom(*command, "--kubeconfig", file, code=2))
        assert f"cannot reach https://127.0.0.1:{port}" in said
        assert said.endswith(f"check that the server runs and that kubeconfig {file} has its address")


def test_unknown_credentials_are_one_sentence(plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "old.kubeconfig"
    file.write_text(plane.kubeconfig().read_text().replace(plane.admin_token, "made-up"))
    assert sentence(headroom("run", "--kubeconfig", file, code=2)).endswith(f"renew them in kubeconfig {file}")


@pytest.mark.parametrize("text", [None, "[" * 100, "clusters: 7", "current-context: none", "\x00\x01"])
def test_a_bad_kubeconfig_is_one_sentence(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    assert sentence(headroom("run", "--kubeconfig", file, code=2)).startswith(f"headroom: reading kubeconfig {file}: ")

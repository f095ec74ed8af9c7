"""`headroom uninstall` on a real API server: no pod is stuck or held, and nothing of ours is left."""

import json
from collections.abc import Callable
from typing import Any

from headroom.api.kinds import DEFINITIONS
from headroom.api.policies import USAGE_FINALIZER, policies
from tests.control_plane import ControlPlane, wait_until
from tests.integration.test_cli_live import headroom

INDEX = {
    "apiVersion": "headroom.dev/v1alpha1",
    "kind": "BudgetIndex",
    "metadata": {"name": "headroom"},
    "spec": {"budgets": [{"budget": "default/a", "namespaces": ["default"], "resources": ["cpu"], "exact": True}]},
}


def made_pod(plane: ControlPlane, name: str, *flags: str) -> list[str]:
    """Make a pod and say which finalizers it got."""
    main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [main]}}
    shown = plane.kubectl("create", "-n", "default", "-f", "-", "-o", "json", *flags, input=json.dumps(pod))
    found: list[str] = json.loads(shown)["metadata"].get("finalizers", [])
    return found


def test_uninstall_takes_the_policies_first_and_the_finalizers_then(
    bare_control_plane: Callable[..., ControlPlane],
) -> None:
    plane = bare_control_plane()
    for command in ("crds", "policies"):
        plane.kubectl("apply", "--server-side", "-f", "-", input=headroom(command).stdout)
    wait_until(lambda: "budgetindexes" in plane.kubectl("api-resources"), "the kinds are served")
    plane.apply(INDEX)
    wait_until(lambda: made_pod(plane, "probe", "--dry-run=server") == [USAGE_FINALIZER], "the policy is at work")
    assert made_pod(plane, "held") == [USAGE_FINALIZER]
    plane.kubectl("delete", "pod", "held", "-n", "default", "--wait=false", "--grace-period=0", "--force")
    to = ("--kubeconfig", plane.kubeconfig())

    would = headroom("uninstall", *to, code=2).stdout.splitlines()
    assert [line.split()[-1] for line in would[: len(policies())]].count("headroom-usage") == 2
    assert would[len(policies()) :] == [
        "would remove our finalizer from pod default/held",
        "would remove BudgetIndex headroom",
    ]

    headroom("uninstall", "--yes", *to)
    assert plane.kubectl("get", "pods,budgetindexes", "-A", "-o", "name") == ""
    kinds = ",".join({each["kind"] for each in policies()})
    assert "headroom" not in plane.kubectl("get", kinds, "-o", "name")
    assert made_pod(plane, "free") == []
    assert headroom("uninstall", "--yes", "--crds", *to).stdout.count("removing kind ") == len(DEFINITIONS)


HOLD = {
    "apiVersion": "headroom.dev/v1alpha1",
    "kind": "BudgetHold",
    "metadata": {"name": "default.a"},
    "spec": {
        "budget": "default/a",
        "namespaces": ["default"],
        "matchLabels": {"team": "a"},
        "resources": ["cpu"],
        "because": "All is used.",
    },
}
MARKS = {
    "metadata": {
        "labels": {"headroom.dev/suspended": "true"},
        "annotations": {
            "headroom.dev/suspended-by": "GPUWorkloadBudget/default/a",
            "headroom.dev/suspended-at": "2026-11-15T12:00:00Z",
        },
    },
    "spec": {"suspend": True},
}
PAUSED = {
    "metadata": {
        "annotations": {
            "headroom.dev/paused-at": "2026-11-15T12:00:00Z",
            "headroom.dev/paused-by": "GPUWorkloadBudget/default/a",
        }
    }
}


def job(name: str, **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"restartPolicy": "Never", "containers": [main]}}
    spec = {"parallelism": 2, "completions": 2, "template": template} | spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def pods(plane: ControlPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(plane.kubectl("get", "pods", "-n", "default", "-o", "json"))["items"]
    return found


def gates(pod: dict[str, Any]) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates", [])]


def test_uninstall_lets_go_of_all_that_is_held_paused_and_suspended(
    bare_control_plane: Callable[..., ControlPlane],
) -> None:
    plane = bare_control_plane(components=("kube-controller-manager",))
    for command in ("crds", "policies"):
        plane.kubectl("apply", "--server-side", "-f", "-", input=headroom(command).stdout)
    wait_until(lambda: "budgetholds" in plane.kubectl("api-resources"), "the kinds are served")
    plane.apply(job("suspended"), job("theirs", suspend=True))
    wait_until(lambda: len(pods(plane)) == 2, "the Job has its pods")
    plane.kubectl("patch", "job", "suspended", "-n", "default", "--type=merge", "-p", json.dumps(MARKS))
    wait_until(lambda: not pods(plane), "the pods of the suspended Job are gone")
    plane.apply(HOLD)
    wait_until(lambda: _is_gated(plane), "the hold is at work")
    plane.apply(job("held"))
    wait_until(lambda: [gates(each) for each in pods(plane)] == [["headroom.dev/budget"]] * 2, "new pods are gated")
    plane.kubectl("patch", "pod", pods(plane)[0]["metadata"]["name"], "-n", "default", "-p", json.dumps(PAUSED))
    to = ("--kubeconfig", plane.kubeconfig())

    done = headroom("uninstall", "--yes", *to).stdout
    assert "removing BudgetHold default.a" in done
    assert done.count("removing our gate and annotations from pod default/held-") == 2
    assert "removing our suspension of Job default/suspended" in done
    wait_until(lambda: len(pods(plane)) == 4, "the suspended Job goes on")
    everything = plane.kubectl("get", "pods,jobs,budgetholds", "-A", "-o", "json")
    assert "headroom.dev" not in everything
    assert plane.kubectl("get", "job", "theirs", "-n", "default", "-o", "jsonpath={.spec.suspend}") == "true"
    kinds = ",".join({each["kind"] for each in policies()})
    assert "headroom" not in plane.kubectl("get", kinds, "-o", "name")
    assert headroom("uninstall", "--yes", *to).stdout == "There is nothing to remove.\n"


def _is_gated(plane: ControlPlane) -> bool:
    labels = {"team": "a"}
    main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": labels},
        "spec": {"containers": [main]},
    }
    flags = ("-n", "default", "-f", "-", "-o", "json", "--dry-run=server")
    return bool(gates(json.loads(plane.kubectl("create", *flags, input=json.dumps(pod)))))


OURS: list[dict[str, Any]] = [
    {"kind": "Bandwidth", "metadata": {"name": "made", "annotations": {"headroom.dev/node-uid": "u"}}},
    {"kind": "Bandwidth", "metadata": {"name": "theirs"}},
]
LEFT_BY_THE_EXTENDER: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "headroom-system"}},
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "headroom-extender-tls", "namespace": "headroom-system"},
    },
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "headroom-extender", "namespace": "headroom-system"},
    },
]


def test_uninstall_takes_what_bandwidth_left(bare_control_plane: Callable[..., ControlPlane]) -> None:
    plane = bare_control_plane()
    plane.kubectl("apply", "--server-side", "-f", "-", input=headroom("crds").stdout)
    wait_until(lambda: "bandwidths" in plane.kubectl("api-resources"), "the kinds are served")
    bandwidths = [{"apiVersion": "headroom.dev/v1alpha1", "spec": {"capacity": {}}} | each for each in OURS]
    plane.apply(*LEFT_BY_THE_EXTENDER, *bandwidths, {"apiVersion": "headroom.dev/v1alpha1", **CONFIG})
    done = headroom("uninstall", "--yes", "--kubeconfig", plane.kubeconfig()).stdout
    assert done.splitlines() == [
        "removing Bandwidth made",
        "removing BandwidthConfig headroom",
        "removing Lease headroom-system/headroom-extender",
        "removing Secret headroom-system/headroom-extender-tls",
        "Removed 4 things.",
    ]
    assert plane.kubectl("get", "bandwidths,bandwidthconfigs", "-o", "name") == "bandwidth.headroom.dev/theirs\n"
    assert "headroom-extender" not in plane.kubectl("get", "secrets,leases", "-n", "headroom-system", "-o", "name")


CONFIG = {"kind": "BandwidthConfig", "metadata": {"name": "headroom"}, "spec": {"mode": "Extender"}}

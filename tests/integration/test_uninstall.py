"""`headroom uninstall` on a real API server: no pod is stuck, and none gets our finalizer any more."""

import json
from collections.abc import Callable

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

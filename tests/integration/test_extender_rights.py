"""What the extender's account may do, on a real API server: what deploy/extender.yaml says, and of a pod only its own mark."""

from collections.abc import Iterator
from typing import Any

import pytest

from headroom.adapters.kube import config
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.extender_secret import touch
from headroom.adapters.kube.http import HttpTransport
from headroom.api import generate
from headroom.runtime.clock import RealClock
from tests.integration.fenced import FENCE, NAMESPACE, OWN, Caller, Document, Fenced, fenced_cluster
from tests.integration.fenced import pod as a_pod

PODS = f"api/v1/namespaces/{NAMESPACE}/pods"
READ = ("get", "list", "watch")
EVERYWHERE = {
    *(f"{verb} {what}" for what in ("pods", "nodes", "bandwidths.headroom.dev") for verb in READ),
    "patch pods",
    "get customresourcedefinitions.apiextensions.k8s.io [bandwidths.headroom.dev]",
}
AT_HOME = {
    *("create leases.coordination.k8s.io", "create secrets"),
    *(f"{verb} leases.coordination.k8s.io [headroom-extender]" for verb in ("get", "update")),
    *(f"{verb} secrets [headroom-extender-tls]" for verb in ("get", "update")),
}


@pytest.fixture(scope="module")
def fenced() -> Iterator[Fenced]:
    with fenced_cluster() as made:
        made.plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / "extender.yaml"))
        yield made


@pytest.fixture(scope="module")
def extender(fenced: Fenced) -> Caller:
    return fenced.account("headroom-extender", OWN)


@pytest.fixture(scope="module")
def pending(fenced: Fenced) -> str:
    return fenced.make(PODS, a_pod("pending"))


def test_its_rights_are_these_and_no_others(fenced: Fenced, extender: Caller) -> None:
    # What every account may do.
    fenced.plane.kubectl("create", "serviceaccount", "nobody", "--namespace", OWN)
    everybody = fenced.account("nobody", OWN).rules(OWN)
    for namespace in (NAMESPACE, "kube-system", "default"):
        assert extender.rules(namespace) - everybody == EVERYWHERE
    assert extender.rules(OWN) - everybody == EVERYWHERE | AT_HOME


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"team": "b"}}},
        {"metadata": {"annotations": {"theirs": "2"}}},
        {"metadata": {"annotations": {"kubernetes.io/egress-bandwidth": "1k"}}},
        {"metadata": {"finalizers": ["headroom.dev/usage"]}},
        {"spec": {"schedulingGates": [{"name": "headroom.dev/budget"}]}},
        {"spec": {"nodeSelector": {"zone": "a"}}},
    ],
)
def test_nothing_of_a_pod_but_our_marks(extender: Caller, pending: str, change: Document) -> None:
    status, message = extender.patch(pending, change)
    assert (status, FENCE in message) == (403, True), (status, message)


def test_it_lifts_no_gate_of_a_budget(fenced: Fenced, extender: Caller) -> None:
    """The fence leaves that gate to whom it is about; who may not release budgets is stopped by the policy that guards it."""
    path = fenced.make(PODS, a_pod("gated"))
    status, message = extender.patch(path, {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}})
    assert (status, "headroom-guard" in message) == (403, True), (status, message)


async def test_it_touches_pods(fenced: Fenced, pending: str) -> None:
    found: Any = fenced.admin.send("GET", pending)[1]
    clock = RealClock()
    kubeconfig = fenced.plane.account_kubeconfig("headroom-extender", OWN)
    transport = HttpTransport(config.load(str(kubeconfig), None), clock)
    try:
        await touch(Kube(transport, clock), f"{NAMESPACE}/pending", found["metadata"]["uid"], 0)
    finally:
        await transport.close()
    touched: Any = fenced.admin.send("GET", pending)[1]
    assert touched["metadata"]["annotations"]["headroom.dev/touched-at"] == "1970-01-01T00:00:00Z"

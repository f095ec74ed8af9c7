"""What the operator's account may do, on a real API server: by its rights, and by the policy that fences them.

Every change that is refused to it is one that the API server lets an administrator make at that very moment.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.adapters.kube import config
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.http import HttpTransport
from headroom.cli import preflight
from headroom.runtime.clock import RealClock
from tests.control_plane import wait_until
from tests.integration.fenced import FENCE, NAMESPACE, OWN, OWNERS, Document, Fenced, event, fenced_cluster
from tests.integration.fenced import node as a_node
from tests.integration.fenced import owner as an_owner
from tests.integration.fenced import pod as a_pod

PODS, EVENTS = (f"api/v1/namespaces/{NAMESPACE}/{plural}" for plural in ("pods", "events"))
STRANGER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
OF_OTHERS: list[Document] = [
    {"metadata": {"labels": {"team": "b"}}},
    {"metadata": {"labels": {"new": "x"}}},
    {"metadata": {"labels": None}},
    {"metadata": {"labels": {"headroom.dev/new": "x"}}},
    {"metadata": {"annotations": {"theirs": "2"}}},
    {"metadata": {"annotations": {"new": "x"}}},
    {"metadata": {"annotations": {"theirs": None}}},
    {"metadata": {"annotations": None}},
    {"metadata": {"annotations": {"xheadroom.dev/a": "x"}}},
    {"metadata": {"annotations": {"headroom.development/a": "x"}}},
    {"metadata": {"ownerReferences": [STRANGER]}},
    {"metadata": {"finalizers": ["example.com/keep", "headroom.dev/usage", "example.com/new"]}},
    {"metadata": {"finalizers": ["example.com/keep", "headroom.dev/usage", "headroom.dev/new"]}},
]
"""Of the metadata of anything."""
_names = itertools.count()


@pytest.fixture(scope="module")
def fenced() -> Iterator[Fenced]:
    with fenced_cluster() as made:
        yield made


@pytest.fixture(scope="module")
def gated(fenced: Fenced) -> str:
    return fenced.make(PODS, a_pod("gated"))


@pytest.fixture(scope="module")
def bound(fenced: Fenced) -> str:
    return fenced.make(PODS, a_pod("bound", gated=False))


@pytest.fixture(scope="module")
def node(fenced: Fenced) -> str:
    """One that somebody else has cordoned."""
    return fenced.make("api/v1/nodes", a_node("n1"))


def assert_fenced(fenced: Fenced, path: str, change: Document, kind: str = "merge") -> None:
    """An administrator may, the operator may not."""
    status, message = fenced.admin.patch(path, change, kind)
    assert status == 200, f"the API server lets nobody do that, so it proves nothing: {message}"
    status, message = fenced.operator.patch(path, change, kind)
    assert (status, FENCE in message) == (403, True), (status, message)


def assert_allowed(fenced: Fenced, path: str, change: Document, kind: str = "merge") -> None:
    """The operator may, for good."""
    assert fenced.operator.patch(path, change, kind, dry=False) == (200, "")


# --- what is refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        *OF_OTHERS,
        {"metadata": {"finalizers": ["headroom.dev/usage"]}},
        {"metadata": {"finalizers": None}},
        {"metadata": {"annotations": {"headroom.dev/protected": "true"}}},
        {"metadata": {"annotations": {"headroom.dev/expected-duration": "1h"}}},
        {"metadata": {"annotations": {"headroom.dev/checkpointed-at": "2026-01-01T00:00:00Z"}}},
        {"spec": {"schedulingGates": [{"name": "headroom.dev/budget"}]}},
        {"spec": {"schedulingGates": None}},
        {"spec": {"nodeSelector": {"zone": "a"}}},
        {"spec": {"activeDeadlineSeconds": 9}},
        {
            "spec": {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                            ]
                        }
                    }
                }
            }
        },
        # beside something that it may do
        {
            "metadata": {"annotations": {"headroom.dev/released-at": "2026-01-01T00:00:00Z"}, "labels": {"team": "b"}},
            "spec": {"schedulingGates": [{"name": "example.com/gate"}]},
        },
    ],
)
def test_nothing_else_of_a_pod_that_waits(fenced: Fenced, gated: str, change: Document) -> None:
    assert_fenced(fenced, gated, change)


@pytest.mark.parametrize(
    "change",
    [
        {"containers": [{"name": "main", "image": "example.com/miner:1"}]},
        {"initContainers": [{"name": "init", "image": "example.com/miner:1"}]},
        {"activeDeadlineSeconds": 1},
    ],
)
def test_nothing_of_the_spec_of_a_pod_that_runs(fenced: Fenced, bound: str, change: Document) -> None:
    assert_fenced(fenced, bound, {"spec": change}, "strategic")


def test_no_toleration_is_added(fenced: Fenced, gated: str, bound: str) -> None:
    for path in (gated, bound):
        there = fenced.admin.send("GET", path)[1]["spec"].get("tolerations", [])
        assert_fenced(fenced, path, {"spec": {"tolerations": [*there, {"operator": "Exists"}]}})


TAINT = {"key": "example.com/ours", "value": "a", "effect": "NoSchedule"}
OURS = {"key": "headroom.dev/leftover", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "change",
    [
        *OF_OTHERS,
        {"spec": {"taints": None}},
        {"spec": {"taints": [OURS]}},
        {"spec": {"taints": [TAINT | {"value": "b"}, OURS]}},
        {"spec": {"taints": [TAINT | {"effect": "PreferNoSchedule"}, OURS]}},
        {"spec": {"taints": [TAINT, OURS, {"key": "new", "effect": "NoExecute"}]}},
        {"spec": {"taints": [TAINT, OURS, {"key": "headroom.device/x", "effect": "NoExecute"}]}},
        {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}},
        {"spec": {"providerID": "cloud://x"}},
        # the cordon of somebody else
        {"spec": {"unschedulable": None}},
        {"spec": {"unschedulable": False}},
        {"spec": {"unschedulable": None}, "metadata": {"annotations": {"headroom.dev/cordoned-by": "PowerPool/x"}}},
        {"metadata": {"annotations": {"headroom.dev/cordoned-by": "PowerPool/x"}}},
    ],
)
def test_nothing_else_of_a_node(fenced: Fenced, node: str, change: Document) -> None:
    assert_fenced(fenced, node, change)


def test_no_cordon_in_nobodys_name(fenced: Fenced) -> None:
    open_node = fenced.make("api/v1/nodes", {"metadata": {"name": "open"}})
    assert_fenced(fenced, open_node, {"spec": {"unschedulable": True}})


_TEMPLATE = {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/miner:1"}]}}}
_OF_OWNERS: dict[str, list[tuple[Document, str]]] = {
    "jobs": [
        ({"parallelism": 9}, "merge"),
        ({"parallelism": 9, "completions": 9}, "merge"),
        ({"backoffLimit": 9}, "merge"),
        ({"activeDeadlineSeconds": 9}, "merge"),
        ({"ttlSecondsAfterFinished": 9}, "merge"),
        ({"template": {"metadata": {"labels": {"new": "x"}}}}, "merge"),
        ({"template": {"metadata": {"annotations": {"headroom.dev/protected": "true"}}}}, "merge"),
        ({"template": {"spec": {"nodeSelector": {"zone": "a"}}}}, "merge"),
        ({"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}, "merge"),
        ({"suspend": False}, "merge"),
    ],
    "jobsets": [
        ({"replicatedJobs": [{"name": "x"}]}, "merge"),
        ({"network": None}, "merge"),
        ({"new": 1}, "merge"),
        ({"suspend": False}, "merge"),
    ],
    "workloads": [
        ({"queueName": "other"}, "merge"),
        ({"queueName": ""}, "merge"),
        ({"priorityClassSource": "x"}, "merge"),
        ({"priority": 9}, "merge"),
        ({"podSets": [{"name": "x"}]}, "merge"),
        ({"active": True}, "merge"),
    ],
}


@pytest.mark.parametrize("plural", OWNERS)
def test_nothing_else_of_an_owner_of_pods(fenced: Fenced, plural: str) -> None:
    """It is one that somebody else has suspended."""
    path = fenced.make(*an_owner(plural, "theirs", stopped=True))
    for change in OF_OTHERS:
        assert_fenced(fenced, path, change)
    for spec, kind in _OF_OWNERS[plural]:
        assert_fenced(fenced, path, {"spec": spec}, kind)
    if plural != "jobs":  # which has no part beside these that a change of it could reach
        assert_fenced(fenced, path, {"more": {"a": "b"}})
    claim = {"metadata": {"annotations": {"headroom.dev/suspended-by": "GPUWorkloadBudget/a/b"}}}
    assert_fenced(fenced, path, claim)
    running = fenced.make(*an_owner(plural, "running"))
    assert_fenced(fenced, running, claim)
    assert_fenced(fenced, running, {"spec": {"active": False} if plural == "workloads" else {"suspend": True}})


@pytest.mark.parametrize("component", ["kubelet", "headroom"])
def test_no_event_is_rewritten(fenced: Fenced, component: str) -> None:
    path = fenced.make(EVENTS, event(f"of-{component}", component))
    changes: list[Document] = [{"message": "a lie"}, {"reason": "Other"}, {"type": "Warning"}, *OF_OTHERS]
    changes += [{"count": 2}] if component != "headroom" else []
    for change in changes:
        assert_fenced(fenced, path, change)
    for lie in (event("posed", "kubelet"), {k: v for k, v in event("mute", "").items() if k != "reportingComponent"}):
        status, answer = fenced.operator.send("POST", f"{EVENTS}?dryRun=All", lie)
        assert (status, FENCE in answer["message"]) == (403, True), answer


@pytest.mark.parametrize("namespace", ["kube-system", OWN])
def test_nothing_is_evicted_there(fenced: Fenced, namespace: str) -> None:
    path = fenced.make(f"api/v1/namespaces/{namespace}/pods", a_pod("stays", gated=False))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "stays"}}
    status, answer = fenced.admin.send("POST", f"{path}/eviction?dryRun=All", body)
    assert status == 201, answer
    status, answer = fenced.operator.send("POST", f"{path}/eviction", body)
    assert (status, f"{FENCE}does not evict pods of this namespace" in answer["message"]) == (403, True), answer


# --- what it does -----------------------------------------------------------------------------------------------------------------


def test_what_it_does_to_pods_goes_on(fenced: Fenced) -> None:
    path = fenced.make(PODS, a_pod(f"ours-{next(_names)}"))
    at = "2026-01-02T00:00:00Z"
    assert_allowed(fenced, path, {"metadata": {"annotations": {"headroom.dev/paused-at": at, "headroom.dev/x": "y"}}})
    gone = {"headroom.dev/held-by": None, "headroom.dev/paused-at": None, "headroom.dev/released-at": at}
    left = {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}
    assert_allowed(fenced, path, {"metadata": {"annotations": gone}} | left)
    away = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["headroom.dev/usage"]}}
    assert_allowed(fenced, path, away, "strategic")
    other = fenced.make(PODS, a_pod(f"ours-{next(_names)}"))
    assert_allowed(
        fenced,
        other,
        {"metadata": {"finalizers": ["example.com/keep"]}, "spec": {"schedulingGates": [{"name": "example.com/gate"}]}},
    )
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": other.rpartition("/")[2]}}
    status, answer = fenced.operator.send("POST", f"{other}/eviction", body)
    assert status == 201, answer


def test_what_it_does_to_nodes_goes_on(fenced: Fenced) -> None:
    path = fenced.make("api/v1/nodes", {"metadata": {"name": f"m{next(_names)}"}, "spec": {"taints": [TAINT]}})
    mark = {"metadata": {"annotations": {"headroom.dev/cordoned-by": "PowerPool/rack"}}}
    assert_allowed(fenced, path, mark | {"spec": {"unschedulable": True}})
    taints = fenced.admin.send("GET", path)[1]["spec"]["taints"]
    assert_allowed(fenced, path, {"spec": {"taints": [*taints, OURS]}})
    assert_allowed(fenced, path, {"spec": {"taints": [*taints, OURS | {"value": "y"}]}})
    assert_allowed(fenced, path, {"spec": {"taints": taints}})
    unmark: Document = {"metadata": {"annotations": {"headroom.dev/cordoned-by": None}}}
    assert_allowed(fenced, path, unmark | {"spec": {"unschedulable": None}})


@pytest.mark.parametrize("plural", OWNERS)
def test_what_it_does_to_owners_goes_on(fenced: Fenced, plural: str) -> None:
    path = fenced.make(*an_owner(plural, f"ours-{next(_names)}"))

    def switched(on: bool, label: str | None, **annotations: str | None) -> Document:
        notes = {f"headroom.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
        metadata = {"labels": {"headroom.dev/suspended": label}, "annotations": notes}
        return {"metadata": metadata, "spec": {"active": on} if plural == "workloads" else {"suspend": not on}}

    assert_allowed(fenced, path, switched(False, "true", suspended_by="GPUWorkloadBudget/a/b", suspended_at="x"))
    assert_allowed(fenced, path, switched(True, "released", suspended_by=None, suspended_at=None, released_at="y"))
    assert_allowed(fenced, path, {"metadata": switched(True, None, released_at=None)["metadata"]})
    if plural == "workloads":
        # As the server adds it where Kueue stores another version than the one that is asked for.
        assert_allowed(fenced, path, {"spec": {"priorityClassSource": ""}})


def test_what_it_says_in_events_goes_on(fenced: Fenced) -> None:
    status, answer = fenced.operator.send("POST", EVENTS, event("said", "headroom"))
    assert status == 201, answer
    counted = {"count": 2, "lastTimestamp": "2026-01-02T00:00:00Z"}
    assert_allowed(fenced, f"{EVENTS}/said", counted | {"metadata": {"annotations": {"headroom.dev/occurrence": "1"}}})


# --- everybody else, and more rights ------------------------------------------------------------------------------------------------


def test_an_account_of_the_same_name_elsewhere_is_not_touched(fenced: Fenced, bound: str) -> None:
    fenced.plane.kubectl("create", "serviceaccount", "headroom", "--namespace", NAMESPACE)
    here, subject = f"--namespace={NAMESPACE}", f"--serviceaccount={NAMESPACE}:headroom"
    fenced.plane.kubectl("create", "role", "patcher", here, "--verb=patch", "--resource=pods")
    fenced.plane.kubectl("create", "rolebinding", "patcher", "--role=patcher", here, subject)
    theirs = fenced.account("headroom", NAMESPACE)
    change = {"spec": {"containers": [{"name": "main", "image": "example.com/train:2"}]}}
    wait_until(lambda: theirs.patch(bound, change, "strategic")[0] == 200, "the grant is at work")


async def test_it_says_at_start_whether_it_is_fenced(fenced: Fenced) -> None:
    async def told(kubeconfig: Path) -> str:
        clock = RealClock()
        transport = HttpTransport(config.load(str(kubeconfig), None), clock)
        try:
            return await preflight.unfenced(Kube(transport, clock))
        finally:
            await transport.close()

    ours, admins = fenced.plane.account_kubeconfig("headroom", OWN), fenced.plane.kubeconfig()
    assert await told(ours) == ""
    assert await told(admins) == (
        "the ValidatingAdmissionPolicy headroom-operator is for another account: apply the output of "
        "`headroom policies --account admin`"
    )
    policy = json.loads(fenced.plane.kubectl("get", "validatingadmissionpolicy", "headroom-operator", "-o", "json"))
    fenced.plane.kubectl("delete", "validatingadmissionpolicy", "headroom-operator")
    try:
        assert await told(ours) == (
            "the ValidatingAdmissionPolicy headroom-operator is not installed: apply the output of `headroom policies`"
        )
    finally:
        del policy["metadata"]["resourceVersion"], policy["metadata"]["uid"]
        fenced.plane.kubectl("create", "-f", "-", input=json.dumps(policy))


def test_even_with_all_rights_it_gains_nothing(fenced: Fenced, gated: str, bound: str, node: str) -> None:
    """As if an administrator had bound it to too much: subresources too, and new objects."""
    subject = f"--serviceaccount={OWN}:headroom"
    fenced.plane.kubectl("create", "clusterrolebinding", "too-much", "--clusterrole=cluster-admin", subject)
    try:
        wait_until(lambda: fenced.operator.may("update", "pods/status"), "the grant is at work")
        label = {"metadata": {"labels": {"team": "b"}}}
        wait_until(lambda: FENCE in fenced.operator.patch(bound, label)[1], "the policy is at work")
        ephemeral = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "example.com/miner:1"}]}}
        resized = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
        tries: list[tuple[str, str, Document | None, str]] = [
            ("PATCH", f"{bound}/status", {"status": {"phase": "Failed"}}, "merge"),
            ("PATCH", f"{bound}/status", {"metadata": {"labels": {"team": "b"}}}, "merge"),
            ("PATCH", f"{bound}/ephemeralcontainers", ephemeral, "strategic"),
            ("PATCH", f"{gated}/resize", resized, "strategic"),
            ("PATCH", f"{node}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}, "merge"),
            ("POST", PODS, {"metadata": {"name": "new"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}, ""),
            ("POST", "api/v1/nodes", {"metadata": {"name": "new"}}, ""),
            ("POST", an_owner("jobs", "new")[0], an_owner("jobs", "new")[1], ""),
            ("POST", f"{gated}/binding", {"metadata": {"name": "gated"}, "target": {"kind": "Node", "name": "n"}}, ""),
            ("POST", f"{bound}/exec?command=sh&stdout=true", None, ""),
            ("GET", f"{bound}/exec?command=sh&stdout=true", None, ""),
            ("GET", f"{node}/proxy/pods", None, ""),
        ]
        for method, path, body, kind in tries:
            status, answer = fenced.operator.send(method, path, body, kind)
            assert (status, FENCE in answer["message"]) == (403, True), (method, path, status, answer["message"])
        assert_fenced(fenced, gated, {"metadata": {"labels": {"team": "b"}}})
        put = fenced.admin.send("GET", gated)[1]
        put["metadata"]["labels"]["team"] = "b"
        status, answer = fenced.operator.send("PUT", gated, put)
        assert (status, FENCE in answer["message"]) == (403, True), answer
    finally:
        fenced.plane.kubectl("delete", "clusterrolebinding", "too-much")
    wait_until(lambda: not fenced.operator.may("update", "pods/status"), "the grant is gone")


# --- rights -----------------------------------------------------------------------------------------------------------------------

Table = dict[str, tuple[str, ...]]
READ, NAMED, SINGLE = ("get", "list", "watch"), ("get", "update"), ("budgetindexes", "bandwidthconfigs")
EVERYWHERE: Table = {
    **dict.fromkeys(("pods", "nodes"), (*READ, "patch")),
    "namespaces": READ,
    "pods/eviction": ("create",),
    "events": ("get", "create", "patch"),
    "poddisruptionbudgets.policy": ("list",),
    **dict.fromkeys(("nodepools.karpenter.sh", "nodeoverlays.karpenter.sh"), (*READ, "create", "patch", "delete")),
    "ec2nodeclasses.karpenter.k8s.aws": (*READ, "create", "delete"),
    "kwoknodeclasses.karpenter.kwok.sh": (*READ, "create", "delete"),
    **dict.fromkeys(("jobs.batch", "jobsets.jobset.x-k8s.io", "workloads.kueue.x-k8s.io"), (*READ, "patch")),
    **dict.fromkeys(
        (
            "nodeclaims.karpenter.sh",
            *(f"resource{what}.resource.k8s.io" for what in ("claims", "claimtemplates", "slices")),
            "deviceclasses.resource.k8s.io",
            *("cronjobs.batch", "priorityclasses.scheduling.k8s.io", "resourceflavors.kueue.x-k8s.io"),
            *(
                f"{mode}admissionpolic{what}.admissionregistration.k8s.io"
                for mode in ("mutating", "validating")
                for what in ("ies", "ybindings")
            ),
        ),
        READ,
    ),
    "tokenreviews.authentication.k8s.io": ("create",),
    "subjectaccessreviews.authorization.k8s.io": ("create",),
    "budgetholds.headroom.dev": (*READ, "create", "update", "delete", "release"),
    "releaserequests.headroom.dev": ("delete",),
    "bandwidths.headroom.dev": ("create", "delete"),
    **{f"{each}.headroom.dev": ("list", "watch", "create") for each in SINGLE},
    **{f"{each}.headroom.dev [headroom]": NAMED for each in SINGLE},
    "nodes/status": ("patch",),
}
"""By resource, with its name where only that one is meant."""
OUR_KINDS = ("gpuworkloadbudgets", "spotpools", "powerpools", "bandwidths", "leftovernodepools", "releaserequests")
DEFINITIONS = (*OUR_KINDS, "budgetholds", *SINGLE)
IN_ITS_NAMESPACE: Table = {
    "leases.coordination.k8s.io": ("create",),
    "leases.coordination.k8s.io [headroom]": NAMED,
    "configmaps [headroom]": READ,
    "configmaps [headroom-prices]": READ,
}
OF_EVERYBODY = {
    "create selfsubjectaccessreviews.authorization.k8s.io",
    "create selfsubjectrulesreviews.authorization.k8s.io",
    "create selfsubjectreviews.authentication.k8s.io",
}


def expected(*tables: Table) -> set[str]:
    return {f"{verb} {resource}" for table in tables for resource, verbs in table.items() for verb in verbs}


def test_its_rights_are_these_and_no_others(fenced: Fenced) -> None:
    ours: Table = {f"{kind}.headroom.dev": READ for kind in OUR_KINDS}
    ours |= {f"{kind}/status.headroom.dev": ("patch",) for kind in OUR_KINDS}
    ours |= {f"{kind}.headroom.dev": (*READ, "patch") for kind in ("spotpools", "leftovernodepools")}  # finalizers
    crds: Table = {
        f"customresourcedefinitions.apiextensions.k8s.io [{kind}.headroom.dev]": ("get",) for kind in DEFINITIONS
    }
    everywhere = expected(EVERYWHERE, ours, crds) | OF_EVERYBODY
    for namespace in (NAMESPACE, "kube-system", "default"):
        assert fenced.operator.rules(namespace) - ELSEWHERE.get(namespace, set()) == everywhere
    assert fenced.operator.rules(OWN) == everywhere | expected(IN_ITS_NAMESPACE)


ELSEWHERE = {
    "kube-system": {f"{verb} configmaps [extension-apiserver-authentication]" for verb in READ},
    "default": {"get services [kubernetes]", "get endpointslices.discovery.k8s.io [kubernetes]"},
}
"""Who signs the client certificates of people, for the dashboard; and where the API server is."""


@pytest.mark.parametrize(
    ("verb", "resource", "more"),
    [
        *(("get", "secrets", {"namespace": each}) for each in (OWN, NAMESPACE, "kube-system")),
        ("get", "secrets", {"namespace": OWN, "name": "headroom-postgres"}),
        *(("list", what, {"namespace": OWN}) for what in ("secrets", "configmaps")),
        ("get", "configmaps", {"namespace": OWN, "name": "other"}),
        ("get", "configmaps", {"namespace": NAMESPACE, "name": "headroom"}),
        ("update", "leases", {"group": "coordination.k8s.io", "namespace": OWN, "name": "other"}),
        ("update", "leases", {"group": "coordination.k8s.io", "namespace": "kube-node-lease", "name": "n1"}),
        ("get", "customresourcedefinitions", {"group": "apiextensions.k8s.io", "name": "certificates.example.com"}),
        *(("update", each, {"group": "headroom.dev", "name": "other"}) for each in SINGLE),
        *(("delete", each, {"group": "headroom.dev", "name": "headroom"}) for each in SINGLE),
        ("patch", "gpuworkloadbudgets", {"group": "headroom.dev", "namespace": NAMESPACE}),
        ("enforce", "gpuworkloadbudgets", {"group": "headroom.dev", "namespace": NAMESPACE}),
        *((verb, "pods", {"namespace": NAMESPACE}) for verb in ("create", "update", "delete", "deletecollection")),
        *(
            (verb, f"pods/{part}", {"namespace": NAMESPACE})
            for part in ("status", "ephemeralcontainers", "resize", "exec", "attach", "portforward", "binding", "log")
            for verb in ("get", "create", "patch", "update")
        ),
        *((verb, f"nodes/{part}", {}) for part in ("status", "proxy") for verb in ("get", "create")),
        *(("impersonate", what, {}) for what in ("users", "groups", "serviceaccounts")),
        ("create", "serviceaccounts/token", {"namespace": OWN, "name": "headroom"}),
        *((verb, "clusterroles", {"group": "rbac.authorization.k8s.io"}) for verb in ("bind", "escalate", "patch")),
        ("create", "rolebindings", {"group": "rbac.authorization.k8s.io", "namespace": OWN}),
        *(
            (
                verb,
                "validatingadmissionpolicies",
                {"group": "admissionregistration.k8s.io", "name": "headroom-operator"},
            )
            for verb in ("patch", "update", "delete")
        ),
        ("approve", "signers", {"group": "certificates.k8s.io"}),
    ],
)
def test_it_may_not(fenced: Fenced, verb: str, resource: str, more: dict[str, Any]) -> None:
    assert not fenced.operator.may(verb, resource, **more)


def test_a_right_by_name_is_enough_to_watch_what_it_watches(fenced: Fenced) -> None:
    maps = f"api/v1/namespaces/{OWN}/configmaps"
    for query in ("", "watch=true&timeoutSeconds=1&"):
        named = f"{maps}?{query}fieldSelector=metadata.name%3Dheadroom"
        assert fenced.operator.send("GET", named)[0] == 200
        for other in (f"{maps}?{query}", f"{maps}?{query}fieldSelector=metadata.name%3Dother"):
            assert fenced.operator.send("GET", other)[0] == 403

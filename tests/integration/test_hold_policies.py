"""Holding pods, on a real API server with no operator: who waits, who cannot get round it, and who may."""

import json
from collections.abc import Callable, Iterator

import pytest

from headroom.api.marks import EXPECTED_DURATION, GATE, HELD_BECAUSE, HELD_BY
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane, KubectlFailed
from tests.integration.holds import (
    BECAUSE,
    GPU,
    HOLDS,
    annotated,
    changed,
    create,
    gates,
    hold,
    made,
    path_of,
    plain,
    pod,
    put,
    remove,
    set_holds,
)
from tests.integration.policed import Document

FOREIGN = "example.com/wait"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}


@pytest.fixture(scope="module")
def standing(hold_users: dict[str, Server]) -> Iterator[dict[str, Server]]:
    """Budget hold-a/a holds."""
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])
    yield hold_users
    assert hold_users["admin"].send("DELETE", HOLDS)[0] == 200


@pytest.fixture
def waiting(standing: dict[str, Server]) -> Iterator[Document]:
    """A stored pod that waits."""
    document = annotated(pod("waiting", schedulingGates=[{"name": FOREIGN}]), expected_duration="2h")
    yield made(standing["editor"], document, dry=False)
    remove(standing["admin"], document)


# --- who waits -----------------------------------------------------------------------------------------------------------------

_LIMIT: Document = {"resources": {"limits": {GPU: "2"}}}
_OTHER: Document = {"name": "other", "image": "none"}
_CLAIM = [{"name": "gpu", "resourceClaimName": "one"}]


@pytest.mark.parametrize(
    "document",
    [
        pod(),
        pod("p", "hold-a", "cpu", "nvidia.com/mig-1g.5gb"),
        pod(labels={"team": "a", "more": "labels"}),
        pod(containers=[_OTHER | _LIMIT]),
        pod("p", "hold-a", "cpu", initContainers=[_OTHER | _LIMIT]),
        plain(pod(resourceClaims=_CLAIM)),
    ],
    ids=["gpu", "mig", "labels", "limits", "init", "claim"],
)
def test_a_new_pod_of_a_held_budget_waits_though_no_operator_runs(
    standing: dict[str, Server], document: Document
) -> None:
    for user in ("editor", "admin", "releaser"):
        found = made(standing[user], document)
        assert gates(found) == [GATE]
        assert found["metadata"]["annotations"] == {HELD_BY: "hold-a/a", HELD_BECAUSE: BECAUSE}


@pytest.mark.parametrize(
    "document",
    [
        plain(pod()),
        pod("p", "hold-a", "cpu", "amd.com/gpu"),
        pod(labels={}),
        pod(labels={"team": "b"}),
        pod(namespace="hold-b"),
        plain(pod(namespace="hold-b", nodeName="n", labels={})),
    ],
    ids=["no-gpu", "other-gpu", "no-labels", "team-b", "namespace", "bound"],
)
def test_other_pods_are_created_as_ever(standing: dict[str, Server], document: Document) -> None:
    found = made(standing["editor"], document)
    assert gates(found) == []
    assert "annotations" not in found["metadata"]


def test_system_and_mirror_pods_never_wait(hold_users: dict[str, Server]) -> None:
    set_holds(hold_users["admin"], hold_users["editor"], [hold(namespaces=["hold-a", "kube-system"])])
    assert gates(made(hold_users["admin"], pod(namespace="kube-system"))) == []
    mirror = pod(annotations={"kubernetes.io/config.mirror": "x"}, nodeName="n")
    assert gates(made(hold_users["editor"], mirror)) == []
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])


def test_500_pods_that_a_tenant_creates_all_wait(standing: dict[str, Server]) -> None:
    for number in range(500):
        code, answer = create(standing["editor"], pod(f"many-{number}"), dry=False)
        assert code == 201, answer
    code, found = standing["editor"].send("GET", "/api/v1/namespaces/hold-a/pods")
    many = [each for each in found["items"] if each["metadata"]["name"].startswith("many-")]
    assert len(many) == 500
    assert all(gates(each) == [GATE] for each in many)
    assert standing["admin"].send("DELETE", "/api/v1/namespaces/hold-a/pods?gracePeriodSeconds=0")[0] == 200


def test_foreign_gates_and_annotations_stay_beside_ours(standing: dict[str, Server]) -> None:
    document = pod(schedulingGates=[{"name": FOREIGN}], annotations={"a": "b", HELD_BY: "forged/forged"})
    found = made(standing["editor"], document)
    assert sorted(gates(found)) == [FOREIGN, GATE]
    assert found["metadata"]["annotations"] == {"a": "b", HELD_BY: "hold-a/a", HELD_BECAUSE: BECAUSE}
    own = made(standing["editor"], pod(schedulingGates=[{"name": GATE}]))
    assert gates(own) == [GATE]
    assert own["metadata"]["annotations"][HELD_BY] == "hold-a/a"


def test_of_several_budgets_the_first_by_name_is_told(hold_users: dict[str, Server]) -> None:
    several = [hold(f"h{i}", budget=f"hold-a/{name}", because=name) for i, name in enumerate("dbaec")]
    set_holds(hold_users["admin"], hold_users["editor"], several)
    for _ in range(10):
        found = made(hold_users["editor"], pod())
        assert gates(found) == [GATE]
        assert found["metadata"]["annotations"] == {HELD_BY: "hold-a/a", HELD_BECAUSE: "a"}
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])


def test_a_hold_that_says_little_holds_all_the_same(hold_users: dict[str, Server]) -> None:
    bare = hold(matchLabels={}, matchExpressions=[{"key": "team", "operator": "Exists"}])
    del bare["spec"]["because"], bare["spec"]["matchLabels"]
    set_holds(hold_users["admin"], hold_users["editor"], [bare])
    assert made(hold_users["editor"], pod(labels={"team": "x"}))["metadata"]["annotations"][HELD_BECAUSE] == ""
    assert gates(made(hold_users["editor"], pod(labels={}))) == []
    assert "queues new pods now (): leave" in create(hold_users["editor"], pod(nodeName="n"))[1]["message"]
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])


def test_a_hold_over_10_000_namespaces_is_searched_to_its_end(hold_users: dict[str, Server]) -> None:
    """The server gives up on an expression that costs too much; then the pod would be refused."""
    many = [f"namespace-{number}" for number in range(9_999)]
    selector = [{"key": f"k{i}", "operator": "NotIn", "values": [f"v{j}" for j in range(64)]} for i in range(16)]
    wide = hold(namespaces=[*many, "hold-a"], matchExpressions=selector, resources=[*map("r{}".format, range(63)), GPU])
    set_holds(hold_users["admin"], hold_users["editor"], [wide])
    labels = {f"k{i}": "x" for i in range(16)} | {"team": "a"}
    crowd = [_OTHER | {"name": f"c{i}", "resources": {"limits": {"cpu": "1"}}} for i in range(60)]
    document = pod(labels=labels, containers=[*crowd, _OTHER | _LIMIT])
    assert gates(made(hold_users["editor"], document)) == [GATE]
    assert create(hold_users["editor"], changed(document, spec={"nodeName": "n"}))[0] == 403
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])


# --- no way round it -----------------------------------------------------------------------------------------------------------

HELD = f"budget hold-a/a queues new pods now ({BECAUSE})"
EXEMPT = "a user who may release budgetholds.headroom.dev"
ONLY = "only by users who may release budgetholds.headroom.dev, and editor may not"
MARK = "of pod hold-a/{} is set, changed or removed " + ONLY
LENGTH = (
    f"the annotation {EXPECTED_DURATION} of pod hold-a/p must be a length of time such as 90s, 30m or 1h30m and longer"
)


def said(answer: Document) -> str:
    assert (answer["code"], answer["reason"]) == (403, "Forbidden"), answer
    return str(answer["message"]).partition("denied request: ")[2]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            pod(nodeName="n"),
            (
                f"pod hold-a/p names its node, so it would start at once, but {HELD}: leave out spec.nodeName to "
                f"queue it, or have it created by {EXEMPT}"
            ),
        ),
        (pod(nodeName="n", ownerReferences=[OWNER]), "pod hold-a/p names its node"),
        (annotated(pod(), protected="true"), "the annotation headroom.dev/protected " + MARK.format("p")),
        (annotated(pod(labels={}), protected=""), "the annotation headroom.dev/protected " + MARK.format("p")),
        (annotated(pod(), released_at="now"), "the annotation headroom.dev/released-at " + MARK.format("p")),
        (annotated(pod(), expected_duration="1 hour"), f"{LENGTH} than 0s, not 1 hour"),
        (annotated(pod(), expected_duration=""), f"{LENGTH} than 0s, not"),
        (annotated(pod(), expected_duration="0h0m0s"), f"{LENGTH} than 0s, not 0h0m0s"),
        (annotated(pod(), expected_duration="1h\n2m"), f"{LENGTH} than 0s, not 1h 2m"),
        (annotated(pod(), expected_duration="é" * 9000), f"{LENGTH} than 0s, not {'é' * 40}..."),
        (annotated(pod(labels={}), expected_duration="-1s"), f"{LENGTH} than 0s, not -1s"),
    ],
)
def test_a_tenant_does_not_create_a_pod_that_starts_or_escapes(
    standing: dict[str, Server], document: Document, words: str
) -> None:
    assert said(create(standing["editor"], document)[1]).startswith(words)
    assert create(standing["releaser"], document)[0] == 201


WAYS: dict[str, tuple[Callable[[Document], Document], str]] = {
    "gate": (
        lambda it: changed(it, spec={"schedulingGates": [{"name": FOREIGN}]}),
        (
            f"pod hold-a/waiting is queued by its budget: Headroom removes the scheduling gate {GATE} once the quota has room; "
            f"before that it is removed {ONLY}; headroom explain pod/hold-a/waiting shows the estimated start, and an administrator "
            "with the ClusterRole headroom-releaser may run headroom release pod/hold-a/waiting"
        ),
    ),
    "gates": (lambda it: changed(it, spec={"schedulingGates": None}), "pod hold-a/waiting is queued by its budget"),
    "protect": (
        lambda it: annotated(it, protected="yes"),
        (
            f"the annotation headroom.dev/protected {MARK.format('waiting')}: leave it out of the pod and of its template, or have "
            "a cluster administrator annotate the pod"
        ),
    ),
    "release": (
        lambda it: annotated(it, released_at="2026-01-01T00:00:00Z"),
        f"the annotation headroom.dev/released-at {MARK.format('waiting')}",
    ),
    "relabel": (
        lambda it: changed(it, labels={"team": "b"}),
        (
            f"the label team of pod hold-a/waiting cannot change, since {HELD} and selects pods by it: wait until it has room, "
            f"or ask {EXEMPT}"
        ),
    ),
    "unlabel": (lambda it: changed(it, labels=None), "the label team of pod hold-a/waiting cannot change"),
    "longer": (
        lambda it: annotated(it, expected_duration="1s"),
        (
            f"the annotation {EXPECTED_DURATION} of pod hold-a/waiting cannot change, since the pod is "
            "queued by it: recreate the pod with another one"
        ),
    ),
    "undeclared": (lambda it: annotated(it, expected_duration=None), f"the annotation {EXPECTED_DURATION} of pod"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_tenant_does_not_change_a_pod_so_that_it_starts_or_escapes(
    standing: dict[str, Server], waiting: Document, way: str
) -> None:
    change, words = WAYS[way]
    assert said(put(standing["editor"], change(waiting))[1]).startswith(words)
    for user in ("releaser", "admin"):
        code, answer = put(standing[user], change(waiting))
        assert code == 200, answer


def test_whoever_may_release_lifts_the_gate_for_good(standing: dict[str, Server], waiting: Document) -> None:
    lifted = annotated(changed(waiting, spec={"schedulingGates": None}), released_at="2026-01-01T00:00:00Z")
    code, free = put(standing["releaser"], lifted, dry=False)
    assert (code, gates(free)) == (200, [])
    for change in ({"labels": {"team": "b"}}, {"annotations": None}):
        assert put(standing["editor"], changed(free, **change))[0] == 403
    assert put(standing["editor"], changed(free, labels={"team": "a", "seen": "yes"}))[0] == 200


def test_a_protected_pod_does_not_wait(standing: dict[str, Server]) -> None:
    found = made(standing["releaser"], annotated(pod("kept"), protected="true"), dry=False)
    assert gates(found) == []
    assert put(standing["editor"], annotated(found, protected=None))[0] == 403
    assert put(standing["editor"], annotated(found, protected="false"))[0] == 403
    assert put(standing["editor"], changed(found, labels={"team": "a", "seen": "yes"}))[0] == 200
    remove(standing["admin"], found)


@pytest.mark.parametrize("labels", [{"team": "b"}, {}])
def test_a_pod_is_not_relabelled_into_a_held_budget(standing: dict[str, Server], labels: dict[str, str]) -> None:
    outside = made(standing["editor"], pod("outside", labels=labels), dry=False)
    inside = changed(outside, labels={"team": "a"})
    assert said(put(standing["editor"], inside)[1]).startswith("the label team of pod hold-a/outside cannot change")
    assert put(standing["releaser"], inside)[0] == 200
    assert put(standing["editor"], changed(outside, labels={"team": "c"}))[0] == 200
    remove(standing["admin"], outside)


def test_labels_that_no_selector_looks_at_change_freely(standing: dict[str, Server], waiting: Document) -> None:
    change = changed(
        waiting, labels={"team": "a", "tier": "b"}, annotations=waiting["metadata"]["annotations"] | {"x": "y"}
    )
    assert put(standing["editor"], change)[0] == 200
    elsewhere = made(standing["editor"], pod("elsewhere", "hold-b"), dry=False)
    assert put(standing["editor"], changed(elsewhere, labels={"team": "b"}))[0] == 200
    remove(standing["admin"], elsewhere)


@pytest.mark.parametrize("way", [each for each in WAYS if not each.startswith("gate")])
def test_the_status_is_no_way_round(standing: dict[str, Server], waiting: Document, way: str) -> None:
    change, _ = WAYS[way]
    words = said(put(standing["kubelet"], change(waiting), "status")[1])
    assert "only by users who may release budgetholds.headroom.dev, and kubelet may not" in words or way in (
        "longer",
        "undeclared",
    )
    assert ("through its status" in words) == ("label" in way)


def test_the_gate_stays_when_the_status_is_written_without_it(standing: dict[str, Server], waiting: Document) -> None:
    code, answer = put(standing["kubelet"], changed(waiting, spec={"schedulingGates": None}), "status")
    assert (code, sorted(gates(answer))) == (200, [FOREIGN, GATE])


# --- what Kubernetes itself writes ---------------------------------------------------------------------------------------------


def test_the_parts_of_kubernetes_do_their_work(standing: dict[str, Server]) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    code, answer = standing["admin"].send("POST", "/api/v1/namespaces/hold-a/configmaps", json.dumps(owner))
    assert code == 201, answer
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": answer["metadata"]["uid"]}
    more: Document = {
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [reference | {"controller": True}],
    }
    document = made(standing["job-controller"], pod("worker", **more), dry=False)
    assert gates(document) == [GATE]
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "still"}
    for user in ("kubelet", "scheduler"):
        code, document = put(standing[user], document | {"status": {"conditions": [condition]}}, "status", dry=False)
        assert code == 200, document
    code, document = put(standing["releaser"], changed(document, spec={"schedulingGates": None}), dry=False)
    assert code == 200
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "worker"}, "target": {"name": "n"}}
    code, answer = standing["scheduler"].send("POST", path_of(document, "binding"), json.dumps(binding))
    assert code == 201, answer
    code, document = standing["admin"].send("GET", path_of(document))
    running = document | {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    assert put(standing["kubelet"], running, "status", dry=False)[0] == 200
    code, answer = standing["editor"].send("DELETE", path_of(document))
    assert code == 200
    patched = changed(answer, finalizers=None, ownerReferences=None)
    assert put(standing["collector"], patched)[0] == 200
    remove(standing["admin"], document)


# --- the declared length -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "deadline", "expected"),
    [
        ("90s", None, 90),
        ("1h30m", None, 5400),
        ("2h", 60, 60),
        ("2h", 7200, 7200),
        ("2h", 7201, 7200),
        ("99999h999999m9999999s", None, 99999 * 3600 + 999999 * 60 + 9999999),
        ("00001h", None, 3600),
        (None, 60, 60),
        (None, None, None),
    ],
)
def test_a_pod_is_ended_at_the_length_that_it_declares(
    standing: dict[str, Server], declared: str | None, deadline: int | None, expected: int | None
) -> None:
    more: Document = {} if deadline is None else {"activeDeadlineSeconds": deadline}
    for document in (pod(**more), pod(labels={}, **more), plain(pod(namespace="hold-b", **more))):
        found = made(standing["editor"], annotated(document, expected_duration=declared))
        assert found["spec"].get("activeDeadlineSeconds") == expected


# --- without holds -------------------------------------------------------------------------------------------------------------


def test_without_a_hold_pods_start_as_ever_and_the_guard_stays(hold_users: dict[str, Server]) -> None:
    set_holds(hold_users["admin"], hold_users["editor"], [])
    assert gates(made(hold_users["editor"], pod())) == []
    assert create(hold_users["editor"], pod(nodeName="n"))[0] == 201
    own = made(hold_users["editor"], pod("own", schedulingGates=[{"name": GATE}]), dry=False)
    assert put(hold_users["editor"], changed(own, labels={"team": "b"}))[0] == 200
    for way in ("gates", "protect", "release", "longer"):
        assert put(hold_users["editor"], WAYS[way][0](own))[0] == 403
    remove(hold_users["admin"], own)
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])


def test_kubectl_shows_the_refusal(standing: dict[str, Server], policed_plane: ControlPlane, waiting: Document) -> None:
    lift = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    with pytest.raises(KubectlFailed, match="may run headroom release pod/hold-a/waiting"):
        policed_plane.kubectl("patch", "pod", "waiting", "-n", "hold-a", "--type=json", "-p", lift, user="editor")

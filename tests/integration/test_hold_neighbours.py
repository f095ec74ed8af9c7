"""Holding pods beside others that have a say in them, on a real API server: Kueue, and mutating policies that are not ours."""

from collections.abc import Callable, Iterator

import pytest

from headroom.api import generate
from headroom.api.bandwidth_config import BandwidthConfig
from headroom.api.budget_hold import BudgetHold
from headroom.api.crd import crd
from headroom.api.marks import GATE, HELD_BY
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane, wait_until
from tests.integration.holds import (
    GPU,
    HOLDS,
    annotated,
    changed,
    create,
    gates,
    hold,
    made,
    plain,
    pod,
    put,
    remove,
    set_holds,
)
from tests.integration.policed import Document

KUEUE_GATE = "kueue.x-k8s.io/admission"
PODSET = {"kueue.x-k8s.io/podset": "main"}
WORKLOAD = {"kueue.x-k8s.io/workload": "job-j-12345"}
QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
TEAM = {"team": "a"}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
NOT_CONTROLLED = [{key: value for key, value in OWNER.items() if key != "controller"}]
TENANTS = ("editor", "owner")
KUEUES = pod(schedulingGates=[{"name": KUEUE_GATE}])


@pytest.fixture
def standing(hold_users: dict[str, Server]) -> Iterator[None]:
    """A hold."""
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])
    yield
    assert hold_users["admin"].send("DELETE", HOLDS)[0] == 200


# --- Kueue ---------------------------------------------------------------------------------------------------------------------


def test_a_pod_behind_kueues_gate_waits_behind_ours_too(hold_users: dict[str, Server], standing: None) -> None:
    for user in ("editor", "job-controller"):
        assert gates(made(hold_users[user], KUEUES)) == [KUEUE_GATE, GATE]


@pytest.mark.parametrize(
    "marked",
    [pod(labels=TEAM | PODSET), pod(annotations=WORKLOAD), pod(labels=TEAM | QUEUE)],
    ids=["label", "annotation", "queue"],
)
def test_kueues_words_prove_nothing_whoever_makes_the_pod(
    hold_users: dict[str, Server], standing: None, marked: Document
) -> None:
    """They stand in templates, which tenants write; the controller of a Job makes its pods from those."""
    for references in (
        [],
        [OWNER],
        NOT_CONTROLLED,
        [OWNER | {"apiVersion": "batch.example.com/v1"}],
        [OWNER | {"kind": "Node"}],
    ):
        for user in (*TENANTS, "job-controller"):
            assert gates(made(hold_users[user], changed(marked, ownerReferences=references))) == [GATE]


def test_kueue_lifts_its_gate_and_ours_stays(hold_users: dict[str, Server], standing: None) -> None:
    document = made(hold_users["editor"], changed(KUEUES, name="kueues"), dry=False)
    lifted = changed(document, spec={"schedulingGates": [{"name": GATE}]})
    assert gates(put(hold_users["kueue"], lifted)[1]) == [GATE]
    for user in (*TENANTS, "kueue"):
        code, answer = put(hold_users[user], changed(document, spec={"schedulingGates": None}))
        assert (code, "is queued by its budget" in answer["message"]) == (403, True), answer
    remove(hold_users["admin"], document)


def test_not_even_kueue_lifts_the_last_gate_of_a_pod_made_before_the_hold(hold_users: dict[str, Server]) -> None:
    document = made(hold_users["editor"], changed(KUEUES, name="early"), dry=False)
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])
    lifted = changed(document, spec={"schedulingGates": None})
    for user in (*TENANTS, "kueue"):
        code, answer = put(hold_users[user], lifted)
        words = f"pod hold-a/early keeps its last scheduling gate, {KUEUE_GATE}, since budget hold-a/a queues new"
        assert (code, words in answer["message"]) == (403, True), answer
    assert put(hold_users["releaser"], lifted)[0] == 200
    code, document = put(hold_users["releaser"], annotated(document, released_at="2026-01-01T00:00:00Z"), dry=False)
    assert code == 200
    lifted = changed(document, spec={"schedulingGates": None})
    assert put(hold_users["kueue"], lifted)[0] == 200, "Headroom has released it, so Kueue's next try succeeds"
    remove(hold_users["admin"], document)
    assert hold_users["admin"].send("DELETE", HOLDS)[0] == 200


# --- without the kind ----------------------------------------------------------------------------------------------------------


def test_policies_without_their_kinds_refuse_pods_outside_kube_system(
    bare_control_plane: Callable[..., ControlPlane],
) -> None:
    """So the kinds come first and go last; docs/policies.md says it, and `headroom uninstall` keeps to it."""
    plane = bare_control_plane()
    plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / "policies.yaml"))
    server = Server(plane)
    tries: list[tuple[int, str]] = []

    def is_for_the_hold() -> bool:
        code, answer = create(server, plain(pod(namespace="default")))
        tries.append((code, answer.get("message", "")))
        return "BudgetHold" in tries[-1][1]

    # The policies of bandwidth lack their kind too, and may be at work earlier.
    wait_until(is_for_the_hold, "the policies are at work")
    assert tries[-1][0] == 422, tries[-1]
    assert create(server, plain(pod(namespace="kube-system")))[0] == 201
    plane.apply(crd(BudgetHold.kind), crd(BandwidthConfig.kind))
    wait_until(lambda: create(server, plain(pod(namespace="default")))[0] == 201, "the kind is there")
    server.close()


# --- mutating policies of others -----------------------------------------------------------------------------------------------
#
# In which order the server asks policies is its own affair. If theirs came first, ours sees the pod as it will be. If ours came
# first, the server asks it again after theirs, but only if ours had something to do with the pod before.

APPLY, PATCH = "ApplyConfiguration", "JSONPatch"
LABEL = "Object{metadata: Object.metadata{labels: {'team': 'a'}}}"
ASK = (
    "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, "
    f"resources: Object.spec.containers.resources{{limits: {{'{GPU}': '1'}}, requests: {{'{GPU}': '1'}}}}}})}}}}"
)
STRIP = "has(object.spec.schedulingGates) ? [JSONPatch{op: 'remove', path: '/spec/schedulingGates'}] : []"
BIND = "Object{spec: Object.spec{nodeName: 'n'}}"

Install = Callable[[str, str, str], None]


@pytest.fixture
def foreign(policed_plane: ControlPlane, hold_users: dict[str, Server]) -> Iterator[Install]:
    """Installs a mutating policy that changes pods of namespace hold-a with the label `changed`, and waits until it does."""
    set_holds(hold_users["admin"], hold_users["editor"], [hold()])
    names = []

    def install(name: str, kind: str, expression: str) -> None:
        names.append(name)
        field = "applyConfiguration" if kind == APPLY else "jsonPatch"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        scope = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hold-a"}}}
        scope["objectSelector"] = {"matchLabels": {"changed": "yes"}}
        said = f"Object{{metadata: Object.metadata{{annotations: {{'changed': '{name}'}}}}}}"
        mutations = [
            {"patchType": kind, field: {"expression": expression}},
            {"patchType": APPLY, "applyConfiguration": {"expression": said}},
        ]
        spec: Document = {"failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded", "mutations": mutations}
        spec["matchConstraints"] = {"resourceRules": [rule], **scope}
        policy = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
        policed_plane.apply(policy | {"kind": "MutatingAdmissionPolicy", "spec": spec})
        policed_plane.apply(policy | {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}})
        probe = plain(pod(labels={"changed": "yes", "team": "z"}))

        def is_at_work() -> bool:
            code, answer = create(hold_users["admin"], probe)
            return code == 201 and answer["metadata"].get("annotations", {}).get("changed") == name

        wait_until(is_at_work, f"policy {name} is at work")

    yield install
    for name in names:
        for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
            policed_plane.kubectl("delete", kind, name)
    assert hold_users["admin"].send("DELETE", HOLDS)[0] == 200


@pytest.mark.parametrize("name", ["aa-foreign", "zz-foreign"])
def test_a_pod_that_gets_its_team_from_another_policy_waits(
    hold_users: dict[str, Server], foreign: Install, name: str
) -> None:
    foreign(name, APPLY, LABEL)
    found = made(hold_users["editor"], pod(labels={"changed": "yes"}))
    assert found["metadata"]["labels"] == {"changed": "yes", "team": "a"}
    assert gates(found) == [GATE]
    assert found["metadata"]["annotations"][HELD_BY] == "hold-a/a"
    assert gates(made(hold_users["editor"], plain(pod(labels={"changed": "yes"})))) == []


@pytest.mark.parametrize("name", ["aa-foreign", "zz-foreign"])
def test_a_pod_that_gets_its_gpu_from_another_policy_never_starts(
    hold_users: dict[str, Server], foreign: Install, name: str
) -> None:
    """If ours came first, it had nothing to do with a pod without a GPU: then the pod is refused in the end."""
    foreign(name, APPLY, ASK)
    code, answer = create(hold_users["editor"], plain(pod(labels=TEAM | {"changed": "yes"})))
    if code == 201:
        assert gates(answer) == [GATE]
    else:
        assert "another admission policy or webhook changed it after Headroom's policy" in answer["message"]
        assert create(hold_users["releaser"], plain(pod(labels=TEAM | {"changed": "yes"})))[0] == 201


@pytest.mark.parametrize("name", ["aa-foreign", "zz-foreign"])
def test_a_pod_that_another_policy_takes_the_gate_from_never_starts(
    hold_users: dict[str, Server], foreign: Install, name: str
) -> None:
    foreign(name, PATCH, STRIP)
    for gate in ([], [{"name": GATE}]):
        code, answer = create(hold_users["editor"], pod(labels=TEAM | {"changed": "yes"}, schedulingGates=gate))
        if code == 201:
            assert gates(answer) == [GATE]
        else:
            assert f"it has no scheduling gate {GATE}: another" in answer["message"]


@pytest.mark.parametrize("name", ["aa-foreign", "zz-foreign"])
def test_a_pod_that_another_policy_binds_never_starts(
    hold_users: dict[str, Server], foreign: Install, name: str
) -> None:
    foreign(name, APPLY, BIND)
    code, answer = create(hold_users["editor"], pod(labels=TEAM | {"changed": "yes"}))
    assert code in (403, 422), answer
    assert "names its node" in answer["message"] or "schedulingGates" in answer["message"]

"""Odd pods, thousands of them, against a real API server with all policies and several holds: no expression fails, and the simulator agrees."""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headroom.api import marks
from headroom.api.policies import USAGE_FINALIZER, policies
from headroom.api.policies.cel import MIRROR
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from headroom.sim.rights import Actor, Right, User
from tests.api.cases import manifest
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane
from tests.integration.fuzzed_pods import FOREIGN_GATES, NAMESPACES, Fuzzer
from tests.integration.holds import GPU, HOLDS, INDEXES, create, gates, hold, path_of, put, remove, set_holds
from tests.integration.policed import Document
from tests.integration.test_required_budgets import entry, set_index
from tests.tiers import CI, DEEP

PODS, CHANGES, STORED, CONNECTIONS = (10_000, 2_500, 100, 4) if DEEP else (1_000, 1_000, 100, 4)
SEED = os.environ.get("HEADROOM_SEED") or ("headroom" if CI else str(random.SystemRandom().randrange(10**9)))
EXPRESSIONS = [
    {"key": "team", "operator": "In", "values": ["a", "b"]},
    {"key": "tier", "operator": "NotIn", "values": ["a"]},
    {"key": "example.com/x", "operator": "Exists"},
    {"key": "l0", "operator": "DoesNotExist"},
]
STANDING = [
    hold("a"),
    hold(
        "b", budget="hold-a/b", namespaces=["hold-b", "hold-a"], matchExpressions=EXPRESSIONS[:2], because="ünïcødé 'x'"
    ),
    hold("c", budget="hold-b/c", namespaces=["hold-b"], matchLabels={"tier": "b"}, resources=["cpu", "example.com/*"]),
    hold("d", budget="hold-b/d", namespaces=["hold-b", "hold-required"], matchExpressions=EXPRESSIONS[2:]),
    hold("e", budget="x/e", namespaces=["elsewhere", "kube-system"], matchLabels={}),
    manifest("BudgetHold", "f", {"budget": "hold-a/f", "namespaces": ["hold-a"], "matchLabels": {"tier": ""}}),
]
COUNTED = [
    entry(exact=True, resources=["nvidia.com/*"]),
    entry(budget="x/tier", matchLabels={"tier": "a"}, resources=["cpu", "example.com/fpga"]),
    entry(budget="x/b", namespaces=["hold-b"], matchLabels={}, matchExpressions=EXPRESSIONS[:1], exact=True),
]
FAILED = (
    re.compile("match_condition_evaluation_errors_total"),
    re.compile("mutating_admission_policy_check_total(?!.*no_error)"),
    # Of a validation the server counts every refusal as invalid; those below are not the pod's fault.
    re.compile("validating_admission_policy_check_total.*error_type=.(compile|out_of)"),
)
USERS = ("editor", "releaser", "job-controller")


@pytest.fixture(scope="module")
def fuzzed(policed_plane: ControlPlane, hold_users: dict[str, Server]) -> Iterator[dict[str, Server]]:
    """All policies at work, with the holds and the index above."""
    policed_plane.kubectl("label", "namespace", "hold-required", f"{marks.REQUIRE_BUDGET}=")
    for namespace in NAMESPACES[1:]:
        policed_plane.grant("releaser", "edit", namespace)
    set_index(hold_users, COUNTED)
    set_holds(hold_users["admin"], hold_users["editor"], STANDING)
    yield hold_users
    for path in (HOLDS, INDEXES):
        assert hold_users["admin"].send("DELETE", path)[0] == 200
    policed_plane.kubectl("label", "namespace", "hold-required", f"{marks.REQUIRE_BUDGET}-")


class StoppedClock(SimClock):
    """Asks no loop, since here is none."""

    def now(self) -> int:
        return self.start_ms


@pytest.fixture(scope="module")
def twin(fuzzed: dict[str, Server]) -> ApiServer:
    """A simulated server with the same policies, holds, index and users."""
    server = ApiServer(StoppedClock(1_767_225_600_000), random.Random(1))
    for name in NAMESPACES:
        labels = {marks.REQUIRE_BUDGET: ""} if name == "hold-required" else {}
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    code, index = fuzzed["admin"].send("GET", f"{INDEXES}/headroom")
    assert code == 200
    for each in (*policies(), *STANDING, {**index, "metadata": {"name": "headroom"}}):
        server.put(each)
    pods = Right(verbs=("create", "update"), resources=("pods",), namespaces=NAMESPACES)
    server.users.add(User(name="editor", rights=(pods,)))
    release = Right(verbs=("release",), resources=("budgetholds",))
    server.users.add(User(name="releaser", rights=(pods, release)))
    status = Right(verbs=("update",), resources=("jobs/status",), groups=("batch",))
    server.users.add(User(name="job-controller", rights=(pods, status)))
    server.users.add(User(name="kubelet", rights=(Right(verbs=("update",), resources=("pods/status",)),)))
    return server


def simulated(twin: ApiServer, user: str, method: str, path: str, document: Document) -> tuple[int, Document]:
    actor = Actor(name=user, user=twin.users[user])
    reply = twin.handle(actor, method, path, {"dryRun": "All"}, json.dumps(document).encode())
    return reply.status, json.loads(reply.body)


def verdict(answer: tuple[int, Document]) -> Any:
    """What came of it: the marks that policies leave on a pod, or that it was refused."""
    code, found = answer
    if code not in (200, 201):
        return code
    annotations = found["metadata"].get("annotations") or {}
    return {
        "gates": sorted(gates(found)),
        "deadline": found["spec"].get("activeDeadlineSeconds"),
        "finalizer": USAGE_FINALIZER in found["metadata"].get("finalizers", ()),
        "told": {key: annotations.get(key) for key in (marks.HELD_BY, marks.HELD_BECAUSE)},
    }


def failures(plane: ControlPlane) -> dict[str, float]:
    """How often an expression of a policy could not be evaluated, by the server's own count."""
    lines = [line.rpartition(" ") for line in plane.metrics().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if any(pattern.search(name) for pattern in FAILED)}


def in_parallel(plane: ControlPlane, work: Callable[[dict[str, Server], Any], Any], items: Sequence[Any]) -> list[Any]:
    """Do it for all items, over several connections."""

    def share(number: int) -> list[Any]:
        servers = {user: Server(plane, user) for user in (*USERS, "kubelet")}
        try:
            return [work(servers, each) for each in items[number::CONNECTIONS]]
        finally:
            for each in servers.values():
                each.close()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = list(pool.map(share, range(CONNECTIONS)))
    return [shares[index % CONNECTIONS][index // CONNECTIONS] for index in range(len(items))]


def compare(found: Sequence[tuple[tuple[int, Document], tuple[int, Document]]], items: Sequence[Any]) -> Counter[int]:
    """Both must have come to the same; the codes are counted."""
    for (real, ours), item in zip(found, items, strict=True):
        shown = f"seed {SEED}: {json.dumps(item)[:3000]}\nthe server says {real[1].get('message')}\nwe say {ours[1].get('message')}"
        assert verdict(real) == verdict(ours), shown
        if real[0] == 403:
            assert "denied request: " in real[1]["message"], shown
            assert "ValidatingAdmissionPolicy 'headroom-" in real[1]["message"], shown
    return Counter(real[0] for real, _ in found)


def test_odd_pods_are_judged_alike_and_no_expression_fails(
    policed_plane: ControlPlane, fuzzed: dict[str, Server], twin: ApiServer
) -> None:
    fuzzer = Fuzzer(SEED)
    items = [(fuzzer.dice.choice(USERS), fuzzer.pod(f"p{number}")) for number in range(PODS)]
    before = failures(policed_plane)
    real = in_parallel(policed_plane, lambda servers, item: create(servers[item[0]], item[1]), items)
    ours = [
        simulated(twin, user, "POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
        for user, pod in items
    ]
    codes = compare(list(zip(real, ours, strict=True)), items)
    assert set(codes) == {201, 403}, f"seed {SEED}: {codes}"
    assert min(codes.values()) > PODS / 20, f"seed {SEED}: {codes}"
    waiting = sum(marks.GATE in gates(answer) for code, answer in real if code == 201)
    assert PODS / 20 < waiting < codes[201] - PODS / 20, f"seed {SEED}: {waiting} of {codes} wait"
    assert failures(policed_plane) == before


def test_odd_changes_are_judged_alike_and_no_expression_fails(
    policed_plane: ControlPlane, fuzzed: dict[str, Server], twin: ApiServer
) -> None:
    fuzzer = Fuzzer(SEED + " changes")
    stored: list[Document] = []
    for many, holds in ((STORED // 2, []), (STORED, STANDING)):
        # Some were there before the holds, behind gates of their makers.
        set_holds(fuzzed["admin"], fuzzed["editor"], holds)
        for each in STANDING:
            if holds:
                twin.put(each)
            else:
                twin.do("DELETE", f"{HOLDS}/{each['metadata']['name']}")
        while len(stored) < many:
            odd = lasting(fuzzer.pod(f"kept-{len(stored)}"))
            if not holds and len(stored) % 2:
                odd = stocked(odd)
            code, answer = create(fuzzed["releaser"], odd, dry=False)
            if code == 201:
                stored.append(answer)
                twin.put(answer)
    items = []
    for _ in range(CHANGES):
        part = "status" if fuzzer.chance(0.2) else ""
        user = "kubelet" if part else fuzzer.dice.choice(USERS[:2])
        items.append((user, fuzzer.change(fuzzer.dice.choice(stored)), part))
    before = failures(policed_plane)
    try:
        real = in_parallel(policed_plane, lambda servers, it: put(servers[it[0]], it[1], it[2]), items)
        ours = [simulated(twin, user, "PUT", path_of(pod, part), pod) for user, pod, part in items]
        codes = compare(list(zip(real, ours, strict=True)), items)
        assert set(codes) == {200, 403}, f"seed {SEED}: {codes}"
        assert min(codes.values()) > CHANGES / 10, f"seed {SEED}: {codes}"
        assert sum("keeps its last scheduling gate" in answer.get("message", "") for _, answer in real) > CHANGES / 500
        assert failures(policed_plane) == before
    finally:
        for each in stored:
            remove(fuzzed["admin"], each)


def stocked(odd: Document) -> Document:
    """The pod as one that a hold covers, behind a gate of its maker."""
    main = odd["spec"]["containers"][0] | {"resources": {"limits": {GPU: "1"}}}
    metadata = odd["metadata"] | {"namespace": "hold-a", "labels": {"team": "a"}}
    spec = odd["spec"] | {"containers": [main], "schedulingGates": [{"name": FOREIGN_GATES[0]}]}
    return odd | {"metadata": metadata, "spec": spec}


def lasting(pod: Document) -> Document:
    """Without what makes the collectors of Kubernetes remove it: an owner or a node that is not there."""
    metadata, spec = pod["metadata"], pod["spec"]
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != MIRROR}
    metadata = {key: value for key, value in metadata.items() if key != "ownerReferences"} | {"annotations": kept}
    return pod | {"metadata": metadata, "spec": {key: value for key, value in spec.items() if key != "nodeName"}}

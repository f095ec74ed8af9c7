"""Odd pods with claims: a real API server's policies and the core judge them alike, whatever the pods ask for and however."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from headroom.adapters.kube import devices, parse, raw
from headroom.api import marks
from headroom.api.budget_hold import hold_name
from headroom.api.policies import USAGE_FINALIZER
from headroom.core import usage
from headroom.core.budgets import PLAN, hold_of
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.index import index_of
from headroom.core.budgets.waiting import Matcher
from headroom.model.actions import ReleasePod
from headroom.model.changes import EVERYTHING
from headroom.model.devices import DeviceTable
from headroom.model.facts import Hold, Namespace, Pod, Usage
from headroom.model.world import World, by_ref
from tests.api.cases import manifest
from tests.api.verdicts import Server
from tests.builders import NOON, a_resource, a_used_world
from tests.control_plane import ControlPlane
from tests.integration.fuzzed_devices import CLASSES, IMPLICIT, DeviceFuzzer, device_class
from tests.integration.fuzzed_pods import NAMESPACES
from tests.integration.holds import HOLDS, INDEXES, create, gates, set_holds
from tests.integration.policed import Document
from tests.integration.test_hold_fuzz import SEED, failures, in_parallel
from tests.integration.test_required_budgets import set_index
from tests.tiers import DEEP

PODS = 2_000 if DEEP else 600
DEVICES = "/apis/resource.k8s.io/v1"
REQUIRED = "hold-required"
GPU = [{"name": "nvidia.com/gpu"}, {"name": "nvidia.com/mig-*"}]
BUDGETS: tuple[tuple[str, str, Document], ...] = (
    ("hold-a", "a", {"selector": {"matchLabels": {"team": "a"}}, "gpuResources": GPU, "accounting": "Exact"}),
    ("hold-a", "amd", {"selector": {"matchLabels": {"tier": "b"}}, "gpuResourceName": "amd.com/gpu"}),
    ("hold-b", "a", {"selector": {"matchLabels": {"team": "a"}}}),
    (
        "hold-b",
        "b",
        {
            "selector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", ""]}]},
            "gpuResources": [{"name": "gpu.nvidia.com"}],
        },
    ),
    (
        "hold-b",
        "fpga",
        {
            "selector": {"matchLabels": {"tier": "a"}},
            "gpuResources": [{"name": "fpga.example.com"}, {"name": "example.com/*"}],
        },
    ),
    (REQUIRED, "a", {"selector": {"matchLabels": {"team": "a"}}}),
)


class Verdict(NamedTuple):
    """What became of a pod."""

    refused: bool
    gated: bool
    exact: bool


def budgets() -> list[Any]:
    """Budgets whose quota is used up, so that whatever they count waits."""
    found = []
    for namespace, name, spec in BUDGETS:
        quota: dict[str, Any] = {"quota": {"gpuHours": "1", "windowHours": 24}, "enforcement": {"action": "Hold"}}
        found.append(msgspec.structs.replace(a_resource(name=name, **quota | spec), namespace=namespace))
    return found


def used_up() -> list[Usage]:
    """Each of the budgets' namespaces has used far more than any quota, whatever the labels."""
    every = {"team": "a", "tier": "b"}, {"team": "b", "tier": "a"}
    return [
        Usage(name=f"{namespace}-{place}", namespace=namespace, start=NOON - 10**7, end=NOON, gpus=10**8, labels=labels)
        for namespace in NAMESPACES
        for place, labels in enumerate(every)
    ]


def world_of(stored: list[Document], pods: list[Pod]) -> World:
    """What the operator would know: the stored claims, templates and classes, and pods."""
    found: dict[str, list[Any]] = {kind: [each for each in stored if each["kind"] == kind] for kind in devices.KINDS}
    claims = [devices.claim_of(raw.fitted(each, devices.ClaimWire)) for each in found["ResourceClaim"]]
    table = DeviceTable(
        [devices.class_of(raw.fitted(each, devices.ClassWire)) for each in found["DeviceClass"]],
        [devices.template_of(raw.fitted(each, devices.TemplateWire)) for each in found["ResourceClaimTemplate"]],
    )
    labels = {name: ((marks.REQUIRE_BUDGET, ""),) if name == REQUIRED else () for name in NAMESPACES}
    world = a_used_world(
        pods=pods,
        usage=used_up(),
        claims={each.key: each for each in claims},
        devices=table,
        namespaces={name: Namespace(name=name, labels=pairs) for name, pairs in labels.items()},
    )
    world = msgspec.structs.replace(world, resources=by_ref(budgets()))
    holds = {hold_name(f"{each.namespace}/{each.name}"): hold_of(world, each) for each in budgets()}
    known = {name: Hold(name=name, created=NOON - 10**6, spec=spec) for name, spec in holds.items()}
    return msgspec.structs.replace(world, holds=known)


@pytest.fixture(scope="module")
def stored(policed_plane: ControlPlane, hold_users: dict[str, Server]) -> Iterator[list[Document]]:
    """Classes, claims and templates in the real server, and the holds and the index that the core makes of them."""
    admin = hold_users["admin"]
    policed_plane.kubectl("label", "namespace", REQUIRED, f"{marks.REQUIRE_BUDGET}=")
    objects = [device_class(name) for name in CLASSES] + DeviceFuzzer(SEED + " claims").claims()
    found = []
    for each in objects:
        code, answer = admin.send("POST", collection(each), json.dumps(each))
        assert code == 201, answer
        found.append(answer | {"kind": each["kind"]})
    world = world_of(found, [])
    set_index(hold_users, msgspec.to_builtins(index_of(world)))
    holds = [manifest("BudgetHold", name, msgspec.to_builtins(each.spec)) for name, each in world.holds.items()]
    set_holds(admin, hold_users["editor"], holds)
    yield found
    for path in (HOLDS, INDEXES):
        assert admin.send("DELETE", path)[0] == 200
    for each in objects:
        assert admin.send("DELETE", f"{collection(each)}/{each['metadata']['name']}")[0] == 200
    policed_plane.kubectl("label", "namespace", REQUIRED, f"{marks.REQUIRE_BUDGET}-")


def collection(document: Document) -> str:
    namespace = document["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{DEVICES}{scope}/{devices.KINDS[document['kind']]}"


def verdict(code: int, answer: Document) -> Verdict:
    if code != 201:
        assert code == 403, answer
        assert "headroom-require-budget" in answer["message"]
        return Verdict(refused=True, gated=False, exact=False)
    found = USAGE_FINALIZER in answer["metadata"].get("finalizers", ())
    return Verdict(refused=False, gated=marks.GATE in gates(answer), exact=found)


class Core:
    """What the core says of a pod."""

    def __init__(self, world: World) -> None:
        self._accounts = [BudgetAccount(world, each) for each in budgets()]
        self._matcher, self._table = Matcher(world, self._accounts), world.devices

    def counts(self, pod: Pod) -> bool:
        """Whether a budget counts it, or will have to wait and see."""
        return bool(self._matcher.of_pod(pod)) or (self.may_count(pod) and not self._matcher.is_known(pod))

    def hides_devices(self, pod: Pod) -> bool:
        """Which devices it gets, a policy cannot see."""
        return pod.has_claims or any(name.startswith(IMPLICIT) for name, _ in pod.shape.requests)

    def may_count(self, pod: Pod, *, exact: bool = False) -> bool:
        """Whether some budget covers it and counts what it asks for, or may."""
        covering = [each for each in self._accounts if each.covers(pod.namespace, pod.labels)]
        if exact:
            covering = [each for each in covering if each.spec.accounting == "Exact"]
        plain = msgspec.structs.replace(pod, claims=(), claim_templates=())
        return any(self.hides_devices(pod) or each.rate(plain) for each in covering)

    def must_be_counted(self, pod: Pod) -> bool:
        gpus = usage.gpus_in(usage.requested_amounts(pod.shape.requests, self._table))
        return pod.namespace == REQUIRED and (self.hides_devices(pod) or gpus > 0)


def test_odd_pods_with_claims_are_judged_alike_by_policies_and_core(
    policed_plane: ControlPlane, hold_users: dict[str, Server], stored: list[Document]
) -> None:
    fuzzer = DeviceFuzzer(SEED + " devices")
    items = [fuzzer.pod(f"d{number}") for number in range(PODS)]
    before = failures(policed_plane)
    answers = in_parallel(policed_plane, lambda servers, pod: create(servers["editor"], pod), items)
    assert failures(policed_plane) == before
    pods = {}
    core, seen = Core(world_of(stored, [])), Counter[str]()
    for number, (item, (code, answer)) in enumerate(zip(items, answers, strict=True)):
        shown = f"seed {SEED}: {json.dumps(item)[:3000]}\nthe server says {answer.get('message')}"
        pod = parse.pod(
            answer | {"metadata": answer["metadata"] | {"uid": f"u{number}", "creationTimestamp": None}}
            if code == 201
            else item
        )
        said = verdict(code, answer)
        assert said.refused == (core.must_be_counted(pod) and not core.may_count(pod)), shown
        if said.refused:
            seen["refused"] += 1
            continue
        assert said.gated == core.may_count(pod), shown
        assert said.exact == core.may_count(pod, exact=True), shown
        # What counts is always behind the gate; what the policy could see is there only if it counts.
        assert said.gated or not core.counts(pod), shown
        assert core.hides_devices(pod) or said.gated == core.counts(pod), shown
        pods[pod.uid] = pod
        seen["queued" if core.counts(pod) else "released" if said.gated else "free"] += 1
    assert min(seen[each] for each in ("refused", "queued", "released", "free")) > PODS / 200, f"seed {SEED}: {seen}"
    # The core lets go at once what it does not count, and nothing else: every quota is used up.
    world = world_of(stored, [each for each in pods.values() if marks.GATE in each.gates])
    PLAN.prepare(world)
    released = {each.uid for each in PLAN.chores(world) if isinstance(each, ReleasePod)}
    released |= {
        each.uid
        for decision in PLAN.decide(world, EVERYTHING)
        for each in decision.actions
        if isinstance(each, ReleasePod)
    }
    assert released == {uid for uid, pod in pods.items() if marks.GATE in pod.gates and not core.counts(pod)}

"""Our policies in the simulator: in force only while they are stored, and of no weight for what is not theirs to judge."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube.transport import Transport
from headroom.api.marks import GATE, HELD_BY
from headroom.api.policies import GUARD, HELD, HOLD, LENGTH, USAGE_FINALIZER, policies
from headroom.sim.apiserver import ApiServer
from headroom.sim.rights import Right
from tests.sim.world import PODS, ask, config_map, node, pod, read, simulated

BINDINGS = "/apis/admissionregistration.k8s.io/v1"
EDITOR = (Right(verbs=("create", "patch", "get"), resources=("pods", "configmaps"), namespaces=("default",)),)


def hold(name: str = "default.a", **spec: Any) -> dict[str, Any]:
    base = {"budget": "default/a", "namespaces": ["default"], "matchLabels": {"team": "a"}}
    base |= {"resources": ["nvidia.com/gpu"], "because": "it is used up"}
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "BudgetHold",
        "metadata": {"name": name},
        "spec": base | spec,
    }


def team_pod(name: str = "p", **annotations: str) -> dict[str, Any]:
    document = pod(name)
    document["metadata"] |= {
        "labels": {"team": "a"},
        "annotations": {f"headroom.dev/{k}": v for k, v in annotations.items()},
    }
    return document


def policed(server: ApiServer, *holds: dict[str, Any]) -> Transport:
    """Policies and holds in place, and a tenant's connection."""
    for each in (*policies(), *holds):
        server.put(each)
    return server.transport("editor", rights=EDITOR)


def gates(document: dict[str, Any]) -> list[str]:
    return [each["name"] for each in document["spec"].get("schedulingGates", [])]


def test_without_policies_a_hold_holds_nobody() -> None:
    async def work(server: ApiServer) -> None:
        server.put(hold())
        editor = server.transport("editor", rights=EDITOR)
        assert gates(read(await ask(editor, "POST", PODS, team_pod()))) == []
        assert (await ask(editor, "POST", PODS, team_pod("q", protected="x"))).status == 201

    simulated(work)


@pytest.mark.parametrize(
    ("plural", "name"),
    [
        ("mutatingadmissionpolicybindings", HOLD),
        ("mutatingadmissionpolicies", HOLD),
        ("mutatingadmissionpolicybindings", LENGTH),
        ("validatingadmissionpolicybindings", HELD),
        ("validatingadmissionpolicies", GUARD),
    ],
)
def test_a_policy_without_its_binding_and_a_binding_without_its_policy_do_nothing(plural: str, name: str) -> None:
    async def work(server: ApiServer) -> None:
        editor = policed(server, hold())
        bound = team_pod("bound")
        bound["spec"]["nodeName"] = "n"
        marked = {"headroom.dev/protected": "x"}

        async def outcome() -> tuple[bool, int | None, int, int]:
            new = {"expected-duration": "60s"}
            made = read(await ask(editor, "POST", PODS, team_pod("p", **new), dryRun="All"))
            patch = {"metadata": {"annotations": marked}}
            return (
                GATE in [each["name"] for each in made.get("spec", {}).get("schedulingGates", [])],
                made.get("spec", {}).get("activeDeadlineSeconds"),
                (await ask(editor, "POST", PODS, bound, dryRun="All")).status,
                (await ask(editor, "PATCH", f"{PODS}/kept", patch, dryRun="All")).status,
            )

        server.put(team_pod("kept"))
        full = (True, 60, 403, 403)
        assert await outcome() == full
        server.do("DELETE", f"{BINDINGS}/{plural}/{name}")
        changed = {
            HOLD: (False, None, 403, 403),  # refused, since it does not wait
            LENGTH: (True, None, 403, 403),
            HELD: (True, 60, 201, 403),
            GUARD: (True, 60, 403, 200),
        }
        assert await outcome() == changed[name]

    simulated(work)


def test_other_kinds_are_none_of_their_business() -> None:
    async def work(server: ApiServer) -> None:
        editor = policed(server, hold())
        document = config_map("c")
        document["metadata"] |= {"labels": {"team": "a"}, "annotations": {"headroom.dev/protected": "x"}}
        path = "/api/v1/namespaces/default/configmaps"
        assert (await ask(editor, "POST", path, document)).status == 201
        assert (await ask(editor, "PATCH", f"{path}/c", {"metadata": {"annotations": None}})).status == 200

    simulated(work)


def test_a_pod_that_waits_is_not_scheduled_until_it_is_released() -> None:
    async def work(server: ApiServer) -> None:
        editor = policed(server, hold())
        server.put(node())
        assert (await ask(editor, "POST", PODS, team_pod())).status == 201
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n1"}}
        admin = server.transport("admin")
        assert (await ask(admin, "POST", f"{PODS}/p/binding", binding)).status == 409
        released = {"spec": {"schedulingGates": None}, "metadata": {"annotations": {"headroom.dev/released-at": "now"}}}
        assert (await ask(admin, "PATCH", f"{PODS}/p", released)).status == 200
        assert (await ask(admin, "POST", f"{PODS}/p/binding", binding)).status == 201

    simulated(work)


def test_of_several_holds_the_first_budget_by_name_is_told_and_a_forged_one_is_overwritten() -> None:
    async def work(server: ApiServer) -> None:
        editor = policed(server, hold("x", budget="default/b"), hold("y", budget="default/a"), hold("z", namespaces=[]))
        made = read(await ask(editor, "POST", PODS, team_pod("p", **{"held-by": "forged"})))
        assert (gates(made), made["metadata"]["annotations"][HELD_BY]) == ([GATE], "default/a")

    simulated(work)


def test_pods_that_a_scenario_puts_in_place_wait_too() -> None:
    async def work(server: ApiServer) -> None:
        policed(server, hold())
        server.put(team_pod())
        stored = server.object("Pod", "default", "p")
        assert stored is not None
        assert gates(stored) == [GATE]
        running = team_pod("running")
        running["spec"]["nodeName"] = "n1"
        server.put(running)
        assert server.object("Pod", "default", "running") is not None

    simulated(work)


@pytest.mark.parametrize(("wanted", "found"), [({"org": "x"}, [USAGE_FINALIZER]), ({"org": "y"}, [])])
def test_the_index_covers_namespaces_by_their_labels(wanted: dict[str, str], found: list[str]) -> None:
    async def work(server: ApiServer) -> None:
        editor = policed(server)
        labelled = {"name": "default", "labels": {"org": "x"}}
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": labelled})
        entry = {"budget": "ops/a", "namespaceSelector": {"matchLabels": wanted}, "exact": True, "namespaces": []}
        spec = {"budgets": [entry | {"resources": ["nvidia.com/*"]}]}
        metadata = {"name": "headroom"}
        server.put({"apiVersion": "headroom.dev/v1alpha1", "kind": "BudgetIndex", "metadata": metadata, "spec": spec})
        made = read(await ask(editor, "POST", PODS, team_pod()))
        assert made["metadata"].get("finalizers", []) == found

    simulated(work)


def test_the_finalizer_of_exact_accounting_comes_with_the_index() -> None:
    async def work(server: ApiServer) -> None:
        editor = policed(server)
        entry = {"budget": "default/a", "namespaces": ["default"], "matchLabels": {"team": "a"}, "exact": True}
        spec = {"budgets": [entry | {"resources": ["nvidia.com/*"]}]}
        metadata = {"name": "headroom"}
        server.put({"apiVersion": "headroom.dev/v1alpha1", "kind": "BudgetIndex", "metadata": metadata, "spec": spec})
        made = read(await ask(editor, "POST", PODS, team_pod()))
        assert made["metadata"]["finalizers"] == [USAGE_FINALIZER]
        assert (await ask(editor, "PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}})).status == 403

    simulated(work)

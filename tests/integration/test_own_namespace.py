"""Headroom's own namespace is exempt from every policy, on a real API server: its pods are neither held nor refused nor marked."""

import json
from collections.abc import Iterator

import pytest

from headroom.api import marks
from headroom.api.budget_index import INDEX_NAME
from headroom.api.policies import USAGE_FINALIZER
from tests.api.cases import manifest
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane, wait_until
from tests.integration.holds import (
    GPU,
    HOLDS,
    INDEXES,
    NAMESPACES,
    annotated,
    changed,
    create,
    gates,
    hold,
    made,
    pod,
    put,
    remove,
    set_holds,
)

OWN = "headroom-system"
BOTH = [NAMESPACES[0], OWN]


@pytest.fixture(scope="module")
def tenant(policed_plane: ControlPlane, hold_users: dict[str, Server]) -> Iterator[Server]:
    """Somebody who may edit pods in both namespaces, while a budget holds in both, counts exactly, and pods need a budget."""
    admin, editor = hold_users["admin"], hold_users["editor"]
    policed_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN}})
    policed_plane.grant("editor", "edit", OWN)
    policed_plane.kubectl("label", "namespace", OWN, f"{marks.REQUIRE_BUDGET}=true", "--overwrite")
    entry = {"budget": "hold-a/a", "namespaces": BOTH, "matchLabels": {"team": "a"}, "resources": [GPU], "exact": True}
    index = manifest("BudgetIndex", INDEX_NAME, {"budgets": [entry]})
    code, answer = admin.send("POST", INDEXES, json.dumps(index))
    assert code == 201, answer
    set_holds(admin, editor, [hold(namespaces=BOTH)])
    wait_until(lambda: create(editor, pod(namespace=OWN))[0] == 201, "the grant is at work")
    yield editor
    assert admin.send("DELETE", HOLDS)[0] == 200
    assert admin.send("DELETE", f"{INDEXES}/{INDEX_NAME}")[0] == 200
    policed_plane.kubectl("label", "namespace", OWN, f"{marks.REQUIRE_BUDGET}-")


def test_no_policy_touches_a_pod_of_headrooms_own_namespace(tenant: Server, hold_users: dict[str, Server]) -> None:
    wait_until(lambda: USAGE_FINALIZER in made(tenant, pod())["metadata"].get("finalizers", []), "the index is known")
    assert gates(made(tenant, pod())) == [marks.GATE], "elsewhere they wait"
    here = made(tenant, pod(namespace=OWN), dry=False)
    assert (gates(here), here["metadata"].get("finalizers")) == ([], None)
    assert create(tenant, pod("bound", OWN, nodeName="n"))[0] == 201
    assert create(tenant, pod("free", OWN, labels={}))[0] == 201, "no budget counts it"
    assert create(tenant, annotated(pod("safe", OWN), protected="true"))[0] == 201
    assert put(tenant, changed(here, labels={}))[0] == 200
    remove(hold_users["admin"], here)


def test_what_waited_there_before_is_released_by_whoever_may_edit_it(
    tenant: Server, hold_users: dict[str, Server]
) -> None:
    waits = pod("waits", OWN, schedulingGates=[{"name": marks.GATE}], finalizers=[USAGE_FINALIZER])
    before = made(tenant, waits, dry=False)
    assert put(tenant, changed(before, spec={"schedulingGates": None}, finalizers=None), dry=False)[0] == 200
    remove(hold_users["admin"], before)

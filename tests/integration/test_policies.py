"""Who may write which budget, on a real API server: the roles for people, and the policy on enforcing budgets."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from headroom.api import generate
from headroom.api.kinds import KINDS
from headroom.api.policies import (
    ENFORCE,
    GUARD,
    HELD,
    MARKS,
    OPERATOR,
    OWNERSHIP,
    RATES,
    REQUESTS,
    REQUIRE,
    RESIZE,
    USAGE_KEPT,
    policies,
)
from tests.api.verdicts import Server, path_of
from tests.control_plane import ControlPlane, KubectlFailed, wait_until
from tests.integration.policed import Document, budget, create

ENFORCING = ("Pause", "Hold", "Suspend", "Evict")
POLICIES = str(generate.ROOT / "deploy" / "policies.yaml")


# --- who may write an enforcing budget -----------------------------------------------------------------------------------------


def replace(server: Server, document: Document, part: str = "") -> tuple[int, Document]:
    path = path_of(document, name=document["metadata"]["name"]) + part
    return server.send("PUT", path + "?dryRun=All", json.dumps(document))


@pytest.fixture(scope="module")
def stored(policed: dict[str, Server]) -> dict[str, Document]:
    """One budget that warns and one that evicts, as the server keeps them."""
    found = {}
    for action in ("AlertOnly", "Evict"):
        code, found[action] = create(policed["admin"], budget(action, action.lower()), dry=False)
        assert code == 201, found[action]
    return found


@pytest.mark.parametrize("user", ["budgeteer", "enforcer"])
def test_anyone_who_may_write_budgets_may_write_one_that_warns(policed: dict[str, Server], user: str) -> None:
    code, answer = create(policed[user], budget("AlertOnly"))
    assert code == 201, answer


@pytest.mark.parametrize("action", ENFORCING)
def test_an_enforcing_budget_needs_the_right_to_enforce(policed: dict[str, Server], action: str) -> None:
    assert create(policed["enforcer"], budget(action))[0] == 201
    assert create(policed["admin"], budget(action))[0] == 201
    code, answer = create(policed["budgeteer"], budget(action))
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert answer["message"].endswith(
        f"denied request: a budget with the action {action} is written only by users who may enforce "
        "gpuworkloadbudgets.headroom.dev in namespace team-a, and budgeteer may not: use AlertOnly, "
        "or have an administrator bind the ClusterRole headroom-budget-enforcer"
    )


def test_the_right_holds_for_its_namespace_and_name_only(policed: dict[str, Server]) -> None:
    assert "in namespace team-b" in create(policed["enforcer"], budget("Evict", namespace="team-b"))[1]["message"]
    assert create(policed["only-one"], budget("Evict", "mine"))[0] == 201
    assert create(policed["only-one"], budget("Evict", "other"))[0] == 403
    unnamed = budget("Evict") | {"metadata": {"generateName": "mine", "namespace": "team-a"}}
    assert create(policed["only-one"], unnamed)[0] == 403
    assert create(policed["enforcer"], unnamed)[0] == 201


@pytest.mark.parametrize(
    ("was", "spec", "allowed"),
    [
        ("AlertOnly", {"quota": {"gpuHours": "1", "windowHours": 1}}, True),
        ("AlertOnly", {"enforcement": {"action": "Evict"}}, False),
        ("AlertOnly", {"enforcement": {"action": "Hold"}}, False),
        ("Evict", {}, True),
        ("Evict", {"enforcement": {"action": "AlertOnly"}}, True),
        ("Evict", {"enforcement": {"action": "AlertOnly"}, "selector": {"matchLabels": {"team": "b"}}}, True),
        ("Evict", {"enforcement": {"action": "Pause"}}, False),
        ("Evict", {"enforcement": {"action": "Evict", "gracePeriodSeconds": 0}}, False),
        ("Evict", {"selector": {"matchLabels": {"team": "b"}}}, False),
        ("Evict", {"namespaceSelector": {"matchLabels": {"team": "b"}}}, False),
        ("Evict", {"quota": {"gpuHours": "1", "windowHours": 24}}, False),
        ("Evict", {"gpuResourceName": "cpu"}, False),
        ("Evict", {"paused": True}, False),
    ],
)
def test_without_it_no_budget_is_made_stronger_or_aimed_elsewhere(
    policed: dict[str, Server], stored: dict[str, Document], was: str, spec: Document, allowed: bool
) -> None:
    old = stored[was]
    changed = old | {"metadata": old["metadata"] | {"labels": {"seen": "yes"}}, "spec": old["spec"] | spec}
    code, answer = replace(policed["budgeteer"], changed)
    assert code == (200 if allowed else 403), answer
    assert replace(policed["enforcer"], changed)[0] == 200


def test_the_operator_writes_a_status_without_it(policed: dict[str, Server], stored: dict[str, Document]) -> None:
    code, answer = replace(policed["operator"], stored["Evict"] | {"status": {"trackedPods": 3}}, "/status")
    assert (code, answer["status"]["trackedPods"]) == (200, 3)


def test_kubectl_apply_shows_the_refusal(policed_plane: ControlPlane, policed: dict[str, Server]) -> None:
    with pytest.raises(KubectlFailed, match="budgeteer may not: use AlertOnly"):
        policed_plane.apply(budget("Hold", "applied"), user="budgeteer")


# --- roles, and the policies as a whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["editor", "owner", "reader"])
def test_a_tenant_reads_our_kinds_and_writes_none(policed: dict[str, Server], user: str) -> None:
    path = path_of(budget("AlertOnly"))
    wait_until(lambda: policed[user].send("GET", path)[0] == 200, "the role view has our rights")
    code, answer = create(policed[user], budget("AlertOnly"))
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert 'cannot create resource "gpuworkloadbudgets"' in answer["message"]
    for kind in KINDS.values():
        for verb in ("create", "update", "patch", "delete", "deletecollection", "enforce"):
            assert not may(policed["admin"], user, verb, kind.plural), (verb, kind.name)
        for verb in ("get", "list", "watch"):
            assert may(policed["admin"], user, verb, kind.plural), (verb, kind.name)


def test_no_role_of_ours_lets_people_write_what_policies_read(policed: dict[str, Server]) -> None:
    for user in ("enforcer", "budgeteer", "editor", "owner", "reader", "releaser"):
        for verb in ("create", "update", "patch", "delete", "deletecollection"):
            for plural in ("budgetindexes", "budgetholds"):
                assert not may(policed["admin"], user, verb, plural), (user, verb, plural)
    assert may(policed["admin"], "operator", "update", "budgetindexes")


def may(admin: Server, user: str, verb: str, resource: str) -> bool:
    attributes = {"namespace": "team-a", "verb": verb, "group": "headroom.dev", "resource": resource}
    spec = {"user": user, "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    code, answer = admin.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", json.dumps(review))
    assert code == 201, answer
    return bool(answer["status"]["allowed"])


def test_the_roles_name_all_kinds_and_none_is_part_of_edit_or_admin() -> None:
    roles = list(yaml.safe_load_all((generate.ROOT / "deploy" / "roles.yaml").read_text()))
    assert roles[0]["rules"][0]["resources"] == [kind.plural for kind in KINDS.values()]
    labels = [label for each in roles for label in each["metadata"]["labels"] if "aggregate" in label]
    assert labels == ["rbac.authorization.k8s.io/aggregate-to-view"]


def test_the_server_keeps_the_policies_as_they_are_generated(policed_plane: ControlPlane) -> None:
    for policy in policies():
        kept = json.loads(policed_plane.kubectl("get", policy["kind"], policy["metadata"]["name"], "-o", "json"))
        assert includes(kept["spec"], policy["spec"]), kept


def includes(larger: Any, smaller: Any) -> bool:
    """Whether one has all that the other has; the server adds defaults."""
    if isinstance(smaller, dict):
        return all(includes(larger.get(key), value) for key, value in smaller.items())
    if isinstance(smaller, list):
        return len(larger) == len(smaller) and all(map(includes, larger, smaller))
    return bool(larger == smaller)


def test_a_server_without_mutating_policies_takes_the_others(bare_control_plane: Callable[..., ControlPlane]) -> None:
    """Before Kubernetes 1.36 it has none in v1; docs/policies.md says what is then missing."""
    version = "admissionregistration.k8s.io/v1"
    off = [f"{version}/mutatingadmissionpolic{end}=false" for end in ("ies", "ybindings")]
    flags = [f"--runtime-config={','.join(off)}", "--disable-admission-plugins=MutatingAdmissionPolicy"]
    plane = bare_control_plane(apiserver_flags=flags)
    with pytest.raises(KubectlFailed, match='no matches for kind "MutatingAdmissionPolicy"'):
        plane.kubectl("apply", "-f", POLICIES)
    kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    names = [line.rpartition("/")[2] for line in plane.kubectl("get", kinds, "-o", "name").split()]
    checks = [ENFORCE, USAGE_KEPT, HELD, RESIZE, GUARD, MARKS, OWNERSHIP, RATES, REQUESTS, REQUIRE, OPERATOR]
    assert sorted(names) == sorted(checks * 2)

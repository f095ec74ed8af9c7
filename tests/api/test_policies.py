"""The policies as they are generated; a real API server tries them in tests/integration."""

import re
from typing import Any

import pytest
import yaml

from headroom.api import generate
from headroom.api.policies import (
    ACCOUNT,
    HELD,
    HOLD,
    OPERATOR,
    USAGE,
    bandwidth,
    cel,
    policies,
    policy_hashes,
    policy_names,
    resizing,
)
from headroom.api.quantities import MAX_LENGTH
from headroom.api.resources import GROUP

POLICIES = [each for each in policies() if not each["kind"].endswith("Binding")]
BOUNDED = (
    f"p.matches('{resizing.PLAIN}') && q.matches('{resizing.PLAIN}') ? quantity(p)",
    f"t.size() <= {MAX_LENGTH} && t.matches('{bandwidth.FORM}') && isQuantity(t)",
    # Amounts of the pod itself: the server has read them before it asks.
    "quantity(string(object.spec.containers[0].resources.requests[w[0]]))",
)
"""How texts are looked at before they are taken for quantities."""
LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'")


def expressions(part: Any) -> list[str]:
    """Every piece of CEL below this one."""
    if isinstance(part, dict):
        own = [value for key, value in part.items() if key in ("expression", "messageExpression")]
        return own + [each for value in part.values() for each in expressions(value)]
    return [each for item in part for each in expressions(item)] if isinstance(part, list) else []


def test_each_policy_is_followed_by_its_binding() -> None:
    made = policies()
    for policy, binding in zip(made[::2], made[1::2], strict=True):
        assert binding["kind"] == f"{policy['kind']}Binding"
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert ("paramRef" in binding["spec"]) == ("paramKind" in policy["spec"])


def test_bindings_are_removed_before_their_policies() -> None:
    names = policy_names()
    assert len(names) == len(set(names)) == len(policies())
    kinds = ["bindings" in plural for plural, _ in names]
    assert kinds == sorted(kinds, reverse=True)
    assert ("mutatingadmissionpolicies", USAGE) in names


@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each["metadata"]["name"])
def test_the_traps_of_the_api_server_are_avoided(policy: dict[str, Any]) -> None:
    spec = policy["spec"]
    for word in ("variables.", "namespaceObject"):  # neither is known there
        assert not [each for each in expressions(spec.get("matchConditions", [])) if word in each]
    # The server panics at typed objects in a JSON patch; plain text there is fine, and waits for no schema of a kind.
    patches = [each["jsonPatch"]["expression"] for each in spec.get("mutations", []) if "jsonPatch" in each]
    assert not [each for each in patches if "Object" in each]
    for each in expressions(spec):
        code = LITERAL.sub("''", each)
        # A huge exponent keeps `quantity` busy for ever, and these policies see what anybody sends.
        assert not re.search(r"\bnow\b", code)
        assert "quantity(" not in code or any(guard in each for guard in BOUNDED)
        assert code.count("(") == code.count(")")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each["metadata"]["name"])
def test_what_every_pod_is_asked_ends_at_the_first_no(policy: dict[str, Any]) -> None:
    """The server evaluates all conditions of a policy even if the first is false, so there is only one."""
    assert len(policy["spec"].get("matchConditions", [])) <= 1


def test_what_must_hold_is_refused_where_it_cannot_be_judged_and_what_helps_is_not() -> None:
    chosen = {each["metadata"]["name"]: each["spec"]["failurePolicy"] for each in POLICIES}
    assert {name for name, policy in chosen.items() if policy == "Ignore"} == {
        *(each["metadata"]["name"] for each in POLICIES if each["kind"] == "MutatingAdmissionPolicy"),
        "headroom-usage-kept",
    }


def test_every_document_tells_its_version() -> None:
    found = policy_hashes()
    assert list(found) != policy_names()
    assert sorted(found) == sorted(policy_names())
    assert found == policy_hashes()
    assert len(set(found.values())) == len(found), "another spec, another version"
    assert found["mutatingadmissionpolicies", HOLD] != found["validatingadmissionpolicies", HELD]
    for each in policies():
        assert each["metadata"]["labels"] == {"app.kubernetes.io/part-of": "headroom"}
        assert each["metadata"]["annotations"]["headroom.dev/policy-hash"] in found.values()


def test_a_sentence_becomes_an_expression() -> None:
    assert cel.text("it's {a}{b}, {a}", a="x", b="y ? 1 : 2") == r"'it\'s ' + (x) + (y ? 1 : 2) + ', ' + (x)"


def test_no_role_for_people_writes_what_policies_read() -> None:
    roles = yaml.safe_load_all((generate.ROOT / "deploy" / "roles.yaml").read_text())
    for rule in (rule for role in roles for rule in role.get("rules", ()) if GROUP in rule.get("apiGroups", ())):
        if not {"bandwidthconfigs", "budgetindexes", "budgetholds", "*"}.isdisjoint(rule["resources"]):
            assert {*rule["verbs"]} <= {"get", "list", "watch", "release"}


def test_the_fence_is_for_one_account_and_its_extender_and_its_version_is_the_same_for_all() -> None:
    other = "system:serviceaccount:gpu:budgets"
    for usual, made in zip(policies(), policies(other), strict=True):
        assert usual["metadata"] == made["metadata"]
        differs = usual["kind"] == "ValidatingAdmissionPolicy" and usual["metadata"]["name"] == OPERATOR
        assert (usual["spec"] != made["spec"]) == differs
        if differs:
            conditions = [each["spec"]["matchConditions"][0]["expression"] for each in (usual, made)]
            assert conditions == [
                f"(request.userInfo.username == '{user}') || (request.userInfo.username == '{user}-extender')"
                for user in (ACCOUNT, other)
            ]

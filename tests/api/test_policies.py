"""The policies as they are generated; a real API server tries them in tests/integration."""

import re
from typing import Any

import pytest

from headroom.api.policies import USAGE, policies, policy_names

POLICIES = [each for each in policies() if not each["kind"].endswith("Binding")]


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
    assert not [each for each in expressions(spec.get("matchConditions", [])) if "variables." in each]
    assert {each["patchType"] for each in spec.get("mutations", [])} <= {"ApplyConfiguration"}
    for each in expressions(spec):
        # A huge exponent keeps `quantity` busy for ever, and these policies see what anybody sends.
        assert not re.search(r"\bquantity\(|\bnow\b", each)
        assert each.count("(") == each.count(")")

"""The admission policies: what the API server itself refuses and adds on our behalf, with no webhook to be down."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from headroom.api.policies.bandwidth import BANDWIDTH, CONFIG_OR_NOTHING, RATES, rates_kept, reserved
from headroom.api.policies.enforcing import ENFORCE, ENFORCER_ROLE, who_may_enforce
from headroom.api.policies.guarding import GUARD, RELEASER_ROLE, guard
from headroom.api.policies.holding import EVERY_HOLD, HELD, HOLD, LENGTH, held, hold, length
from headroom.api.policies.marking import MARKS, owners_marked
from headroom.api.policies.operating import ACCOUNT, OPERATOR, operator
from headroom.api.policies.owning import OWNED, OWNERSHIP, owned, ownership
from headroom.api.policies.requesting import REQUESTER, REQUESTS, requester, requests
from headroom.api.policies.requiring import REQUIRE, require_budget
from headroom.api.policies.resizing import RESIZE, resize
from headroom.api.policies.usage import (
    INDEX_OR_NOTHING,
    USAGE,
    USAGE_FINALIZER,
    USAGE_KEPT,
    usage_finalizer,
    usage_finalizer_stays,
)
from headroom.api.resources import GROUP
from headroom.api.schema import Json

__all__ = [
    "ACCOUNT",
    "BANDWIDTH",
    "ENFORCE",
    "ENFORCER_ROLE",
    "GUARD",
    "HELD",
    "HOLD",
    "LENGTH",
    "MARKS",
    "OF_BANDWIDTH",
    "OPERATOR",
    "OWNED",
    "OWNERSHIP",
    "RATES",
    "RELEASER_ROLE",
    "REQUESTER",
    "REQUESTS",
    "REQUIRE",
    "RESIZE",
    "USAGE",
    "USAGE_FINALIZER",
    "USAGE_KEPT",
    "policies",
    "policy_hashes",
    "policy_names",
]

OF_BANDWIDTH: Final = frozenset({BANDWIDTH, RATES})
"""The policies that bandwidth needs, and nothing else does."""
POLICY_HASH: Final = f"{GROUP}/policy-hash"
"""The annotation that tells of which version a policy or binding is."""

_ADMISSION: Final = "admissionregistration.k8s.io"
_VALIDATING, _MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
_DENY: Final = {"validationActions": ["Deny"]}


def policies(account: str = ACCOUNT) -> list[dict[str, Json]]:
    """All policies, each followed by its binding; for another account of the operator they have the same version."""
    made = [
        *_bound(_VALIDATING, ENFORCE, who_may_enforce(), _DENY),
        *_bound(_MUTATING, USAGE, usage_finalizer(), {"paramRef": INDEX_OR_NOTHING}),
        *_bound(_VALIDATING, USAGE_KEPT, usage_finalizer_stays(), _DENY),
        *_bound(_MUTATING, HOLD, hold(), {"paramRef": EVERY_HOLD}),
        *_bound(_MUTATING, LENGTH, length(), {}),
        *_bound(_VALIDATING, HELD, held(), {"paramRef": EVERY_HOLD, **_DENY}),
        *_bound(_VALIDATING, RESIZE, resize(), {"paramRef": EVERY_HOLD, **_DENY}),
        *_bound(_VALIDATING, GUARD, guard(), _DENY),
        *_bound(_VALIDATING, MARKS, owners_marked(), _DENY),
        *_bound(_MUTATING, OWNED, owned(), {}),
        *_bound(_VALIDATING, OWNERSHIP, ownership(), _DENY),
        *_bound(_MUTATING, REQUESTER, requester(), {}),
        *_bound(_VALIDATING, REQUESTS, requests(), _DENY),
        *_bound(_VALIDATING, REQUIRE, require_budget(), {"paramRef": INDEX_OR_NOTHING, **_DENY}),
        *_bound(_MUTATING, BANDWIDTH, reserved(), {"paramRef": CONFIG_OR_NOTHING}),
        *_bound(_VALIDATING, RATES, rates_kept(), {"paramRef": CONFIG_OR_NOTHING, **_DENY}),
        *_bound(_VALIDATING, OPERATOR, operator(), _DENY),
    ]
    fence = next(each for each in made if each["metadata"]["name"] == OPERATOR)
    fence["spec"] = operator(account)
    return made


def policy_names() -> list[tuple[str, str]]:
    """The plural and the name of every object that `policies` makes, bindings first: without them a policy does nothing."""
    return sorted(policy_hashes(), key=lambda each: not each[0].endswith("bindings"))


def policy_hashes() -> dict[tuple[str, str], str]:
    """The version of every object that `policies` makes, by its plural and name."""
    return {
        (_plural(each["kind"]), each["metadata"]["name"]): each["metadata"]["annotations"][POLICY_HASH]
        for each in policies()
    }


def _plural(kind: str) -> str:
    return f"{kind.lower()}s".replace("policys", "policies")


def _bound(kind: str, name: str, spec: dict[str, Json], binding: dict[str, Json]) -> list[dict[str, Json]]:
    def document(kind: str, spec: dict[str, Json]) -> dict[str, Json]:
        digest = hashlib.blake2b(json.dumps(spec, sort_keys=True).encode(), digest_size=8).hexdigest()
        labels, annotations = {"app.kubernetes.io/part-of": "headroom"}, {POLICY_HASH: digest}
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        return {"apiVersion": f"{_ADMISSION}/v1", "kind": kind, "metadata": metadata, "spec": spec}

    return [document(kind, spec), document(f"{kind}Binding", {"policyName": name, **binding})]

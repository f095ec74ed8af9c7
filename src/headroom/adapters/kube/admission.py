"""Whether the API server has our admission policies: without them it cannot hold new pods for us, nor count their bandwidth."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cache
from typing import Final

from msgspec import Struct

from headroom.adapters.kube import raw
from headroom.api.policies import OF_BANDWIDTH, POLICY_HASH, policy_hashes

KINDS: Final = {
    "mutatingadmissionpolicies": "MutatingAdmissionPolicy",
    "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
    "validatingadmissionpolicies": "ValidatingAdmissionPolicy",
    "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
}
"""The plurals of the four kinds, and their names."""
SELECTOR: Final = "app.kubernetes.io/part-of=headroom"


class Policy(Struct, frozen=True, kw_only=True):
    """A policy or a binding, as far as we need it."""

    name: str
    uid: str
    resource_version: str = ""
    hash: str = ""
    """Tells its version."""


def policy_of(wire: raw.Object) -> Policy:
    """An admission policy or its binding."""
    meta = wire.metadata or raw.RawObjectMeta()
    name = meta.name or ""
    return Policy(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        hash=(meta.annotations or {}).get(POLICY_HASH, ""),
    )


_wanted: Final = cache(policy_hashes)
OF_HOLDS: Final = frozenset({name for _, name in policy_hashes()} - OF_BANDWIDTH)
"""The policies without which new pods cannot be held."""


def unserved(plural: str) -> str:
    """Why there are none of a kind that the API server does not know."""
    return f"The API server serves no {KINDS[plural]} v1 (Kubernetes 1.36 does)."


def problem(
    installed: Mapping[str, Mapping[str, Policy]], unread: Mapping[str, str], of: Container[str] = OF_HOLDS
) -> str:
    """Why what needs these policies cannot be had, as a sentence; empty if they are all there and of this version.

    `installed` is by plural and name; `unread` says of a plural why it could not be read.
    """
    if unread:
        return next(unread[plural] for plural in KINDS if plural in unread)
    for (plural, name), wanted in _wanted().items():
        if name not in of:
            continue
        found = installed[plural].get(name)
        if found is None:
            return f"The {KINDS[plural]} {name} is not installed: apply the output of `headroom policies`."
        if found.hash != wanted:
            return f"The {KINDS[plural]} {name} is of another version: apply the output of `headroom policies`."
    return ""

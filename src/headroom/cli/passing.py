"""What is said of objects that are not of Headroom, and of those that were written for one of the systems before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headroom.cli import output

_READ: Final = {
    "Pod": "v1",
    "Node": "v1",
    "Namespace": "v1",
    "ConfigMap": "v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "NodePool": "karpenter.sh/v1",
    "NodeClaim": "karpenter.sh/v1",
    "EC2NodeClass": "karpenter.k8s.aws/v1",
}
"""What Headroom reads of others."""
_ALIKE: Final = 0.85
"""Strict, since most kinds of others only look a little like one of these: NodeClass is no NodeClaim."""
_A_WORD: Final = 3
"""Who leaves out so much means another kind: a NodeClass is no EC2NodeClass."""
_OWNERS: Final = ("Job", "JobSet", "Deployment", "StatefulSet", "ReplicaSet", "CronJob")
"""Makers of pods, which a newcomer may take for what is counted."""


def say(ignored: Mapping[str, int], rest: str = "Headroom does not use them") -> None:
    """Say what was passed over, and what to do if it was meant for us. The keys are such as `v1/Service`."""
    silent = []
    for name, count in sorted(ignored.items()):
        version, _, kind = name.rpartition("/")
        hint = _hint(version, kind)
        if hint:
            output.say(f"skipped {output.counted(count, kind)} of {version or 'no group'}: {hint}")
        else:
            silent.append(output.counted(count, kind))
    if silent:
        output.say(f"skipped {', '.join(silent)}: {rest}")


def remedy(version: str, kind: str) -> str:
    """What to do about a wrong apiVersion of one of our kinds."""
    from headroom.api.resources import API_VERSION

    return "`headroom convert` changes it" if _converted(version, kind) else f"write {API_VERSION}"


def near(kind: str) -> str:
    """A question about a kind that is spelled much like this one; empty if there is none."""
    import difflib

    from headroom.api.kinds import KINDS
    from headroom.api.resources import API_VERSION

    known = {each.lower(): (each, _READ.get(each, API_VERSION)) for each in (*KINDS, *_READ)}
    found = difflib.get_close_matches(kind.lower(), known, n=1, cutoff=_ALIKE)
    is_part = bool(found) and found[0].endswith(kind.lower()) and len(found[0]) - len(kind) >= _A_WORD
    if not found or is_part or known[found[0]][0] == kind:
        return ""
    name, version = known[found[0]]
    return f"did you mean {name} of {version}?"


def _hint(version: str, kind: str) -> str:
    from headroom.adapters.documents import SCENARIO, SIM_GROUP
    from headroom.api.kinds import KINDS
    from headroom.api.resources import API_VERSION

    if _converted(version, kind):
        return "`headroom convert` rewrites them as Headroom's"
    if kind in KINDS:
        return f"if they are meant for Headroom, write apiVersion: {API_VERSION}"
    if kind in _OWNERS:
        return "Headroom counts the pods of owners, so give those; it uses only owners that it has suspended"
    return "run it with `headroom demo --scenario`" if (version, kind) == (SIM_GROUP, SCENARIO) else near(kind)


def _converted(version: str, kind: str) -> bool:
    from headroom.cli.convert import OLD_GROUPS

    return OLD_GROUPS.get(version.partition("/")[0]) == kind

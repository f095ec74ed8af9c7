"""Which kinds a decision needs to see. They have the names that `kubectl` gives them: `pods`, `workloads.kueue.x-k8s.io`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headroom.api.kinds import DEFINITIONS
from headroom.api.resources import GROUP
from headroom.model.world import World

WORKLOADS: Final = "workloads.kueue.x-k8s.io"
JOB_SETS: Final = "jobsets.jobset.x-k8s.io"
NODE_OVERLAYS: Final = "nodeoverlays.karpenter.sh"
DRA: Final = tuple(
    f"{plural}.resource.k8s.io"
    for plural in ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses")
)
POLICIES: Final = tuple(
    f"{mode}admissionpolic{what}.admissionregistration.k8s.io"
    for mode in ("mutating", "validating")
    for what in ("ies", "ybindings")
)
OWNERS: Final = {"Workload": WORKLOADS, "JobSet": JOB_SETS}
"""Kinds of owners that a cluster may lack, and how they are named here."""
_NEEDED_GROUPS: Final = ("", "batch", GROUP)
BESIDE: Final = frozenset(f"{kind.plural}.{GROUP}" for kind in DEFINITIONS.values() if not kind.needed)
"""Kinds of our own without which everything else goes on."""
CRON_JOBS: Final = "cronjobs.batch"
"""They only announce pods: without them everything else goes on."""
_SPOKEN: Final = {
    "pods": "Pods",
    "nodes": "Nodes",
    "namespaces": "Namespaces",
    "configmaps": "ConfigMaps",
    "jobs": "Jobs",
}


def sees(world: World, *kinds: str) -> bool:
    """Whether all of these kinds are seen now, or known to be absent."""
    return world.unseen.keys().isdisjoint(kinds)


def blinding(world: World) -> list[str]:
    """The kinds that are not seen and without which nothing can be decided."""
    return [
        kind for kind in sorted(world.unseen) if _group(kind) in _NEEDED_GROUPS and kind not in (*BESIDE, CRON_JOBS)
    ]


def incomplete(world: World) -> tuple[str, str]:
    """Why the view is not complete: a reason that names the first kind, and all kinds for people."""
    kinds = blinding(world)
    if not kinds:
        return "ViewIncomplete", "The view of the cluster is not complete"
    return f"List{_camel(kinds[0])}Failed", f"The view of the cluster is not complete without {listed(kinds)}"


def listed(kinds: Iterable[str]) -> str:
    """Names for people."""
    *most, last = sorted(kinds)
    return f"{', '.join(most)} and {last}" if most else last


def _group(kind: str) -> str:
    return kind.split(" ", maxsplit=1)[0].partition(".")[2]


def _camel(kind: str) -> str:
    plural = kind.split(" ", maxsplit=1)[0].partition(".")[0]
    ours = {each.plural: name + each.plural[len(name) :] for name, each in DEFINITIONS.items()}
    return (_SPOKEN | ours).get(plural, plural.capitalize())

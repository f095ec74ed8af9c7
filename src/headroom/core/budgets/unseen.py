"""What a budget leaves alone while kinds of other projects are not seen: only what they decide on."""

from __future__ import annotations

from typing import Final

from headroom.core.budgets.units import owner_of
from headroom.model import sight
from headroom.model.facts import Pod
from headroom.model.world import World

_KUEUE: Final = "kueue.x-k8s.io/"
_WHAT_WAITS: Final = {
    sight.WORKLOADS: "pods under Kueue",
    sight.JOB_SETS: "JobSets and their pods",
} | dict.fromkeys(sight.DRA, "pods with resource claims")


def knows(world: World, kind: str) -> bool:
    """Whether what is known of owners of a kind is of now."""
    return kind not in sight.OWNERS or sight.sees(world, sight.OWNERS[kind])


def is_unclear(world: World, pod: Pod) -> bool:
    """Whether it depends on a kind that is not seen what must be done with a pod.

    Labels prove nothing, but while nobody can say otherwise they are a reason to wait.
    """
    if not world.unseen:
        return False
    if pod.has_claims and not sight.sees(world, *sight.DRA):
        return True
    if owner_of(pod).startswith("JobSet/") and not knows(world, "JobSet"):
        return True
    return not knows(world, "Workload") and (
        any(key.startswith(_KUEUE) for key, _ in pod.labels) or any(gate.startswith(_KUEUE) for gate in pod.gates)
    )


def limits(world: World) -> str:
    """What waits because a kind is not seen, as a sentence; empty if nothing does."""
    found = {kind: what for kind, what in _WHAT_WAITS.items() if not sight.sees(world, kind)}
    if not sight.sees(world, *sight.POLICIES):
        found |= {kind: "pods made before a hold" for kind in sight.POLICIES if kind in world.unseen}
    if not found:
        return ""
    kinds, waits = sight.listed(found), sight.listed(set(found.values()))
    return f"Cannot be read: {kinds}. Meanwhile {waits} are neither released nor stopped; all other effects continue."

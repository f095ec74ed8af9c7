"""Gangs: pods that are worth nothing without one another, as they say of themselves."""

from __future__ import annotations

from typing import Final

from headroom.model.facts import Pod

JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
GROUPS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "kueue.x-k8s.io/pod-group-name",
    "leaderworkerset.sigs.k8s.io/group-key",
)
VOLCANO: Final = "scheduling.k8s.io/group-name"
"""An annotation; the others are labels."""
SYSTEM_OWNERS: Final = ("DaemonSet", "Node")
_LABELS: Final = frozenset({JOBSET, *GROUPS})


def gang_of(pod: Pod) -> str:
    """The gang of a pod as Kind/namespace/name: its JobSet or its pod group; empty for none."""
    if pod.owner is not None and pod.owner.kind in SYSTEM_OWNERS:
        return ""  # whatever its labels say, it is nobody's rank
    named = {key: value for key, value in pod.labels if key in _LABELS}
    if not named and not pod.annotations:
        return ""
    if name := named.get(JOBSET):
        return f"JobSet/{pod.namespace}/{name}"
    group = next((named[key] for key in GROUPS if named.get(key)), "") or dict(pod.annotations).get(VOLCANO, "")
    return f"PodGroup/{pod.namespace}/{group}" if group else ""

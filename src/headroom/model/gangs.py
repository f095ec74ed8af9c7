"""Gangs: pods that are worth nothing without one another, as they say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headroom.model.facts import Pod
from headroom.model.gpus import has_gpus

JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
GROUPS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "kueue.x-k8s.io/pod-group-name",
)
LEADER_WORKERS: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
GROUP_KEY: Final = "leaderworkerset.sigs.k8s.io/group-key"
"""Each of the set's groups is a gang of its own."""
VOLCANO_JOB: Final = "volcano.sh/job-name"
VOLCANO: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations; the names above are labels."""
SYSTEM_OWNERS: Final = ("DaemonSet", "Node")
SUSPENDABLE: Final = {"Job": "batch", "JobSet": "jobset.x-k8s.io"}
"""Owners that can be suspended, each with its API group: other projects have a kind Job too."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that only shows what a kubelet runs by itself. The API server lets nobody add it later, and kubelets run no
other pod that has it."""
_NODE_OWNERS: Final = (("DaemonSet", "apps"), ("Node", ""))

KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_FAST: Final = "kueue.x-k8s.io/pod-group-fast-admission"
"""Annotations: of how many pods a group is, and that it may start before all of them are there."""
VOLCANO_LEAST: Final = "scheduling.volcano.sh/group-min-member"
"""An annotation, of pods that Volcano itself has put into a group."""
LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""A label: how many pods of the group must be there at least."""
READ_ANNOTATIONS: Final = frozenset({*VOLCANO, KUEUE_TOTAL, KUEUE_FAST, VOLCANO_LEAST})

_LABELS: Final = frozenset({JOBSET, *GROUPS, LEADER_WORKERS, GROUP_INDEX, GROUP_KEY, VOLCANO_JOB})
_LONGEST_COUNT: Final = 9


def gang_of(pod: Pod) -> str:
    """The gang of a pod as Kind/namespace/name: its JobSet, its group of a LeaderWorkerSet or its pod group; empty for none."""
    if (not pod.labels and not pod.annotations) or (pod.owner is not None and pod.owner.kind in SYSTEM_OWNERS):
        return ""  # whatever the labels of a DaemonSet's pod say, it is nobody's rank
    named = {key: value for key, value in pod.labels if key in _LABELS}
    if not named and not pod.annotations:
        return ""
    if name := named.get(JOBSET):
        return f"JobSet/{pod.namespace}/{name}"
    group = next((named[key] for key in GROUPS if named.get(key)), "")
    if not group and named.get(LEADER_WORKERS) and named.get(GROUP_INDEX):
        return f"LeaderWorkerSet/{pod.namespace}/{named[LEADER_WORKERS]}-{named[GROUP_INDEX]}"
    group = group or named.get(GROUP_KEY, "") or _volcanos(pod, named)
    return f"PodGroup/{pod.namespace}/{group}" if group else ""


def _volcanos(pod: Pod, labels: Mapping[str, str]) -> str:
    """The gang of a pod in Volcano's words."""
    notes = dict(pod.annotations)
    group = next((notes[key] for key in VOLCANO if notes.get(key)), "")
    # Volcano puts all pods of a controller into a group that it names by the uid; unless told otherwise, one of them is enough to start.
    made = f"podgroup-{pod.owner.uid if pod.owner is not None else pod.uid}"
    if group == made and _count(notes.get(VOLCANO_LEAST)) <= 1:
        return ""
    return group or labels.get(VOLCANO_JOB, "")


def belongs_to_node(pod: Pod) -> bool:
    """Whether a pod comes with its node, as those of DaemonSets and kubelets do, and would be back at once.

    Anybody may write an owner into a pod, so one that has devices never does. For others the garbage collector vouches: it deletes
    pods whose owner, of a group that the API server knows, is not there.
    """
    if dict(pod.annotations).get(MIRROR) is not None:
        return True
    has_devices = pod.has_claims or any("/" in name and amount for name, amount in pod.shape.requests)
    return not has_devices and pod.owner is not None and (pod.owner.kind, pod.owner.group) in _NODE_OWNERS


def keeps_machine_on(pod: Pod, gpus: str) -> bool:
    """Whether a machine must not go off under a pod: any but those that come with the node and have no GPUs.

    A machine may offer its GPUs under several names, whole or as MIG slices, so any of them counts and not only those of its pool
    (`gpus`). A claim may be for any device, so a pod that has one keeps it on.
    """
    if dict(pod.annotations).get(MIRROR) is not None:
        return False
    if pod.owner is None or pod.owner.kind not in SYSTEM_OWNERS:
        return True
    return pod.has_claims or has_gpus(pod.shape.requests, gpus)


def size_of(pod: Pod) -> int:
    """Of how many pods its gang is at least, as far as the pod itself says; else 0."""
    notes = dict(pod.annotations)
    total = 0 if notes.get(KUEUE_FAST) == "true" else _count(notes.get(KUEUE_TOTAL))
    least = next((value for key, value in pod.labels if key == LEAST), "")
    return max(total, _count(least), _count(notes.get(VOLCANO_LEAST)))


def _count(text: str | None) -> int:
    return int(text) if text and len(text) <= _LONGEST_COUNT and text.isascii() and text.isdigit() else 0

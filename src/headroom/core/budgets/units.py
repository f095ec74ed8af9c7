"""Units: what starts and stops as one. A gang is worth nothing without one of its ranks, so it is never taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from headroom.api import marks
from headroom.model.actions import SuspendOwner
from headroom.model.facts import Pod, Workload
from headroom.model.gangs import JOBSET, SYSTEM_OWNERS, gang_of
from headroom.model.tables import PHASES
from headroom.model.world import World

SINGLE: Final = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Node")
"""Controllers whose pods do without one another."""
SUSPENDABLE: Final = ("Job", "JobSet")
ENDED: Final = ("Succeeded", "Failed")
SYSTEM: Final = "kube-system"


def note(pod: Pod, name: str) -> str:
    """One annotation of a pod; empty if it is not there."""
    return next((value for key, value in pod.annotations if key == name), "")


def unit_of(pod: Pod) -> str:
    """What a pod starts and stops with, as Kind/namespace/name: its JobSet, its pod group, its Job or other owner, or itself."""
    if gang := gang_of(pod):
        return gang
    if pod.owner is not None and pod.owner.kind not in SINGLE:
        return f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"
    return f"Pod/{pod.key}"


def owner_of(pod: Pod) -> str:
    """Who would make a pod anew, as Kind/namespace/name; empty for nobody."""
    if pod.owner is None:
        return ""
    name = dict(pod.labels).get(JOBSET)
    # A JobSet makes Jobs that begin with its name; a label alone proves nothing.
    if name and pod.owner.kind == "Job" and pod.owner.name.startswith(f"{name}-"):
        return f"JobSet/{pod.namespace}/{name}"
    return f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"


class Queued:
    """Which pods Kueue decides on: those for which it has a Workload. Labels alone prove nothing."""

    def __init__(self, world: World) -> None:
        every = [each for each in world.workloads.values() if each.kind == "Workload"]
        groups = {f"PodGroup/{each.namespace}/{each.name}": each for each in every}
        self._of = groups | {each.owner: each for each in every if each.owner}

    def of(self, pod: Pod) -> Workload | None:
        """The Workload of a pod."""
        names = (owner_of(pod), f"Pod/{pod.key}", unit_of(pod)) if self._of else ()
        return next((self._of[each] for each in names if each in self._of), None)


def suspends(queued: Queued, pod: Pod) -> SuspendOwner | None:
    """Suspend what must be suspended for a pod to go; None if nothing can be."""
    workload = queued.of(pod)
    if workload is not None:
        # Kueue suspends and resumes its Jobs as it likes: it is told through its own object.
        return SuspendOwner(kind=workload.kind, object=f"{workload.namespace}/{workload.name}", uid=workload.uid)
    kind, _, rest = owner_of(pod).partition("/")
    # The pod of a JobSet names its Job, whose uid is not the JobSet's.
    uid = pod.owner.uid if pod.owner is not None and pod.owner.kind == kind else ""
    return SuspendOwner(kind=kind, object=rest, uid=uid) if kind in SUSPENDABLE else None


def is_protected(pod: Pod) -> bool:
    """Whether Headroom never stops it: by an administrator's word, or because the cluster itself lives by it."""
    word = note(pod, marks.PROTECTED)
    of_system = pod.namespace == SYSTEM or (pod.owner is not None and pod.owner.kind in SYSTEM_OWNERS)
    return of_system or word.lower() not in ("", "false", "no")


def is_alive(pod: Pod) -> bool:
    """Neither over nor on its way out."""
    return pod.phase not in ENDED and pod.deleting is None


def pending(world: World) -> Iterator[Pod]:
    """The pods that have not started: gated, without a node, or not running there yet."""
    pods = world.pods
    for row in np.flatnonzero(pods.column("phase") == PHASES.index("Pending")).tolist():
        pod = pods.at(row)
        if pod.started is None and pod.deleting is None:
            yield pod


def of_namespaces(world: World, names: set[str]) -> Iterator[Pod]:
    """All pods of these namespaces."""
    numbers = [world.pods.names.number(each) for each in sorted(names)]
    rows = np.flatnonzero(np.isin(world.pods.column("namespace"), numbers)).tolist() if names else []
    return (world.pods.at(row) for row in rows)


class Unit(NamedTuple):
    """A unit and all its pods in view that have not ended."""

    name: str
    pods: tuple[Pod, ...]

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.name.split("/")[1]


def units(world: World, uids: Iterable[str]) -> dict[str, Unit]:
    """The units of some pods, each with all of its pods, also those that nobody asked about."""
    chosen = [pod for uid in uids if (pod := world.pods.get(uid)) is not None]
    members: dict[str, dict[str, Pod]] = {}
    for pod in chosen:
        members.setdefault(unit_of(pod), {})[pod.uid] = pod
    gangs = {name for name in members if not name.startswith("Pod/")}
    for pod in of_namespaces(world, {name.split("/")[1] for name in gangs}):
        name = unit_of(pod) if pod.phase not in ENDED else ""
        if name in gangs:
            members[name][pod.uid] = pod
    return {
        name: Unit(name, tuple(sorted(found.values(), key=lambda pod: pod.key)))
        for name, found in sorted(members.items())
    }

"""Units: what starts and stops together. A gang is worth nothing without one of its ranks, so it is never taken apart.

Anybody writes labels and owners into their own pods. So a gang has only pods of one namespace that the same budgets cover, and those
of an owner only if they name its uid: nobody can draw the pods of another team into their gang, or hide behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from headroom.api import marks
from headroom.api.resources import LabelSelector
from headroom.core import usage
from headroom.model import times
from headroom.model.actions import MOST_GRACE_SECONDS, DeletePod, EvictPod, SuspendOwner
from headroom.model.facts import Pairs, Pod, Workload
from headroom.model.gangs import JOBSET, SUSPENDABLE, belongs_to_node, gang_of
from headroom.model.numbering import ABSENT
from headroom.model.selectors import may_select, selects
from headroom.model.tables import PHASES
from headroom.model.world import World

SINGLE: Final = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Node")
"""Controllers whose pods do without one another."""
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
    """Who would recreate a pod, as Kind/namespace/name; empty for nobody."""
    if pod.owner is None:
        return ""
    name = dict(pod.labels).get(JOBSET)
    # A JobSet makes Jobs that begin with its name; a label alone proves nothing.
    if name and pod.owner.kind == "Job" and pod.owner.name.startswith(f"{name}-"):
        return f"JobSet/{pod.namespace}/{name}"
    return f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"


class Queued:
    """Which pods Kueue decides on: those for which it has a Workload that names them or their owner. Labels alone prove nothing.

    A Workload is in the namespace of what it queues; one elsewhere that names it is somebody else's word.
    """

    def __init__(self, world: World) -> None:
        every = [each for each in world.workloads.values() if each.kind == "Workload"]
        self._of_uid = {(each.namespace, uid): each for each in every for uid in each.owner_uids}
        self._of_set = {each.owner: each for each in every if each.owner.startswith("JobSet/")}

    def of(self, pod: Pod, selector: LabelSelector | None = None) -> Workload | None:
        """The Workload of a pod; if it makes pods that the selector may match."""
        found = self._of(pod) if self._of_uid else None
        if found is None or selector is None or not found.parts:
            return found
        return found if any(may_select(selector, part.labels) for part in found.parts) else None

    def _of(self, pod: Pod) -> Workload | None:
        uids = (pod.uid,) if pod.owner is None else (pod.owner.uid, pod.uid)
        keys = [(pod.namespace, uid) for uid in uids]
        found = next((self._of_uid[each] for each in keys if each in self._of_uid), None)
        # The pod of a JobSet names its Job only.
        return found or (self._of_set.get(owner_of(pod)) if self._of_set else None)

    def is_first(self, pod: Pod) -> bool:
        """Whether Kueue has still to start the Workload of a pod, which then waits as a whole, or is kept from it by us."""
        found = self.of(pod)
        return found is not None and (found.suspended or not (found.admitted or found.released_at is not None))


def suspends(queued: Queued, pod: Pod, selector: LabelSelector) -> SuspendOwner | None:
    """Suspend what must be suspended for a pod of a budget to go; None if nothing can be, or if that is not the budget's."""
    workload = queued.of(pod)
    if workload is not None:
        if queued.of(pod, selector) is None:
            return None
        # Kueue suspends and resumes its Jobs as it likes: it is told through its own object.
        return SuspendOwner(kind=workload.kind, object=f"{workload.namespace}/{workload.name}", uid=workload.uid)
    kind, _, rest = owner_of(pod).partition("/")
    # The pod of a JobSet names its Job, whose uid is not the JobSet's.
    if pod.owner is None or kind not in SUSPENDABLE or SUSPENDABLE.get(pod.owner.kind) != pod.owner.group:
        return None
    return SuspendOwner(kind=kind, object=rest, uid=pod.owner.uid if pod.owner.kind == kind else "")


def naming_job(owner: SuspendOwner, pod: Pod) -> SuspendOwner:
    """The same, with the Job of a pod that is said to be the JobSet's: if it is not, that Job is suspended instead."""
    if owner.kind != "JobSet" or pod.owner is None:
        return owner
    return structs.replace(owner, job=pod.owner.name, job_uid=pod.owner.uid)


def names_of(owner: Workload) -> set[str]:
    """What units and owners of pods may be called that an owner stands for."""
    return {owner.key, owner.owner, f"PodGroup/{owner.namespace}/{owner.name}"} - {""}


def is_exempt(world: World, namespace: str) -> bool:
    """Whether a namespace is the cluster's or Headroom's own: nothing in them is ever held or stopped."""
    return namespace in (SYSTEM, world.own_namespace)


def is_protected(world: World, pod: Pod) -> bool:
    """Whether Headroom never stops it: by an administrator's word, or because the cluster itself lives by it."""
    word = note(pod, marks.PROTECTED)
    return is_exempt(world, pod.namespace) or belongs_to_node(pod) or word.lower() not in ("", "false", "no")


def is_alive(pod: Pod) -> bool:
    """Neither over nor on its way out."""
    return pod.phase not in ENDED and pod.deleting is None


def goes_on(pod: Pod, now: int) -> bool:
    """Whether a pod goes on for longer than an eviction lets it: whoever deletes a pod may let it take years to end."""
    is_leaving = pod.deleting is not None and pod.deleting <= now + MOST_GRACE_SECONDS * times.SECOND
    return pod.phase not in ENDED and not is_leaving


def evicts(pod: Pod) -> EvictPod:
    """Evict exactly this pod, as it is now, with the time that it asks for."""
    return EvictPod(
        pod=pod.key,
        uid=pod.uid,
        resource_version=pod.resource_version,
        grace_seconds=min(pod.grace_seconds, MOST_GRACE_SECONDS),
    )


def deletes(pod: Pod) -> DeletePod:
    """Delete exactly this pod, as it is now, with the time that it asks for."""
    found = evicts(pod)
    return DeletePod(
        pod=pod.key, uid=pod.uid, resource_version=found.resource_version, grace_seconds=found.grace_seconds
    )


def pending(world: World) -> Iterator[Pod]:
    """The pods that have not started: gated, without a node, or not running there yet."""
    pods = world.pods
    for row in np.flatnonzero(pods.column("phase") == PHASES.index("Pending")).tolist():
        pod = pods.at(row)
        if pod.started is None and pod.deleting is None:
            yield pod


def of_namespaces(world: World, names: set[str]) -> Iterator[Pod]:
    """All pods of these namespaces."""
    # Rows that are free have no namespace, and neither has a name that no pod has.
    numbers = {world.pods.names.number(each) for each in names} - {ABSENT}
    rows = np.flatnonzero(np.isin(world.pods.column("namespace"), sorted(numbers))).tolist() if numbers else []
    return (world.pods.at(row) for row in rows)


class BudgetUnit(NamedTuple):
    """A unit and all its pods in view that have not ended."""

    name: str
    pods: tuple[Pod, ...]

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.name.split("/")[1]


class _Teams:
    """Which budgets cover a pod. Pods that the same ones cover are of one team."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scopes: dict[str, list[tuple[str, LabelSelector]]] = {}
        self._known: dict[tuple[str, Pairs], str] = {}

    def of(self, pod: Pod) -> str:
        """The names of these budgets, as one word."""
        key = (pod.namespace, pod.labels)
        if key not in self._known:
            covering = [name for name, selector in self._in(pod.namespace) if selects(selector, pod.labels)]
            self._known[key] = "+".join(covering) or "none"
        return self._known[key]

    def _in(self, namespace: str) -> list[tuple[str, LabelSelector]]:
        if namespace not in self._scopes:
            self._scopes[namespace] = [
                (f"{each.namespace}.{each.name}", each.spec.selector)
                for each in usage.budgets_of(self._world)
                if namespace in usage.namespaces_of(self._world, each)
            ]
        return self._scopes[namespace]


def units(world: World, uids: Iterable[str]) -> dict[str, BudgetUnit]:
    """The units of some pods by their uids, each with all of its pods, also those that nobody asked about.

    What pods of several teams call the same gang is one for each team, and has the names of their budgets in its own.
    """
    chosen = {uid: pod for uid in uids if (pod := world.pods.get(uid)) is not None}
    named: dict[str, dict[str, Pod]] = {}
    for pod in chosen.values():
        named.setdefault(unit_of(pod), {})[pod.uid] = pod
    gangs = {name for name in named if not name.startswith("Pod/")}
    for pod in of_namespaces(world, {name.split("/")[1] for name in gangs}):
        name = unit_of(pod) if pod.phase not in ENDED else ""
        if name in gangs:
            named[name][pod.uid] = pod
    teams, found = _Teams(world), dict[str, BudgetUnit]()
    for name, members in named.items():
        for unit in _parted(name, members.values(), teams):
            found |= {pod.uid: unit for pod in unit.pods if pod.uid in chosen}
    return found


def _parted(name: str, pods: Iterable[Pod], teams: _Teams) -> Iterator[BudgetUnit]:
    """A gang, or what is one for each team, and for each owner of that name."""
    members = sorted(pods, key=lambda pod: pod.key)
    parts: dict[tuple[str, str], list[Pod]] = {}
    for pod in members:
        owner = pod.owner.uid if pod.owner is not None and not gang_of(pod) else ""
        parts.setdefault((teams.of(pod) if len(members) > 1 else "", owner), []).append(pod)
    for (team, owner), part in sorted(parts.items()):
        yield BudgetUnit(f"{name}#{team}{owner and '#'}{owner}" if len(parts) > 1 else name, tuple(part))

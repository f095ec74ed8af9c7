"""Which pending pods really need a place, who is left out and why, and what must be served as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from headroom.core import usage
from headroom.core.demand.announced import Announced
from headroom.core.demand.announcing import Announcement, Notices
from headroom.core.demand.apart import Apartness
from headroom.core.demand.claims import ClaimedDevices
from headroom.core.demand.digests import digest_of
from headroom.core.demand.exhausted import Exhausted
from headroom.core.demand.resources import RoomResources
from headroom.core.demand.schedulers import OURS, Schedulers
from headroom.core.demand.units import OF_GANGS, Announcer, LeftOut, PendingPods, Unit, Wanted
from headroom.model.facts import Amounts, Pod, Shape
from headroom.model.gangs import GROUPS, SYSTEM_OWNERS, gang_of, size_of
from headroom.model.times import MINUTE, SECOND
from headroom.model.world import World

NOMINATED_MS: Final = 5 * MINUTE
"""For so long a nomination is believed: preemption takes no longer than pods take to end."""
FORMING_MS: Final = 5 * SECOND
"""A gang whose newest pod is younger than this may still be growing,"""
FORMED_MS: Final = MINUTE
"""but not one that has waited for so long: a new pod of it stands for one that failed."""
USUAL_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")
_UNHEARD: Final = ("Gated", "NotYetSeen", "OtherScheduler", "NoNodeHelps")
"""Why a gang whose pod is left out cannot be judged as a whole yet."""


def wanted(
    world: World,
    gpus: Collection[str] = (),
    schedulers: Collection[str] = (),
    ahead_ms: int | None = None,
    device_classes: Mapping[str, str] | None = None,
    resources: RoomResources | None = None,
) -> Wanted:
    """Everything that waits for a place, the most urgent first.

    Pods ask for GPUs by the usual resources, by `gpus`, or by claims to `device_classes`, each with the resource that it stands for;
    of `schedulers` it is known that they place pods here. Queued pods are announced so long before they start; None for not at all.
    `resources` tells what else they ask for.
    """
    look, get = _Look(world, gpus, schedulers, device_classes or {}, resources), world.pods.get
    for uid in world.pods.unbound:
        pod = get(uid)
        if pod is not None and pod.phase == "Pending" and pod.deleting is None:
            look.at(pod)
    look.judge_gangs()
    announced, beyond = look.announced(ahead_ms) if ahead_ms is not None else ((), ())
    return Wanted(
        units=_in_turn(look.counted, look),
        exhausted=(*_in_turn(look.exhausted, look), *beyond),
        announced=announced,
        announcers=look.announcers,
        left_out=dict(sorted(look.left_out.items())),
        apart=look.names,
        unnamed={resource: tuple(sorted(uids)) for resource, uids in look.unnamed.items()},
        recheck_at=min(look.turns, default=None),
    )


def may_be_wanted(world: World, ahead_ms: int | None = None) -> bool:
    """Whether anything may be wanted, with what is announced so long before it starts; None for however long before.

    Far cheaper than to find out what; whatever `wanted` looks at beside pods belongs here too.
    """
    if world.pods.asking:
        return True
    if ahead_ms is None:
        return bool(world.workloads or world.cron_jobs)
    return Notices(world, ahead_ms).is_any_due()


class _Gang(NamedTuple):
    """The pods of a gang that have no node."""

    pods: list[Pod]
    """Those that count."""
    unheard: list[tuple[str, LeftOut]]
    """Those that keep the others from counting, by name."""


class _Look:
    """Looks at one pod after the other, then at the gangs."""

    def __init__(
        self,
        world: World,
        gpus: Collection[str],
        schedulers: Collection[str],
        device_classes: Mapping[str, str],
        resources: RoomResources | None = None,
    ) -> None:
        self.world = world
        self._resources = resources
        self.unneeded = frozenset[str]() if resources is None else resources.unneeded
        """Resources that pods request and no room must have."""
        self.announcers: dict[str, Announcer] = {}
        """Who will make pods that are not there yet, by their uids."""
        self._judged: dict[object, bool | None] = {}
        self._budgets_queue = Announced(world)
        self._queued: dict[str, list[Pod]] = {}
        """By what is released as one."""
        self.counted: dict[object, list[Pod]] = {}
        """By gang, or by the shape's identity and the priority."""
        self.exhausted: dict[object, list[Pod]] = {}
        self.left_out: dict[str, LeftOut] = {}
        self.turns: list[int] = []
        self.apart = Apartness(world)
        self.names: dict[str, tuple[str, ...]] = {}
        """Groups from which pods keep apart, by uid; only of those that do."""
        self.added: dict[str, Amounts] = {}
        """What pods ask for by claims or annotations, by uid; only of those that do."""
        self.unnamed: dict[str, list[str]] = {}
        """Pods that claim GPUs by a class that nobody names, by resource."""
        self._devices = ClaimedDevices(world, device_classes)
        self._gangs: dict[str, _Gang] = {}
        self._budgets = Exhausted(world)
        self._schedulers = Schedulers(world, schedulers)
        self._gpus = frozenset({*USUAL_GPUS, *gpus})
        self._no_gpu = LeftOut(reason="NoGpu", message=f"It requests no GPU ({', '.join(sorted(self._gpus))}).")
        self._asking: dict[int, bool] = {}
        """Whether pods of a shape ask for GPUs, by the shape's identity."""

    def at(self, pod: Pod) -> None:
        """Sort one pod in."""
        why, gang = self._why_not(pod), gang_of(pod)
        if why is not None:
            self.left_out[pod.uid] = why
            if why.resource and pod.unschedulable_since is not None:
                self.unnamed.setdefault(why.resource, []).append(pod.uid)
            name = self._budgets_queue.unit_of(pod) if self._budgets_queue and why.reason == "Gated" else ""
            if name:
                self._queued.setdefault(name, []).append(pod)
            if gang and why.reason in _UNHEARD:
                self._gang(gang).unheard.append((pod.key, why))
            return
        key = self._key(pod)
        if gang:
            self._gang(gang).pods.append(pod)
        elif self._budgets:
            self._count([pod], key)
        else:
            self.counted.setdefault(key, []).append(pod)

    def _key(self, pod: Pod) -> tuple[int, int, tuple[str, ...], Amounts | None]:
        """Pods with the same key are served as equals."""
        names = tuple(rule.name for rule in self.apart.rules(pod))
        if names:
            self.names[pod.uid] = names
        # The table has each shape once, so that equal shapes are one object; to hash one takes longer than all the rest.
        return id(pod.shape), pod.priority, names, self.added.get(pod.uid)

    def announced(self, ahead_ms: int) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
        """Pods that start soon, those first that start first; and those of them whose budget is over quota."""
        found: dict[tuple[int, bool], dict[object, list[Pod]]] = {}
        for name, pods in self._queued.items():
            start = self._budgets_queue.start_of(name, len(pods))
            if start is None or start + ahead_ms < self.world.now:  # one that is long past was no good estimate
                continue
            if start - ahead_ms > self.world.now:
                self.turns.append(start - ahead_ms)
                continue
            for pod in pods:
                self._announce(found, pod, start)
        notices = Notices(self.world, ahead_ms, self._budgets_queue)
        for notice, pods in notices.due():
            for pod in pods:
                over = self._over_quota(notice, pod)
                if over is not None:
                    self._announce(found, pod, notice.by.due_at, over=over)
                    self.announcers[pod.uid] = notice.by
        self.turns += notices.turns
        units = ((over, self._due(start, alike)) for (start, over), alike in found.items())
        sorts: tuple[list[Unit], list[Unit]] = ([], [])
        for over, each in units:
            sorts[over].extend(each)
        plain, beyond = (tuple(sorted(each, key=lambda unit: unit.queue_position)) for each in sorts)
        return plain, beyond

    def _over_quota(self, notice: Announcement, pod: Pod) -> bool | None:
        """Whether the budget of a pod that is announced is over quota; None if one will queue it. Equal pods are judged once."""
        if notice.is_judged:
            return False
        key = (pod.namespace, pod.labels, id(pod.shape), pod.claims, pod.claim_templates)
        if key not in self._judged:
            held = any(True for _ in usage.holds_over(self.world, pod))
            self._judged[key] = None if held else bool(self._budgets and self._budgets.budget_of(pod))
        return self._judged[key]

    def _announce(
        self, found: dict[tuple[int, bool], dict[object, list[Pod]]], pod: Pod, start: int, *, over: bool = False
    ) -> None:
        if self._without_gpus(pod) is None and self._schedulers.places(pod.shape.scheduler):
            found.setdefault((start, over), {}).setdefault(gang_of(pod) or self._key(pod), []).append(pod)

    def _due(self, start: int, alike: dict[object, list[Pod]]) -> list[Unit]:
        return [structs.replace(unit, due_at=start) for unit in _in_turn(alike, self)]

    def _gang(self, name: str) -> _Gang:
        return self._gangs.setdefault(name, _Gang([], []))

    def _count(self, pods: Sequence[Pod], key: object) -> None:
        budget = min(filter(None, map(self._budgets.budget_of, pods)), default="") if self._budgets else ""
        (self.exhausted if budget else self.counted).setdefault(key, []).extend(pods)
        if budget:
            why = LeftOut(reason="BudgetExhausted", message=self._budgets.says(budget))
            self.left_out |= {pod.uid: why for pod in pods}

    def judge_gangs(self) -> None:
        """All pods of a gang count, or none."""
        for name, gang in sorted(self._gangs.items()):
            why = self._incomplete(name, gang) if gang.pods else ""
            if why:
                left_out = LeftOut(reason="GangIncomplete", message=why)
                self.left_out |= {pod.uid: left_out for pod in gang.pods}
            elif gang.pods:
                self._count(gang.pods, name)

    def _incomplete(self, name: str, gang: _Gang) -> str:
        if gang.unheard:
            pod, why = min(gang.unheard, key=lambda each: each[0])
            return f"Its gang {name} is not complete: {pod} is not ready to be placed: {why.message}"
        size = max(map(size_of, gang.pods))
        there = len(gang.pods) if size <= len(gang.pods) else self._there[name]
        if there < size:
            return f"Its gang {name} is not complete: {there} of its {size} pods {'is' if there == 1 else 'are'} there."
        ages = [pod.created for pod in gang.pods]
        grown = min(max(ages) + FORMING_MS, min(ages) + FORMED_MS)
        if grown <= self.world.now:
            return ""
        self.turns.append(grown)
        return f"Its gang {name} may still be growing: its newest pod is less than {FORMING_MS // SECOND}s old."

    @cached_property
    def _there(self) -> Counter[str]:
        """How many pods each gang has, on nodes and off, but for those that failed or are about to go."""
        pods = self.world.pods
        sets = [number for number, labels in pods.label_sets.items() if any(key in GROUPS for key, _ in labels)]
        named = {pods.at(row).uid for row in np.flatnonzero(np.isin(pods.column("labels"), sets)).tolist()}
        found = (pod for uid in named | pods.annotated if (pod := pods.get(uid)) is not None)
        return Counter(gang_of(pod) for pod in found if _is_there(pod))

    def _why_not(self, pod: Pod) -> LeftOut | None:
        if pod.gates:
            gates = "a scheduling gate" if len(pod.gates) == 1 else "scheduling gates"
            return LeftOut(reason="Gated", message=f"It has {gates} ({', '.join(pod.gates)}).")
        if pod.owner is not None and pod.owner.kind in SYSTEM_OWNERS:
            return LeftOut(reason="DaemonSet", message=f"Its {pod.owner.kind} creates it for an existing node.")
        if (why := self._without_gpus(pod)) is not None:
            return why
        return self._unheard(pod) or (self._nominated(pod) if pod.nominated_node else None)

    def _without_gpus(self, pod: Pod) -> LeftOut | None:
        """Why a pod asks for no GPUs that count, by requests or by claims."""
        added: Amounts = ()
        if not self._asks(pod.shape):
            claimed = self._devices.asked(pod) if pod.has_claims else self._no_gpu
            if isinstance(claimed, LeftOut):
                return claimed
            added = claimed
        if self._resources is not None:
            added = (*added, *self._resources.asked(pod))
        if added:
            self.added[pod.uid] = added
        return None

    def _unheard(self, pod: Pod) -> LeftOut | None:
        """Why nobody has really found that there is no place."""
        name = pod.shape.scheduler
        if pod.unschedulable_since is None:
            if name == OURS:
                return LeftOut(reason="NotYetSeen", message="kube-scheduler has not marked it unschedulable yet.")
            says = f"Its scheduler, {name}, has not marked it unschedulable yet."
            return LeftOut(reason="OtherScheduler", message=says)
        if pod.refused_itself:
            said = pod.unschedulable_message
            says = f"{pod.shape.spoken_scheduler} rejects the pod itself, so no node helps: {said}"
            return LeftOut(reason="NoNodeHelps", message=says)
        if self._schedulers.places(name):
            return None
        says = (
            f"Its scheduler, {name}, does not seem to run: it has placed no pod, and no pod runs it. "
            f"The pod counts as soon as {name} places any pod or a PowerPool names {name} (policy.schedulers)."
        )
        return LeftOut(reason="OtherScheduler", message=says)

    def _asks(self, shape: Shape) -> bool:
        known = self._asking.get(id(shape))
        if known is None:
            known = self._asking[id(shape)] = any(amount > 0 and name in self._gpus for name, amount in shape.requests)
        return known

    def _nominated(self, pod: Pod) -> LeftOut | None:
        until = nominated_until(self.world, pod)
        if until is None:
            return None
        self.turns.append(until)
        return LeftOut(reason="Nominated", message=f"kube-scheduler preempts pods for it on {pod.nominated_node}.")


def _is_there(pod: Pod) -> bool:
    return pod.phase == "Succeeded" or (pod.phase != "Failed" and pod.deleting is None)


def nominated_until(world: World, pod: Pod) -> int | None:
    """Until when a pod without a node counts as having one, since others are making room for it; None if it does not."""
    node = world.nodes.get(pod.nominated_node) if pod.nominated_node else None
    if node is None or not node.ready or node.deleting is not None or node.unschedulable:
        return None  # no room is made where nobody can go
    since = pod.nominated_since if pod.nominated_since is not None else pod.unschedulable_since
    until = (world.now if since is None else since) + NOMINATED_MS
    return until if until > world.now else None


# --- units ----------------------------------------------------------------------------------------------------------------------


def _in_turn(groups: dict[object, list[Pod]], look: _Look) -> tuple[Unit, ...]:
    units = [_unit(key if isinstance(key, str) else "", pods, look) for key, pods in groups.items()]
    return tuple(sorted(units, key=lambda unit: unit.queue_position))


def _unit(gang: str, pods: list[Pod], look: _Look) -> Unit:
    alike: dict[object, list[Pod]] = {}
    if gang:
        for pod in pods:
            alike.setdefault((pod.shape, look.names.get(pod.uid), look.added.get(pod.uid)), []).append(pod)
    else:
        alike[0] = pods
    parts = [_part(gang, each, look) for each in alike.values()]
    oldest, first = min((pod.created, pod.key) for pod in pods)
    return Unit(
        gang=gang,
        priority=max([pod.priority for pod in pods]),
        oldest=oldest,
        first=first,
        parts=tuple(sorted(parts, key=lambda part: part.key)),
    )


def _part(gang: str, pods: list[Pod], look: _Look) -> PendingPods:
    aged, shape = sorted([(pod.created, pod.key, pod.uid) for pod in pods]), pods[0].shape
    added = look.added.get(pods[0].uid, ())
    return PendingPods(
        shape=_shape(shape, added, look.unneeded),
        # What one pod finds out says nothing of a gang, nor a gang of one pod.
        digest=f"{OF_GANGS}{digest_of(shape)}" if gang else digest_of(shape),
        pods=tuple([uid for _, _, uid in aged]),
        names=tuple([name for _, name, _ in aged]),
        apart=look.apart.of(pods[0]),
        added=added,
    )


def _shape(shape: Shape, added: Amounts, unneeded: frozenset[str]) -> Shape:
    """A shape with all that a room must have for it."""
    if not added and not any(name in unneeded for name, _ in shape.requests):
        return shape
    needed = (each for each in shape.requests if each[0] not in unneeded)
    return structs.replace(shape, requests=tuple(sorted((*needed, *added))))

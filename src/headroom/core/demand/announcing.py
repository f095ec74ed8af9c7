"""Pods that somebody will make in a moment: CronJobs that are due, suspended Jobs that budgets resume, and what Kueue admits.

The pods are not there yet, so stand-ins are made of their templates. Whoever announces may only say so: nothing counts for longer than
its pods may take to come, and no namespace counts for more than so many pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from headroom.core.demand.announced import Announced
from headroom.core.demand.cron import first_run
from headroom.core.demand.flavors import flavored
from headroom.core.demand.units import Announcer
from headroom.model import sight
from headroom.model.batch_facts import CronJob
from headroom.model.facts import Pod, Shape, Workload, WorkloadPart
from headroom.model.gangs import JOBSET, SUSPENDABLE
from headroom.model.numbering import ABSENT
from headroom.model.times import HOUR, MINUTE, SECOND
from headroom.model.world import World

LATE_MS: Final = 2 * MINUTE
"""So long after they were to start, pods may take to be there."""
SKEW_MS: Final = 5 * SECOND
"""Clocks of other machines may be ahead by so much."""
MOST_OF_NAMESPACE: Final = 1_000
MOST: Final = 10_000
"""More pods are never announced at once: by one namespace, and by all; nor are more CronJobs looked at, the first by name."""
_CRITICAL: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Announcement(NamedTuple):
    """What somebody announces."""

    by: Announcer
    until: int
    """When it counts no more, if its pods have not come."""
    parts: tuple[tuple[WorkloadPart, int], ...]
    """Kinds of pods, each with how many are to come."""
    is_judged: bool
    """Budgets have let it start, or said when they will."""

    def pods(self, world: World, shapes: dict[Shape, Shape], most: int) -> Iterator[Pod]:
        """Stand-ins for its pods, no more than so many. Equal shapes become one object."""
        _, namespace, name = self.by.of.split("/", 2)
        number = 0
        for part, many in self.parts:
            shape, priority = flavored(world, part), _priority(world, part.priority_class)
            if shape is None or priority is None or part.is_gated:
                continue
            known = world.pods.shapes.number(shape)
            # The table's own is taken, so that stand-ins are served with pods that are there.
            shape = shapes.setdefault(shape, shape if known == ABSENT else world.pods.shapes[known])
            for _ in range(min(many, most - number)):
                number += 1
                yield Pod(
                    uid=f"{self.by.of}#{number}",
                    namespace=namespace,
                    name=f"{name}-{number}",
                    labels=part.labels,
                    annotations=part.annotations,
                    shape=shape,
                    priority=priority,
                    created=self.by.due_at,
                    claims=part.claims,
                    claim_templates=part.claim_templates,
                )


class Notices:
    """Everything that is announced, and when that changes by itself."""

    def __init__(self, world: World, ahead_ms: int, queues: Announced | None = None) -> None:
        """`queues` is what budgets have decided, if somebody has read that."""
        self._world, self._ahead, self._read = world, ahead_ms, queues
        self._presence = Presence(world)
        self.turns: list[int] = []

    @cached_property
    def _queues(self) -> Announced:
        return Announced(self._world) if self._read is None else self._read

    @cached_property
    def _others(self) -> set[str]:
        """Uids of Jobs that announce their pods themselves, or by a Workload of Kueue's."""
        return {uid for each in self._world.workloads.values() for uid in (each.uid, *each.owner_uids)}

    def is_any_due(self) -> bool:
        """Whether anything is announced now: far cheaper than to find out what."""
        return any(each.until > self._world.now for each in self._every())

    def due(self) -> Iterator[tuple[Announcement, list[Pod]]]:
        """What is to start soon, each with its pods; the first to start first."""
        now, shapes, left, of_space = self._world.now, dict[Shape, Shape](), MOST, dict[str, int]()
        found = [each for each in self._every() if each.until > now]
        for each in sorted(found, key=lambda notice: (notice.by.due_at, notice.by.of)):
            self.turns.append(each.until)
            space = each.by.namespace
            pods = list(each.pods(self._world, shapes, min(left, MOST_OF_NAMESPACE - of_space.get(space, 0))))
            left -= len(pods)
            of_space[space] = of_space.get(space, 0) + len(pods)
            yield each, pods

    def _every(self) -> Iterator[Announcement]:
        world = self._world
        for each in _counted(world.cron_jobs) if sight.sees(world, sight.CRON_JOBS) else ():
            yield from self._of_cron_job(each)
        for owner in world.workloads.values():
            if owner.kind == "Workload":
                yield from self._of_workload(owner)
            elif owner.kind in SUSPENDABLE:
                yield from self._of_job(owner)

    # --- CronJobs ---------------------------------------------------------------------------------------------------------

    def _of_cron_job(self, each: CronJob) -> Iterator[Announcement]:
        world, now, many = self._world, self._world.now, _many(each.part)
        if each.suspended or not many or (each.queue and world.kueue):
            return  # what Kueue queues is announced once it has quota
        ran = each.ran_at or 0
        job = dict(each.active).get(job_of(each.name, ran), "")
        # Whom a budget has just released, or Kueue admitted, is announced by that.
        missing = many - len(world.pods.by_owner[job]) if job and job not in self._others else 0
        if missing > 0 and ran + LATE_MS > now:
            yield _notice(each.key, each.uid, ran, ((each.part, missing),))
        elif not (each.is_alone and each.active):
            # Where runs still have pods, the next one takes their place: else each would wake a machine beside the one in use.
            running = sum(len(world.pods.by_owner[uid]) for _, uid in each.active)
            if many > running:
                yield from self._next_run(each, many - running)

    def _next_run(self, each: CronJob, many: int) -> Iterator[Announcement]:
        now, ahead = self._world.now, self._ahead
        late = min(LATE_MS, LATE_MS if each.deadline is None else each.deadline)
        begun = each.created if each.ran_at is None else each.ran_at
        # One hour more: the round looks again by then at the latest.
        horizon = ((now + ahead) // HOUR + 2) * HOUR
        run = first_run(each.schedule, each.time_zone, begun, max(begun, now - late), horizon)
        if run is None or run - ahead > now:
            self.turns.append((horizon if run is None else run) - ahead)
        else:
            yield _notice(each.key, each.uid, run, ((each.part, many),), run + late)

    # --- Jobs and Workloads -----------------------------------------------------------------------------------------------

    def _of_job(self, each: Workload) -> Iterator[Announcement]:
        now = self._world.now
        if each.admitted:
            return  # it is over
        if each.suspended:
            start = self._queues.start_of_owner(each.key, now) if each.suspended_by else None
            if start is not None and start - self._ahead > now:
                self.turns.append(start - self._ahead)
            elif start is not None:
                # So long as it is late, its estimate was no good; as for queued pods.
                parts = tuple((part, _many(part)) for part in each.parts)
                yield Announcement(Announcer(each.key, each.uid, start, False), start + self._ahead, parts, True)
        elif each.released_at is not None and now - LATE_MS < each.released_at <= now:
            parts = _without(each.parts, self._presence.count(each))
            yield _notice(each.key, each.uid, each.released_at, parts)._replace(is_judged=True)

    def _of_workload(self, each: Workload) -> Iterator[Announcement]:
        now = self._world.now
        if each.reserved_at is None or each.suspended or not now - LATE_MS < each.reserved_at <= now:
            return
        yield _notice(each.key, each.uid, each.reserved_at, _without(each.parts, self._presence.count(each)))


def _counted(cron_jobs: Mapping[str, CronJob]) -> Iterable[CronJob]:
    """Those that are looked at: of a namespace, and of all, no more than could announce a pod each."""
    if len(cron_jobs) <= MOST_OF_NAMESPACE:
        return cron_jobs.values()
    found, of_space = list[CronJob](), Counter[str]()
    for _, each in sorted(cron_jobs.items()):
        if of_space[each.namespace] < MOST_OF_NAMESPACE and len(found) < MOST:
            of_space[each.namespace] += 1
            found.append(each)
    return found


def _notice(
    of: str, uid: str, due_at: int, parts: tuple[tuple[WorkloadPart, int], ...], until: int | None = None
) -> Announcement:
    by = Announcer(of, uid, due_at, True)
    return Announcement(by, due_at + LATE_MS if until is None else until, parts, is_judged=False)


def _many(part: WorkloadPart) -> int:
    """How many pods are made of a template; none where nothing is known of where they go."""
    return 0 if part.shape is None else part.count if part.left is None else min(part.count, part.left)


def _without(parts: Sequence[WorkloadPart], there: int) -> tuple[tuple[WorkloadPart, int], ...]:
    """How many pods of each template are missing, where so many are there."""
    found: list[tuple[WorkloadPart, int]] = []
    for part in parts:
        many = max(0, _many(part) - there)
        there = max(0, there - _many(part))
        found.append((part, many))
    return tuple(found)


def _priority(world: World, name: str) -> int | None:
    """The priority of pods that name a class; None if there is no such class, so that there will be no such pods."""
    if not name:
        return next((each.value for _, each in sorted(world.priority_classes.items()) if each.is_default), 0)
    known = world.priority_classes.get(name)
    return known.value if known is not None else _CRITICAL.get(name)


def job_of(cron_job: str, run: int) -> str:
    """The name of the Job that the cronjob controller makes for a run."""
    return f"{cron_job}-{run // MINUTE}"


def _is_heard(pod: Pod) -> bool:
    """Whether its scheduler has looked at it. Until then nobody knows whether it needs the machine that was kept for it."""
    return bool(pod.node) or pod.unschedulable_since is not None or pod.phase != "Pending"


def _is_of_job(pod: Pod) -> bool:
    """Whether a pod is of a Job, and may use what was kept for it."""
    asks = pod.has_claims or any("/" in name and amount for name, amount in pod.shape.requests)
    return asks and not pod.gates and pod.owner is not None and pod.owner.kind == "Job"


# --- whether they came ----------------------------------------------------------------------------------------------------------


class Presence:
    """Which of the pods that were announced are there."""

    def __init__(self, world: World) -> None:
        self._world, self._pods = world, world.pods
        self._jobs: dict[str, tuple[int, dict[str, int]]] = {}
        """By namespace: since when pods were looked at, and what was found."""

    def has_come(self, of: str, uid: str, due_at: int) -> bool:
        """Whether any pod is there that somebody announced, and its scheduler has looked at it."""
        kind, namespace, name = of.split("/", 2)
        if kind == "CronJob":
            # Its Job may be over by now, and the CronJob gone: the pods tell by the name of their owner.
            since = due_at - SKEW_MS
            return self._of_jobs(namespace, since).get(job_of(name, due_at), -1) >= since
        owner = self._world.workloads.get(of)
        if owner is not None and owner.kind != "Job":
            return self.count(owner) > 0
        pods = (self._pods.get(each) for each in self._pods.by_owner[owner.uid if owner is not None else uid])
        return any(pod is not None and _is_heard(pod) for pod in pods)

    def count(self, owner: Workload) -> int:
        """How many pods of an owner are there that nobody keeps from being placed."""
        if owner.kind == "Job":
            return len(self._pods.by_owner[owner.uid])
        whose = owner.key if owner.kind == "JobSet" else owner.owner
        if whose.startswith("JobSet/"):
            return self._of_job_sets[whose]
        uids = [uid for each in owner.owner_uids for uid in (each, *self._pods.by_owner[each])]
        return sum(1 for uid in uids if (pod := self._pods.get(uid)) is not None and not pod.gates)

    def _of_jobs(self, namespace: str, moment: int) -> Mapping[str, int]:
        """The Jobs of a namespace that have pods made since a moment, each with when the newest of them was; found once for all that ask."""
        since, known = self._jobs.get(namespace, (moment + 1, {}))
        if moment < since:
            since, known = moment - HOUR, {}
            pods = self._pods
            mine = pods.column("namespace") == pods.names.number(namespace)
            for row in np.flatnonzero(mine & (pods.column("created") >= since)).tolist():
                pod = pods.at(row)
                if pod.owner is not None and _is_of_job(pod) and _is_heard(pod):
                    known[pod.owner.name] = max(pod.created, known.get(pod.owner.name, 0))
            self._jobs[namespace] = since, known
        return known

    @cached_property
    def _of_job_sets(self) -> Counter[str]:
        """The pods of each JobSet: its Jobs own them, so only their labels tell."""
        pods = self._pods
        named = {number: name for number, labels in pods.label_sets.items() if (name := dict(labels).get(JOBSET))}
        rows = np.flatnonzero(np.isin(pods.column("labels"), list(named))).tolist() if named else []
        found = (pods.at(row) for row in rows)
        return Counter(f"JobSet/{pod.namespace}/{dict(pod.labels)[JOBSET]}" for pod in found if not pod.gates)

"""The cluster of a replay: pods are created, queued, scheduled and deleted, and their usage is kept as rows.

It does at once what the API server's policies, the scheduler, kubelets and owners of pods would do, and nothing else: the production
plans decide whether a pod is queued, released or stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final

from msgspec import structs

from headroom.api import durations, marks
from headroom.api.kinds import AnyResource
from headroom.core import CAPACITY, usage
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Amounts, Hold, Machine, Node, Pairs, Pod, Shape, Workload
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage import Evidence, UsageRow
from headroom.model.usage_table import UsageTable
from headroom.model.world import World
from headroom.sim.whatif.admission import Gatekeeper
from headroom.sim.whatif.lives import EVICTED, FINISHED, Life, ReplayLog
from headroom.sim.whatif.outside import Makes
from headroom.sim.whatif.placing import Placer
from headroom.sim.whatif.work import Case, RequestedPod

PULL_MS: Final = 2 * times.SECOND
"""Time from being bound to running."""
BUDGET: Final = "GPUWorkloadBudget"
BRINGERS: Final = frozenset(CAPACITY.kinds)
"""The kinds whose resources bring machines."""
NO_ROOM: Final = "no node has room for it"
"""The message of the replay's scheduler for a pending pod."""
Later = Callable[[int, Callable[[], None]], None]
"""Do something at a given time."""


class ReplayCluster:
    """The state of one replay."""

    def __init__(
        self, case: Case, resources: Mapping[Ref, AnyResource], later: Later, outside: Iterable[Makes] = ()
    ) -> None:
        """`outside` makes the stand-ins for things outside the cluster."""
        self.case, self.resources = case, ResourceTable(resources)
        self.now = case.begin
        self.log = ReplayLog()
        self.pods, self.usage = PodTable(), UsageTable(case.cluster)
        self.holds: dict[str, Hold] = {}
        self.workloads: dict[str, Workload] = {}
        self.index: Any = None
        self.changed: set[str] = set()
        """The kinds whose plans to ask again after a change."""
        self.urgent: set[str] = set()
        """The kinds whose plans wait for such a change, and are asked sooner."""
        self.living: dict[str, Life] = {}
        self.of_owner: dict[str, list[RequestedPod]] = {}
        self.later = later
        self.facts: dict[str, dict[str, Any]] = {}
        """Facts from stand-ins outside the cluster: fields of the World, by name."""
        self.outside = [make(self) for make in outside]
        nodes = {node.name: node for node in case.nodes}
        to_come = [node for each in self.outside for node in each.stage(nodes)]
        self._has_bringers = any(ref.kind in BRINGERS for ref in resources)
        self._nodes = NodeTable()
        for node in nodes.values():
            self._nodes.put(node)
        # Without any node capacity is unlimited, even if a plan could bring nodes.
        rooms = [*nodes.values(), *to_come] if nodes else []
        self._placer = Placer(rooms, {work.shape for work in case.works}, case.boundless)
        self._seeking: list[str] = []
        """Pods that the scheduler has not tried yet."""
        self._gatekeeper = Gatekeeper()
        self._tries: dict[int, int] = {}
        self._number = count(1)
        self._rows: dict[tuple[str, Pairs, Any, str], UsageRow] = {}
        self._open: dict[str, UsageRow] = {}
        self._counted: dict[tuple[str, Pairs, Amounts], bool] = {}
        """Whether a budget counts a row, by its namespace, labels and amounts."""
        self.usage.extend(case.history)

    def world(self) -> World:
        """The current World for the plans."""
        case = self.case
        facts: dict[str, Any] = {**case.facts, **self.facts}
        return World(
            now=self.now,
            cluster=case.cluster,
            own_namespace=case.own_namespace,
            resources=self.resources,
            pods=self.pods,
            nodes=self._nodes,
            namespaces=case.namespaces,
            prices=case.prices,
            usage=self.usage,
            index=self.index,
            holds=self.holds,
            workloads=self.workloads,
            hold_problem=case.hold_problem,
            caps=case.caps,
            bandwidth=case.bandwidth,
            **facts,
        )

    @property
    def machines(self) -> dict[str, Machine]:
        """The power of machines; none without a stand-in for them."""
        return self.facts.get("machines", {})

    # --- nodes ------------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node | None:
        """A node of the cluster."""
        return self._nodes.get(name)

    def show(self, node: Node) -> None:
        """A node was added or changed; pending pods may fit there."""
        if self._nodes.put(node):
            self._placer.show(node)
            self.urgent |= BRINGERS

    # --- creation --------------------------------------------------------------------------------------------------------

    def arrive(self, work: RequestedPod) -> None:
        """Somebody requests work."""
        self.of_owner.setdefault(work.owner_key, []).append(work)
        owner = self.workloads.get(work.owner_key)
        if owner is None or not owner.suspended:
            self.make(work)

    def make(self, work: RequestedPod) -> None:
        """Create a pod, as its owner does; the API server may gate it."""
        until = work.until
        if work.is_service and until is not None and until <= self.now:
            return
        pod = self._gatekeeper.admitted(self._pod(work), self.holds)
        life = Life(work=work, uid=pod.uid, made=self.now, gpus=usage.gpus_in(work.shape.requests))
        life.held_by = note(pod, marks.HELD_BY)
        self.log.lives.append(life)
        self.living[pod.uid] = life
        self.pods.put(pod)
        if pod.gates:
            self.changed.add(BUDGET)
        else:
            self._seek(pod.uid, work.shape)

    def resume(self, work: RequestedPod) -> None:
        """Take up work that is running already at the start."""
        assert work.began is not None
        pod = self._pod(work)
        life = Life(work=work, uid=pod.uid, made=min(work.arrives, work.began), gpus=usage.gpus_in(work.shape.requests))
        life.bound = work.began
        self.log.lives.append(life)
        self.living[pod.uid] = life
        self.of_owner.setdefault(work.owner_key, []).append(work)
        life.node = self._placer.put(pod.uid, work.shape)
        self.pods.put(structs.replace(pod, node=life.node))
        self.start(pod.uid, work.began)

    def _pod(self, work: RequestedPod) -> Pod:
        number = self._tries[id(work)] = self._tries.get(id(work), 0) + 1
        name = work.name if number == 1 else f"{work.name}-{number}"
        declared = durations.milliseconds(dict(work.annotations).get(marks.EXPECTED_DURATION, ""))
        deadlines = [each for each in (work.deadline, declared) if each is not None]
        return Pod(
            # Names may repeat: in records, and between a retry and other work.
            uid=f"{work.namespace}/{name}#{next(self._number)}",
            namespace=work.namespace,
            name=name,
            resource_version="1",
            labels=work.labels,
            annotations=work.annotations,
            shape=work.shape,
            priority=work.priority,
            owner=work.owner,
            created=self.now if work.began is None or number > 1 else min(work.arrives, work.began),
            deadline=min(deadlines, default=None),
            grace_seconds=work.grace_seconds,
        )

    def _concerns(self, row: UsageRow) -> bool:
        """Whether any budget counts such rows; judged once for similar rows."""
        kind = (row.namespace, row.labels, row.amounts)
        if kind not in self._counted:
            world = self.world()
            scopes = [usage.scope_of(world, budget) for budget in usage.budgets_of(world)]
            self._counted[kind] = any(usage.rate_of(scope, row) for scope in scopes)
        return self._counted[kind]

    # --- running ----------------------------------------------------------------------------------------------------------

    def lift(self, uid: str) -> None:
        """Schedule a pod whose gate was removed."""
        self._seek(uid, self.living[uid].work.shape)

    def _seek(self, uid: str, shape: Shape) -> None:
        self._placer.add(uid, shape)
        self._seeking.append(uid)

    def place(self) -> None:
        """Bind pods that fit on a node, which then start to run; mark the others as unschedulable."""
        for uid, node in self._placer.place():
            pod = self.pods.get(uid)
            assert pod is not None
            self.pods.put(structs.replace(pod, node=node, unschedulable_since=None, unschedulable_message=""))
            self.living[uid].bound, self.living[uid].node = self.now, node
            self._noticed_on(node)
            self.later(self.now + PULL_MS, lambda uid=uid: self.start(uid, self.now))  # type: ignore[misc]  # mypy knows no default of a lambda
        seeking, self._seeking = self._seeking, []
        for uid in seeking if self._has_bringers else ():
            pod = self.pods.get(uid)
            if pod is not None and not pod.node:
                self.pods.put(structs.replace(pod, unschedulable_since=self.now, unschedulable_message=NO_ROOM))
                self.urgent |= BRINGERS

    def _noticed_on(self, node: str) -> None:
        """The pods on a node changed: notify whoever brings such nodes."""
        if any(each.has(node) for each in self.outside):
            self.changed |= BRINGERS

    def start(self, uid: str, at: int) -> None:
        """A pod starts to run, unless it is terminating."""
        pod, life = self.pods.get(uid), self.living.get(uid)
        if pod is None or life is None or pod.deleting is not None:
            return
        pod = structs.replace(pod, phase="Running", started=at)
        self.pods.put(pod)
        life.started, life.row = at, self._row(pod, life.work)
        row = self._open[uid] = life.row
        if self._concerns(row):
            self.changed.add(BUDGET)
        self.usage.put(row)
        self.usage.set_alive(uid, True)
        until = life.work.until if life.work.is_service else _end_of(at, life.work.length, pod.deadline)
        if until is not None:
            self.later(max(until, self.now), lambda: self.end(uid, FINISHED))

    def _row(self, pod: Pod, work: RequestedPod) -> UsageRow:
        """The production recorder's row for a running pod; computed once for similar pods on a node."""
        key = (pod.namespace, pod.labels, pod.shape.requests, pod.node)
        if key not in self._rows:
            world = self.world()
            look = usage.Look(self.case.cluster, self.now, self.now)
            made = usage.Keeper(UsageTable(self.case.cluster)).see(pod, usage.around(world), look)
            self._rows[key] = made[0] if made else _nothing(self.case.cluster, pod)
        assert pod.started is not None
        like = self._rows[key]
        return structs.replace(
            like,
            uid=pod.uid,
            pod=pod.name,
            created=pod.created,
            observed=self.now,
            start=pod.started,
            earliest=pod.started,
            seen_until=pod.started,
            price=like.price if work.price is None else work.price,
        )

    # --- the end -----------------------------------------------------------------------------------------------------------

    def end(self, uid: str, how: str) -> None:
        """A pod has ended and is removed; a terminating pod can no longer finish."""
        life, pod = self.living.get(uid), self.pods.get(uid)
        if life is None or pod is None or (how == FINISHED and pod.deleting is not None):
            return
        del self.living[uid]
        life.ended, life.end = self.now, how
        if how != FINISHED:
            self.urgent.add(BUDGET)
        self._noticed_on(life.node)
        self._placer.forget(uid)
        self.pods.remove(uid)
        row = self._open.pop(uid, None)
        if row is not None:
            if self._concerns(row):
                self.changed.add(BUDGET)
            self.usage.put(structs.replace(row, ended=max(self.now, row.start), evidence=Evidence.CONTAINER_FINISH))
            self.usage.set_alive(uid, False)
        if how == FINISHED:
            self._finish(life.work)

    def stop(self, uid: str, how: str) -> None:
        """Delete a pod: at once if it has no node, else after its grace period."""
        pod = self.pods.get(uid)
        if pod is None or pod.deleting is not None:
            return
        self.urgent.add(BUDGET)
        if not pod.node:
            self.end(uid, how)
            return
        at = self.now + pod.grace_seconds * times.SECOND
        self.pods.put(structs.replace(pod, deleting=at, evicted=self.now if how == EVICTED else None))
        self.later(at, lambda: self.end(uid, how))

    def _finish(self, work: RequestedPod) -> None:
        # Compared by identity: other work may be equal.
        left = self.of_owner[work.owner_key] = [each for each in self.of_owner[work.owner_key] if each is not work]
        if not left:
            del self.of_owner[work.owner_key]
            self.workloads.pop(work.owner_key, None)


def note(pod: Pod, name: str) -> str:
    """One annotation of a pod; empty if unset."""
    return next((value for key, value in pod.annotations if key == name), "")


def _end_of(start: int, length: int | None, deadline: int | None) -> int | None:
    known = [start + each for each in (length, deadline) if each is not None]
    return min(known, default=None)


def _nothing(cluster: str, pod: Pod) -> UsageRow:
    """The row of a pod without anything that a budget counts."""
    return UsageRow(
        cluster=cluster, uid=pod.uid, start=0, earliest=0, seen_until=0, namespace=pod.namespace, labels=pod.labels
    )

"""Pods and nodes as tables that are updated event by event and read by every plan without a copy.

A pod is one compact fact in a row, and the numbers that whole-fleet sums need stand beside it in int64 columns. Values that
many pods share (label sets, shapes, namespaces, nodes) are numbered once and counted, so a plan can judge each distinct value
once, never each pod. `generation` grows with every change that a plan could notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, KeysView
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

import numpy as np
from msgspec import structs

from headroom.api import marks
from headroom.model.bandwidth import ENDED, group_of, is_counted
from headroom.model.census import Census
from headroom.model.facts import Amounts, EvictionRefusal, Node, Pairs, Pod, Shape
from headroom.model.numbering import ABSENT, Ints, Numbering, Spread, UidIndex
from headroom.model.times import HOUR, MINUTE

Value = TypeVar("Value", bound=Hashable)

PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
PLAIN_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""What every node has."""

DEPARTED_MS: Final = 120_000
"""So long it is remembered who left a node."""
LOST_KEPT_MS: Final = 24 * HOUR
"""For how long a node that went is remembered."""
UNNOTICED_MS: Final = MINUTE
"""A node turns unready this long at most after the last sign of its kubelet; 50 s are usual."""
MOST_EVICTED: Final = 2000
"""Of so many pods that are gone it is remembered that they were evicted: more than all caps allow in an hour."""


_INDEXED: Final = attrgetter(
    *("namespace", "node", "phase", "shape", "owner", "annotations", "gates", "finalizers", "nominated_node"),
    *("claims", "claim_templates", "extended", "deadline", "deleting", "unschedulable_since"),
)
"""What the indexes and sets of the table depend on, beside some labels."""


def may_need_machine(pod: Pod) -> bool:
    """Whether a pod is without a node, refused by a scheduler or gated, and asks for more than CPUs and memory."""
    if pod.node or not (pod.gates or pod.unschedulable_since is not None):
        return False
    return pod.has_claims or not PLAIN_RESOURCES.issuperset([name for name, _ in pod.shape.requests])


def _remember(known: dict[str, Value], uid: str, value: Value) -> None:
    known[uid] = value
    if len(known) > MOST_EVICTED:
        del known[next(iter(known))]


class PodTable:
    """All pods that exist."""

    COLUMNS: Final = (
        "labels",
        "namespace",
        "shape",
        "node",
        "phase",
        "created",
        "started",
        "ended",
        "deleting",
        "kind",
    )

    def __init__(self) -> None:
        self.generation = 0
        self.census = Census()
        """How many pods of each kind there are."""
        self.label_sets: Numbering[tuple[tuple[str, str], ...]] = Numbering()
        self.shapes: Numbering[Shape] = Numbering()
        self.names: Numbering[str] = Numbering()
        self.by_node = UidIndex()
        """Bound pods under their node; unbound ones under the empty name."""
        self.by_owner = UidIndex()
        """Pods under the uid of the controller that they name."""
        self.by_maker = UidIndex()
        """Queued and released pods under the uid of the controller that made them, whomever they name."""
        self.by_group = Spread()
        """Where the bound pods of a group are that have not ended; those without a controller are of none."""
        self.bound_with: dict[str, Pairs] = {}
        """The annotations with which pods were first seen on their node; kept of those whose annotations were changed since."""
        self.queued: set[str] = set()
        """Uids of pods behind our own scheduling gate."""
        self.nominated: set[str] = set()
        """Uids of pods for which room is being made on a node."""
        self.annotated: set[str] = set()
        """Uids of pods with an annotation that Headroom reads."""
        self.finalized: set[str] = set()
        """Uids of pods with a finalizer of ours."""
        self.asking = 0
        """How many pods may need a machine. Nobody asks which, and a set of them would take half as much as the pods themselves."""
        self.claiming = UidIndex()
        """Pods with claims to devices under their namespace."""
        self.limited: set[str] = set()
        """Uids of pods that are known to end: by a deadline, or since they are being deleted."""
        self.departed: deque[tuple[int, str, Amounts]] = deque()
        """Pods that were deleted lately while they held something: when, from which node, what. Only who heard of it knows."""
        self.evicted: dict[str, int] = {}
        """Uids of evicted pods that are gone, each with when its eviction was granted; the last so many that we heard of."""
        self.refused: dict[str, EvictionRefusal] = {}
        """Uids of pods whose evictions were refused, each with the last time that we were told so."""
        self.seen_going: dict[str, None] = {}
        """Uids of the last so many pods whose final state was heard: of others nobody knows why they went."""
        self._rows: dict[str, int] = {}
        self._pods: list[Pod | None] = []
        self._free: list[int] = []
        self._columns: dict[str, Ints] = {name: np.full(64, ABSENT, np.int64) for name in self.COLUMNS}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Pod]:
        return (self.at(row) for row in self._rows.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self._rows

    def get(self, uid: str) -> Pod | None:
        """The pod with that uid."""
        row = self._rows.get(uid)
        return None if row is None else self._pods[row]

    def at(self, row: int) -> Pod:
        """The pod in a row that is in use."""
        pod = self._pods[row]
        if pod is None:
            raise KeyError(row)
        return pod

    def uids(self) -> KeysView[str]:
        """Every pod's uid."""
        return self._rows.keys()

    def column(self, name: str) -> Ints:
        """One number per row, ABSENT in rows that are free; read it, do not keep it."""
        return self._columns[name][: len(self._pods)]

    @property
    def unbound(self) -> frozenset[str] | set[str]:
        """The uids of pods that have no node yet and have not ended."""
        return self.by_node[""]

    def others_are_on(self, pod: Pod) -> str:
        """The node on which all other bound pods of its group are; empty if they are on several, or there are none."""
        group, own = group_of(pod) if pod.owner is not None and pod.node else "", self.get(pod.uid)
        nodes = self.by_group[group]
        if len(nodes) > 2:  # its own, and one where the others are
            return ""
        is_in = own is not None and own.owner is not None and is_counted(own) and group_of(own) == group
        others = [node for node, pods in nodes.items() if pods > (is_in and own is not None and node == own.node)]
        return others[0] if len(others) == 1 else ""

    def count_by(self, keys: frozenset[str]) -> Census:
        """The census that tells labels apart by these keys, and by those that were asked for before."""
        if not keys <= self.census.keys or self.census.is_outworn:
            self.census = Census(keys | self.census.keys)
            shapes, kinds = self._columns["shape"], self._columns["kind"]
            for row in self._rows.values():
                kinds[row] = self.census.add(self.at(row), int(shapes[row]))
        return self.census

    def put(self, pod: Pod) -> bool:
        """Add or replace a pod; False if nothing but its resource version is new."""
        row = self._rows.get(pod.uid)
        if row is None:
            row = self._free.pop() if self._free else self._grow()
            self._rows[pod.uid] = row
            self._enter(row, pod)
            return True
        before = self.at(row)
        if _same(before, pod):
            # The old fact stays, since its values are the shared ones; nothing else of it is out of date.
            self._pods[row] = structs.replace(before, resource_version=pod.resource_version)
            return False
        if before.node and before.annotations != pod.annotations:
            self.bound_with.setdefault(pod.uid, before.annotations)
        structs.force_setattr(pod, "uid", before.uid)
        if _stands_alike(before, pod):
            self._update(row, before, pod)
        else:
            self._leave(row)
            self._enter(row, pod)
        return True

    def remove(self, uid: str) -> bool:
        """Forget a pod; False if it was not there."""
        row = self._rows.pop(uid, None)
        if row is None:
            return False
        self._note_eviction(self.at(row))
        self._leave(row)
        self.bound_with.pop(uid, None)
        self.generation += 1
        self._pods[row] = None
        for column in self._columns.values():
            column[row] = ABSENT
        self._free.append(row)
        return True

    def note_departure(self, pod: Pod, now: int, *, is_final: bool = True) -> None:
        """A pod was deleted: what it held is free from now on. `is_final` says that it was told how it was then."""
        self._note_eviction(pod)
        if is_final:
            _remember(self.seen_going, pod.uid, None)
        while self.departed and self.departed[0][0] <= now - DEPARTED_MS:
            self.departed.popleft()
        if pod.node and pod.phase not in ENDED:
            self.departed.append((now, pod.node, pod.shape.requests))

    def _note_eviction(self, pod: Pod) -> None:
        if pod.evicted is not None:
            _remember(self.evicted, pod.uid, pod.evicted)

    def note_refusal(self, uid: str, refusal: EvictionRefusal | None, now: int) -> None:
        """An eviction was refused; None: the pod was deleted in its place."""
        _remember(self.refused, uid, refusal) if refusal is not None else _remember(self.evicted, uid, now)

    def _grow(self) -> int:
        row = len(self._pods)
        self._pods.append(None)
        if row >= len(self._columns["node"]):
            for name, column in self._columns.items():
                more = np.full(len(column) // 4 + 64, ABSENT, np.int64)  # doubled, a third of them would stand empty
                self._columns[name] = np.concatenate([column, more])
        return row

    def _enter(self, row: int, pod: Pod) -> None:
        self.generation += 1
        labels, shape = self.label_sets.take(pod.labels), self.shapes.take(pod.shape)
        namespace, node = self.names.take(pod.namespace), self.names.take(pod.node)
        # Equal values become one object here, so a fleet of like pods holds each label set and shape once.
        structs.force_setattr(pod, "labels", self.label_sets[labels])
        structs.force_setattr(pod, "shape", self.shapes[shape])
        structs.force_setattr(pod, "namespace", self.names[namespace])
        structs.force_setattr(pod, "node", self.names[node])
        self._pods[row] = pod
        columns = self._columns
        columns["labels"][row], columns["shape"][row] = labels, shape
        columns["namespace"][row], columns["node"][row] = namespace, node
        columns["phase"][row] = PHASES.index(pod.phase) if pod.phase in PHASES else PHASES.index("Unknown")
        columns["kind"][row] = self.census.add(pod, shape)
        columns["created"][row] = pod.created
        columns["started"][row] = ABSENT if pod.started is None else pod.started
        columns["ended"][row] = ABSENT if pod.ended is None else pod.ended
        columns["deleting"][row] = ABSENT if pod.deleting is None else pod.deleting
        if pod.node or pod.phase not in ENDED:
            self.by_node.add(pod.node, pod.uid)
        if pod.owner:
            self.by_owner.add(pod.owner.uid, pod.uid)
            if is_counted(pod):
                self.by_group.add(group_of(pod), pod.node)
        self._note_kind(pod)

    def _update(self, row: int, before: Pod, pod: Pod) -> None:
        """Replace a pod in a row where no index changes."""
        self.generation += 1
        for name in ("shape", "namespace", "node"):
            structs.force_setattr(pod, name, getattr(before, name))
        self._relabel(row, before, pod)
        for name in ("created", "started", "ended"):
            moment = getattr(pod, name)
            if moment != getattr(before, name):
                self._columns[name][row] = ABSENT if moment is None else moment
        self._pods[row] = pod

    def _relabel(self, row: int, before: Pod, pod: Pod) -> None:
        if pod.labels == before.labels:
            structs.force_setattr(pod, "labels", before.labels)
            return
        columns = self._columns
        labels = self.label_sets.take(pod.labels)
        self.label_sets.drop(int(columns["labels"][row]))
        structs.force_setattr(pod, "labels", self.label_sets[labels])
        columns["labels"][row] = labels
        columns["kind"][row] = self.census.relabel(int(columns["kind"][row]), pod)

    def _note_kind(self, pod: Pod) -> None:
        """Put a pod into the sets of those of which plans ask for few."""
        if marks.GATE in pod.gates:
            self.queued.add(pod.uid)
        if pod.nominated_node:
            self.nominated.add(pod.uid)
        if pod.annotations:
            self.annotated.add(pod.uid)
            if maker := pod.maker:
                self.by_maker.add(maker, pod.uid)
        if pod.finalizers:
            self.finalized.add(pod.uid)
        if pod.has_claims:
            self.claiming.add(pod.namespace, pod.uid)
        self.asking += may_need_machine(pod)
        if pod.deadline is not None or pod.deleting is not None:
            self.limited.add(pod.uid)

    def _leave(self, row: int) -> None:
        pod = self.at(row)
        columns = self._columns
        self.census.remove(int(columns["kind"][row]))
        self.label_sets.drop(int(columns["labels"][row]))
        self.shapes.drop(int(columns["shape"][row]))
        self.names.drop(int(columns["namespace"][row]))
        self.names.drop(int(columns["node"][row]))
        self.by_node.remove(pod.node, pod.uid)
        if pod.owner:
            self.by_owner.remove(pod.owner.uid, pod.uid)
            if is_counted(pod):
                self.by_group.add(group_of(pod), pod.node, -1)
        self.queued.discard(pod.uid)
        self.nominated.discard(pod.uid)
        if pod.annotations:
            self.annotated.discard(pod.uid)
            self.by_maker.remove(pod.maker, pod.uid)
        self.finalized.discard(pod.uid)
        if pod.has_claims:
            self.claiming.remove(pod.namespace, pod.uid)
        self.asking -= may_need_machine(pod)
        self.limited.discard(pod.uid)


class LostNode(NamedTuple):
    """A node that was deleted."""

    gone_at: int
    """When it was seen to be gone."""
    alive_until: int
    """When its kubelet surely was alive for the last time."""


class NodeTable:
    """All nodes that exist, by name, and those that went lately."""

    def __init__(self) -> None:
        self.generation = 0
        self.lost: dict[str, LostNode] = {}
        self._nodes: dict[str, Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, name: str) -> Node | None:
        """The node of that name."""
        return self._nodes.get(name)

    def names(self) -> KeysView[str]:
        """Every node's name."""
        return self._nodes.keys()

    def put(self, node: Node) -> bool:
        """Add or replace a node; False if nothing but its resource version is new."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        self.lost.pop(node.name, None)
        is_news = before is None or not _same(before, node)
        self.generation += is_news
        return is_news

    def lose(self, name: str, seen_until: int, now: int) -> bool:
        """Forget a node that was deleted, and remember that; up to `seen_until` it surely existed. False if it was not there."""
        node = self._nodes.get(name)
        if node is None:
            return False
        unready = seen_until if node.unready_since is None else node.unready_since - UNNOTICED_MS
        while self.lost and (first := next(iter(self.lost))) and self.lost[first].gone_at <= now - LOST_KEPT_MS:
            del self.lost[first]
        self.lost[name] = LostNode(now, min(unready, seen_until, now))
        return self.remove(name)

    def remove(self, name: str) -> bool:
        """Forget a node; False if it was not there."""
        if self._nodes.pop(name, None) is None:
            return False
        self.generation += 1
        return True


def _stands_alike(before: Pod, after: Pod) -> bool:
    """Whether no index has another place for a pod than before. Most changes are of a label, a start or an end."""
    is_same_group = after.owner is None or after.labels == before.labels or group_of(after) == group_of(before)
    return is_same_group and bool(_INDEXED(before) == _INDEXED(after))


def _same(before: Pod | Node, after: Pod | Node) -> bool:
    """Whether two facts say the same; a resource version alone says nothing."""
    return bool(structs.replace(after, resource_version=before.resource_version) == before)

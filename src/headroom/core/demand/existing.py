"""What there is for pods to go to: nodes with what is free on each, and nodes that Karpenter is about to bring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from headroom.core.demand.fitting import PODS, WHOLE, why_not
from headroom.core.demand.free_capacity import Units, asked, units_of
from headroom.core.demand.units import VERDICT_MS, Room
from headroom.core.demand.waiting import nominated_until
from headroom.model.facts import Amounts, Node, NodeClaim, Shape, Taint
from headroom.model.numbering import Ints
from headroom.model.tables import PHASES
from headroom.model.world import World

CORDON: Final = "node.kubernetes.io/unschedulable"
_STATES: Final = "node.kubernetes.io/"
"""Taints of this name say how a node is, and go with it."""
_STARTING: Final = (
    _STATES,
    "node.cloudprovider.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/unregistered",
)
_AGENTS: Final = "/agent-not-ready"
"""So network and storage drivers call the taint that they take away once they run: node.cilium.io, ebs.csi.aws.com and others."""
_STALE: Final = (f"{_STATES}not-ready", f"{_STATES}unreachable", CORDON)
"""Taints that a controller takes from a node a moment after it is ready and not cordoned: they say what it was."""
_ENDED: Final = ("Succeeded", "Failed")
_ENDED_PHASES: Final = [PHASES.index(each) for each in _ENDED]


def rooms(world: World, usable: Callable[[Node], bool]) -> list[Room]:
    """Every node that pods could be bound to now and that `usable` accepts, and every node that Karpenter is bringing."""
    nodes = sorted(
        (
            node
            for node in world.nodes
            if node.ready and node.deleting is None and not node.unschedulable and usable(node)
        ),
        key=lambda node: node.name,
    )
    return [*_there(world, nodes), *_coming(world)]


def reopened(world: World, nodes: list[Node]) -> list[Room]:
    """Cordoned nodes as rooms, as they would be without the cordon; kube-scheduler has not judged those yet."""
    return [
        Room(name=room.name, source="Machine", labels=room.labels, taints=room.taints, free=room.free)
        for room in _there(world, nodes)
    ]


def returning(world: World, node: Node) -> Room:
    """A node that is not ready as it will be when it is back: without the taints that say so, and with the pods that are bound to it."""
    held: dict[str, int] = {}
    for uid in world.pods.by_node[node.name]:
        pod = world.pods.get(uid)
        # Its kubelet starts them again; those that are being deleted it only takes away.
        if pod is not None and pod.phase not in _ENDED and pod.deleting is None:
            for name, amount in (*pod.shape.requests, (PODS, WHOLE)):
                held[name] = held.get(name, 0) + amount
    free = tuple((name, max(0, amount - held.get(name, 0))) for name, amount in node.allocatable)
    return Room(name=node.name, source="Machine", labels=node.labels, taints=started(node.taints), free=free)


def started(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """The taints of a node that stay once everything on it has started."""
    return tuple(each for each in taints if not each.key.startswith(_STARTING) and not each.key.endswith(_AGENTS))


def _without(taints: tuple[Taint, ...], *begins: str) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if not taint.key.startswith(begins))


def _coming(world: World) -> Iterator[Room]:
    for name, claim in sorted(world.node_claims.items()):
        if not claim.registered and claim.deleting is None:
            yield Room(name=name, source="NodeClaim", labels=claim.labels, taints=claim.taints, free=claim.allocatable)


def coming_claim(world: World, shape: Shape) -> NodeClaim | None:
    """The first NodeClaim by name that is on its way and has room for such a pod; others may take that room."""
    found = (
        room.name for room in _coming(world) if not world.node_claims[room.name].failure and not why_not(shape, room)
    )
    name = next(found, None)
    return None if name is None else world.node_claims[name]


def _there(world: World, nodes: list[Node]) -> Iterator[Room]:
    if not nodes:
        return
    place = _places(world, nodes)
    freed = _freed(world, nodes, place)
    for number, (node, amounts) in enumerate(zip(nodes, _free(world, nodes, place), strict=True)):
        yield Room(
            name=node.name,
            labels=node.labels,
            taints=_without(node.taints, *_STALE) if node.taints else (),
            free=amounts,
            ready_since=node.ready_since,
            freed=freed.get(number, ()),
        )


def _freed(world: World, nodes: list[Node], place: Ints) -> dict[int, tuple[tuple[int, Amounts], ...]]:
    """What pods have left behind that ended or were deleted in the last minute, by the number of the node."""
    pods, found = world.pods, dict[int, list[tuple[int, Amounts]]]()
    ended = np.isin(pods.column("phase"), _ENDED_PHASES) & (pods.column("ended") > world.now - VERDICT_MS)
    for row in np.flatnonzero(ended & (place >= 0)).tolist():
        pod = pods.at(row)
        found.setdefault(int(place[row]), []).append((pod.ended or 0, pod.shape.requests))
    late = [each for each in pods.departed if each[0] > world.now - VERDICT_MS]
    numbers = {node.name: number for number, node in enumerate(nodes)} if late else {}
    for moment, name, amounts in late:
        if name in numbers:
            found.setdefault(numbers[name], []).append((moment, amounts))
    return {number: tuple(sorted(each)) for number, each in found.items()}


# --- what is free ---------------------------------------------------------------------------------------------------------------


def _free(world: World, nodes: list[Node], place: Ints) -> Iterator[Amounts]:
    """What is left of each node once every pod that is bound to it, or is about to be, has its part; never a sum over nodes."""
    rows = np.flatnonzero((place >= 0) & ~np.isin(world.pods.column("phase"), _ENDED_PHASES))
    where, shapes = place[rows], world.pods.column("shape")[rows]
    awaited = list(_awaited(world, nodes))
    most: dict[str, int] = {}
    for node in nodes:
        for name, amount in node.allocatable:
            if amount > most.get(name, 0):
                most[name] = amount
    units = units_of(most, len(rows) + len(awaited))
    held: dict[str, tuple[list[int], int]] = {}
    for name, asks in _asks(world, units).items():
        used = np.zeros(len(nodes), np.int64)
        np.add.at(used, where, asks[shapes])
        for shape, number in awaited:
            used[number] += asks[shape]
        held[name] = used.tolist(), units.steps[name]
    for number, node in enumerate(nodes):
        yield tuple([(name, _left(held.get(name), number, amount)) for name, amount in node.allocatable])


def _left(held: tuple[list[int], int] | None, number: int, amount: int) -> int:
    return amount if held is None else max(0, amount - held[0][number] * held[1])


def _places(world: World, nodes: list[Node]) -> Ints:
    """For each row of the pods, the number of its node among these; less than nothing for pods elsewhere."""
    names, column = world.pods.names, world.pods.column("node")
    place = np.full(int(column.max(initial=0)) + 2, -1, np.int64)  # the last one is for free rows, whose node is -1
    for number, node in enumerate(nodes):
        known = names.number(node.name)
        if known >= 0:
            place[known] = number
    return place[column]


def _asks(world: World, units: Units) -> dict[str, Ints]:
    """For each resource that some pod asks for, what a pod of each shape takes of it."""
    shapes = list(world.pods.shapes.items())
    size = max((number for number, _ in shapes), default=0) + 1
    found: dict[str, Ints] = {}
    for number, shape in shapes:
        for name, amount in (*shape.requests, (PODS, WHOLE)):
            if amount and name in units.steps:
                column = found.get(name)
                if column is None:
                    column = found[name] = np.zeros(size, np.int64)
                column[number] = asked(amount, units.steps[name], units.most)
    return found


def _awaited(world: World, nodes: list[Node]) -> Iterator[tuple[int, int]]:
    """The shapes of pods for which room is being made on one of these nodes: what becomes free there is theirs."""
    pods = world.pods
    waiting = sorted(pods.nominated & pods.unbound)
    numbers = {node.name: number for number, node in enumerate(nodes)} if waiting else {}
    for pod in filter(None, map(pods.get, waiting)):
        if pod.nominated_node in numbers and pod.deleting is None and nominated_until(world, pod) is not None:
            yield pods.shapes.number(pod.shape), numbers[pod.nominated_node]

"""The rooms that machines of a pool are, or will be once they have joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import structs

from headroom.api.quantities import InvalidQuantity, nano
from headroom.core import demand
from headroom.core.demand import Candidate, Room
from headroom.core.spot_pools.alternatives import UNKNOWN, LaunchChoice
from headroom.core.spot_pools.places import TAINT, PoolSlot, SpotPoolState, cordoned_by, when
from headroom.model import times
from headroom.model.facts import Amounts, Pairs, Taint

HOSTNAME: Final = "kubernetes.io/hostname"
CAPACITY_TYPE: Final = "headroom.dev/capacity-type"
ANY: Final = "*"
NEW_MS: Final = times.MINUTE
"""For so long after its node is ready, something that runs on every node may not have started there."""
WHOLE: Final = 1_000_000
_MICRO: Final = 1000
_USUAL: Final = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}


def namespaces(pool: SpotPoolState) -> frozenset[str] | None:
    """Whose pods a pool serves: its own namespace's, and those that an administrator lists; None for all."""
    others = pool.world.pool_namespaces.get(pool.key, ())
    return None if ANY in others else frozenset({pool.ref.namespace, *others})


def own_taint(namespace: str) -> Taint:
    """What keeps other namespaces off the nodes of a pool."""
    return Taint(TAINT, namespace, "NoSchedule")


def name_of(pool: SpotPoolState, place: PoolSlot) -> str:
    """How the room of a slot is called: as its node, once there is one."""
    return place.slot.node or f"{pool.key}/{place.number}"


def promised(pool: SpotPoolState, name: str, instance_type: str, zone: str) -> Room:
    """A machine as it will be."""
    template = pool.spec.template
    taints = tuple(Taint(each.key, each.value, each.effect) for each in template.taints)
    if namespaces(pool) is not None:
        taints = (*taints, own_taint(pool.ref.namespace))
    return Room(
        name=name,
        source="Launch",
        labels=_labels(pool, name, instance_type, zone),
        taints=taints,
        free=_amounts(template.gpu_resource_name, template.gpu_count or 0, tuple(template.resources.items())),
        partly_known=True,
    )


def _labels(pool: SpotPoolState, name: str, instance_type: str, zone: str) -> Pairs:
    known = {
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": pool.spec.region,
        CAPACITY_TYPE: "spot" if pool.spec.instance_charge_type == "SPOTPAID" else "on-demand",
        HOSTNAME: name,
    }
    known |= {"topology.kubernetes.io/zone": zone} if zone else {}
    return tuple(sorted({**_USUAL, **pool.spec.template.labels, **known}.items()))


@lru_cache(maxsize=1024)
def _amounts(gpu_resource: str, gpus: int, resources: tuple[tuple[str, str | int], ...]) -> Amounts:
    found = {gpu_resource: gpus * WHOLE}
    for name, text in resources:
        amount = nano(text)
        # What nobody can read is not there: nothing is launched because of it.
        found.setdefault(name, 0 if isinstance(amount, InvalidQuantity) else max(0, amount) // _MICRO)
    return tuple(sorted(found.items()))


def is_coming(place: PoolSlot) -> bool:
    """Whether a machine will be a node, and is none that pods can use yet."""
    if place.state == "Launching":
        return True
    return place.state == "Running" and not place.joined and not place.is_reclaimed


def is_fresh(pool: SpotPoolState, place: PoolSlot) -> bool:
    """Whether its node is ready for a moment only."""
    joined = when(place.slot.joined_at, pool.now)
    return place.state == "Running" and joined is not None and pool.now - joined < NEW_MS


def coming(pool: SpotPoolState, ready: Mapping[str, Room]) -> Iterator[Candidate]:
    """What is on its way, or has just come."""
    if not pool.spec.join or pool.spec.template.gpu_count is None:
        return
    for each in pool.places:
        assigned = {shape.shape: shape.pods for shape in each.slot.assigned}
        name = name_of(pool, each)
        if is_coming(each):
            room = promised(pool, name, each.slot.instance_type, each.slot.zone)
            yield Candidate(room=room, assigned=assigned)
        elif name in ready and is_fresh(pool, each):
            room = structs.replace(ready[name], taints=demand.started(ready[name].taints))
            yield Candidate(room=room, assigned=assigned)


def opening(pool: SpotPoolState) -> Iterator[Candidate]:
    """Nodes that are about to lose our cordon."""
    nodes = [
        each.node
        for each in pool.are("Running")
        if each.node is not None and each.node.ready and each.node.unschedulable and cordoned_by(each.node, pool.ref)
    ]
    return (Candidate(room=room) for room in demand.reopened(pool.world, nodes))


def leaving(pool: SpotPoolState) -> Iterator[Candidate]:
    """Nodes that are drained only because nobody needed them."""
    if not pool.may_act or pool.halted:
        return
    nodes = [
        each.node
        for each in pool.are("Draining")
        if each.slot.cause == "Idle" and each.node is not None and each.node.ready and not each.is_reclaimed
    ]
    yield from (Candidate(room=room) for room in demand.reopened(pool.world, sorted(nodes, key=lambda node: node.name)))


def closed(pool: SpotPoolState, choose: Callable[[], LaunchChoice], count: int) -> Iterator[Candidate]:
    """What could be launched."""
    if count <= 0:
        return
    by_price = pool.spec.allocation == "LowestPrice"
    for rank, each in enumerate(choose().open):
        cost = (UNKNOWN if each.price is None else each.price) if by_price else rank + 1
        yield Candidate(
            room=promised(pool, closed_name(pool, each.instance_type, each.zone), each.instance_type, each.zone),
            cost=(cost,),
            count=count,
            failed=pool.never_joined > 0,
        )


def closed_name(pool: SpotPoolState, instance_type: str, zone: str) -> str:
    """How a machine is called that could be launched."""
    return f"{pool.key}:{instance_type}@{zone}"

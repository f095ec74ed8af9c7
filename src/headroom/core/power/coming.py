"""The rooms that machines are, or will be once they are on."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import structs

from headroom.api.power import Hardware, MachineSpec, PowerPoolSpec
from headroom.api.quantities import InvalidQuantity, nano
from headroom.core import demand
from headroom.core.demand import Room
from headroom.core.power.members import UNIT, PoolMachine, PowerPoolState
from headroom.model.facts import Amounts, Node, Pairs, Taint
from headroom.model.world import World

HOSTNAME: Final = "kubernetes.io/hostname"
_USUAL: Final = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
_MICRO: Final = 1000
"""Billionths in a millionth."""


def room_of(world: World, pool: PowerPoolState, machine: PoolMachine) -> Room:
    """What a machine will offer once it is on: as its node showed it if there is one, else as the pool says."""
    is_starting = machine.state == "Booting" and machine.is_up and machine.gpus_shown < machine.gpus
    if machine.node is None or not machine.gpus_shown or is_starting:
        return _promised(pool, machine.spec)
    return with_devices(world, pool, demand.returning(world, machine.node))


def with_devices(world: World, pool: PowerPoolState, room: Room) -> Room:
    """A machine with the GPUs that are there for claims, if its pool has such."""
    return demand.with_devices(world, room, (pool.spec.gpu_resource_name,)) if pool.spec.device_classes else room


def emptied(pool: PowerPoolState, machine: PoolMachine) -> Room:
    """What a machine offers with nothing at all on it."""
    if machine.node is None or not machine.gpus_shown:
        return _promised(pool, machine.spec)
    taints, free = demand.started(machine.node.taints), dict(machine.node.allocatable)
    if pool.spec.device_classes:
        free[pool.spec.gpu_resource_name] = machine.gpus_shown * UNIT
    return Room(
        name=machine.name, source="Machine", labels=machine.node.labels, taints=taints, free=tuple(sorted(free.items()))
    )


def arriving(pool: PowerPoolState, machine: PoolMachine, room: Room) -> Room:
    """A machine that has come, as it will be once everything on it has started."""
    shown = dict(machine.node.allocatable) if machine.node is not None else {}
    there = dict(room.free)
    claimed = there.keys() - shown.keys()  # what is there for claims is not on its way
    missing = {
        name: amount for name, amount in _amounts(pool, machine.spec) if not shown.get(name) and name not in claimed
    }
    free = tuple(sorted((there | missing).items()))
    return structs.replace(room, taints=demand.started(room.taints), free=free)


def renamed(room: Room, name: str) -> Room:
    """A machine that is like another one but for its name."""
    labels = tuple((key, name if key == HOSTNAME else value) for key, value in room.labels)
    return structs.replace(room, name=name, labels=labels)


def _promised(pool: PowerPoolState, machine: MachineSpec) -> Room:
    template = pool.spec.template
    return Room(
        name=machine.name,
        source="Machine",
        labels=_labels(template, machine),
        taints=tuple(Taint(each.key, each.value, each.effect) for each in machine.taints or template.taints),
        free=_amounts(pool, machine),
        partly_known=True,
    )


def _labels(template: Hardware, machine: MachineSpec) -> Pairs:
    return tuple(sorted({**_USUAL, **template.labels, **machine.labels, HOSTNAME: machine.name}.items()))


def _amounts(pool: PowerPoolState, machine: MachineSpec) -> Amounts:
    given = {**pool.spec.template.resources, **machine.resources}
    return _read(pool.spec.gpu_resource_name, machine.gpu_count, tuple(given.items()))


@lru_cache(maxsize=1024)
def _read(gpu_resource: str, gpus: int, resources: tuple[tuple[str, str], ...]) -> Amounts:
    found = {gpu_resource: gpus * UNIT}
    for name, text in resources:
        amount = nano(text)
        # What nobody can read is not there: no machine is woken because of it.
        found.setdefault(name, 0 if isinstance(amount, InvalidQuantity) else max(0, amount) // _MICRO)
    return tuple(sorted(found.items()))


def gpus_shown(world: World, node: Node | None, spec: PowerPoolSpec) -> int:
    """Whole GPUs that a node offers, for requests or for claims."""
    if node is None:
        return 0
    resource = spec.gpu_resource_name
    shown = next((amount // UNIT for name, amount in node.allocatable if name == resource), 0)
    return shown or (demand.devices_on(world, node.name, resource) // UNIT if spec.device_classes else 0)

"""What a machine of a PowerPool is once it is on: the node that it becomes, and the watts that it draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headroom.api.kinds import AnyResource
from headroom.api.power import MachineSpec, PowerPoolSpec
from headroom.sim.answers import Body

POOL: Final = "PowerPool"
BOOT_SECONDS: Final = 90.0
"""From the command to the node's being ready, unless somebody says otherwise."""
SHUTDOWN_SECONDS: Final = 20.0
_ALWAYS: Final = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
_USUAL: Final = {"cpu": "128", "memory": "1Ti", "pods": "110"}
"""What a machine offers beside GPUs, whether its pool says so or not."""


class PoolHardware(NamedTuple):
    """A machine and the pool that it belongs to."""

    pool: AnyResource
    machine: MachineSpec


class Watts(NamedTuple):
    """What a machine draws."""

    idle: int
    busy: int


def machines(resources: Iterable[AnyResource]) -> Iterator[PoolHardware]:
    """Every machine of every PowerPool that can be read; of two pools that name one, the first in order has it."""
    pools = [each for each in resources if each.kind == POOL and each.spec is not None and not each.deleting]
    known: set[str] = set()
    for pool in sorted(pools, key=lambda each: (each.spec.order, each.name)):
        for machine in pool.spec.machines:
            if machine.name not in known:
                known.add(machine.name)
                yield PoolHardware(pool, machine)


def node(spec: PowerPoolSpec, machine: MachineSpec) -> Body:
    """The node that a machine becomes, as its kubelet would register it."""
    labels = _ALWAYS | spec.template.labels | machine.labels | {"kubernetes.io/hostname": machine.name}
    amounts = {**_USUAL, **spec.template.resources, **machine.resources, spec.gpu_resource_name: machine.gpu_count}
    taints = [
        {"key": each.key, "value": each.value, "effect": each.effect} for each in machine.taints or spec.template.taints
    ]
    room = {name: str(amount) for name, amount in sorted(amounts.items())}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": labels},
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": room, "allocatable": room},
    }


def watts(spec: PowerPoolSpec, machine: MachineSpec) -> Watts | None:
    """What it draws; None where nobody said."""
    idle, busy = (
        getattr(machine, name) if getattr(machine, name) is not None else getattr(spec.template, name)
        for name in ("idle_watts", "busy_watts")
    )
    if idle is None and busy is None:
        return None
    return Watts(idle if idle is not None else busy, busy if busy is not None else idle)

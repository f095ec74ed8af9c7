"""The pools in the order in which they are asked, each with its machines as they are now."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from headroom.api.kinds import AnyResource
from headroom.api.power import PowerPoolSpec, sleep_switch
from headroom.core.capacity import guarded
from headroom.core.power import breaking, fruitless, idling, schedule, states
from headroom.core.power.coming import gpus_shown
from headroom.core.power.members import KIND, PoolMachine, PowerPoolState, cordon_of, remember
from headroom.model import times
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Ref
from headroom.model.facts import Node
from headroom.model.tables import PLAIN_RESOURCES
from headroom.model.world import World


class _Same:
    """A spec under its identity: to compare or hash the machines of a large one takes longer than all that is asked of it."""

    def __init__(self, spec: PowerPoolSpec) -> None:
        self.spec = spec

    def __hash__(self) -> int:
        return id(self.spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.spec is self.spec


@lru_cache(maxsize=1024)
def _switches(same: _Same) -> dict[str, str]:
    """The machines that a spec names, each with what sends it to sleep."""
    found: dict[str, str] = {}
    for machine in same.spec.machines:
        found.setdefault(machine.name, sleep_switch(same.spec, machine))
    return found


class PowerFleet(NamedTuple):
    """What the specs of all pools say of who has which machine."""

    pools: list[tuple[Ref, AnyResource]]
    """Those that can be read, in the order in which they are asked."""
    owners: dict[str, str]
    """The pool of each machine: of two that name it, the first."""
    sharing: dict[str, str]
    """Machines that cannot be switched off alone, each with another one that would go off too."""


def fleet_of(world: World) -> PowerFleet:
    """Who has which machine."""
    readable = [(ref, each) for ref, each in world.of_kind(KIND) if each.spec is not None]
    found = PowerFleet(sorted(readable, key=lambda pair: (pair[1].spec.order, pair[0].name)), {}, {})
    owner, first = found.owners.setdefault, dict[str, str]()
    for ref, each in found.pools:
        for machine, switch in _switches(_Same(each.spec)).items():
            if owner(machine, ref.name) == ref.name and switch:
                other = first.setdefault(switch, machine)
                if other != machine:
                    found.sharing[machine] = other
                    found.sharing.setdefault(other, machine)
    return found


def pools_of(world: World, without: Collection[Ref] = ()) -> list[PowerPoolState]:
    """Every pool that can be read, but for some."""
    fleet = fleet_of(world)
    memory = fruitless.Memory(world, fleet.pools)
    pools = []
    for ref, each in fleet.pools:
        if ref not in without:
            pool = guarded(ref, _pool, world, ref, each, fleet)
            guarded(ref, memory.observe, pool)
            pools.append(pool)
    return pools


def concerned(world: World, changes: Changes) -> Collection[Ref] | None:
    """The pools that are to be decided anew while no pod is pending; None for all."""
    pools = world.of_kind(KIND)
    if any(each.spec is not None and each.spec.gpu_resource_name in PLAIN_RESOURCES for _, each in pools):
        return None  # then any pod may need a machine
    pods = (world.pods.get(uid) for uid in changes.pods)
    names = {*changes.nodes, *changes.facts.get(Topic.MACHINES, ()), *(pod.node for pod in pods if pod is not None)}
    found = set(changes.resources)
    for ref, each in pools:
        is_named = each.spec is not None and not names.isdisjoint(_switches(_Same(each.spec)).keys())
        # What one pool remembers of trials and fruitless wakes, others read; and whom it expects, may have come.
        if is_named or each.status.trials or each.status.fruitless or each.status.expected:
            found.add(ref)
    return found


def lead_ms(world: World) -> int:
    """The longest time that a machine of any pool may take to boot."""
    readable = (each.spec for _, each in world.of_kind(KIND) if each.spec is not None)
    return max((spec.policy.boot_timeout_seconds * times.SECOND for spec in readable), default=0)


def _pool(world: World, ref: Ref, resource: AnyResource, fleet: PowerFleet) -> PowerPoolState:
    spec, now = resource.spec, world.now
    pool = PowerPoolState(ref=ref, resource=resource, spec=spec, now=now)
    boot_ms = pool.boot_ms
    pool.halted = _halted(world, pool)
    known = {each.name: each for each in resource.status.machines}
    seen: set[str] = set()
    for machine in spec.machines:
        owner = fleet.owners[machine.name]
        if owner != ref.name:
            pool.elsewhere[machine.name] = owner
        elif machine.name not in seen:
            seen.add(machine.name)
            node = world.nodes.get(machine.name)
            member = PoolMachine(
                spec=machine,
                name=machine.name,
                before=known.get(machine.name),
                node=node,
                power=world.machines.get(machine.name),
                call=world.calls.get(machine.name),
                cordon=cordon_of(node, ref),
                gpus_shown=gpus_shown(world, node, spec),
                shares_switch=fleet.sharing.get(machine.name, ""),
            )
            remember(member, now)
            states.observe(member, now, boot_ms)
            if member.assigned and not states.is_awaited(member, now, boot_ms):
                member.assigned = {}  # those it was for are bound, or have passed on
            idling.measure(world, pool, member)
            pool.members.append(member)
    breaking.observe(pool)
    pool.floor, pool.floor_recheck_at = schedule.floor_of(spec.policy, len(pool.members), now)
    return pool


def _halted(world: World, pool: PowerPoolState) -> str:
    if world.stopped:
        return "Stopped"
    if pool.spec.paused:
        return "Paused"
    return "Deleting" if pool.resource.deleting else ""


def owns_node(_world: World, pool: AnyResource, node: Node) -> bool:
    """Whether a node is that of a machine of a pool; of one that cannot be read nobody knows what it has."""
    return pool.spec is None or any(each.name == node.name for each in pool.spec.machines)

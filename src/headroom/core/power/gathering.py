"""The pools in the order in which they are asked, each with its machines as they are now."""

from __future__ import annotations

from collections.abc import Collection

from headroom.api.kinds import AnyResource
from headroom.api.power import sleep_switch
from headroom.core.capacity import guarded
from headroom.core.power import breaking, fruitless, idling, schedule, states
from headroom.core.power.coming import gpus_shown
from headroom.core.power.members import KIND, Member, Pool, cordon_of, remember
from headroom.model.decisions import Ref
from headroom.model.world import World


def pools_of(world: World, without: Collection[Ref] = ()) -> list[Pool]:
    """Every pool that can be read, but for some. A machine that two of them name belongs to the first."""
    readable = [(ref, each) for ref, each in world.of_kind(KIND) if each.spec is not None]
    owners: dict[str, str] = {}
    pools = []
    for ref, each in sorted(readable, key=lambda pair: (pair[1].spec.order, pair[0].name)):
        for machine in each.spec.machines:
            owners.setdefault(machine.name, ref.name)
        if ref not in without:
            pools.append(guarded(ref, _pool, world, ref, each, owners))
    _mark_shared_switches(pools)
    fruitless.observe(world, pools)
    return pools


def _mark_shared_switches(pools: list[Pool]) -> None:
    """Find machines of which none can be switched off alone."""
    first: dict[str, Member] = {}
    for pool in pools:
        for it in pool.members:
            switch = sleep_switch(pool.spec, it.spec)
            other = first.setdefault(switch, it) if switch else it
            if other is not it:
                it.shares_switch = other.name
                other.shares_switch = other.shares_switch or it.name


def _pool(world: World, ref: Ref, resource: AnyResource, owners: dict[str, str]) -> Pool:
    spec, now = resource.spec, world.now
    pool = Pool(ref=ref, resource=resource, spec=spec, now=now)
    pool.halted = _halted(world, pool)
    known = {each.name: each for each in resource.status.machines}
    seen: set[str] = set()
    for machine in spec.machines:
        owner = owners[machine.name]
        if owner != ref.name:
            pool.elsewhere[machine.name] = owner
        elif machine.name not in seen:
            seen.add(machine.name)
            node = world.nodes.get(machine.name)
            member = Member(
                spec=machine,
                name=machine.name,
                before=known.get(machine.name),
                node=node,
                power=world.machines.get(machine.name),
                call=world.calls.get(machine.name),
                cordon=cordon_of(node, ref),
                gpus_shown=gpus_shown(world, node, spec),
            )
            remember(member, now)
            states.observe(member, now, pool.boot_ms)
            if not states.is_awaited(member, now, pool.boot_ms):
                member.assigned = {}  # those it was for are bound, or have passed on
            idling.measure(world, pool, member)
            pool.members.append(member)
    breaking.observe(pool)
    pool.floor, pool.floor_turns_at = schedule.floor_of(spec.policy, len(pool.members), now)
    return pool


def _halted(world: World, pool: Pool) -> str:
    if world.stopped:
        return "Stopped"
    if pool.spec.paused:
        return "Paused"
    return "Deleting" if pool.resource.deleting else ""


def owns_node(pool: AnyResource, node: str) -> bool:
    """Whether a node is that of a machine of a pool; of one that cannot be read nobody knows what it has."""
    return pool.spec is None or any(each.name == node for each in pool.spec.machines)

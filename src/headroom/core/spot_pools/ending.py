"""Which machines go, and how: cordon, settle, drain until a deadline, end; and back at once if pods need one that was only idle."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from headroom.api.spot_pools_status import SlotCause
from headroom.core.spot_pools import breaking
from headroom.core.spot_pools.places import PoolSlot, SpotPoolState, cordoned_by, told, when
from headroom.model import times
from headroom.model.actions import Action, CordonNode, DrainNode, TerminateInstance, UncordonNode
from headroom.model.gangs import keeps_machine_on
from headroom.model.world import World

SETTLE_MS: Final = 10 * times.SECOND
"""From the cordon on: kube-scheduler may have decided on a pod just before it saw it."""
_ENDED: Final = ("Succeeded", "Failed")


def is_busy(world: World, place: PoolSlot, resource: str) -> bool:
    """Whether pods are on a node that do not come with it."""
    if place.node is None:
        return False
    pods = (world.pods.get(uid) for uid in world.pods.by_node[place.node.name])
    return any(pod is not None and pod.phase not in _ENDED and keeps_machine_on(pod, resource) for pod in pods)


def measure(pool: SpotPoolState) -> None:
    """Say since when machines are idle, where that matters."""
    for each in pool.are("Running") if pool.on_demand else ():
        if not each.joined:
            continue
        each.busy = is_busy(pool.world, each, pool.spec.template.gpu_resource_name)
        idle = "" if each.busy else each.slot.idle_since or told(pool.now)
        if idle != each.slot.idle_since:
            each.change(idle_since=idle)


def cancel(pool: SpotPoolState, cause: SlotCause) -> None:
    """Launches whose outcome is not known are not sent any more."""
    for each in pool.are("Launching"):
        each.become("Cancelling", pool.now, cause)


def reclaim(pool: SpotPoolState) -> None:
    """Drain what the cloud takes back."""
    for each in pool.are("Running"):
        if each.is_reclaimed:
            each.become("Draining", pool.now, "Reclaimed")


def give_up(pool: SpotPoolState) -> None:
    """End machines that never joined."""
    timeout = pool.spec.join_timeout_seconds * times.SECOND
    for each in pool.are("Running") if pool.spec.join else ():
        seen = when(each.slot.seen_at, pool.now)
        if each.joined or seen is None or each.instance is None or not each.is_ours:
            continue
        if pool.now - seen < timeout:
            pool.recheck.append(seen + timeout)
            continue
        # It may have been ready while nobody looked, and pods may have come.
        busy = is_busy(pool.world, each, pool.spec.template.gpu_resource_name)
        each.become("Draining" if busy else "Ending", pool.now, "NeverJoined")
        breaking.failed(pool)
        says = f"{each.name} did not become a ready node within {pool.spec.join_timeout_seconds}s and is ended."
        pool.tell("NeverJoined", says, each.name, warns=True)


def shrink(pool: SpotPoolState, needed: Collection[str]) -> None:
    """End what is beyond the maximum: intents first, then what is of least use."""
    running = [each for each in pool.are("Launching", "Running") if not each.is_reclaimed]
    surplus = len(running) - pool.most
    if surplus <= 0:
        return
    for each in running:
        each.busy = each.busy or is_busy(pool.world, each, pool.spec.template.gpu_resource_name)
    able = [each for each in running if each.is_ours]
    for each in sorted(able, key=lambda place: _use(pool, place, needed))[:surplus]:
        if each.state == "Launching":
            each.become("Cancelling", pool.now, "Surplus")
        else:
            leave(pool, each, "Surplus")


def _use(pool: SpotPoolState, place: PoolSlot, needed: Collection[str]) -> tuple[int, int, int]:
    """Of how much use a machine is: intents, pending, never joined, idle, busy; among equals the youngest goes first."""
    slot = place.slot
    if place.state == "Launching":
        rank = 0
    elif place.instance is not None and place.instance.state == "PENDING":
        rank = 1
    elif pool.spec.join and not place.joined:
        rank = 2
    elif not place.busy and slot.node not in needed:
        rank = 3
    else:
        rank = 4
    return rank, -(when(slot.launched_at, pool.now) or 0), -slot.slot


def let_idle_go(pool: SpotPoolState, needed: Collection[str]) -> None:
    """End machines above the minimum that pods have not needed for long enough."""
    spare = pool.counted() - pool.least
    rest = pool.spec.idle_seconds * times.SECOND
    idle = []
    for each in pool.are("Running"):
        since = when(each.slot.idle_since, pool.now)
        if since is None or each.slot.node in needed or not each.is_ours or each.is_reclaimed:
            continue
        if pool.now - since >= rest:
            idle.append((since, each))
        else:
            pool.recheck.append(since + rest)
    for _, each in sorted(idle, key=lambda pair: (pair[0], pair[1].number))[: max(0, spare)]:
        leave(pool, each, "Idle")


def leave(pool: SpotPoolState, place: PoolSlot, cause: SlotCause) -> None:
    """Begin to drain a machine, or end it at once where nothing can be on it."""
    place.become("Draining" if place.node is not None and pool.spec.join else "Ending", pool.now, cause)
    says = {
        "Surplus": f"more than {pool.most} machines",
        "Idle": f"idle since {place.slot.idle_since}",
        "Deleted": "the Spotpool is being deleted",
    }.get(cause, "no pod needs it")
    pool.tell("Ending", f"{place.name} is ended: {says}.", place.name)


def drain(pool: SpotPoolState) -> None:
    """Take every machine that leaves one step further on its way."""
    for each in pool.are("Draining"):
        since = when(each.slot.since, pool.now) or pool.now
        until = _deadline(pool, each, since)
        node = each.node
        if pool.now >= until or (node is None and each.slot.cause != "Reclaimed"):
            each.become("Ending", pool.now, each.slot.cause)
            continue
        pool.recheck.append(until)
        if node is None:
            continue
        if not node.unschedulable:
            pool.due.append(CordonNode(node=node.name))
        elif pool.now < since + SETTLE_MS:
            pool.recheck.append(since + SETTLE_MS)
        elif is_busy(pool.world, each, pool.spec.template.gpu_resource_name):
            pool.due.append(DrainNode(node=node.name))
        else:
            each.become("Ending", pool.now, each.slot.cause)


def _deadline(pool: SpotPoolState, place: PoolSlot, since: int) -> int:
    """When a machine is ended whoever is still there."""
    own = when(place.slot.reclaim_at, pool.now + times.HOUR) if place.slot.cause == "Reclaimed" else None
    # A moment that was over when the drain began is that of a wrong clock or of a late notice.
    return since + pool.spec.drain_seconds * times.SECOND if own is None or own <= since else own


def calls(pool: SpotPoolState) -> Iterator[Action]:
    """End what is to end, again until there is evidence, and what lies about."""
    for each in pool.are("Ending"):
        if each.is_ours and each.slot.instance_id:
            yield TerminateInstance(pool=pool.key, instance=each.slot.instance_id)
    for left in pool.left:
        yield TerminateInstance(pool=pool.key, instance=left.name)
    for each in pool.are("Running"):
        if each.node is not None and cordoned_by(each.node, pool.ref):
            yield UncordonNode(node=each.node.name)

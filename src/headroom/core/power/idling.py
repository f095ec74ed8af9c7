"""Since when a machine is idle: no pod on its node keeps it on."""

from __future__ import annotations

from typing import Final, NamedTuple

from headroom.api import marks
from headroom.core.power.members import PoolMachine, PowerPoolState
from headroom.model import times
from headroom.model.facts import Node, Pod
from headroom.model.gangs import keeps_machine_on
from headroom.model.world import World

ENDED: Final = ("Succeeded", "Failed")
SYSTEM: Final = "kube-system"
CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
NOT_PROTECTED: Final = ("", "false", "no")
LATELY_MS: Final = 2 * times.MINUTE
"""The end of a pod that is older says nothing of one that is gone since."""


class Lodging(NamedTuple):
    """What is on a machine."""

    busy: bool
    """A pod keeps it on."""
    evictable: tuple[str, ...] = ()
    """Uids of pods that would, if the pool did not have them evicted."""
    ended: int | None = None
    """When the last of those ended that are over and still in view."""


def look(world: World, pool: PowerPoolState, node: str) -> Lodging:
    """What is on a node. A busy one is known by its first pod, so this costs little for a full fleet."""
    evictable: list[str] = []
    ended: int | None = None
    for uid in world.pods.by_node[node]:
        pod = world.pods.get(uid)
        if pod is None:
            continue
        if pod.phase in ENDED:
            if pod.ended is not None and (ended is None or pod.ended > ended):
                ended = pod.ended
        elif keeps_machine_on(pod, pool.spec.gpu_resource_name):
            if not may_be_evicted(world, pool, pod):
                return Lodging(busy=True)
            evictable.append(uid)
    return Lodging(False, tuple(sorted(evictable)), ended)


def may_be_evicted(world: World, pool: PowerPoolState, pod: Pod) -> bool:
    """Whether a pod makes way for a machine that is to sleep, since its pool says so and a controller recreates it."""
    if pool.policy.drain == "Never" or pod.owner is None or pod.has_claims:
        return False
    if pod.namespace in (SYSTEM, world.own_namespace) or is_marked(pod):
        return False
    # A device of any kind is a reason to be on this machine.
    gpus = pool.spec.gpu_resource_name
    return not any(name == gpus or "/" in name for name, _ in pod.shape.requests)


def is_marked(thing: Pod | Node) -> bool:
    """Whether an administrator said that Headroom leaves it alone."""
    word = next((value for key, value in thing.annotations if key == marks.PROTECTED), "")
    return word.lower() not in NOT_PROTECTED


def is_protected(pool: PowerPoolState, machine: PoolMachine) -> bool:
    """Whether a machine is never sent to sleep."""
    if machine.name in pool.policy.protected_machines:
        return True
    if machine.node is None:
        return False
    return is_marked(machine.node) or any(key in CONTROL_PLANE for key, _ in machine.node.labels)


def measure(world: World, pool: PowerPoolState, machine: PoolMachine) -> None:
    """Say since when a machine that is on is idle."""
    machine.busy = False
    if machine.state not in ("On", "Draining"):
        machine.idle_since = None
        machine.bound = _bound(world, pool, machine.name)
        return
    lodging = look(world, pool, machine.name)
    machine.busy = lodging.busy
    machine.evictable_pods = lodging.evictable
    machine.idle_since = None if lodging.busy else _idle_since(machine, lodging, world.now)


def _bound(world: World, pool: PowerPoolState, node: str) -> str:
    """The first pod that is bound to a node and keeps it on, though the node is not ready; empty if there is none."""
    uids = world.pods.by_node[node]
    if not uids:
        return ""
    pods = (pod for uid in uids if (pod := world.pods.get(uid)) is not None)
    there = (pod for pod in pods if pod.phase not in ENDED)
    return min((pod.key for pod in there if keeps_machine_on(pod, pool.spec.gpu_resource_name)), default="")


def _idle_since(machine: PoolMachine, lodging: Lodging, now: int) -> int:
    remembered = machine.idle_since if machine.idle_since is not None or machine.was != "On" else machine.since
    if machine.before is not None and machine.before.busy:
        # It was busy when it was last looked at: until when, only the end of a pod can tell.
        is_told = lodging.ended is not None and now - LATELY_MS <= lodging.ended <= now
        remembered = lodging.ended if is_told else now
    known = (
        remembered,
        lodging.ended,
        machine.node.ready_since if machine.node is not None else None,
        machine.power.since if machine.power is not None and machine.power_is == "On" else None,
    )
    # Clocks of kubelets may run ahead.
    return max((min(each, now) for each in known if each is not None), default=now)

"""The machines of a power pool as rows: state, last command and recent history of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from headroom.api.kinds import AnyResource
from headroom.api.power import MachineSpec, PowerPool, PowerPoolSpec
from headroom.api.power_status import MachineStatus, PowerPoolStatus, State
from headroom.core import usage
from headroom.model import times
from headroom.model.decisions import Decision, Ref
from headroom.model.facts import Node
from headroom.model.times import HOUR, SECOND
from headroom.model.world import World
from headroom.runtime.journal import Noted
from headroom.web.pages import parts
from headroom.web.pages.parts import Model

HOURS: Final = 6
"""The length of the history that past.js draws for each machine."""
MOST_TURNS: Final = 200
_ENDED: Final = ("Succeeded", "Failed")
_TURNS: Final[Mapping[str, State]] = {
    "WakingMachine": "Booting",
    "MachineOn": "On",
    "DrainingMachine": "Draining",
    "SleepingMachine": "Sleeping",
    "MachineOff": "Off",
    "MachineFailed": "Failed",
    "MachineUnknown": "Unknown",
}
"""The state of a machine after each event about it."""

Turns = list[tuple[int, State]]
"""The states of a machine with their start times, oldest first."""


class Gpus(NamedTuple):
    """GPUs of a machine in millionths."""

    all: int
    """From its node, or from the pool while there is no node."""
    held: int
    is_there: bool
    """Its node is ready."""


def remembered(resource: AnyResource, status: PowerPoolStatus) -> list[tuple[MachineSpec, MachineStatus]]:
    """Every machine of a valid pool, with its last known state."""
    spec: PowerPoolSpec = resource.spec
    known = {each.name: each for each in status.machines}
    return [(each, known.get(each.name, MachineStatus(name=each.name))) for each in spec.machines]


def status_of(pool: AnyResource, decision: Decision | None) -> PowerPoolStatus:
    """The last decided status of a pool, else the one in the cluster."""
    status = decision.status if decision else pool.status
    assert isinstance(status, PowerPoolStatus)
    return status


def asleep(world: World, decisions: Mapping[Ref, Decision]) -> dict[str, State]:
    """Machines that their pool has switched off or is still switching on, each with its state."""
    found: dict[str, State] = {}
    for ref, resource in world.of_kind(PowerPool.kind.name):
        status = status_of(resource, decisions.get(ref))
        found |= {each.name: each.state for each in status.machines if each.state in ("Off", "Sleeping", "Booting")}
    return found


def gpus(world: World, machine: MachineSpec) -> Gpus:
    """The GPUs of a machine, and how many of them are allocated."""
    node = world.nodes.get(machine.name)
    offered = usage.gpus_in(node.allocatable) if node is not None else 0
    told = offered or machine.gpu_count * usage.MICRO
    return Gpus(told, _held(world, machine.name), node is not None and node.ready)


def _held(world: World, node: str) -> int:
    on_it = (pod for uid in world.pods.by_node[node] if (pod := world.pods.get(uid)) is not None)
    return sum(usage.gpus_of(world, pod) for pod in on_it if pod.phase not in _ENDED)


def row(world: World, pool: PowerPoolSpec, machine: MachineSpec, found: MachineStatus, turns: Turns) -> Model:
    """One machine in a few words and numbers."""
    node, counted = world.nodes.get(machine.name), gpus(world, machine)
    told, at = last_told(found)
    return parts.known(
        {
            "state": found.state,
            "since": found.since,
            "gpus": parts.decimal(counted.all),
            "held": parts.decimal(counted.held) if counted.is_there else None,
            "idleSince": found.idle_since,
            "told": told,
            "toldAt": at,
            "failures": found.failures or None,
            "retryAfter": found.retry_after,
            "reason": found.reason,
            "switch": _switch(machine),
            "protected": machine.name in pool.policy.protected_machines or None,
            "node": _node(node),
            "turns": [[moment // SECOND, state] for moment, state in turns],
        }
    )


def last_told(found: MachineStatus) -> tuple[str, str]:
    """The last command to a machine, and when it was sent; empty if there was none."""
    commands = [("wake", found.woken_at), ("sleep", found.slept_at)]
    moments = [(times.moment(at), word, at) for word, at in commands if at]
    _, word, at = max(((moment, word, at) for moment, word, at in moments if moment is not None), default=(0, "", ""))
    return word, at


def _node(node: Node | None) -> str:
    """The state of its node; empty if there is none."""
    if node is None:
        return ""
    return "not ready" if not node.ready else "cordoned" if node.unschedulable else "ready"


def _switch(machine: MachineSpec) -> str:
    if machine.redfish is not None:
        return "Redfish"
    return "Wake-on-LAN" if machine.wake_on_lan is not None else "webhook"


# --- the last hours -----------------------------------------------------------------------------------------------------------


def pasts(entries: Iterable[Noted], status: PowerPoolStatus, now: int) -> dict[str, Turns]:
    """The last hours of every machine, from the journal of its pool and from the current state."""
    found: dict[str, Turns] = {}
    for entry in sorted(entries):
        for news in entry.news:
            state = _TURNS.get(news.reason)
            if state is not None and news.machine:
                found.setdefault(news.machine, []).append((entry.at, state))
    return {each.name: _past(found.get(each.name, []), each, now) for each in status.machines}


def _past(turns: Turns, known: MachineStatus, now: int) -> Turns:
    """Its changes of state, from the last one before the shown hours up to now."""
    since = times.moment(known.since)
    if since is not None and (not turns or turns[-1][1] != known.state):
        # The observed state counts, not the last command.
        turns = [*(each for each in turns if each[0] < since), (since, known.state)]
    begun = [number for number, (at, _) in enumerate(turns) if at <= now - HOURS * HOUR]
    shown = turns[begun[-1] :] if begun else turns
    turned = [each for number, each in enumerate(shown) if not number or shown[number - 1][1] != each[1]]
    return turned[-MOST_TURNS:]

"""The machines that PowerPools switch, where a replay begins: which of them are on, and what node each becomes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import structs

from headroom.adapters.kube.manifests import node_in
from headroom.api.kinds import AnyResource
from headroom.api.marks import CORDONED_BY
from headroom.model.facts import Machine, Node
from headroom.sim import hardware
from headroom.sim.whatif.work import Case

_OF_ITS_STATE: Final = "node.kubernetes.io/"
"""Taints that tell what state a node is in."""


class InitialState(NamedTuple):
    """What there is at the begin."""

    to_come: list[Node]
    """That machines become which have never been on."""
    machines: dict[str, Machine]
    """The power of every machine of a pool."""


def stage(case: Case, resources: Iterable[AnyResource], nodes: dict[str, Node]) -> InitialState:
    """A machine is what a fact says of it; without one it is on if its node is ready, and off if not. The nodes become as their machines are."""
    owned = {each.machine.name: each for each in hardware.machines(resources)}
    to_come, machines = [], {}
    for name, (pool, machine) in owned.items():
        told, there = case.machines.get(name), nodes.get(name)
        is_on = told.power != "Off" if told and told.power != "Unknown" else bool(there and there.ready)
        since = told.since if told and told.since is not None and told.since <= case.begin else case.begin
        machines[name] = Machine(name=name, power="On" if is_on else "Off", since=since)
        node = there or node_in(hardware.node(pool.spec, machine))
        if there or is_on:
            nodes[name] = turned(node, ready=is_on, at=_since(node, since, ready=is_on))
        else:
            to_come.append(turned(node, ready=False, at=None))
    return InitialState(to_come, machines)


def woken(nodes: Iterable[Node], resources: Iterable[AnyResource]) -> tuple[list[Node], dict[str, Machine]]:
    """Recorded nodes as they would be if no machine slept, and the machines that did.

    A machine that a pool let sleep is there all the same: without its pool somebody would have left it on.
    """
    owned = {each.machine.name for each in hardware.machines(resources)}
    found, asleep = [], {}
    for node in nodes:
        if node.name not in owned:
            found.append(node)
            continue
        if not node.ready:
            asleep[node.name] = Machine(name=node.name, power="Off", since=node.unready_since)
        is_ours = dict(node.annotations).get(CORDONED_BY, "").startswith(f"{hardware.POOL}/")
        notes = tuple(pair for pair in node.annotations if pair[0] != CORDONED_BY)
        taints = tuple(each for each in node.taints if not each.key.startswith(_OF_ITS_STATE))
        node = turned(node, ready=True, at=node.ready_since)  # noqa: PLW2901  the same node, awake
        unschedulable = node.unschedulable and not is_ours
        found.append(structs.replace(node, annotations=notes, taints=taints, unschedulable=unschedulable))
    return found, asleep


def turned(node: Node, *, ready: bool, at: int | None) -> Node:
    """A node that is ready since then, or is not."""
    return structs.replace(node, ready=ready, ready_since=at if ready else None, unready_since=None if ready else at)


def _since(node: Node, otherwise: int, *, ready: bool) -> int:
    known = node.ready_since if ready else node.unready_since
    return known if known is not None and known <= otherwise else otherwise

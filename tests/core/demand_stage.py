"""Waiting pods, rooms and machines for tests of demand: a test names only what it is about."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from headroom.core.demand import Candidate, Room, Unit, wanted
from headroom.model.facts import Amounts, Node, Pod, Shape
from headroom.model.world import World
from tests.builders import NOON, a_node, a_pod, a_used_world

MICRO = 1_000_000
GPU = "nvidia.com/gpu"
GIB = 2**30
MINUTE = 60_000


def amounts(gpus: float = 0, cpu: float = 0, gib: float = 0, **other: int) -> Amounts:
    """Amounts in millionths; other resources with two underscores for the slash."""
    found = {GPU: gpus, "cpu": cpu, "memory": gib * GIB}
    named = {name.replace("__", "/"): value for name, value in other.items()}
    return tuple(sorted((name, int(value * MICRO)) for name, value in (found | named).items() if value))


def a_shape(gpus: float = 1, cpu: float = 0, gib: float = 0, **fields: Any) -> Shape:
    """What a pod asks for."""
    return Shape(requests=amounts(gpus, cpu, gib), **fields)


def waits(name: str = "p", gpus: float = 1, *, shape: Shape | None = None, **fields: Any) -> Pod:
    """A pod that kube-scheduler found no place for half a minute ago."""
    base: dict[str, Any] = {"created": NOON - MINUTE, "unschedulable_since": NOON - 30_000}
    return a_pod(name, shape=shape or a_shape(gpus), **base | fields)


def a_view(*pods: Pod, nodes: Iterable[Node] = (), **more: Any) -> World:
    """A world with these pods and nodes."""
    return a_used_world(*more.pop("resources", ()), pods=pods, nodes=nodes, **more)


def units_of(*pods: Pod, **more: Any) -> tuple[Unit, ...]:
    """The units of pods that all count."""
    return wanted(a_view(*pods, **more)).units


def alike(count: int, gpus: float = 1, prefix: str = "p", **fields: Any) -> list[Pod]:
    """So many pods of one shape."""
    return [waits(f"{prefix}{number}", gpus, **fields) for number in range(count)]


def gang(name: str, count: int, gpus: float = 1, **fields: Any) -> list[Pod]:
    """The pods of a pod group."""
    labels = (("scheduling.x-k8s.io/pod-group", name),)
    prefix = fields.pop("prefix", f"{name}-")
    return alike(count, gpus, prefix, labels=labels, **fields)


def a_ready_node(name: str, gpus: float = 8, *, for_ms: int = 60 * MINUTE, **fields: Any) -> Node:
    """A node that has been ready for an hour."""
    return a_node(name, allocatable=fields.pop("allocatable", amounts(gpus)), ready_since=NOON - for_ms, **fields)


def a_room(name: str = "n", gpus: float = 8, *, source: Any = "Machine", **fields: Any) -> Room:
    """A room with nothing in it."""
    return Room(name=name, source=source, free=fields.pop("free", amounts(gpus)), **fields)


def a_machine(name: str, gpus: int = 8, *, cost: tuple[int, ...] | None = None, **fields: Any) -> Candidate:
    """A machine that is off, of which nothing but its GPUs is known."""
    room = a_room(name, gpus, **{"partly_known": True} | fields)
    return Candidate(room=room, cost=(gpus,) if cost is None else cost)


def affinity(*terms: Any, **other: Any) -> str:
    """Required node affinity as its JSON text; a term is a list of expressions, or a mapping as it is."""
    listed = [each if isinstance(each, dict) else {"matchExpressions": each} for each in terms]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}
    return json.dumps({"nodeAffinity": required} | other)


def says(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One expression of an affinity."""
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})

"""The first page: how much is used of what, what is free, and what was decided in the last hour."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from typing import Any, Final, NamedTuple

import numpy as np

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.model import conditions
from headroom.model.decisions import Decision, Ref
from headroom.model.numbering import ABSENT
from headroom.model.segments import Bools
from headroom.model.tables import PHASES, PodTable
from headroom.model.times import HOUR, SECOND
from headroom.model.world import World
from headroom.web.pages import machines, parts
from headroom.web.pages.pace import Paced
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import View

MOST_DECISIONS: Final = 30
MOST_COUNTED: Final = 1000
SLOW_SECONDS: Final = 2.0
"""What is worked out over the whole fleet is not worked out more often than this, whoever looks."""


MOVING_SECONDS: Final = 2.0
MOVING: Final = frozenset({"asOf", "consumedGpuHours", "consumedUsd", "message", "percent"})
"""What moves by itself while a budget is used; that it reached something is told by its state."""


class Row(NamedTuple):
    """A budget as it was last shown."""

    of: tuple[AnyResource, Decision | None]
    """What it was made from."""
    due: float
    """When its numbers are to move again."""
    row: Model


class Overview:
    """Makes the page; what only the whole fleet tells is remembered for a moment."""

    def __init__(self) -> None:
        self._fleet = Fleet()
        self._uncovered: Paced[Model] = Paced(SLOW_SECONDS)
        self._gpus: Paced[Model] = Paced(SLOW_SECONDS)
        self._rows: dict[Ref, Row] = {}

    def model(self, view: View, scope: Scope) -> Model:
        """The page without its frame."""
        world = view.world()
        found = view.journal.newest(world.now - HOUR, MOST_COUNTED, lambda each: parts.may_see(each, scope))
        model: Model = {
            "budgets": self._budgets(view, world, scope),
            "others": _others(view, world, scope),
            "decisions": parts.entries(found[:MOST_DECISIONS]),
            "decidedInHour": len(found),
        }
        if scope.everything:
            fleet = self._fleet.of(world) | nodes_asleep(world, view.loop.decisions)
            model["fleet"] = fleet
            if world.ledger.loaded:
                model["uncovered"] = self._uncovered.get(view, lambda: _uncovered(world))
                model["gpus"] = self._gpus.get(view, lambda: _gpus(world)) | {"capacity": float(fleet["gpus"])}
        return model

    def _budgets(self, view: View, world: World, scope: Scope) -> Model:
        now, shown = time.monotonic(), {}
        for ref, each in world.of_kind(usage.KIND):
            if scope.sees(ref.namespace):
                shown[f"{ref.namespace}/{ref.name}"] = self._row(ref, (each, view.loop.decisions.get(ref)), now)
        for ref in self._rows.keys() - world.resources.keys():
            del self._rows[ref]
        return shown

    def _row(self, ref: Ref, of: tuple[AnyResource, Decision | None], now: float) -> Model:
        """A row as it is shown: news at once, numbers that only move with time at a readable pace, not all in one moment."""
        known = self._rows.get(ref)
        if known is not None and known.of[0] is of[0] and known.of[1] is of[1]:
            return known.row
        fresh = parts.budget_row(*of)
        if known is not None and now < known.due and _substance(fresh) == _substance(known.row):
            return known.row
        spread = hash(ref) % 16 / 16 if known is None else 1.0
        self._rows[ref] = Row(of, now + MOVING_SECONDS * (0.5 + spread / 2), fresh)
        return fresh


def _substance(row: Model) -> Model:
    return {name: value for name, value in row.items() if name not in MOVING}


def _others(view: View, world: World, scope: Scope) -> Model:
    return {
        str(ref): _other(view, ref)
        for ref in sorted(world.resources)
        if ref.kind != usage.KIND and (scope.everything or scope.sees(ref.namespace))
    }


def _other(view: View, ref: Ref) -> Model:
    decision = view.loop.decisions.get(ref)
    ready = conditions.find(decision.status.conditions, "Ready") if decision else None
    return {
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "ready": ready.status if ready else "Unknown",
        "reason": decision.reason if decision else "Waiting",
        "message": decision.message if decision else "Nothing has been decided yet.",
    }


class Fleet:
    """The fleet in a few numbers, worked out again only when pods or nodes changed."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._known: dict[str, Any] = {}

    def of(self, world: World) -> dict[str, Any]:
        """The numbers of this world."""
        seen = (
            world.pods,
            world.pods.generation,
            world.nodes,
            world.nodes.generation,
            len(world.claims),
            world.devices.generation,
        )
        if seen != self._seen:
            self._seen, self._known = seen, fleet_of(world)
        return self._known


def fleet_of(world: World) -> dict[str, Any]:
    """The fleet in a few numbers."""
    phases = world.pods.column("phase")
    gpus = {node.name: usage.gpus_on(world, node) for node in world.nodes}
    usable = {node.name for node in world.nodes if node.ready and not node.unschedulable}
    return {
        "gpus": parts.decimal(sum(gpus.values())),
        "held": parts.decimal(_held(world, gpus.keys())),
        "free": parts.decimal(max(sum(gpus[name] for name in usable) - _held(world, usable), 0)),
        "nodes": len(world.nodes),
        "nodesReady": sum(node.ready for node in world.nodes),
        "running": int(np.count_nonzero(phases == PHASES.index("Running"))),
        "waiting": sum(count for gpus, count in _asking(world.pods, _unbound(world.pods)) if gpus),
        "heldPods": len(world.pods.queued & world.pods.unbound),
    }


def nodes_asleep(world: World, decisions: Mapping[Ref, Decision]) -> dict[str, Any]:
    """How many of the nodes that are not ready sleep, boot or go to sleep; nothing where none does."""
    there = (world.nodes.get(name) for name in machines.asleep(world, decisions))
    count = sum(node is not None and not node.ready for node in there)
    return {"nodesAsleep": count} if count else {}


def _unbound(pods: PodTable) -> Bools:
    """The pods without a node that have not ended."""
    without_node: Bools = pods.column("node") == pods.names.number("")
    return without_node & _live(pods)


def _live(pods: PodTable) -> Bools:
    return ~np.isin(pods.column("phase"), [ABSENT, *(PHASES.index(each) for each in ("Succeeded", "Failed"))])


def _asking(pods: PodTable, which: Bools) -> list[tuple[int, int]]:
    """GPUs that some pods ask for, and how many ask for so many; by shape, so a large fleet costs no more than a small one."""
    numbers, counts = np.unique(pods.column("shape")[which], return_counts=True)
    found = [usage.gpus_in(pods.shapes[int(number)].requests) for number in numbers]
    return list(zip(found, counts.tolist(), strict=True))


def _held(world: World, there: Set[str]) -> int:
    """Millionths of GPUs that pods on these nodes hold, those of their claims included."""
    pods, names = world.pods, [world.pods.names.number(name) for name in there]
    on_nodes = np.isin(pods.column("node"), names) & _live(pods)
    held = sum(gpus * count for gpus, count in _asking(pods, on_nodes))
    for uid in {uid for claim in world.claims.values() for uid in claim.reserved_for}:
        pod = pods.get(uid)
        if pod is not None and pod.node in there and pod.phase not in ("Succeeded", "Failed"):
            held += usage.gpus_of(world, pod) - usage.gpus_in(pod.shape.requests)
    return held


def _uncovered(world: World) -> Model:
    """What no budget covers, in the last 24 hours and now."""
    sums = usage.uncovered(world)
    return {"gpuHours": parts.amount(sums.gpu_ms, usage.GPU_HOUR), "burnRateGpus": parts.decimal(sums.burn)}


def _gpus(world: World) -> Model:
    """GPUs in use over the last day."""
    line = usage.held(world, world.as_of - 24 * HOUR)
    return {
        "t": [moment // SECOND for moment in line.moments],
        "held": [round(total / usage.MICRO, 2) for total in line.sums],
    }

"""The first page: usage by budget, free GPUs, and the decisions of the last hour."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from headroom.api.bandwidth import Bandwidth
from headroom.api.kinds import AnyResource
from headroom.api.power_status import State
from headroom.core import CAPABILITIES, usage
from headroom.model import conditions
from headroom.model.decisions import Decision, Ref
from headroom.model.numbering import ABSENT
from headroom.model.segments import Bools
from headroom.model.tables import PHASES, PodTable
from headroom.model.times import HOUR, SECOND
from headroom.model.world import World
from headroom.web.pages import machines, models, parts
from headroom.web.pages.pace import Paced
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

MOST_DECISIONS: Final = 30
MOST_COUNTED: Final = 1000
SLOW_SECONDS: Final = 2.0
"""Numbers of the whole fleet are computed at most this often, for any number of viewers."""


DECIDED: Final = frozenset(kind for each in CAPABILITIES for kind in each.kinds)
"""The kinds that this version acts on."""
MOVING_SECONDS: Final = 2.0
MOST_MOVED: Final = 40
"""Rows of which only the numbers moved, in one page: to draw hundreds of them would hold up the news."""
MOVED_SECONDS: Final = 1.0
LATEST_SECONDS: Final = 3.0
"""So long after such rows come the next ones; those beside news after so long."""
MOVING: Final = frozenset({"asOf", "consumedGpuHours", "consumedUsd", "message", "percent"})
"""Fields that change continuously while pods run; the state shows when a limit is crossed."""


class BudgetRow(NamedTuple):
    """The last shown row of a budget."""

    of: tuple[AnyResource, Decision | None]
    """The inputs of the row."""
    due: float
    """When its numbers may change again."""
    row: Model


class Overview:
    """Makes the page; numbers of the whole fleet are cached for a moment."""

    def __init__(self) -> None:
        self._fleet = FleetSummary()
        self._uncovered: Paced[Model] = Paced(SLOW_SECONDS)
        self._gpus: Paced[Model] = Paced(SLOW_SECONDS)
        self._needs: Paced[list[Model]] = Paced(SLOW_SECONDS)
        self._rows: dict[Ref, BudgetRow] = {}
        self._moved_at = 0.0
        """When rows were shown of which only the numbers had moved."""

    def model(self, view: OperatorView, scope: Scope) -> Model:
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
            asleep = machines.asleep(world, view.loop.decisions)
            numbers, by_model = self._fleet.of(world, asleep)
            fleet = numbers | nodes_asleep(world, view.loop.decisions)
            model |= {"fleet": fleet, "models": by_model}
            model["needs"] = self._needs.get(view, lambda: models.needs(world, models.pending(world)))
            if world.ledger.loaded:
                model["uncovered"] = self._uncovered.get(view, lambda: _uncovered(world))
                model["gpus"] = self._gpus.get(view, lambda: _gpus(world)) | {"capacity": float(fleet["gpus"])}
        return model

    def _budgets(self, view: OperatorView, world: World, scope: Scope) -> Model:
        # A page for one moment shows the numbers of exactly that moment.
        now, most = (time.monotonic(), MOST_MOVED) if view.moment is None else (math.inf, len(self._rows))
        shown, is_news = Model(), False
        moved: list[tuple[float, Ref, BudgetRow]] = []
        for ref, each in world.of_kind(usage.KIND):
            if scope.sees(ref.namespace):
                known = self._rows.get(ref)
                row = shown[_key(ref)] = self._row(ref, (each, view.loop.decisions.get(ref)), now, moved)
                is_news = is_news or (known is not None and row is not known.row)
        if view.moment is None and moved:
            if now < self._moved_at + (LATEST_SECONDS if is_news else MOVED_SECONDS):
                most = 0
            else:
                self._moved_at = now
        for _, ref, after in sorted(moved, key=lambda each: each[:2])[:most]:
            self._rows[ref], shown[_key(ref)] = after, after.row
        for ref in self._rows.keys() - world.resources.keys():
            del self._rows[ref]
        return shown

    def _row(
        self, ref: Ref, of: tuple[AnyResource, Decision | None], now: float, moved: list[tuple[float, Ref, BudgetRow]]
    ) -> Model:
        """The row to show: changes of state at once. A row of which only the numbers moved is noted, with since when it is due."""
        known = self._rows.get(ref)
        if known is not None and known.of[0] is of[0] and known.of[1] is of[1]:
            return known.row
        spread = hash(ref) % 16 / 16 if known is None else 1.0
        after = BudgetRow(of, now + MOVING_SECONDS * (0.5 + spread / 2), parts.budget_row(*of))
        if known is None or _substance(after.row) != _substance(known.row):
            self._rows[ref] = after
            return after.row
        if known.due <= now:
            moved.append((known.due, ref, after))
        return known.row


def _key(ref: Ref) -> str:
    return f"{ref.namespace}/{ref.name}"


def _substance(row: Model) -> Model:
    return {name: value for name, value in row.items() if name not in MOVING}


def _others(view: OperatorView, world: World, scope: Scope) -> Model:
    return {
        str(ref): _other(view, world, ref)
        for ref in sorted(world.resources)
        if ref.kind != usage.KIND and (scope.everything or scope.sees(ref.namespace)) and not _is_routine(view, ref)
    }


def _is_routine(view: OperatorView, ref: Ref) -> bool:
    """A Bandwidth that is Ready: each node has one, and they have their own page."""
    decision = view.loop.decisions.get(ref)
    return (
        ref.kind == Bandwidth.kind.name
        and decision is not None
        and conditions.holds(decision.status.conditions, "Ready")
    )


def _other(view: OperatorView, world: World, ref: Ref) -> Model:
    decision = view.loop.decisions.get(ref)
    ready = conditions.find(decision.status.conditions, "Ready") if decision else None
    return {
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "ready": ready.status if ready else "Unknown",
        "acts": _acts(world, ref),
        "reason": decision.reason if decision else "Waiting",
        "message": decision.message if decision else "No decision has been made yet.",
    }


def _acts(world: World, ref: Ref) -> bool:
    """Whether Headroom acts for a resource. One that it only observes may be ready without acting."""
    spec = world.resources[ref].spec
    is_accounted_only = ref.kind == Bandwidth.kind.name and world.bandwidth.mode == "Off"
    return not (is_accounted_only or getattr(spec, "paused", False) or world.stopped) and ref.kind in DECIDED


class FleetSummary:
    """The fleet in a few numbers, computed again only when pods or nodes changed."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._of_nodes: tuple[object, ...] = ()
        self._nodes: list[models.NodeGpus] = []
        self._known: tuple[dict[str, Any], Model] = {}, {}

    def of(self, world: World, asleep: Mapping[str, State]) -> tuple[dict[str, Any], Model]:
        """The numbers of this world, and those of each model."""
        of_nodes = (world.nodes, world.nodes.generation, world.devices.generation, asleep)
        seen = (*of_nodes, world.pods, world.pods.generation, len(world.claims))
        if of_nodes != self._of_nodes:
            self._of_nodes, self._nodes = of_nodes, models.nodes_with_gpus(world, asleep)
        if seen != self._seen:
            found = models.fleet(world, self._nodes)
            self._seen, self._known = seen, (_numbers(world, found), models.rows(found))
        return self._known


def fleet_of(world: World) -> dict[str, Any]:
    """The fleet in a few numbers."""
    return _numbers(world, models.fleet(world, models.nodes_with_gpus(world, {})))


def _numbers(world: World, found: models.Fleet) -> dict[str, Any]:
    return {
        "gpus": parts.decimal(found.all),
        "held": parts.decimal(found.allocated),
        "starting": parts.decimal(models.starting(world)),
        "free": parts.decimal(found.free),
        "nodes": len(world.nodes),
        "nodesReady": sum(node.ready for node in world.nodes),
        "running": int(np.count_nonzero(world.pods.column("phase") == PHASES.index("Running"))),
        "waiting": sum(count for gpus, count in _asking(world.pods, _unbound(world.pods)) if gpus),
        "heldPods": len(world.pods.queued & world.pods.unbound),
    }


def nodes_asleep(world: World, decisions: Mapping[Ref, Decision]) -> dict[str, Any]:
    """How many nodes that are not ready are asleep, booting or going to sleep; left out if none is."""
    there = (world.nodes.get(name) for name in machines.asleep(world, decisions))
    count = sum(node is not None and not node.ready for node in there)
    return {"nodesAsleep": count} if count else {}


def _unbound(pods: PodTable) -> Bools:
    """The pods without a node that have not ended."""
    phase = pods.column("phase")
    is_live: Bools = ~np.isin(phase, [ABSENT, *(PHASES.index(each) for each in models.ENDED)])
    without_node: Bools = pods.column("node") == pods.names.number("")
    return without_node & is_live


def _asking(pods: PodTable, which: Bools) -> list[tuple[int, int]]:
    """GPU requests and the number of pods with each, by shape, so that the cost does not grow with the fleet."""
    numbers, counts = np.unique(pods.column("shape")[which], return_counts=True)
    found = [usage.gpus_in(pods.shapes[int(number)].requests) for number in numbers]
    return list(zip(found, counts.tolist(), strict=True))


def _uncovered(world: World) -> Model:
    """Usage that no budget covers, in the last 24 hours and now."""
    sums = usage.uncovered(world)
    return {"gpuHours": parts.amount(sums.gpu_ms, usage.GPU_HOUR), "burnRateGpus": parts.decimal(sums.burn)}


def _gpus(world: World) -> Model:
    """Allocated GPUs over the last day."""
    line = usage.held(world, world.as_of - 24 * HOUR)
    return {
        "t": [moment // SECOND for moment in line.moments],
        "held": [round(total / usage.MICRO, 2) for total in line.sums],
    }

"""What the pages show: the last world and the last decisions, as plain data. Nothing is decided here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, Protocol

import numpy as np
from msgspec import Struct

from headroom.api.kinds import KINDS
from headroom.core import usage
from headroom.model import conditions, times
from headroom.model.decisions import Decision, Ref, status_wire
from headroom.model.tables import PHASES, PodTable
from headroom.model.world import World
from headroom.runtime.metrics import Metrics

MOST_RESOURCES: Final = 500
"""On the page; /api/state has them all."""
MOST_RECENT: Final = 20
_MICRO: Final = 1_000_000


class Observed(Protocol):
    """A port that knows how good its view is."""

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def problems(self) -> list[str]:
        """Why the view is not complete, a sentence each."""
        ...

    def age_seconds(self) -> float:
        """Time since the slowest watch was heard."""
        ...


class Deciding(Protocol):
    """The loop, as far as it is shown."""

    decisions: dict[Ref, Decision]
    decided_at: dict[Ref, int]
    ticks: int


class Gate(Protocol):
    """The right to act."""

    def may_act(self) -> bool:
        """Whether an effect may begin now."""
        ...


class Clock(Protocol):
    """The time."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...


class View(Struct, frozen=True, kw_only=True):
    """Everything that the pages may look at."""

    port: Observed
    loop: Deciding
    gate: Gate
    clock: Clock
    title: str = "Headroom"

    def state(self) -> dict[str, Any]:
        """The whole state, as /api/state gives it."""
        now = self.clock.now()
        world = self.port.world(now)
        decisions = self.loop.decisions
        return {
            "now": times.text(now),
            "cluster": world.cluster,
            "leading": self.gate.may_act(),
            "stopped": world.stopped,
            "complete": world.complete,
            "problems": [str(each) for each in self.port.problems()],
            "fleet": fleet(world),
            "budgets": budgets(world),
            "uncovered": uncovered(world),
            "resources": [self._resource(world, ref, decisions.get(ref)) for ref in sorted(world.resources)],
            "recent": self._recent(),
        }

    def ready(self) -> Counter[tuple[str, str]]:
        """How many resources of each kind are Ready, are not, or are not known to be."""
        found: Counter[tuple[str, str]] = Counter()
        for ref, decision in self.loop.decisions.items():
            condition = conditions.find(decision.status.conditions, "Ready")
            found[ref.kind, condition.status if condition else "Unknown"] += 1
        return found

    def _resource(self, world: World, ref: Ref, decision: Decision | None) -> dict[str, Any]:
        resource = world.resources[ref]
        status = decision.status if decision else resource.status
        ready = conditions.find(status.conditions, "Ready")
        return {
            "kind": ref.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "ready": ready.status if ready else "Unknown",
            "reason": decision.reason if decision else "Waiting",
            "message": decision.message if decision else "Nothing has been decided yet.",
            "paused": bool(resource.spec is not None and resource.spec.paused),
            "actions": [type(action).__name__ for action in decision.actions] if decision else [],
            "since": times.text(self.loop.decided_at[ref]) if ref in self.loop.decided_at else "",
            "status": status_wire(status),
        }

    def _recent(self) -> list[dict[str, Any]]:
        """The decisions that changed last, newest first."""
        known: Mapping[Ref, Decision] = self.loop.decisions
        newest = sorted(self.loop.decided_at.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_RECENT]
        return [
            {
                "at": times.text(at),
                "resource": str(ref),
                "reason": known[ref].reason,
                "message": known[ref].message,
                "actions": [type(action).__name__ for action in known[ref].actions],
            }
            for ref, at in newest
            if ref in known
        ]


class Showing(Struct):
    """What an app shows; another view takes its place when another process does."""

    view: View
    metrics: Metrics


def fleet(world: World) -> dict[str, Any]:
    """The fleet in a few numbers."""
    phases = world.pods.column("phase")
    counts = np.bincount(phases[phases >= 0], minlength=len(PHASES))
    ready = sum(node.ready for node in world.nodes)
    offered = sum(amount for node in world.nodes for name, amount in node.allocatable if _is_gpu(name))
    return {
        "pods": len(world.pods),
        "podsRunning": int(counts[PHASES.index("Running")]),
        "podsUnbound": len(world.pods.unbound),
        "nodes": len(world.nodes),
        "nodesReady": ready,
        "gpus": _decimal(offered),
        "gpusHeld": _decimal(_held(world.pods)),
        "resources": {kind: sum(ref.kind == kind for ref in world.resources) for kind in KINDS},
    }


def budgets(world: World) -> list[dict[str, Any]]:
    """Every budget with its numbers of this moment."""
    found = []
    for budget, sums in usage.reckonings(world):
        quota = usage.quota_of(budget.spec)
        parts = [(sums.gpu_ms, quota.gpu_ms), (sums.usd_ms, quota.usd_ms)]
        used = max((Fraction(part, whole) for part, whole in parts if whole), default=Fraction(0))
        found.append(
            {
                "namespace": budget.namespace,
                "name": budget.name,
                "windowHours": budget.spec.quota.window_hours,
                "consumedGpuHours": _rounded(sums.gpu_ms, usage.GPU_HOUR),
                "quotaGpuHours": str(budget.spec.quota.gpu_hours or ""),
                "consumedUsd": _rounded(sums.usd_ms, usage.DOLLAR) if quota.usd_ms or sums.usd_ms else "",
                "quotaUsd": str(budget.spec.quota.usd or ""),
                "percent": f"{float(used * 100):.1f}",
                "burnRateGpus": _decimal(sums.burn),
                "trackedPods": sums.tracked,
                "exceeded": bool(sums.exceeded),
                "exhaustedAt": "" if sums.exhausted_at is None else times.text(sums.exhausted_at),
                "recoversAt": "" if sums.recovers_at is None else times.text(sums.recovers_at),
            }
        )
    return found


def uncovered(world: World) -> dict[str, str]:
    """What no budget covers, in the last 24 hours and now."""
    sums = usage.uncovered(world)
    return {"gpuHours": _rounded(sums.gpu_ms, usage.GPU_HOUR), "burnRateGpus": _decimal(sums.burn)}


def _rounded(amount: int, whole: int) -> str:
    return f"{amount / whole:.3f}"


def _held(pods: PodTable) -> int:
    """Millionths of GPUs that bound pods hold; counted by shape, so a large fleet costs no more than a small one."""
    phases = pods.column("phase")
    unbound = [number for number, name in pods.names.items() if not name]
    live = ((phases == PHASES.index("Running")) | (phases == PHASES.index("Pending"))) & ~np.isin(
        pods.column("node"), unbound
    )
    numbers, counts = np.unique(pods.column("shape")[live], return_counts=True)
    each = {
        number: sum(amount for name, amount in shape.requests if _is_gpu(name)) for number, shape in pods.shapes.items()
    }
    return sum(each[int(number)] * int(count) for number, count in zip(numbers, counts, strict=True))


def _is_gpu(name: str) -> bool:
    return name.endswith("/gpu")


def _decimal(micro: int) -> str:
    whole, rest = divmod(micro, _MICRO)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") if rest else str(whole)

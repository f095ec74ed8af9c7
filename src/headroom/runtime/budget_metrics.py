"""Metrics of budgets and of the ledger, worked out at the moment they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import percent
from headroom.core.usage import DOLLAR, GPU_HOUR, MICRO, Reckoning, quota_of, reckonings, uncovered
from headroom.model.decisions import Decision, Ref
from headroom.model.times import SECOND
from headroom.model.world import World

_NAMES: Final = {
    "quota_gpu_hours": "GPU-hours that may be used inside the window.",
    "consumed_gpu_hours": "GPU-hours used inside the window, for certain.",
    "upper_gpu_hours": "GPU-hours used inside the window at most.",
    "remaining_gpu_hours": "GPU-hours left of the quota.",
    "quota_usd": "Dollars that may be spent inside the window.",
    "consumed_usd": "Dollars spent inside the window, for certain.",
    "upper_usd": "Dollars spent inside the window at most.",
    "remaining_usd": "Dollars left of the quota.",
    "unpriced_gpu_hours": "GPU-hours inside the window whose price is not known.",
    "burn_rate_gpus": "GPUs held now.",
    "tracked_pods": "Pods in view that are counted.",
    "exceeded": "1 while a quota is reached.",
    "exhausted_timestamp_seconds": "When a quota will be reached if what runs goes on; absent if never.",
    "recovers_timestamp_seconds": "When an exceeded quota will hold again; absent if never.",
    "step_percent": "Share of the quota at which the highest step that stands begins; 0 while none does.",
    "held_pods": "Pods that wait for the budget.",
}


class BudgetMetrics:
    """Gauges that are set anew for every scrape, so a budget that is gone leaves none behind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            name: Gauge(f"headroom_budget_{name}", help_, ["namespace", "name"], registry=registry)
            for name, help_ in _NAMES.items()
        }
        self._uncovered = Gauge(
            "headroom_uncovered_gpu_hours", "GPU-hours of the last 24 h that no budget covers.", registry=registry
        )
        self._uncovered_burn = Gauge(
            "headroom_uncovered_burn_rate_gpus", "GPUs held now that no budget covers.", registry=registry
        )
        self._rows = Gauge("headroom_usage_rows", "Rows of usage in memory.", registry=registry)
        self._waiting = Gauge("headroom_ledger_waiting_pods", "Pods with rows not durable yet.", registry=registry)
        self._lag = Gauge(
            "headroom_ledger_lag_seconds", "How long the oldest row has waited to be durable.", registry=registry
        )
        self._up = Gauge("headroom_ledger_up", "1 while the ledger was read and takes writes.", registry=registry)

        self._clock = Gauge(
            "headroom_clock_offset_seconds",
            "Seconds by which the clock is ahead of the API server's, or was set forward of late; 0 while both agree.",
            registry=registry,
        )
        self._shared = Gauge(
            "headroom_cluster_id_shared", "1 while another operator writes under this cluster's id.", registry=registry
        )
        self._known_since = Gauge(
            "headroom_ledger_known_since_timestamp_seconds",
            "From when on everything that happened in this cluster is in the ledger.",
            registry=registry,
        )

    def measure(self, world: World, _decisions: Mapping[Ref, Decision]) -> None:
        """Set everything to what is true of this world."""
        for gauge in self._gauges.values():
            gauge.clear()
        for budget, found in reckonings(world):
            quota = quota_of(budget.spec)
            for name, value in (_values(found, quota.gpu_ms, quota.usd_ms) | _enforced(budget.status)).items():
                if value is not None:
                    self._gauges[name].labels(budget.namespace, budget.name).set(value)
        rest = uncovered(world)
        self._uncovered.set(rest.gpu_ms / GPU_HOUR)
        self._uncovered_burn.set(rest.burn / MICRO)
        self._rows.set(len(world.usage))
        self._waiting.set(world.ledger.waiting)
        self._lag.set(world.ledger.lag_ms / SECOND)
        self._up.set(world.ledger.loaded and not world.ledger.problem)
        self._clock.set((world.ledger.clock_offset_ms or world.ledger.clock_step_ms) / SECOND)
        self._shared.set(bool(world.ledger.rival))
        self._known_since.set(world.ledger.known_since / SECOND)


def _enforced(status: GPUWorkloadBudgetStatus) -> dict[str, float | None]:
    """What enforcement comes to, by the status."""
    return {
        "step_percent": max((percent(each.at) for each in status.steps), default=0),
        "held_pods": status.held.pods if status.held is not None else 0,
    }


def _values(found: Reckoning, gpu_quota: int | None, usd_quota: int | None) -> dict[str, float | None]:
    """The numbers of one budget; None for what it does not have."""
    has_money = usd_quota is not None or found.usd_ms > 0
    return {
        "quota_gpu_hours": None if gpu_quota is None else gpu_quota / GPU_HOUR,
        "consumed_gpu_hours": found.gpu_ms / GPU_HOUR,
        "upper_gpu_hours": found.upper_gpu_ms / GPU_HOUR,
        "remaining_gpu_hours": None if gpu_quota is None else max(gpu_quota - found.gpu_ms, 0) / GPU_HOUR,
        "quota_usd": None if usd_quota is None else usd_quota / DOLLAR,
        "consumed_usd": found.usd_ms / DOLLAR if has_money else None,
        "upper_usd": found.upper_usd_ms / DOLLAR if has_money else None,
        "remaining_usd": None if usd_quota is None else max(usd_quota - found.usd_ms, 0) / DOLLAR,
        "unpriced_gpu_hours": found.unpriced_gpu_ms / GPU_HOUR if has_money else None,
        "burn_rate_gpus": found.burn / MICRO,
        "tracked_pods": found.tracked,
        "exceeded": bool(found.exceeded),
        "exhausted_timestamp_seconds": None if found.exhausted_at is None else found.exhausted_at / SECOND,
        "recovers_timestamp_seconds": None if found.recovers_at is None else found.recovers_at / SECOND,
    }

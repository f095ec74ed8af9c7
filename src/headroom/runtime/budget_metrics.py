"""Metrics of budgets and of the ledger, worked out at the moment they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge

from headroom.api.budgets import Forecast, GPUWorkloadBudgetStatus
from headroom.api.enforcement import percent
from headroom.core.usage import DOLLAR, GPU_HOUR, MICRO, Reckoning, quota_of, reckonings, uncovered
from headroom.model import times
from headroom.model.decisions import Decision, Ref
from headroom.model.times import SECOND
from headroom.model.world import World, ref_of

_NAMES: Final = {
    "quota_gpu_hours": "GPU-hours that may be used inside the window.",
    "consumed_gpu_hours": "GPU-hours used inside the window: the lower bound.",
    "upper_gpu_hours": "GPU-hours used inside the window: the upper bound.",
    "remaining_gpu_hours": "GPU-hours left of the quota.",
    "quota_usd": "Dollars that may be spent inside the window.",
    "consumed_usd": "Dollars spent inside the window: the lower bound.",
    "upper_usd": "Dollars spent inside the window: the upper bound.",
    "remaining_usd": "Dollars left of the quota.",
    "unpriced_gpu_hours": "GPU-hours inside the window without a known price.",
    "burn_rate_gpus": "GPUs of the pods that have started, now.",
    "tracked_pods": "Pods that the budget counts now.",
    "exceeded": "1 while the budget is over quota.",
    "exhausted_timestamp_seconds": "When the budget goes over quota, with pods ending when they declare; absent if never.",
    "recovers_timestamp_seconds": "When the budget is back under quota, with pods ending when they declare; absent if never.",
    "step_percent": "Share of the quota at which the highest active step becomes active; 0 while none is active.",
    "held_pods": "Pods that the budget queues.",
}


class BudgetMetrics:
    """Gauges that are set anew for every scrape, so a budget that is gone leaves none behind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            name: Gauge(f"headroom_budget_{name}", help_, ["namespace", "name"], registry=registry)
            for name, help_ in _NAMES.items()
        }
        self._uncovered = Gauge(
            "headroom_uncovered_gpu_hours", "GPU-hours of the last 24h that no budget covers.", registry=registry
        )
        self._uncovered_burn = Gauge(
            "headroom_uncovered_burn_rate_gpus", "GPUs of started pods, now, that no budget covers.", registry=registry
        )
        self._rows = Gauge("headroom_usage_rows", "Rows of usage in memory.", registry=registry)
        self._waiting = Gauge("headroom_ledger_waiting_pods", "Pods with rows not durable yet.", registry=registry)
        self._lag = Gauge(
            "headroom_ledger_lag_seconds", "How long the oldest row has waited to be durable.", registry=registry
        )
        self._up = Gauge("headroom_ledger_up", "1 while the ledger can be read and written.", registry=registry)

        self._clock = Gauge(
            "headroom_clock_offset_seconds",
            "Seconds by which the clock is ahead of the API server's, or recently jumped forward; 0 while both agree.",
            registry=registry,
        )
        self._shared = Gauge(
            "headroom_cluster_id_shared", "1 while another operator writes under this cluster's id.", registry=registry
        )
        self._known_since = Gauge(
            "headroom_ledger_known_since_timestamp_seconds",
            "Since when the ledger has all usage of this cluster.",
            registry=registry,
        )

    def measure(self, world: World, decisions: Mapping[Ref, Decision]) -> None:
        """Set everything to what is true of this world."""
        for gauge in self._gauges.values():
            gauge.clear()
        for budget, found in reckonings(world):
            quota = quota_of(budget.spec)
            decision = decisions.get(ref_of(budget))
            status: Any = budget.status if decision is None else decision.status
            for name, value in (_values(found, quota.gpu_ms, quota.usd_ms) | _enforced(status)).items():
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
    """The forecast, and what enforcement comes to, by the status."""
    forecast = status.forecast or Forecast()
    exhausted, recovers = times.moment(forecast.exhausted_at), times.moment(forecast.recovers_at)
    return {
        "exhausted_timestamp_seconds": None if exhausted is None else exhausted / SECOND,
        "recovers_timestamp_seconds": None if recovers is None else recovers / SECOND,
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
    }

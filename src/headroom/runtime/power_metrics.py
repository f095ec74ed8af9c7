"""Metrics of power pools, as they stand at the moment they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headroom.api.power import PowerPool
from headroom.api.power_status import STATES, PowerPoolStatus
from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

_CONDITIONS: Final = {
    "braked": ("Braked", "1 while no more machines of the pool begin to drain because too many became idle at once."),
    "shared_with_karpenter": ("SharedWithKarpenter", "1 while pods are left to a Karpenter NodePool."),
    "conflict": ("Conflict", "1 while another pool owns a machine of this pool."),
    "boots_failing": ("BootsFailing", "1 while wakes are limited, since the last boots brought no ready node."),
    "fruitless_wakes": (
        "FruitlessWakes",
        "1 while wakes for some namespaces are limited, since no pod ran after the last ones.",
    ),
}


class PowerMetrics(Collector):
    """Told anew for every scrape, so a pool that is gone leaves nothing behind. Energy goes on where the status has it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pools: list[tuple[str, PowerPoolStatus]] = []
        registry.register(self)

    def measure(self, world: World, decisions: Mapping[Ref, Decision]) -> None:
        """Take what is true of this world: the last decisions, and what is written where there is none."""
        self._pools = []
        for ref, resource in world.of_kind(PowerPool.kind.name):
            status = decisions[ref].status if ref in decisions else resource.status
            if isinstance(status, PowerPoolStatus) and not resource.problems:
                self._pools.append((ref.name, status))

    def collect(self) -> Iterator[Metric]:
        """Everything, for Prometheus."""
        yield self._machines()
        yield self._failures()
        yield self._unserved()
        yield self._energy("used", "Energy that the machines used, estimated from the configured wattage.")
        yield self._energy("saved", "Energy that sleeping machines would have used idle.")
        for name, (condition, help_) in _CONDITIONS.items():
            found = GaugeMetricFamily(f"headroom_power_{name}", help_, labels=["pool"])
            for pool, status in self._pools:
                holds = any(each.type == condition and each.status == "True" for each in status.conditions)
                found.add_metric([pool], float(holds))
            yield found

    def _machines(self) -> Metric:
        found = GaugeMetricFamily("headroom_power_machines", "Machines by state.", labels=["pool", "state"])
        for pool, status in self._pools:
            counts = Counter(each.state for each in status.machines)
            for state in STATES:
                found.add_metric([pool, state], counts[state])
        return found

    def _failures(self) -> Metric:
        found = GaugeMetricFamily("headroom_power_failures", "Consecutive failed commands.", labels=["pool"])
        for pool, status in self._pools:
            found.add_metric([pool], sum(each.failures for each in status.machines))
        return found

    def _unserved(self) -> Metric:
        found = GaugeMetricFamily(
            "headroom_power_unserved_pods", "Unserved pods, by reason.", labels=["pool", "reason"]
        )
        for pool, status in self._pools:
            counts: Counter[str] = Counter()
            for each in status.unserved:
                counts[each.reason] += each.pods
            for reason, count in sorted(counts.items()):
                found.add_metric([pool, reason], count)
        return found

    def _energy(self, which: str, help_: str) -> Metric:
        found = CounterMetricFamily(f"headroom_power_energy_{which}_kwh", help_, labels=["pool"])
        for pool, status in self._pools:
            amount = nano(getattr(status.energy, f"{which}_kwh")) if status.energy is not None else None
            if amount is not None and not isinstance(amount, InvalidQuantity):
                found.add_metric([pool], amount / NANO)
        return found

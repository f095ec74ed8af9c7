"""Metrics of bandwidth, as they stand at the moment they are asked for: sums over the fleet, never a series for a node or a pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headroom.api.bandwidth import Bandwidth, BandwidthStatus
from headroom.model import conditions
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

_PODS: Final = {
    "reserved": "pods",
    "edited": "edited_pods",
    "malformed": "malformed_pods",
    "host_network": "host_network_pods",
}
_WAYS: Final = (("up", "ul_mbps"), ("down", "dl_mbps"))
_BITS: Final = 1_000_000


class BandwidthMetrics(Collector):
    """Told anew for every scrape. What is reserved and what there is are sums over all nodes; the worst share says how full one can be."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._clear()
        registry.register(self)

    def _clear(self) -> None:
        self._nodes, self._overcommitted, self._not_ready = 0, 0, 0
        self._pods: Counter[str] = Counter()
        self._used: Counter[tuple[str, str]] = Counter()
        self._size: Counter[tuple[str, str]] = Counter()
        self._worst: dict[tuple[str, str], float] = {}

    def measure(self, world: World, decisions: Mapping[Ref, Decision]) -> None:
        """Take what is true of this world: the last decisions, and what is written where there is none."""
        self._clear()
        for ref, resource in world.of_kind(Bandwidth.kind.name):
            status = decisions[ref].status if ref in decisions else resource.status
            if isinstance(status, BandwidthStatus):
                self._take(status)

    def _take(self, status: BandwidthStatus) -> None:
        self._nodes += 1
        self._overcommitted += conditions.holds(status.conditions, "Overcommitted")
        self._not_ready += not conditions.holds(status.conditions, "Ready")
        for kind, field in _PODS.items():
            self._pods[kind] += getattr(status, field)
        if status.used is None or status.capacity is None:
            return
        for link in ("network", "local"):
            for way, field in _WAYS:
                used, size = getattr(getattr(status.used, link), field), getattr(getattr(status.capacity, link), field)
                self._used[link, way] += used
                self._size[link, way] += size
                if size:
                    self._worst[link, way] = max(used / size, self._worst.get((link, way), 0.0))

    def collect(self) -> Iterator[Metric]:
        """Everything, for Prometheus."""
        nodes = GaugeMetricFamily("headroom_bandwidth_nodes", "Nodes whose links are accounted.")
        nodes.add_metric([], self._nodes)
        yield nodes
        over = GaugeMetricFamily("headroom_bandwidth_overcommitted_nodes", "Nodes with an overcommitted link.")
        over.add_metric([], self._overcommitted)
        yield over
        sick = GaugeMetricFamily("headroom_bandwidth_not_ready_nodes", "Nodes whose Bandwidth is not Ready.")
        sick.add_metric([], self._not_ready)
        yield sick
        pods = GaugeMetricFamily(
            "headroom_bandwidth_pods",
            "Pods by kind: with a reservation, edited after they were bound, unreadable, or on the host network.",
            labels=["kind"],
        )
        for kind in _PODS:
            pods.add_metric([kind], self._pods[kind])
        yield pods
        yield self._links(
            "reserved_bits_per_second", "Reserved on all nodes together.", {k: v * _BITS for k, v in self._used.items()}
        )
        yield self._links(
            "capacity_bits_per_second", "Capacity of all nodes together.", {k: v * _BITS for k, v in self._size.items()}
        )
        yield self._links("worst_ratio", "The share that is reserved on the fullest node, 1 being full.", self._worst)

    def _links(self, name: str, help_: str, found: Mapping[tuple[str, str], float]) -> Metric:
        made = GaugeMetricFamily(f"headroom_bandwidth_{name}", help_, labels=["link", "direction"])
        for (link, way), value in sorted(found.items()):
            made.add_metric([link, way], value)
        return made

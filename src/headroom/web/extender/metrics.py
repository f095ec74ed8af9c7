"""Numbers of the extender; none carries the name of a pod or a node."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headroom.core.bandwidth import FilterAnswer, NodeRefusal, Placement

_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


class ExtenderMetrics:
    """All metrics of one extender, in a registry of its own."""

    def __init__(self, placement: Placement, leads: Callable[[], bool]) -> None:
        self.registry = registry = CollectorRegistry()
        self._placement, self._leads = placement, leads
        self.asked = Counter("headroom_extender_requests", "Questions of kube-scheduler.", ["verb"], registry=registry)
        self.errors = Counter(
            "headroom_extender_errors", "Questions that were not answered.", ["reason"], registry=registry
        )
        self.seconds = Histogram(
            "headroom_extender_seconds",
            "Time from the whole question to its answer.",
            ["verb"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.pods = Counter(
            "headroom_extender_pods", "Filter answers: with a node, or without one.", ["result"], registry=registry
        )
        self.refusals = Counter(
            "headroom_extender_refusals",
            "Nodes refused in answers that had no node left.",
            ["reason"],
            registry=registry,
        )
        self.touched = Counter(
            "headroom_extender_touched", "Refused pods that were told to kube-scheduler again.", registry=registry
        )
        self._placed, self._refused = (self.pods.labels(result) for result in ("Placed", "Refused"))
        """Kept: to look one up takes longer than to count."""
        self._holds = Gauge("headroom_extender_holds", "Pods answered and not yet bound.", registry=registry)
        self._waiting = Gauge("headroom_extender_pending_pods", "Bandwidth pods without a node.", registry=registry)
        self._active = Gauge("headroom_extender_active", "1 in the process that holds the lease.", registry=registry)
        self._over = Gauge(
            "headroom_extender_oversubscribed_nodes", "Nodes with a link given out twice.", registry=registry
        )
        self._binds = Gauge(
            "headroom_extender_binds",
            "Binds seen: as answered, after the hold had ended (late), on another node (elsewhere), without a question (unasked).",
            ["kind"],
            registry=registry,
        )

    def answered(self, verdict: FilterAnswer) -> None:
        """Count one answer to filter."""
        if verdict.passed:
            self._placed.inc()
        else:
            self._refused.inc()
            for code, times in Counted(verdict.codes.tolist()).items():
                self.refusals.labels(NodeRefusal(code).name.title().replace("_", "")).inc(times)

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        self._holds.set(self._placement.holds)
        self._waiting.set(len(self._placement.waiting))
        self._over.set(len(self._placement.links.oversubscribed()))
        self._active.set(self._leads())
        for kind, times in msgspec.structs.asdict(self._placement.counts).items():
            self._binds.labels(kind).set(times)
        return generate_latest(self.registry)

"""The operator's own metrics. Names end in their unit or in _total; labels never carry a pod or a node name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headroom.api.kinds import AnyResource
from headroom.api.releases import ReleaseRequest
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World


class Measure(Protocol):
    """Numbers of one capability, worked out anew for every scrape."""

    def measure(self, world: World, decisions: Mapping[Ref, Decision]) -> None:
        """Take what is true of this world, by the last decisions."""
        ...


_TICK_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0)


class Metrics:
    """All metrics of one operator, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.plan_passes = Counter(
            "headroom_plan_passes", "How often a plan decided.", ["plan", "scope"], registry=registry
        )
        self.plan_seconds = Histogram(
            "headroom_plan_seconds", "Time a plan took.", ["plan"], buckets=_TICK_BUCKETS, registry=registry
        )
        self.plan_errors = Counter("headroom_plan_errors", "Times a plan raised: bugs.", ["plan"], registry=registry)
        self.plan_differences = Counter(
            "headroom_plan_differences",
            "Decisions that a full pass made differently from the passes over changes: bugs.",
            ["plan"],
            registry=registry,
        )
        self.actions = Counter("headroom_actions", "Actions by outcome.", ["action", "outcome"], registry=registry)
        self.enforcement = Counter(
            "headroom_enforcement_actions",
            "What was done for a budget: holds, releases, pauses, suspensions, evictions.",
            ["namespace", "name", "action"],
            registry=registry,
        )
        self.status_writes = Counter(
            "headroom_status_writes", "Status writes by urgency and outcome.", ["urgency", "outcome"], registry=registry
        )
        self.leading = Gauge("headroom_leading", "1 while this process may act.", registry=registry)
        self.stopped = Gauge("headroom_stopped", "1 while the cluster-wide stop is on.", registry=registry)
        self.complete = Gauge(
            "headroom_view_complete", "1 while the view of the cluster is complete.", registry=registry
        )
        self.watch_up = Gauge(
            "headroom_watch_up",
            "1 while a kind is seen: listed to its end, with an open watch. Kinds that the cluster lacks have no series.",
            ["kind"],
            registry=registry,
        )
        self.view_age = Gauge(
            "headroom_view_age_seconds", "Time since the slowest watch last reported.", registry=registry
        )
        self.moment = Gauge(
            "headroom_view_timestamp_seconds", "The moment that these numbers are true for.", registry=registry
        )
        self.pods = Gauge("headroom_pods", "Pods in view.", registry=registry)
        self.nodes = Gauge("headroom_nodes", "Nodes in view.", registry=registry)
        self.resources = Gauge("headroom_resources", "Resources in view.", ["kind", "ready"], registry=registry)
        self.measures: list[Measure] = []

    def add(self, measures: Iterable[Callable[[CollectorRegistry], Measure]]) -> None:
        """Have the numbers of capabilities too."""
        self.measures += (each(self.registry) for each in measures)

    def enforced(self, reason: str, resource: AnyResource) -> None:
        """Count what was really done for a budget."""
        # Requests come and go, so they are counted together.
        name = "requests" if resource.kind == ReleaseRequest.kind.name else resource.name
        self.enforcement.labels(resource.namespace, name, reason).inc()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)

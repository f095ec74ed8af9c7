"""Metrics of spot pools, as they stand at the moment they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.api.spot_pools import Spotpool, SpotpoolSpec
from headroom.api.spot_pools_status import SLOT_STATES, SpotpoolStatus
from headroom.model import conditions, times
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

_POOL: Final = ["namespace", "pool"]


class _Seen(NamedTuple):
    """A pool as it was when it was last looked at."""

    labels: list[str]
    spec: SpotpoolSpec
    status: SpotpoolStatus
    listing_age: float | None
    """Seconds since its machines were last listed in full; None if they never were."""
    breaker_open: bool


def _price(pool: _Seen) -> float | None:
    amounts = [nano(each.price_per_hour) for each in pool.status.slots if each.instance_id and each.price_per_hour]
    found = [each for each in amounts if not isinstance(each, InvalidQuantity)]
    return sum(found) / NANO if found else None


_GAUGES: Final[tuple[tuple[str, str, Callable[[_Seen], float | None]], ...]] = (
    ("size", "Machines that exist.", lambda pool: pool.status.size),
    ("minimum", "The fewest machines that the pool has.", lambda pool: pool.spec.minimum),
    ("maximum", "The most machines that the pool has.", lambda pool: pool.spec.maximum),
    (
        "sold_out",
        "Types and zones that are not tried for now, since a launch failed.",
        lambda pool: len(pool.status.sold_out),
    ),
    (
        "breaker_open",
        "1 while no machine is launched, since the last ones never joined.",
        lambda pool: float(pool.breaker_open),
    ),
    (
        "braked",
        "1 while no machine is launched or ended, since too many are missing from the cloud's list at once.",
        lambda pool: float(conditions.holds(pool.status.conditions, "Braked")),
    ),
    (
        "listing_age_seconds",
        "Time since the machines were last listed in full.",
        lambda pool: pool.listing_age,
    ),
    ("orphans", "Machines of this cluster that no Spotpool owns.", lambda pool: pool.status.orphan_count or 0),
    ("price_dollars_per_hour", "What its machines cost in an hour, where known.", _price),
)


class SpotMetrics(Collector):
    """Told anew for every scrape, so a pool that is gone leaves nothing behind. Only launches are counted, since the process began."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pools: list[_Seen] = []
        self._launches: Counter[tuple[str, str, str]] = Counter()
        self._counted: set[tuple[str, int]] = set()
        registry.register(self)

    def measure(self, world: World, decisions: Mapping[Ref, Decision]) -> None:
        """Take what is true of this world: the last decisions, and what is written where there is none."""
        self._pools = []
        for ref, resource in world.of_kind(Spotpool.kind.name):
            status = decisions[ref].status if ref in decisions else resource.status
            if isinstance(status, SpotpoolStatus) and isinstance(resource.spec, SpotpoolSpec):
                listing = world.listings.get(f"{ref.namespace}/{ref.name}")
                age = (world.now - listing.at) / times.SECOND if listing is not None and listing.at else None
                until = times.moment(status.breaker.until) if status.breaker is not None else None
                is_open = until is not None and until > world.now
                self._pools.append(_Seen([ref.namespace, ref.name], resource.spec, status, age, is_open))
        self._count(world)

    def _count(self, world: World) -> None:
        calls = {(each.token, each.at): each for each in world.launches.values()}
        for key in calls.keys() - self._counted:
            namespace, _, name = calls[key].pool.partition("/")
            self._launches[namespace, name, calls[key].outcome] += 1
        self._counted = set(calls)  # what is forgotten there does not come back

    def collect(self) -> Iterator[Metric]:
        """Everything, for Prometheus."""
        yield self._machines()
        for name, help_, value in _GAUGES:
            found = GaugeMetricFamily(f"headroom_spot_{name}", help_, labels=_POOL)
            for pool in self._pools:
                amount = value(pool)
                if amount is not None:
                    found.add_metric(pool.labels, amount)
            yield found
        yield self._unserved()
        launches = CounterMetricFamily(
            "headroom_spot_launches", "Launch calls of this process.", labels=[*_POOL, "outcome"]
        )
        for labels, count in sorted(self._launches.items()):
            launches.add_metric(labels, count)
        yield launches

    def _machines(self) -> Metric:
        found = GaugeMetricFamily(
            "headroom_spot_machines", "Slots with a machine or a launch, by state.", labels=[*_POOL, "state"]
        )
        for pool in self._pools:
            counts = Counter(each.state for each in pool.status.slots)
            for state in SLOT_STATES:
                found.add_metric([*pool.labels, state], counts[state])
        return found

    def _unserved(self) -> Metric:
        found = GaugeMetricFamily(
            "headroom_spot_unserved_pods",
            "Unserved pods, by reason.",
            labels=[*_POOL, "reason"],
        )
        for pool in self._pools:
            counts: Counter[str] = Counter()
            for each in pool.status.unserved:
                counts[each.reason] += each.pods
            for reason, count in sorted(counts.items()):
                found.add_metric([*pool.labels, reason], count)
        return found

"""Metrics of cheapest capacity, as they stand at the moment they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headroom.api.offers import LeftoverNodePool
from headroom.api.offers_status import LeftoverNodePoolStatus, Rung
from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.model import times
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

STATES: Final = ("Active", "Resting", "Leaving")
PROBLEMS: Final = ("Credentials", "Types", "Prices", "Scores")


class _Seen(NamedTuple):
    """One of them as it was when it was last looked at."""

    name: str
    status: LeftoverNodePoolStatus
    feed_age: float | None
    """Seconds since all prices were last read to the end; None if they never were."""
    feed_problem: str

    @property
    def top(self) -> Rung | None:
        """The rung that Karpenter tries first."""
        return next((each for each in self.status.rungs if each.state == "Active"), None)


def _number(text: str) -> float | None:
    amount = nano(text) if text else None
    return None if amount is None or isinstance(amount, InvalidQuantity) else amount / NANO


_GAUGES: Final[tuple[tuple[str, str, Callable[[_Seen], float | None]], ...]] = (
    (
        "price_dollars_per_hour",
        "Price of the machine of the first offer.",
        lambda pool: _number(pool.status.last_price_usd),
    ),
    (
        "cost_dollars_per_gpu_hour",
        "Expected cost of a useful GPU-hour on the first rung.",
        lambda pool: _number(pool.top.cost_per_gpu_hour) if pool.top else None,
    ),
    ("score", "Placement score of the first choice, from 1 to 10.", lambda pool: pool.status.last_score),
    (
        "below_score",
        "1 while no offer has minSpotScore.",
        lambda pool: float(bool(pool.status.below_score)),
    ),
    ("ranked", "Offers that were ranked.", lambda pool: pool.status.offers),
    ("nodes", "Nodes of all rungs.", lambda pool: sum(each.nodes or 0 for each in pool.status.rungs)),
    (
        "saved_dollars",
        "Dollars saved so far compared to on-demand machines of the same types.",
        lambda pool: _number(pool.status.savings.usd) if pool.status.savings else None,
    ),
    (
        "saved_dollars_per_hour",
        "Dollars an hour that the current nodes save compared to on-demand machines of the same types.",
        lambda pool: _number(pool.status.savings.usd_per_hour) if pool.status.savings else None,
    ),
    ("feed_age_seconds", "Time since all prices were last read.", lambda pool: pool.feed_age),
)


class OffersMetrics(Collector):
    """Told anew for every scrape, so one that is gone leaves nothing behind. Switches go on where the status has them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pools: list[_Seen] = []
        registry.register(self)

    def measure(self, world: World, decisions: Mapping[Ref, Decision]) -> None:
        """Take what is true of this world: the last decisions, and what is written where there is none."""
        self._pools = []
        for ref, resource in world.of_kind(LeftoverNodePool.kind.name):
            status = decisions[ref].status if ref in decisions else resource.status
            if isinstance(status, LeftoverNodePoolStatus) and not resource.problems:
                feed = world.offer_feeds.get(ref.name)
                age = (world.now - feed.at) / times.SECOND if feed is not None and feed.at else None
                self._pools.append(_Seen(ref.name, status, age, feed.problem if feed else ""))

    def collect(self) -> Iterator[Metric]:
        """Everything, for Prometheus."""
        yield self._rungs()
        for name, help_, value in _GAUGES:
            found = GaugeMetricFamily(f"headroom_offers_{name}", help_, labels=["pool"])
            for pool in self._pools:
                amount = value(pool)
                if amount is not None:
                    found.add_metric([pool.name], amount)
            yield found
        yield self._passed_over()
        yield self._feed_problems()
        switches = CounterMetricFamily("headroom_offers_switches", "Changes of the first offer.", labels=["pool"])
        for pool in self._pools:
            switches.add_metric([pool.name], pool.status.switches or 0)
        yield switches

    def _rungs(self) -> Metric:
        found = GaugeMetricFamily(
            "headroom_offers_rungs", "NodePools of the ladder by state.", labels=["pool", "state"]
        )
        for pool in self._pools:
            counts = Counter(each.state for each in pool.status.rungs)
            for state in STATES:
                found.add_metric([pool.name, state], counts[state])
        return found

    def _passed_over(self) -> Metric:
        found = GaugeMetricFamily(
            "headroom_offers_passed_over", "Offers that were not ranked, by reason.", labels=["pool", "reason"]
        )
        for pool in self._pools:
            for reason, count in sorted(pool.status.passed_over.items()):
                found.add_metric([pool.name, reason], count)
        return found

    def _feed_problems(self) -> Metric:
        found = GaugeMetricFamily(
            "headroom_offers_feed_failing",
            "1 for data of the cloud that cannot be read now.",
            labels=["pool", "problem"],
        )
        for pool in self._pools:
            for problem in PROBLEMS:
                found.add_metric([pool.name, problem], float(pool.feed_problem == problem))
        return found

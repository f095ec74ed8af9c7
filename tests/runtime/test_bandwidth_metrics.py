"""Metrics of bandwidth: sums over the fleet, the newest decision counts, and no node or pod is a label."""

from __future__ import annotations

from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.runtime.bandwidth_metrics import BandwidthMetrics
from headroom.runtime.metrics import Metrics
from tests.builders import a_resource, a_used_world
from tests.web import links


def scraped(world: World, decisions: dict[Ref, Decision] | None = None) -> dict[str, float]:
    """The lines of bandwidth's metrics."""
    metrics = Metrics()
    measure = BandwidthMetrics(metrics.registry)
    measure.measure(world, decisions or {})
    lines = [each for each in metrics.render().decode().splitlines() if each.startswith("headroom_bandwidth")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_everything_is_told_of_the_fleet_and_nothing_of_a_node() -> None:
    found = scraped(a_used_world(*(each.resource for each in links.a_bit_of_everything())))
    assert found == {
        "headroom_bandwidth_nodes": 4,
        "headroom_bandwidth_overcommitted_nodes": 1,
        "headroom_bandwidth_not_ready_nodes": 1,
        'headroom_bandwidth_pods{kind="reserved"}': 6,
        'headroom_bandwidth_pods{kind="edited"}': 1,
        'headroom_bandwidth_pods{kind="malformed"}': 1,
        'headroom_bandwidth_pods{kind="host_network"}': 2,
        'headroom_bandwidth_reserved_bits_per_second{direction="down",link="local"}': 520e6,
        'headroom_bandwidth_reserved_bits_per_second{direction="up",link="local"}': 1620e6,
        'headroom_bandwidth_reserved_bits_per_second{direction="down",link="network"}': 520e6,
        'headroom_bandwidth_reserved_bits_per_second{direction="up",link="network"}': 1420e6,
        'headroom_bandwidth_capacity_bits_per_second{direction="down",link="local"}': 80e9,
        'headroom_bandwidth_capacity_bits_per_second{direction="up",link="local"}': 80e9,
        'headroom_bandwidth_capacity_bits_per_second{direction="down",link="network"}': 4e9,
        'headroom_bandwidth_capacity_bits_per_second{direction="up",link="network"}': 4e9,
        'headroom_bandwidth_worst_ratio{direction="down",link="local"}': 420 / 20_000,
        'headroom_bandwidth_worst_ratio{direction="up",link="local"}': 1120 / 20_000,
        'headroom_bandwidth_worst_ratio{direction="down",link="network"}': 0.42,
        'headroom_bandwidth_worst_ratio{direction="up",link="network"}': 1.12,
    }


def test_the_last_decision_counts_before_what_is_written() -> None:
    left = links.a_node_with("n", links.holds("a/b", 10))
    bare = a_used_world(a_resource("Bandwidth", "n", capacity={}))
    assert scraped(bare)['headroom_bandwidth_pods{kind="reserved"}'] == 0
    assert scraped(bare, {left.decision.resource: left.decision})['headroom_bandwidth_pods{kind="reserved"}'] == 1


def test_a_node_that_is_gone_leaves_nothing_behind() -> None:
    metrics = Metrics()
    measure = BandwidthMetrics(metrics.registry)
    measure.measure(a_used_world(links.a_node_with("n", links.holds("a/b", 10)).resource), {})
    measure.measure(a_used_world(), {})
    assert "headroom_bandwidth_nodes 0.0" in metrics.render().decode()
    assert "worst_ratio{" not in metrics.render().decode()

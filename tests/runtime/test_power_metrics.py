"""Metrics of power pools: the newest decision counts, nothing stays of a pool that is gone, and odd numbers spoil nothing."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec import structs

from headroom.api.power_status import Energy
from headroom.api.resources import Condition
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.runtime.metrics import Metrics
from headroom.runtime.power_metrics import PowerMetrics
from tests.builders import a_resource, a_used_world
from tests.web import pools


def scraped(world: World, decisions: dict[Ref, Decision] | None = None) -> list[str]:
    """The lines of power's metrics."""
    metrics = Metrics()
    measure = PowerMetrics(metrics.registry)
    measure.measure(world, decisions or {})
    return [line for line in metrics.render().decode().splitlines() if line.startswith("headroom_power")]


def test_everything_is_told_of_every_pool() -> None:
    left = pools.troubled()
    assert scraped(a_used_world(left.resource)) == [
        'headroom_power_machines{pool="basement",state="Off"} 1.0',
        'headroom_power_machines{pool="basement",state="Booting"} 1.0',
        'headroom_power_machines{pool="basement",state="On"} 2.0',
        'headroom_power_machines{pool="basement",state="Draining"} 1.0',
        'headroom_power_machines{pool="basement",state="Sleeping"} 1.0',
        'headroom_power_machines{pool="basement",state="Unknown"} 1.0',
        'headroom_power_machines{pool="basement",state="Failed"} 1.0',
        'headroom_power_failures{pool="basement"} 2.0',
        'headroom_power_unserved_pods{pool="basement",reason="NoMachineFits"} 3.0',
        'headroom_power_unserved_pods{pool="basement",reason="Unmodelled"} 1.0',
        'headroom_power_energy_used_kwh_total{pool="basement"} 12.345678',
        'headroom_power_energy_saved_kwh_total{pool="basement"} 34.5',
        'headroom_power_braked{pool="basement"} 1.0',
        'headroom_power_shared_with_karpenter{pool="basement"} 1.0',
        'headroom_power_conflict{pool="basement"} 0.0',
        'headroom_power_boots_failing{pool="basement"} 0.0',
        'headroom_power_fruitless_wakes{pool="basement"} 0.0',
    ]


@pytest.mark.parametrize("condition", ["BootsFailing", "FruitlessWakes"])
@pytest.mark.parametrize("status", ["True", "False"])
def test_wakes_that_are_held_back_show(condition: str, status: Literal["True", "False"]) -> None:
    left = pools.a_pool()
    told = Condition(type=condition, status=status, reason="x", message="", last_transition_time="2026-11-15T12:00:00Z")
    held = structs.replace(left.resource, status=structs.replace(left.resource.status, conditions=(told,)))
    ones = {
        line.split("{")[0] for line in scraped(a_used_world(held)) if line.endswith(" 1.0") and "machines" not in line
    }
    metric = {"BootsFailing": "headroom_power_boots_failing", "FruitlessWakes": "headroom_power_fruitless_wakes"}[
        condition
    ]
    assert (metric in ones) is (status == "True")


def test_the_last_decision_counts_before_what_is_written() -> None:
    written, decided = pools.a_pool(states={"a": "Off"}), pools.a_pool(states={"a": "Booting"})
    found = scraped(a_used_world(written.resource), {decided.decision.resource: decided.decision})
    assert 'headroom_power_machines{pool="basement",state="Booting"} 1.0' in found


def test_a_pool_that_is_gone_leaves_nothing_behind() -> None:
    metrics = Metrics()
    measure = PowerMetrics(metrics.registry)
    measure.measure(a_used_world(pools.a_pool().resource), {})
    measure.measure(a_used_world(), {})
    assert b"headroom_power_machines{" not in metrics.render()


def test_what_is_not_known_is_not_told() -> None:
    left = pools.a_pool()
    for energy in (None, Energy(used_kwh="much", saved_kwh="1e309")):
        odd = structs.replace(left.resource, status=structs.replace(left.resource.status, energy=energy))
        assert not [line for line in scraped(a_used_world(odd)) if "energy" in line]
    assert scraped(a_used_world(a_resource("PowerPool", "basement", machines=[]))) == []

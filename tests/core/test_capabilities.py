"""One record for each capability: every kind has one, plans stand in their order, and a cordon is judged by whose it is."""

from __future__ import annotations

import subprocess
import sys

from msgspec import structs

from headroom.api.kinds import KINDS
from headroom.core import CAPABILITIES, CAPACITY, PLANS, owns_node
from tests.builders import a_node, a_resource, a_world


def test_every_kind_is_decided_by_one_capability() -> None:
    kinds = [kind for each in CAPABILITIES for kind in each.kinds]
    assert sorted(kinds) == sorted(KINDS)
    assert sorted(kind for plan in PLANS for kind in plan.kinds) == sorted(KINDS)


def test_plans_stand_in_the_order_of_a_tick() -> None:
    assert [each.name for each in PLANS] == ["budgets", "releases", "offers", "capacity", "bandwidth"]
    assert PLANS.count(CAPACITY) == 1


def test_a_pool_owns_the_nodes_of_its_machines() -> None:
    machine = {"name": "w1", "gpuCount": 4, "scaleUpEndpoint": "https://a/up", "scaleDownEndpoint": "https://a/down"}
    pool, world = a_resource("PowerPool", machines=[machine]), a_world()
    assert owns_node(world, pool, a_node("w1"))
    assert not owns_node(world, pool, a_node("w2"))
    unread = structs.replace(pool, spec=None)
    assert owns_node(world, unread, a_node("w2")), "of one that cannot be read nobody knows"
    assert not owns_node(world, a_resource("Bandwidth"), a_node("w1")), "none of them cordons"


def test_what_decides_on_pools_is_loaded_with_the_first_pool() -> None:
    """It takes memory for good, in clusters that have none too. A process of its own, since this one has loaded everything."""
    code = """
import sys
from headroom.core import PLANS
from headroom.core.ticks import whole_tick
from tests.builders import a_resource, a_world

def loaded():
    return {name for name in ("capacity", "demand", "power", "spot_pools") if f"headroom.core.{name}" in sys.modules}

whole_tick(a_world(), PLANS)
assert not loaded(), loaded()
machine = {"name": "w1", "gpuCount": 4, "scaleUpEndpoint": "https://a/up", "scaleDownEndpoint": "https://a/down"}
whole_tick(a_world(a_resource("PowerPool", machines=[machine])), PLANS)
assert {"capacity", "power"} <= loaded(), loaded()
"""
    subprocess.run([sys.executable, "-c", code], check=True)

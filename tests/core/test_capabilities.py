"""One record for each capability: every kind has one, plans stand in their order, and a cordon is judged by whose it is."""

from __future__ import annotations

from msgspec import structs

from headroom.api.kinds import KINDS
from headroom.core import CAPABILITIES, CAPACITY, CORDON, PLANS
from tests.builders import a_resource


def test_every_kind_is_decided_by_one_capability() -> None:
    kinds = [kind for each in CAPABILITIES for kind in each.kinds]
    assert sorted(kinds) == sorted(KINDS)
    assert sorted(kind for plan in PLANS for kind in plan.kinds) == sorted(KINDS)


def test_plans_stand_in_the_order_of_a_tick() -> None:
    assert [each.name for each in PLANS] == ["budgets", "releases", "offers", "capacity", "bandwidth"]
    assert PLANS.count(CAPACITY) == 1


def test_a_pool_owns_the_nodes_of_its_machines() -> None:
    machine = {"name": "w1", "gpuCount": 4, "scaleUpEndpoint": "https://a/up", "scaleDownEndpoint": "https://a/down"}
    pool = a_resource("PowerPool", machines=[machine])
    owns = CORDON["PowerPool"]
    assert owns(pool, "w1")
    assert not owns(pool, "w2")
    assert owns(structs.replace(pool, spec=None), "w2"), "of one that cannot be read nobody knows"
    assert list(CORDON) == ["PowerPool", "Spotpool"]

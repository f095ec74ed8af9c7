"""What is written onto a tenant's pods about a budget: the numbers of their own budget, and none of a budget that they share."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.core.budgets import hold_of
from tests.builders import a_used_world
from tests.core.stage import Stage, a_budget
from tests.core.test_holding import DONE, KEY


def because(**more: Any) -> str:
    stage = Stage(a_budget(hours="18", enforce="Hold", **more), pods=[DONE])
    stage.look()
    [budget] = stage.budgets.values()
    world = structs.replace(a_used_world(budget), own_namespace="team-a")
    return hold_of(world, structs.replace(budget, status=stage.status())).because


def test_the_pods_of_one_tenant_say_how_much_its_budget_used() -> None:
    assert "18" in because()


@pytest.mark.parametrize(
    "shared", [{"namespaceSelector": {"matchLabels": {"tier": "lab"}}}, {"homeCluster": "another"}], ids=str
)
def test_the_pods_of_several_tenants_say_no_number(shared: dict[str, Any]) -> None:
    said = because(**shared)
    assert said
    assert not any(letter.isdigit() for letter in said), (KEY, said)

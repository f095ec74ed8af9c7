"""What is written onto a tenant's pods about a budget: the numbers of their own budget, and none of a budget that they share."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.model.actions import ApplyBudgetHold
from headroom.model.facts import Namespace
from tests.core.stage import Stage, a_budget
from tests.core.test_holding import DONE, KEY

LABELLED = {"team-a": Namespace(name="team-a", labels=(("tier", "lab"),))}


def because(**more: Any) -> str:
    """What a hold says in the very tick in which the budget turns over quota."""
    stage = Stage(
        a_budget(hours="18", enforce="Hold", **more), pods=[DONE], own_namespace="team-a", namespaces=LABELLED
    )
    [said] = [each.because for each in stage.look() if isinstance(each, ApplyBudgetHold)]
    return said


def test_the_pods_of_one_tenant_say_how_much_its_budget_used() -> None:
    assert "18" in because()


@pytest.mark.parametrize(
    "shared", [{"namespaceSelector": {"matchLabels": {"tier": "lab"}}}, {"homeCluster": "another"}], ids=str
)
def test_the_pods_of_several_tenants_say_no_number(shared: dict[str, Any]) -> None:
    said = because(**shared)
    assert said
    assert not any(letter.isdigit() for letter in said), (KEY, said)

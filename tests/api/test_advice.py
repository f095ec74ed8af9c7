"""What is allowed and hardly meant: named, and nothing else is."""

from typing import Any

import pytest

from headroom.api.advice import advice
from tests.builders import a_resource
from tests.core.stage import a_budget


def said(*steps: str, **more: Any) -> list[str]:
    return [f"{each.field} {each.message}" for each in advice(a_budget(enforce=list(steps), **{"grace": 60} | more))]


@pytest.mark.parametrize(
    "steps",
    [
        ("80% AlertOnly", "100% Hold", "120% Evict"),
        ("80% AlertOnly", "90% AlertOnly", "100% AlertOnly"),
        ("100% Hold",),
        ("90% Suspend", "100% Evict"),
        ("80% Pause", "100% Suspend"),
    ],
)
def test_a_sound_ladder_needs_no_advice(steps: tuple[str, ...]) -> None:
    assert said(*steps) == []


def test_pods_that_are_evicted_and_not_held_start_again() -> None:
    [only] = said("80% AlertOnly", "100% Evict")
    assert only.startswith("spec.enforcement.steps[1] Evict has no Hold step below it")
    [above] = said("100% Evict", "120% Hold")
    assert above.startswith("spec.enforcement.steps[0] Evict has no Hold step below it")
    [alone] = advice(a_budget(enforce="Evict", grace=60))
    assert alone.field == "spec.enforcement.action"


def test_stopping_without_grace() -> None:
    [found] = said("90% Hold", "100% Evict", grace=0)
    assert found.startswith("spec.enforcement.gracePeriodSeconds is 0, so pods are stopped the moment")
    assert said("100% Hold", grace=0) == []


def test_a_warning_that_comes_too_late() -> None:
    [found] = said("90% Hold", "100% Evict", "120% AlertOnly")
    assert found == (
        "spec.enforcement.steps[2] AlertOnly above a step that stops pods warns nobody in time; put it below"
    )


def test_the_same_step_twice() -> None:
    [found] = said("90% Hold", "100% Hold")
    assert found.startswith("spec.enforcement.steps[1] Hold stands at a lower step already")


def test_a_namespace_selector_counts_in_one_place_only() -> None:
    selector: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"org": "x"}}}
    [found] = advice(a_budget(enforce="AlertOnly", **selector))
    assert found.field == "spec.namespaceSelector"


def test_other_kinds_have_none() -> None:
    assert advice(a_resource("Spotpool")) == []

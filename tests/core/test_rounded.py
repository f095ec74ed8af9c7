"""A budget's numbers stand in its status twice: exact for machines, and rounded for kubectl's columns."""

from fractions import Fraction

import pytest
from msgspec import structs

from headroom.model.facts import Shape
from headroom.model.times import HOUR, SECOND
from tests.core.test_budgets import a_budget, run, status_of


@pytest.mark.parametrize(
    ("seconds", "gpus", "used", "left", "burn"),
    [
        (4, 1, "0.00", "100.0", "1"),
        (7200 + 17, 1, "2.00", "98.0", "1"),
        (12 * 3600 + 200, 1, "12.1", "87.9", "1"),
        (90 * 3600, 1, "90.0", "10.0", "1"),
        (9 * 3600, 12, "108.0", "0.00", "12"),
    ],
)
def test_the_same_numbers_stand_there_rounded_for_people(
    seconds: int, gpus: int, used: str, left: str, burn: str
) -> None:
    status = status_of(run("p", seconds * SECOND, gpus=gpus), budget=a_budget(window=100))
    rounded = status.rounded
    assert (rounded.consumed_gpu_hours, rounded.remaining_gpu_hours, rounded.burn_rate_gpus) == (used, left, burn)
    assert Fraction(status.consumed_gpu_hours) == pytest.approx(Fraction(seconds * gpus, 3600), abs=1e-12)


def test_a_part_of_a_gpu_is_rounded_too() -> None:
    pod = structs.replace(run("p", HOUR), shape=Shape(requests=(("nvidia.com/gpu", 142_857),)))
    status = status_of(pod)
    assert (status.burn_rate_gpus, status.rounded.burn_rate_gpus) == ("0.142857", "0.14")

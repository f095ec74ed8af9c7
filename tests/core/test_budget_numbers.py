"""Amounts of budgets in sentences: rounded for people, and two that differ never read the same."""

import pytest

from headroom.core.budgets.numbers import beside, dollars

WHOLE = 3_600_000


@pytest.mark.parametrize(
    ("used", "of", "says"),
    [
        (239_963, 240_000, "239.96"),
        (239_999, 240_000, "239.99"),
        (240_000, 240_000, "240.0"),
        (240_001, 240_000, "240.001"),
        (240_030, 240_000, "240.03"),
        (120_100, 120_000, "120.1"),
        (0, 120_000, "0.00"),
    ],
)
def test_an_amount_never_reads_like_a_limit_that_it_is_not(used: int, of: int, says: str) -> None:
    assert beside(used * WHOLE, of * WHOLE, 1000 * WHOLE) == says


def test_dollars_beside_their_limit_have_cents() -> None:
    assert beside(522_050, 2_400_000, 1000, dollars) == "522.05"
    assert beside(2_399_998, 2_400_000, 1000, dollars) == "2399.99"

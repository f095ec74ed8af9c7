"""Quantities: exact for all that is well formed, a reason for all that is not, and never an exception or a long wait."""

import time
from decimal import ROUND_UP, Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.api.quantities import MAX_LENGTH, NANO, PATTERN, InvalidQuantity, nano

SCALES = (
    {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
    | {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)}
    | {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
)
EXACT = Context(prec=4000, Emax=10**6, Emin=-(10**6))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("8", 8 * NANO),
        (8, 8 * NANO),
        (-3, -3 * NANO),
        ("+5", 5 * NANO),
        ("-5", -5 * NANO),
        ("5.", 5 * NANO),
        (".5", NANO // 2),
        ("-.5", -NANO // 2),
        ("500m", NANO // 2),
        ("1.5k", 1500 * NANO),
        ("1Ki", 1024 * NANO),
        ("0.5Mi", 2**19 * NANO),
        ("1e3", 1000 * NANO),
        ("1E3", 1000 * NANO),
        ("1E", 10**18 * NANO),
        ("1e-3", NANO // 1000),
        ("1n", 1),
        ("0.1n", 1),
        ("-0.1n", -1),
        ("1.0000000001", NANO + 1),
        ("1e-999", 1),
        ("0e999", 0),
        ("0" * 63 + "1", NANO),
    ],
)
def test_what_is_well_formed_is_exact(text: str | int, expected: int) -> None:
    assert nano(text) == expected


@pytest.mark.parametrize("text", ["-5M", "-1", -7])
def test_a_negative_amount_is_a_number_and_the_caller_decides(text: str | int) -> None:
    amount = nano(text)
    assert isinstance(amount, int)
    assert amount < 0


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 ", " 1", "1\n", "\n1", "1\x00", "e3", ".", "-", "+", "--1", "+-1", "1.2.3", "1,5", "1_000"),
        *("NaN", "inf", "Infinity", "0x10", "1e", "1e+", "1e1.5", "1K", "1ki", "1mm", "1Kib", "1 Gi", "1ee3", "1e1000"),
        *("１", "٣", "1²", "½", "1e１", "−1", "1Ｋi", "1e1000000000000"),  # digits and signs that are not ASCII
    ],
)
def test_what_is_malformed_gets_a_reason(text: str) -> None:
    assert nano(text) == InvalidQuantity("must be a quantity such as 8, 500m or 1.5k")


@pytest.mark.parametrize(
    "text", ["1e309", "1e999", "1e19", "2E", "1Ei", "9" * MAX_LENGTH, "-1e309", 10**18 + 1, -(10**400)]
)
def test_what_is_too_large_gets_a_reason(text: str | int) -> None:
    assert nano(text) == InvalidQuantity(f"must be at most {10**18}")


@pytest.mark.parametrize("value", [True, False, None, 1.5, 24.0, float("nan"), b"1", [], {}])
def test_what_is_neither_text_nor_a_whole_number_gets_a_reason(value: Any) -> None:
    assert isinstance(nano(value), InvalidQuantity)


def test_the_limit_is_inclusive_and_looks_at_the_rounded_amount() -> None:
    assert nano("100", largest=100) == 100 * NANO
    assert nano(-100, largest=100) == -100 * NANO
    assert isinstance(nano("100.0000000001", largest=100), InvalidQuantity)
    assert isinstance(nano("100.000000001", largest=100), InvalidQuantity)


@pytest.mark.parametrize(
    "text", ["9" * 2**20, "1" + "0" * 2**20 + "m", "." * 2**20, "１" * 2**20, "1e" + "9" * 2**20], ids=range(5)
)
def test_a_megabyte_of_text_is_refused_at_once(text: str) -> None:
    before = time.thread_time()
    assert nano(text) == InvalidQuantity(f"must be at most {MAX_LENGTH} characters long")
    # Of the CPU, whatever else runs: to read it all would take several seconds.
    assert time.thread_time() - before < 1


@given(st.text() | st.from_regex(PATTERN[:-1] + r"\Z") | st.integers() | st.text(alphabet="+-.0123456789numkKMGTPEei"))
def test_nothing_raises(text: str | int) -> None:
    amount = nano(text)
    assert isinstance(amount, InvalidQuantity) or abs(amount) <= 10**18 * NANO


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[str, Decimal]:
    """A quantity as text, and what it is worth by decimal arithmetic."""
    digits = st.text(alphabet="0123456789", max_size=20)
    sign, whole, fraction = draw(st.sampled_from(["", "+", "-"])), draw(digits), draw(digits)
    if not whole and not fraction:
        whole = "0"
    mantissa = (
        whole + draw(st.sampled_from([".", ""]) if whole else st.just(".")) if not fraction else f"{whole}.{fraction}"
    )
    if draw(st.booleans()):
        exponent = draw(st.integers(min_value=-999, max_value=999))
        suffix, scale = f"{draw(st.sampled_from('eE'))}{exponent}", EXACT.power(Decimal(10), exponent)
    else:
        suffix = draw(st.sampled_from(list(SCALES)))
        scale = SCALES[suffix]
    value = EXACT.multiply(Decimal(mantissa.rstrip(".") or "0"), scale)
    return sign + mantissa + suffix, -value if sign == "-" else value


@given(well_formed())
def test_it_agrees_with_decimal_arithmetic_and_rounds_away_from_zero(pair: tuple[str, Decimal]) -> None:
    text, value = pair
    exact = EXACT.multiply(value, Decimal(NANO)).to_integral_value(rounding=ROUND_UP, context=EXACT)
    if abs(exact) > 10**18 * NANO:
        assert nano(text) == InvalidQuantity(f"must be at most {10**18}")
    else:
        assert nano(text) == int(exact)

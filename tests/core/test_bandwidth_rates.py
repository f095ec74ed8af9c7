"""What pods ask for: read exactly, in both families of annotations; nothing raises, and nothing is silently zero."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.api.quantities import InvalidQuantity
from headroom.core.bandwidth.rates import AskedRates, Malformed, asked_by, parse_pair, parse_rate
from headroom.model.bandwidth import LEAST_BITS, MEGABIT, MOST_BITS, AnnotationKey, BandwidthRules, Rates, mbps
from tests.builders import a_pod

EGRESS, INGRESS = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth"
OVN_EGRESS = "ovn.kubernetes.io/egress_rate"
RULES = BandwidthRules()
TWENTY = Rates(20 * MEGABIT, 20 * MEGABIT)


def asked(rules: BandwidthRules = RULES, **annotations: str) -> AskedRates:
    keys = {"up": EGRESS, "down": INGRESS, "ovn_up": OVN_EGRESS, "ovn_down": "ovn.kubernetes.io/ingress_rate"}
    return asked_by(a_pod(annotations=tuple(sorted((keys[key], value) for key, value in annotations.items()))), rules)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100M", 100_000_000),
        ("1.5G", 1_500_000_000),
        ("1Gi", 1 << 30),
        ("10000000", 10_000_000),
        ("500k", 500_000),
        ("1k", 1_000),
        ("999.2", 1_000),
        ("1P", 10**15),
        ("1e6", 10**6),
        ("1E6", 10**6),
        ("+5M", 5_000_000),
        ("1000000m", 1_000),
        (".001G", 1_000_000),
    ],
)
def test_bits_are_read_as_the_cni_reads_them(text: str, bits: int) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize(
    ("text", "bits"), [("100", 10**8), ("0.5", 500_000), ("0.001", 1_000), ("1000000000", 10**15), ("3.", 3_000_000)]
)
def test_megabits_are_plain_numbers(text: str, bits: int) -> None:
    assert parse_rate(text, "Mbps") == bits


ABSURD = [
    "",
    " ",
    "0",
    "-5M",
    "-1",
    "1e309",
    "NaN",
    "inf",
    "１００M",
    "100MB",
    "100 M",
    "0x10",
    "1_000M",
    "1P1",
    "1,5G",
    "M",
    "1e999",
]


@pytest.mark.parametrize(
    "text", [*ABSURD, "999", "1.1P", "2P", "1" * 65, "9" * 1_000_000, "1E", "10Mi/5Mi", None, 5, b"1k"]
)
def test_what_no_cni_takes_has_a_reason(text: Any) -> None:
    found = parse_rate(text)
    assert isinstance(found, InvalidQuantity)
    assert found.reason.startswith("must be")


@pytest.mark.parametrize("text", [*ABSURD, "100M", "1e3", "+5", "-0.5", "0.0001", "1000000001", "1Gi", "5m"])
def test_what_is_no_plain_number_of_megabits_has_a_reason(text: str) -> None:
    assert isinstance(parse_rate(text, "Mbps"), InvalidQuantity)


def test_the_range_is_told_apart_from_what_cannot_be_read() -> None:
    assert parse_rate("999") == InvalidQuantity("must be between 1k and 1P bits per second")
    assert parse_rate("1e40") == parse_rate("1e41") == parse_rate("999")
    assert parse_rate("fast") == InvalidQuantity("must be bits per second such as 100M")
    assert parse_rate("100M", "Mbps") == InvalidQuantity("must be megabits per second such as 100, without a suffix")


@given(
    st.text(max_size=70) | st.text(alphabet="0123456789.+-eEkKMGTPimnu/ ", max_size=20),
    st.sampled_from(["bits", "Mbps"]),
)
def test_any_text_is_a_rate_in_range_or_has_a_reason(text: str, unit: Any) -> None:
    found = parse_rate(text, unit)
    assert isinstance(found, InvalidQuantity) or LEAST_BITS <= found <= MOST_BITS


SUFFIXES: dict[str, Fraction | int] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "m": Fraction(1, 1000),
}


@given(st.decimals(0, 10**9, allow_nan=False, places=3), st.sampled_from(sorted(SUFFIXES)))
def test_a_rate_is_exact_and_rounded_up(amount: Any, suffix: str) -> None:
    exact = Fraction(str(amount)) * SUFFIXES[suffix]
    bits = -(-exact.numerator // exact.denominator)
    wanted = bits if LEAST_BITS <= bits <= MOST_BITS else InvalidQuantity("must be between 1k and 1P bits per second")
    assert parse_rate(f"{amount:f}{suffix}") == wanted


def test_a_pod_asks_for_what_its_first_annotation_says() -> None:
    assert asked() == AskedRates()
    assert asked(up="100M", down="1G") == AskedRates(rates=Rates(10**8, 10**9), keys=(EGRESS, INGRESS))
    assert asked(ovn_up="3", ovn_down="4").rates == Rates(3 * MEGABIT, 4 * MEGABIT)
    assert asked(up="100M", ovn_up="7").rates == Rates(10**8, 0), "the standard one comes first"


def test_the_keys_and_their_units_are_settings() -> None:
    rules = BandwidthRules(egress=(AnnotationKey("x.io/up", "Mbps"),), ingress=(AnnotationKey("x.io/down"),))
    pod = a_pod(annotations=((EGRESS, "1G"), ("x.io/down", "5M"), ("x.io/up", "5")))
    assert asked_by(pod, rules).rates == Rates(5 * MEGABIT, 5 * MEGABIT)


def test_defaults_stand_for_what_is_not_said() -> None:
    rules = BandwidthRules(defaults=Rates(30 * MEGABIT, 40 * MEGABIT))
    assert asked(rules) == AskedRates(rates=rules.defaults or Rates())
    assert asked(rules, up="1M").rates == Rates(MEGABIT, 40 * MEGABIT)


@pytest.mark.parametrize("value", ["-5M", "lots", "0", "1e309"])
def test_what_cannot_be_read_counts_as_the_default_and_is_quoted(value: str) -> None:
    found = asked(up=value, down="1M")
    assert found.rates == Rates(20 * MEGABIT, MEGABIT)
    assert found.problem is not None
    assert (found.problem.key, found.problem.value, found.problem.example) == (EGRESS, value, "100M")


def test_both_families_are_looked_at() -> None:
    found = asked(up="5M", ovn_up="-5")
    assert found.rates == Rates(5 * MEGABIT, 0)
    reason = "must be megabits per second such as 100, without a suffix"
    assert found.malformed == (Malformed(OVN_EGRESS, "-5", "100", reason),)
    both = asked(up="x", ovn_up="7", down="y", ovn_down="z")
    assert both.rates == TWENTY, "a second annotation does not stand in for a first that cannot be read"
    assert len(both.malformed) == 3


def test_a_long_value_is_not_repeated_whole() -> None:
    problem = asked(up="1" * 10**6).problem
    assert problem is not None
    assert len(problem.value) == 64


def test_pairs_are_both_directions() -> None:
    assert parse_pair("25G/10G") == Rates(25 * 10**9, 10 * 10**9)
    assert parse_pair("25G") == Rates(25 * 10**9, 25 * 10**9)
    for wrong in ("", "/", "25G/", "/5G", "1G/2G/3G", "-1G"):
        assert isinstance(parse_pair(wrong), InvalidQuantity)


def test_whole_megabits_are_rounded_up() -> None:
    assert [mbps(bits) for bits in (0, 1, MEGABIT, MEGABIT + 1, -1)] == [0, 1, 1, 2, 0]

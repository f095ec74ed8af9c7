"""What an offer costs for each useful GPU-hour: exact, and never better for more risk."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headroom.core.offers import Risk, cost_of, risk_of
from headroom.core.offers.ranking import FAILED, INTERRUPTIONS, MOST_FAILED, ON_DEMAND_FAILED, UNKNOWN_SCORE
from headroom.model.times import HOUR

DOLLAR = 1_000_000
GPU = 1_000_000
CERTAIN = Risk(0, 0)

counts = st.integers(0, 10_000)
scores = st.one_of(st.none(), st.integers(1, 10))
risks = st.builds(Risk, st.integers(0, 2_000_000), st.integers(0, MOST_FAILED))
prices, gpus, restarts = st.integers(1, 200 * DOLLAR), st.integers(GPU // 8, 16 * GPU), st.integers(0, 24 * HOUR)


def test_without_risk_the_cost_is_the_price_of_a_gpu_hour() -> None:
    assert cost_of(4 * DOLLAR, 4 * GPU, CERTAIN, HOUR) == DOLLAR
    assert cost_of(DOLLAR, GPU // 8, CERTAIN, HOUR) == 8 * DOLLAR


def test_a_cost_is_rounded_up() -> None:
    assert cost_of(1, 3 * GPU, CERTAIN, 0) == 1


def test_an_interruption_each_ten_hours_costs_a_tenth_of_an_hour_to_restart() -> None:
    assert cost_of(DOLLAR, GPU, Risk(100_000, 0), HOUR) == 1_100_000


def test_with_half_of_the_launches_failing_it_costs_twice_as_much() -> None:
    assert cost_of(DOLLAR, GPU, Risk(0, 500_000), 0) == 2 * DOLLAR


def test_the_tables_say_what_the_page_says() -> None:
    assert risk_of(1, spot=True) == Risk(100_000, 600_000)
    assert risk_of(10, spot=True) == Risk(100, 10_000)
    assert risk_of(None, spot=True) == risk_of(UNKNOWN_SCORE, spot=True) == Risk(5_000, 120_000)
    assert list(INTERRUPTIONS) == sorted(INTERRUPTIONS, reverse=True)
    assert list(FAILED) == sorted(FAILED, reverse=True)


def test_scores_beyond_the_scale_count_as_its_ends() -> None:
    assert risk_of(0, spot=True) == risk_of(1, spot=True)
    assert risk_of(11, spot=True) == risk_of(10, spot=True)


def test_ten_launches_weigh_as_much_as_the_assumption() -> None:
    assert risk_of(10, spot=True, launches=10, failures=10).failed == (10_000 + 1_000_000) // 2
    assert risk_of(1, spot=True, machine_ms=200 * HOUR).interruptions == 50_000


def test_experience_outweighs_the_assumption_in_the_end() -> None:
    assert risk_of(1, spot=True, launches=10_000).failed < 1_000
    assert risk_of(10, spot=True, launches=10_000, failures=10_000).failed == MOST_FAILED


@given(scores, counts, counts, counts, st.integers(0, 10**12))
def test_on_demand_is_not_interrupted_and_has_no_score(
    score: int | None, launches: int, failures: int, interruptions: int, machine_ms: int
) -> None:
    seen = {"launches": launches, "failures": failures, "interruptions": interruptions, "machine_ms": machine_ms}
    found = risk_of(score, spot=False, **seen)
    assert found.interruptions == 0
    assert 0 <= found.failed <= MOST_FAILED
    assert risk_of(score, spot=False).failed == ON_DEMAND_FAILED


@given(st.integers(1, 9), counts, counts, counts, st.integers(0, 10**12))
def test_a_higher_score_is_never_riskier(
    score: int, launches: int, failures: int, interruptions: int, machine_ms: int
) -> None:
    seen = {"launches": launches, "failures": failures, "interruptions": interruptions, "machine_ms": machine_ms}
    lower, higher = risk_of(score, spot=True, **seen), risk_of(score + 1, spot=True, **seen)
    assert higher.interruptions <= lower.interruptions
    assert higher.failed <= lower.failed


@given(scores, counts, counts, counts)
def test_what_fails_more_often_is_never_less_risky(
    score: int | None, launches: int, failures: int, interruptions: int
) -> None:
    seen = risk_of(score, spot=True, launches=launches, failures=failures, interruptions=interruptions)
    worse = risk_of(score, spot=True, launches=launches + 1, failures=failures + 1, interruptions=interruptions + 1)
    assert worse.interruptions >= seen.interruptions
    assert worse.failed >= seen.failed


@given(prices, gpus, risks, restarts)
def test_the_cost_is_the_formula_rounded_up(price: int, count: int, risk: Risk, restart_ms: int) -> None:
    per_gpu = Fraction(price * GPU, count)
    lost = 1 + Fraction(risk.interruptions * restart_ms, 1_000_000 * HOUR)
    exact = per_gpu * lost / (1 - Fraction(risk.failed, 1_000_000))
    assert exact <= cost_of(price, count, risk, restart_ms) < exact + 1


@given(prices, gpus, risks, restarts)
def test_more_risk_or_a_higher_price_is_never_cheaper(price: int, count: int, risk: Risk, restart_ms: int) -> None:
    cost = cost_of(price, count, risk, restart_ms)
    assert cost_of(price + 1, count, risk, restart_ms) >= cost
    assert cost_of(price, count, Risk(risk.interruptions + 1, risk.failed), restart_ms) >= cost
    assert cost_of(price, count, risk, restart_ms + 1) >= cost
    assert cost_of(price, count + 1, risk, restart_ms) <= cost

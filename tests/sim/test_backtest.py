"""Back-tests: rules over small histories by hand, hindsight beside brute force, and the operator's own switching asked at every minute."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.core.offers.choosing import rules_of
from headroom.core.offers.switching import SwitchRules, Tenure, next_tenure
from headroom.model import times
from headroom.model.times import HOUR, MINUTE
from headroom.sim.backtest import report, rules
from headroom.sim.backtest.hindsight import least_paid
from headroom.sim.backtest.history import PriceChanges, TracedMachineType
from headroom.sim.backtest.rules import AlwaysCheapest, Margin, Original, Paid, Production, play
from headroom.sim.backtest.timeline import Catalogue, Timeline, catalogue, timeline
from tests.core.offer_stage import a_leftover
from tests.sim.backtest_stage import a_timeline

MICRO = 1_000_000
prices = st.one_of(st.none(), st.integers(90, 120).map(lambda each: each / 100))
histories = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(prices, min_size=width, max_size=width), min_size=1, max_size=5)
)


def moves(paid: Paid) -> list[tuple[float, str, str]]:
    return [(each.at / HOUR, each.before, each.after) for each in paid.switches]


# --- the rules --------------------------------------------------------------------------------------------------------------


def test_always_cheapest_stays_on_a_tie_and_the_original_does_not() -> None:
    line = a_timeline((1.0, 1.0), (1.1, 1.0), (1.0, 1.0), (1.0, 0.9))
    assert moves(play(line, AlwaysCheapest(line))) == [(1, "a", "b")]
    assert moves(play(line, Original(line))) == [(1, "a", "b"), (2, "b", "a"), (3, "a", "b")]


def test_the_original_takes_the_cheapest_machine_however_few_gpus_it_has() -> None:
    line = a_timeline((1.0, 0.5), gpus=(1, 4))
    assert play(line, Original(line)).mean == pytest.approx(1.0)
    assert play(line, AlwaysCheapest(line)).mean == pytest.approx(0.5)


def test_a_margin_must_be_beaten() -> None:
    line = a_timeline((1.0, 1.0), (1.0, 0.95), (1.0, 0.94))
    assert moves(play(line, Margin(line, 50_000))) == [(2, "a", "b")]


def test_an_offer_that_is_gone_is_left_by_all() -> None:
    line = a_timeline((1.0, 2.0), (None, 2.0), (1.0, 2.0))
    left = [(1, "a", "b"), (2, "b", "a")]
    assert moves(play(line, Margin(line, 50_000))) == moves(play(line, AlwaysCheapest(line))) == left
    assert moves(play(line, Production(line, SwitchRules())))[0] == left[0]


def test_nobody_pays_or_moves_while_nothing_is_offered() -> None:
    line = a_timeline((1.0, 2.0), (None, None), (1.0, 2.0))
    for rule in (Margin(line, 50_000), AlwaysCheapest(line), Original(line), Production(line, SwitchRules())):
        paid = play(line, rule)
        assert (paid.hours, paid.switches) == (2, ())
        assert paid.usd == pytest.approx(2.0)


def test_the_operator_moves_when_it_would_and_not_at_samples_only() -> None:
    line = a_timeline((1.0, 1.1), (1.0, 0.5), hours=(10, 10))
    paid = play(line, Production(line, SwitchRules()))
    assert moves(paid) == [(10.5, "a", "b")]
    assert paid.usd == pytest.approx(10 + 0.5 + 9.5 * 0.5)


minutes = st.integers(0, 300).map(lambda each: each * MINUTE)
any_rules = st.builds(
    SwitchRules, threshold=st.integers(0, 300_000), after_ms=minutes, dwell_ms=minutes, per_day=st.integers(0, 6)
)


@given(histories, any_rules)
@settings(max_examples=60)
def test_the_operator_is_played_as_if_it_looked_at_every_minute(
    rows: list[list[float | None]], asked: SwitchRules
) -> None:
    line = a_timeline(*rows, hours=[3.0] * len(rows))
    tenure, last, found = Tenure(), "", []
    for number in range(line.moments):
        costs = line.costs(number)
        for now in range(int(line.at[number]), int(line.at[number + 1]), MINUTE):
            tenure = next_tenure(tenure, costs, now, asked)
            if costs and last and tenure.chosen != last:
                found.append((now, last, tenure.chosen))
            last = tenure.chosen if costs else last
    played = play(line, Production(line, asked))
    assert [(each.before, each.after) for each in played.switches] == [each[1:] for each in found]
    assert all(0 <= late[0] - each.at < MINUTE for each, late in zip(played.switches, found, strict=True))


# --- hindsight --------------------------------------------------------------------------------------------------------------


def by_brute_force(line: Timeline, switches: int) -> float:
    """All ways through a history with at most so many switches."""
    paid, best = line.usd(), np.inf
    rows = [number for number in range(line.moments) if np.isfinite(paid[number]).any()]
    hours = np.diff(line.at) / HOUR
    for path in product(range(len(line.keys)), repeat=len(rows)):
        if sum(one != other for one, other in pairwise(path)) <= switches:
            best = min(best, sum(paid[row, offer] * hours[row] for row, offer in zip(rows, path, strict=True)))
    return float(best)


@given(histories, st.integers(0, 4), st.lists(st.integers(1, 9), min_size=5, max_size=5))
@settings(max_examples=80)
def test_hindsight_is_what_brute_force_finds(rows: list[list[float | None]], switches: int, hours: list[int]) -> None:
    line = a_timeline(*rows, hours=[float(each) for each in hours[: len(rows)]])
    least = least_paid(line, switches)
    for count in range(switches + 1):
        assert least[count] == pytest.approx(by_brute_force(line, count))


@given(histories)
@settings(max_examples=60)
def test_nobody_beats_hindsight_nor_the_cheapest(rows: list[list[float | None]]) -> None:
    line = a_timeline(*rows, hours=[7.0] * len(rows))
    cheapest = play(line, AlwaysCheapest(line))
    for rule in (Margin(line, 50_000), Original(line), Production(line, SwitchRules())):
        paid = play(line, rule)
        assert paid.usd >= cheapest.usd - 1e-9
        assert paid.usd >= least_paid(line, len(paid.switches))[-1] - 1e-9


# --- what the production code makes of a history ----------------------------------------------------------------------------


def a_type(name: str, gpus: int = 1, arch: str = "amd64", vendor: str = "nvidia") -> TracedMachineType:
    return TracedMachineType(name=name, gpus=gpus * MICRO, arch=arch, vendor=vendor)


def changes(*rows: tuple[int, str, str, float]) -> PriceChanges:
    """Hour, machine type, place and dollars; 0 is gone."""
    keys = tuple(dict.fromkeys((kind, place) for _, kind, place, _ in rows))
    at, what, price = ([*each] for each in zip(*((h, keys.index((k, p)), d) for h, k, p, d in rows), strict=True))
    return PriceChanges(
        keys=keys,
        at=np.array(at, dtype=np.int64) * HOUR,
        what=np.array(what, dtype=np.int64),
        price=(np.array(price) * MICRO).round().astype(np.int64),
        until=max(at) * HOUR,
        rows=len(rows),
        bad=0,
        examples=(),
    )


def known_to(pool: dict[str, Any], *types: TracedMachineType, regions: tuple[str, ...] = ("us-east-1",)) -> Catalogue:
    return catalogue({each.name: each for each in types}, a_leftover(nodeClassName="gpu", **pool).spec, regions)


def test_the_pool_says_which_types_it_takes() -> None:
    types = (
        a_type("g5.xlarge"),
        a_type("g5g.xlarge", arch="arm64"),
        a_type("g4ad.xlarge", vendor="amd"),
        a_type("p4d", 8),
    )
    assert list(known_to({}, *types).types) == ["g5.xlarge", "p4d"]
    assert list(known_to({"minGPUs": 8}, *types).types) == ["p4d"]
    assert list(known_to({"families": ["g5"]}, *types).types) == ["g5.xlarge"]
    assert known_to({"families": ["g5"]}, *types).passed_over == {"Family": 3}


def test_zones_belong_to_regions_by_their_ids() -> None:
    known = known_to({}, a_type("g5.xlarge"), regions=("us-east-1", "ap-northeast-1"))
    zones = ("use1-az1", "use2-az1", "apne1-az4", "use1-atl2-az1", "euc1-az1")
    assert [zone for zone in zones if known.has("g5.xlarge", zone)] == ["use1-az1", "apne1-az4", "use1-atl2-az1"]


def test_prices_are_in_force_until_the_next_row_and_a_price_of_nothing_is_no_offer() -> None:
    pool = a_leftover(nodeClassName="gpu", onDemandFallback=False).spec
    known = known_to({}, a_type("g5.xlarge"), a_type("g5.12xlarge", 4))
    history = changes(
        (0, "g5.xlarge", "use1-az1", 0.5),
        (0, "g5.12xlarge", "use1-az1", 1.6),
        (7, "g5.12xlarge", "use1-az1", 0.0),
        (90, "g5.xlarge", "use1-az1", 0.6),
    )
    line = timeline(pool, known, history, None)
    assert line.keys == ("g5.12xlarge/use1-az1/spot", "g5.xlarge/use1-az1/spot")
    assert line.at.tolist() == [0, 7 * HOUR, 90 * HOUR, 90 * HOUR]
    assert line.prices.tolist() == [[1_600_000, 500_000], [0, 500_000], [0, 600_000]]
    assert list(line.costs(1)) == ["g5.xlarge/use1-az1/spot"]
    cut = line.part(3 * HOUR, 50 * HOUR)
    assert (cut.at.tolist(), cut.moments) == ([3 * HOUR, 7 * HOUR, 50 * HOUR], 2)


def test_on_demand_is_what_a_pool_falls_back_to() -> None:
    pool = a_leftover(nodeClassName="gpu").spec
    known = known_to({}, a_type("g5.xlarge"))
    spot = changes(
        (5, "g5.xlarge", "use1-az1", 0.5),
        (6, "g5.xlarge", "use1-az1", 1.2),
        (8, "g5.xlarge", "use1-az1", 0.4),
        (9, "g5.xlarge", "use1-az1", 0.4),
    )
    line = timeline(pool, known, spot, changes((0, "g5.xlarge", "us-east-1", 1.0)))
    paid = play(line, Production(line, rules_of(pool)))
    dear, spot_key = "g5.xlarge/us-east-1/on-demand", "g5.xlarge/use1-az1/spot"
    # Spot is dearer than on-demand from hour 6 to 8, and the operator does not take it.
    assert moves(paid) == [(6, spot_key, dear), (8, dear, spot_key)]
    assert paid.usd == pytest.approx(0.5 + 2 * 1.0 + 0.4)


# --- what is told -----------------------------------------------------------------------------------------------------------


def test_the_chart_shows_prices_switches_and_gaps() -> None:
    line = a_timeline((1.0, 2.0), (None, None), (4.0, 2.0), (4.0, 3.0))
    paid = {name: play(line, AlwaysCheapest(line)) for name in (report.OURS, report.CHEAPEST)}
    found = report.BacktestResult(pool="x", regions=("us-east-1",), timeline=line, paid=paid, hindsight=None)
    told = dict(report.chart(found, 4, "_-="))
    assert told["USD per GPU-hour"] == "1.0000 (_) to 3.0000 (=)"
    assert told["this pool"] == told["always the cheapest"] == "_ -="
    assert told["switches"] == "  1 "


def test_a_summary_of_a_history_without_any_offer_divides_by_nothing() -> None:
    line = a_timeline((None,))
    paid = {name: play(line, rules.AlwaysCheapest(line)) for name in (report.OURS, report.CHEAPEST)}
    found = report.BacktestResult(pool="x", regions=("us-east-1",), timeline=line, paid=paid, hindsight=None)
    assert report.wire(found)["from"] == times.text(0)
    assert [row[1] for row in report.table(found)] == ["0.0000", "0.0000"]
    assert dict(report.chart(found, 3, "_-="))["this pool"].strip() == ""

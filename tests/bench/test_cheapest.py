"""What the benchmark of cheapest capacity is made of: sets of offers, the quick rule beside the operator's, the choice of settings, and its rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import cheapest
from bench.offering import families, sets, sizes
from bench.offering.families import Came, Quick, Setting
from headroom.core.offers import SwitchRules
from headroom.sim.backtest.rules import AlwaysCheapest, Production, play
from tests.sim.backtest_stage import a_timeline

DAY = 86_400
prices = st.one_of(st.none(), st.integers(90, 110).map(lambda each: each / 100))
histories = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(prices, min_size=width, max_size=width), min_size=1, max_size=12)
)


@given(histories, st.sampled_from(families.FAMILY), st.integers(1, 200))
@settings(max_examples=100)
def test_the_quick_rule_decides_as_the_operator(rows: list[list[float | None]], setting: Setting, hours: int) -> None:
    line = a_timeline(*rows, hours=[float(hours)] * len(rows))
    quick, whole = (play(line, rule(line, setting.rules)) for rule in (Quick, Production))
    assert (quick.switches, quick.usd, quick.hours) == (whole.switches, whole.usd, whole.hours)


def test_what_ships_is_a_setting_of_the_family() -> None:
    assert families.SHIPPED in families.FAMILY
    assert families.SHIPPED.rules == SwitchRules()


def test_of_settings_that_cost_little_enough_the_one_with_the_fewest_switches_is_chosen() -> None:
    def one(switches: int, most: float, mean: float, days: int = 1) -> Came:
        return Came(Setting(8, 200, days), switches, most, mean)

    assert families.best([one(9, 0.9, 0.1), one(10, 0.8, 0.7)], 0.8) == one(10, 0.8, 0.7)
    assert families.best([one(9, 0.8, 0.3), one(9, 0.7, 0.2)], 0.8) == one(9, 0.7, 0.2)
    assert families.best([one(9, 0.7, 0.2, 4), one(9, 0.7, 0.2, 2)], 0.8) == one(9, 0.7, 0.2, 2)
    assert families.best([one(9, 0.81, 0.2)], 0.8) is None


def test_a_set_is_what_its_pool_takes_early_and_late(tmp_path: Path) -> None:
    folder = tmp_path / sets.HISTORY
    folder.mkdir()
    (folder / "aws_gpu_types.csv").write_text(
        "instance_type,accelerator,count\ng5.xlarge,A10G,1\ng5.12xlarge,A10G,4\ng5g.xlarge,T4g,1\n"
    )
    turn = sets.TURN // 1000
    rows = [
        f"{turn - 9 * DAY},g5.xlarge,use1-az1,0.5",
        f"{turn - 9 * DAY},g5.xlarge,use2-az1,0.4",
        f"{turn - 5 * DAY},g5.12xlarge,use1-az1,1.6",
        f"{turn - 5 * DAY},g5g.xlarge,use1-az1,0.1",
        f"{turn + 5 * DAY},g5.xlarge,use1-az1,0.6",
        f"{turn + 9 * DAY},g5.xlarge,use2-az1,0.6",
    ]
    text = "unix_time,instance_type,zone_id,spot_price\n" + "\n".join(rows) + "\n"
    (folder / "train_some.csv.gz").write_bytes(gzip.compress(text.encode()))
    every, four = sets.Offered("all", ("g5",), ("us-east-1",)), sets.Offered("four", ("g5",), ("us-east-1",), gpus=4)
    found = sets.read(tmp_path, (every, four))
    assert found["all"].keys == ("g5.12xlarge/use1-az1/spot", "g5.xlarge/use1-az1/spot")
    assert found["four"].keys == ("g5.12xlarge/use1-az1/spot",)
    early, late = sets.early(found["all"]), sets.late(found["all"])
    assert early.at[-1] == late.at[0] == sets.TURN
    assert early.moments == late.moments == 2
    assert (late.at[-1] - late.at[0]) // 86_400_000 == 9
    assert late.prices[0].tolist() == [1_600_000, 500_000]
    longer = sets.longer(found["all"])
    assert (longer.at[0], longer.at[-1]) == (max(sets.LONGER, early.at[0]), late.at[-1])


def test_rows_tell_ours_beside_a_margin_and_the_best_possible() -> None:
    line = a_timeline(*[(1.0, 0.97 if number % 2 else 1.03) for number in range(40)], hours=[12.0] * 40)
    found = cheapest.compare(line)
    assert (len(found.cheapest.switches), len(found.ours.switches), len(found.margin.switches)) == (39, 0, 0)
    assert found.over(found.ours) == pytest.approx(100 * (1 / 0.985 - 1))
    assert found.regret == pytest.approx(0)
    # Staying costs 480, and 1% over the least are 477.53: seven half days on the cheaper one, 0.36 each, of which the last needs no way back.
    assert found.least == 13
    rows = {row.figure: row for row in cheapest.rows_of({"both": found})}
    assert rows["both: fewer switches than always the cheapest (0 of 39)"].value == 100
    assert rows["both: cost over always the cheapest"].is_missed
    assert rows["all five: fewer switches than always the cheapest (0 of 39)"].value == 100
    assert [len(each) for each in cheapest.lines({"both": found})] == [len(cheapest.COLUMNS)]
    fewer, cost = cheapest.span_rows({"both": found})
    assert (fewer.figure.split(": ")[0], fewer.value, fewer.goal) == ("both, from 2024 on", 100, None)
    assert cost.value == rows["both: cost over always the cheapest"].value


def test_settings_are_compared_by_their_worst_set() -> None:
    lines = {"a": a_timeline((1.0, 1.0)), "b": a_timeline((1.0, 1.1), (1.0, 0.5), hours=(10, 10))}
    base = {name: play(line, AlwaysCheapest(line)) for name, line in lines.items()}
    found = families.came(families.SHIPPED, lines, base)
    assert found.switches == 1
    assert found.most == pytest.approx(100 * 0.25 / 15)
    assert found.mean == pytest.approx(found.most / 2)
    assert families.with_margin(600_000, lines, base).switches == 0


def test_many_offers_are_all_ranked_and_many_pools_are_at_rest() -> None:
    assert len(sizes.offers()) == len({(each.instance_type, each.zone) for each in sizes.offers()}) == sizes.OFFERS
    assert sizes.ranking()[1] == sizes.OFFERS
    assert sizes.deciding(2) > 0
    assert 0 < sizes.megabytes() < 20

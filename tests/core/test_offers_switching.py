"""When a pool leaves its offer: for a saving that lasts and pays, at once when the offer is gone, and never for a tie."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from headroom.core.offers import SwitchRules, Tenure, needed_saving, next_tenure, recheck_at, settled_order
from headroom.core.offers.ranking import MILLION
from headroom.core.offers.switching import ACCOUNT, DAY, account
from headroom.model.times import HOUR, MINUTE
from tests.builders import NOON

RULES = SwitchRules()
PERCENT = 10_000

names = st.sampled_from("abcdef")
cost_maps = st.dictionaries(names, st.integers(900_000, 1_200_000), min_size=1)
all_rules = st.builds(
    SwitchRules,
    threshold=st.integers(0, 300_000),
    after_ms=st.integers(0, 2 * HOUR),
    dwell_ms=st.integers(0, 6 * HOUR),
    per_day=st.integers(0, 6),
    allowed=st.integers(0, 30),
    patience=st.integers(200, 600),
    haste=st.integers(40, 100),
    account=st.integers(MILLION * HOUR, 10 * ACCOUNT),
)
steps = st.lists(st.tuples(st.integers(1, 12 * HOUR), cost_maps), min_size=1, max_size=20)


def costs(**percent: int) -> dict[str, int]:
    """Costs in percent of a dollar."""
    return {name: cost * PERCENT for name, cost in percent.items()}


def settled(prices: dict[str, int], *, at: int = NOON - DAY, missed: int = 0) -> Tenure:
    """On the cheapest offer since a day ago, by NOON with an account of `missed`."""
    first = next_tenure(Tenure(), prices, at, RULES)
    return Tenure(chosen=first.chosen, since=first.since, missed=missed, as_of=NOON)


def played(tenure: Tenure, prices: dict[str, int], start: int, until: int, rules: SwitchRules = RULES) -> Tenure:
    """What comes of it while prices stay: looked at when something may change."""
    moment: int | None = start
    while moment is not None and moment <= until:
        tenure = next_tenure(tenure, prices, moment, rules)
        following = recheck_at(tenure, prices, rules, moment)
        moment = following if following is None or following > moment else moment + 1
    return tenure


def test_the_first_choice_is_the_cheapest_by_name() -> None:
    found = next_tenure(Tenure(), costs(b=100, a=100, c=101), NOON, RULES)
    assert found == Tenure(chosen="a", since=NOON, as_of=NOON)


def test_a_saving_of_the_threshold_that_lasts_is_taken_after_half_an_hour() -> None:
    tenure = next_tenure(settled(costs(a=100)), cheaper := costs(a=100, b=95), NOON, RULES)
    assert (tenure.chosen, tenure.challenger, tenure.challenger_since) == ("a", "b", NOON)
    assert recheck_at(tenure, cheaper, RULES, NOON) == NOON + 30 * MINUTE
    assert next_tenure(tenure, cheaper, NOON + 30 * MINUTE - 1, RULES) == tenure
    moved = next_tenure(tenure, cheaper, NOON + 30 * MINUTE, RULES)
    assert (moved.chosen, moved.since, moved.switches) == ("b", NOON + 30 * MINUTE, (NOON + 30 * MINUTE,))


def test_a_price_that_is_down_for_one_sample_moves_nothing() -> None:
    tenure = next_tenure(settled(costs(a=100)), costs(a=100, b=1), NOON, RULES)
    tenure = next_tenure(tenure, costs(a=100, b=100), NOON + 5 * MINUTE, RULES)
    assert (tenure.chosen, tenure.challenger) == ("a", "")
    assert next_tenure(tenure, costs(a=100, b=1), NOON + 40 * MINUTE, RULES).chosen == "a"


def test_a_spike_of_a_third_offer_does_not_take_the_turn_of_the_one_that_lasts() -> None:
    tenure = next_tenure(settled(costs(a=100)), costs(a=100, b=90, c=100), NOON, RULES)
    tenure = next_tenure(tenure, costs(a=100, b=90, c=1), NOON + 30 * MINUTE, RULES)
    assert tenure.chosen == "b"


def test_a_small_saving_is_taken_once_it_was_missed_for_long() -> None:
    tenure, prices = settled(costs(a=100)), costs(a=100, b=97)
    assert next_tenure(tenure, prices, NOON, RULES).challenger == ""
    assert played(tenure, prices, NOON, NOON + 36 * DAY).chosen == "a"
    assert played(tenure, prices, NOON, NOON + 37 * DAY).chosen == "b"


def test_less_than_half_of_the_threshold_never_moves_anything() -> None:
    tenure = next_tenure(settled(costs(a=1000), missed=ACCOUNT), prices := costs(a=1000, b=976), NOON, RULES)
    assert recheck_at(tenure, prices, RULES, NOON) is None
    assert next_tenure(tenure, prices, NOON + 1000 * DAY, RULES).chosen == "a"


def test_with_credit_a_switch_needs_more_and_three_times_the_threshold_is_always_enough() -> None:
    rich = settled(costs(a=100), missed=-ACCOUNT)
    assert needed_saving(rich, NOON, RULES) == 150_000
    assert next_tenure(rich, costs(a=100, b=86), NOON, RULES).challenger == ""
    assert next_tenure(rich, costs(a=100, b=85), NOON, RULES).challenger == "b"


def test_an_overdrawn_account_needs_half_of_the_threshold() -> None:
    assert needed_saving(settled(costs(a=100), missed=ACCOUNT // 8), NOON, RULES) == 37_500
    assert needed_saving(settled(costs(a=100), missed=ACCOUNT), NOON, RULES) == 25_000


def test_an_offer_that_was_just_chosen_is_kept_for_the_dwell() -> None:
    tenure = next_tenure(Tenure(), costs(a=100), NOON, RULES)
    cheaper = costs(a=100, b=50)
    tenure = next_tenure(tenure, cheaper, NOON + MINUTE, RULES)
    assert recheck_at(tenure, cheaper, RULES, NOON + MINUTE) == NOON + 2 * HOUR
    assert next_tenure(tenure, cheaper, NOON + 2 * HOUR - 1, RULES).chosen == "a"
    assert next_tenure(tenure, cheaper, NOON + 2 * HOUR, RULES).chosen == "b"


def test_no_more_than_six_switches_a_day() -> None:
    tenure, low, high = settled(costs(a=50)), 50, 100
    for hour in range(0, 40, 2):
        a, b = (low, high) if tenure.chosen == "b" else (high, low)
        tenure = played(tenure, costs(a=a, b=b), NOON + hour * HOUR, NOON + (hour + 2) * HOUR - 1)
        assert len([moment for moment in tenure.switches if NOON + hour * HOUR - moment < DAY - 2 * HOUR]) <= 6
    assert len(tenure.switches) <= 6


def test_an_offer_that_is_gone_is_left_at_once_whatever_the_limits_say() -> None:
    full = tuple(NOON - hour * HOUR for hour in range(6, 0, -1))
    tenure = Tenure(chosen="a", since=NOON, as_of=NOON, missed=7, switches=full)
    found = next_tenure(tenure, costs(b=300, c=200), NOON + 1, RULES)
    assert (found.chosen, found.since, found.switches) == ("c", NOON + 1, full)
    assert found.missed == 7 - RULES.allowance  # the account goes on


def test_with_no_offer_at_all_nothing_is_left() -> None:
    tenure = settled(costs(a=100))
    assert next_tenure(tenure, {}, NOON, RULES) == tenure
    assert recheck_at(tenure, {}, RULES, NOON) is None
    assert next_tenure(Tenure(), {}, NOON, RULES) == Tenure()


def test_a_clock_that_goes_back_takes_nothing_from_the_account() -> None:
    tenure = settled(costs(a=100), missed=5)
    assert account(tenure, NOON - DAY, RULES) == 5


@given(st.sets(names, min_size=1), steps, all_rules)
def test_equal_costs_never_flap(
    offered: set[str], moments: list[tuple[int, dict[str, int]]], rules: SwitchRules
) -> None:
    first = tenure = next_tenure(Tenure(), dict.fromkeys(offered, 100), NOON, rules)
    now = NOON
    for later, prices in moments:
        now += later
        tenure = next_tenure(tenure, dict.fromkeys(offered, next(iter(prices.values()))), now, rules)
        assert tenure == first


@given(steps, all_rules)
def test_what_holds_along_any_path(moments: list[tuple[int, dict[str, int]]], rules: SwitchRules) -> None:
    tenure, now = Tenure(), NOON
    for later, prices in moments:
        before, now = tenure, now + later
        tenure = next_tenure(before, prices, now, rules)
        assert tenure == next_tenure(before, dict(sorted(prices.items(), reverse=True)), now, rules)
        assert tenure.chosen in prices
        assert abs(tenure.missed) <= rules.account
        assert len([moment for moment in tenure.switches if now - moment < DAY]) <= rules.per_day
        assert all(one < other for one, other in pairwise(tenure.switches))
        if before.chosen in prices and tenure.chosen != before.chosen:
            saved = (prices[before.chosen] - prices[tenure.chosen]) * MILLION
            assert saved * 100 >= rules.haste * rules.threshold * prices[before.chosen]
            assert prices[tenure.chosen] < prices[before.chosen]
            assert now - before.since >= rules.dwell_ms
        # Nothing is new as long as nothing changes.
        assert next_tenure(tenure, prices, now, rules) == tenure


@given(steps, all_rules, st.data())
def test_until_the_recheck_nothing_changes_and_then_it_does(
    moments: list[tuple[int, dict[str, int]]], rules: SwitchRules, data: st.DataObject
) -> None:
    tenure, now, prices = Tenure(), NOON, {"a": 1}
    for later, offered in moments:
        now, prices = now + later, offered
        tenure = next_tenure(tenure, prices, now, rules)
    moment = recheck_at(tenure, prices, rules, now)
    if moment is None or moment > NOON + 10_000 * DAY:
        assert next_tenure(tenure, prices, NOON + 9_999 * DAY, rules) == tenure
        return
    assert moment >= now
    if moment > now:
        between = data.draw(st.integers(now, moment - 1))
        assert next_tenure(tenure, prices, between, rules) == tenure
    assert next_tenure(tenure, prices, moment, rules) != tenure


@given(steps, all_rules)
def test_the_account_does_not_depend_on_how_often_one_looks(
    moments: list[tuple[int, dict[str, int]]], rules: SwitchRules
) -> None:
    seldom = often = Tenure()
    now = NOON
    for later, prices in moments:
        now += later
        seldom = next_tenure(seldom, prices, now, rules)
        often = next_tenure(next_tenure(often, prices, now, rules), prices, now, rules)
        assert seldom == often


@given(st.lists(names), cost_maps, st.integers(0, MILLION))
def test_an_order_has_nobody_above_one_that_beats_it(before: list[str], prices: dict[str, int], threshold: int) -> None:
    order = settled_order(before, prices, threshold)
    assert sorted(order) == sorted(prices)
    for place, above in enumerate(order):
        for below in order[place + 1 :]:
            assert prices[below] * MILLION >= prices[above] * (MILLION - threshold)
    assert settled_order(order, prices, threshold) == order


@given(st.lists(names, unique=True, min_size=2), st.integers(1, 10**9), st.integers(0, MILLION))
def test_equal_costs_keep_the_order(before: list[str], cost: int, threshold: int) -> None:
    assert settled_order(before, dict.fromkeys(before, cost), threshold) == tuple(before)


@given(st.permutations("abcdef"), cost_maps, st.integers(0, MILLION))
def test_two_that_do_not_beat_each_other_keep_their_places_unless_a_third_moves(
    before: list[str], prices: dict[str, int], threshold: int
) -> None:
    least, most = min(prices.values()), max(prices.values())
    assume(least * MILLION >= most * (MILLION - threshold))
    assert settled_order(before, prices, threshold) == tuple(name for name in before if name in prices)


def test_newcomers_come_after_those_they_do_not_beat() -> None:
    assert settled_order((), costs(b=100, a=100, c=99), 50_000) == ("c", "a", "b")
    assert settled_order(("x", "y"), costs(x=100, y=200, n=99, m=300), 50_000) == ("x", "n", "y", "m")
    assert settled_order(("x", "y"), costs(x=100, y=200, n=94), 50_000) == ("n", "x", "y")

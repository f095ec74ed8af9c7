"""What the ledger must keep: a window grows at once, shrinks after a week, and nothing goes while anything is in doubt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.model.retention import SHORTEST_KEPT, WEEK, Reach, Retention, forgettable, kept_for, looked, united
from headroom.model.times import HOUR, MINUTE
from headroom.model.usage import DAY

NOW = 20_000 * DAY
FRESH = Retention(cluster="here", known_since=NOW)


def after(*looks: tuple[int, int], before: Retention = FRESH, spanning: int = 0) -> Retention:
    """What follows from looks at so many days, with windows of so many days."""
    for day, window in looks:
        before = looked(before, window * DAY, spanning * DAY, NOW + day * DAY)
    return before


def daily(first: int, last: int, window: int) -> list[tuple[int, int]]:
    return [(day, window) for day in range(first, last)]


def test_a_larger_window_counts_at_once_and_a_shorter_one_after_a_week() -> None:
    kept = after(*daily(0, 3, 30), (3, 90))
    assert kept.own.window == 90 * DAY
    kept = after(*daily(4, 11, 1), before=kept)
    assert kept.own.window == 90 * DAY, "seven days less one look"
    kept = after((11, 1), before=kept)
    assert kept.own.window == DAY


def test_a_mistake_that_is_mended_within_the_week_changes_nothing_and_the_week_begins_anew() -> None:
    kept = after((0, 90), *daily(1, 7, 1), (7, 90), *daily(8, 14, 1))
    assert kept.own.window == 90 * DAY


def test_of_the_shorter_ones_the_largest_of_the_week_counts() -> None:
    kept = after((0, 90), (1, 1), (2, 60), *daily(3, 9, 1))
    assert kept.own.window == 60 * DAY


def test_rows_live_for_twice_the_window_and_at_least_35_days() -> None:
    assert kept_for({"here": after((0, 1))}, "here") == SHORTEST_KEPT
    assert kept_for({"here": after((0, 90))}, "here") == 180 * DAY
    assert kept_for({}, "nobody") == SHORTEST_KEPT


def test_a_budget_that_spans_clusters_keeps_the_rows_of_all() -> None:
    known = {"here": after((0, 1)), "there": after((0, 1), spanning=60), "far": after((0, 120))}
    assert kept_for(known, "here") == 120 * DAY
    assert kept_for(known, "far") == 240 * DAY


def test_nothing_goes_in_the_first_week_nor_in_the_week_after_a_gap() -> None:
    kept = after((0, 1))
    for day, may in ((0, False), (6, False), (7, True)):
        assert (forgettable({"here": kept}, "here", NOW + day * DAY) is not None) == may
    assert forgettable({"here": kept}, "there", NOW + 100 * DAY) is None, "an unknown cluster forgets nothing"
    kept = after(*daily(0, 10, 1))
    assert kept.prune_from == NOW + WEEK
    jumped = after((53, 1), before=kept)
    assert jumped.prune_from == NOW + 53 * DAY + WEEK, "an outage of 43 days, or a clock that is ahead"
    back = after((10, 1), before=jumped)
    assert back.prune_from == NOW + 10 * DAY + WEEK, "and once more when it is set back"


def test_small_differences_are_no_gap() -> None:
    kept = after((0, 1))
    later = looked(kept, DAY, 0, NOW - MINUTE)
    assert later.prune_from == kept.prune_from
    assert looked(kept, DAY, 0, NOW - MINUTE - 1).prune_from == NOW - MINUTE - 1 + WEEK
    assert looked(kept, DAY, 0, NOW + DAY + 1).prune_from == NOW + DAY + 1 + WEEK


@given(st.lists(st.tuples(st.integers(0, 36), st.sampled_from([1, 7, 30, 90])), min_size=1, max_size=40))
def test_the_reach_is_never_less_than_any_window_of_the_last_week(looks: list[tuple[int, int]]) -> None:
    """Looks at any times, none further apart than a day and a half, with any windows."""
    reach, now, history = Reach(), NOW, []
    for hours, window in looks:
        now += hours * HOUR
        history.append((now, window * DAY))
        reach = reach.next(window * DAY, now)
        assert reach.window >= max(each for at, each in history if at > now - WEEK)


def test_two_ledgers_in_one_keep_the_longer_of_everything() -> None:
    one = Retention(cluster="here", known_since=5, own=Reach(window=9), looked_at=3, prune_from=8)
    other = Retention(cluster="here", known_since=4, own=Reach(window=7), spanning=Reach(window=2), looked_at=6)
    both = Retention(
        cluster="here", known_since=4, own=Reach(window=9), spanning=Reach(window=2), looked_at=6, prune_from=8
    )
    assert united(one, other, 5) == united(other, one, 5) == both


@pytest.mark.parametrize(("until", "since"), [(NOW, 4), (NOW - MINUTE, 4), (NOW - MINUTE - 1, NOW), (4, NOW)])
def test_two_ledgers_with_a_hole_between_them_know_what_is_after_it(until: int, since: int) -> None:
    """A backup that is restored beside a ledger which began anew long after it."""
    backup, anew = Retention(cluster="here", known_since=4), Retention(cluster="here", known_since=NOW)
    assert united(backup, anew, until).known_since == united(anew, backup, until).known_since == since

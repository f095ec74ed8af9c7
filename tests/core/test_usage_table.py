"""Rows of usage: merging them, what follows from several of one pod, and how they are found again."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headroom.model.usage import UNSEEN, Evidence, UsageRow, merged
from headroom.model.usage_table import OPEN, UsageTable


def a_row(uid: str = "u1", start: int = 0, **fields: Any) -> UsageRow:
    base: dict[str, Any] = {
        "cluster": "default",
        "namespace": "lab",
        "pod": uid,
        "earliest": start,
        "seen_until": start,
        "amounts": (("nvidia.com/gpu", 1_000_000),),
        "labels": (("team", "a"),),
    }
    return UsageRow(uid=uid, start=start, **base | fields)


moments = st.integers(0, 20)
some_rows = st.builds(
    lambda uid, start, end, seen, gone, observed, team, price: a_row(
        uid,
        start,
        ended=end[0],
        evidence=end[1],
        seen_until=start + seen,
        gone_by=gone,
        observed=observed,
        labels=(("team", team),),
        price=price,
    ),
    st.sampled_from(["u1", "u2"]),
    st.sampled_from([0, 5, 9]),
    st.one_of(st.just((None, 0)), st.tuples(moments, st.sampled_from([1, 2, 3]))),
    moments,
    st.one_of(st.none(), moments),
    st.integers(0, 3),
    st.sampled_from("ab"),
    st.one_of(st.none(), st.integers(0, 2)),
)


@given(some_rows, some_rows, some_rows)
def test_merging_is_commutative_associative_and_idempotent(one: UsageRow, two: UsageRow, three: UsageRow) -> None:
    one, two, three = (a_row("u", 3, **_values(each)) for each in (one, two, three))
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    assert merged(one, merged(one, two)) == merged(one, two)
    assert merged(one, one) == one


def _values(row: UsageRow) -> dict[str, Any]:
    names = ("ended", "evidence", "seen_until", "gone_by", "observed", "labels", "price")
    return {name: getattr(row, name) for name in names}


@given(st.lists(some_rows, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_repeats_do_not_matter(rows: list[UsageRow], rng: Any) -> None:
    one, other = UsageTable(), UsageTable()
    for row in rows:
        one.put(row)
    again = rows + [each for each in rows if rng.random() < 0.5]
    rng.shuffle(again)
    for row in again:
        other.put(row)
    assert _bounds(one) == _bounds(other)
    assert set(one) == set(other)


@given(st.lists(some_rows, max_size=8), st.lists(some_rows, max_size=4), st.booleans())
def test_many_rows_at_once_are_the_same_as_one_by_one(
    rows: list[UsageRow], before: list[UsageRow], alive: bool
) -> None:
    one, other = UsageTable(), UsageTable()
    for table in (one, other):
        table.set_alive("u1", alive)
        for row in before:
            table.put(row)
    for row in rows:
        one.put(row)
    other.extend(rows)
    assert _bounds(one) == _bounds(other)
    assert set(one) == set(other)
    assert len(one.uncertain) == len(other.uncertain)


def _bounds(table: UsageTable) -> dict[tuple[str, int], tuple[int, ...]]:
    names = ("start", "high_start", "low_end", "high_end")
    return {
        (table.uid(number), int(table.column("start")[number])): tuple(
            int(table.column(name)[number]) for name in names
        )
        for number in range(len(table))
    }


@given(st.lists(some_rows, max_size=6))
def test_segments_of_a_pod_are_disjoint_and_bounds_never_cross(rows: list[UsageRow]) -> None:
    table = UsageTable()
    for row in rows:
        table.put(row)
    for uid in ("u1", "u2"):
        bounds = sorted(_bounds(table)[uid, row.start] for row in table.of_pod(uid))
        for start, high_start, low_end, high_end in bounds:
            assert high_start <= start <= low_end <= high_end
        for (_, _, low, high), (start, high_start, _, _) in pairwise(bounds):
            assert high <= start
            assert low <= high_start <= start


def test_the_strongest_evidence_of_an_end_wins_then_the_earliest() -> None:
    ends = [(50, Evidence.DELETION_SEEN), (60, Evidence.CONTAINER_FINISH), (55, Evidence.CONTAINER_FINISH)]
    for order in permutations(ends):
        table = UsageTable()
        for ended, evidence in order:
            table.put(a_row(ended=ended, evidence=evidence))
        assert table.row(0).ended == 55


def test_who_saw_what_began_counts_before_who_came_later() -> None:
    saw = a_row("u", 5, observed=5, version=3, labels=(("team", "a"),))
    later = a_row("u", 5, observed=9, version=2, labels=(("team", "b"),))
    assert merged(saw, later).labels == merged(later, saw).labels == saw.labels


def test_labels_that_somebody_saw_count_before_those_that_nobody_saw() -> None:
    unseen = a_row("u", 5, observed=5, version=3, labels=((UNSEEN, ""),))
    saw = a_row("u", 5, observed=9, version=4, labels=())
    assert merged(saw, unseen).labels == merged(unseen, saw).labels == ()


def test_a_pod_in_view_is_held_on_and_one_out_of_view_up_to_where_it_was_seen() -> None:
    table = UsageTable()
    table.put(a_row(seen_until=30))
    assert _bounds(table)["u1", 0] == (0, 0, 30, OPEN)
    table.set_alive("u1", True)
    assert _bounds(table)["u1", 0] == (0, 0, OPEN, OPEN)
    table.set_alive("u1", False)
    table.put(a_row(seen_until=40, gone_by=70))
    assert _bounds(table)["u1", 0] == (0, 0, 40, 70)
    assert table.unresolved() == []


def test_two_splits_of_the_same_change_count_once() -> None:
    table = UsageTable()
    table.set_alive("u1", True)
    table.put(a_row(seen_until=50, gone_by=50))
    table.put(a_row(start=50, labels=(("team", "b"),)))
    table.put(a_row(seen_until=53, gone_by=53))
    table.put(a_row(start=53, labels=(("team", "b"),)))
    assert [_bounds(table)["u1", start][2] for start in (0, 50, 53)] == [50, 53, OPEN]


def test_the_same_uid_in_another_cluster_is_another_pod() -> None:
    table = UsageTable("here")
    table.put(a_row(cluster="here", ended=10, evidence=3))
    table.put(a_row(cluster="there", ended=20, evidence=3))
    assert [row.ended for row in table.of_pod("u1")] == [10]
    assert [row.ended for row in table.of_pod("u1", "there")] == [20]


@given(st.integers(1, 9000), st.integers(1, 7))
def test_rows_are_found_by_group_however_they_came(count: int, teams: int) -> None:
    table = UsageTable()
    table.group_by(frozenset({"team"}))
    step = max(1, count // 60)
    for number in range(0, count, step):
        table.put(a_row(f"u{number}", labels=(("job", str(number)), ("team", str(number % teams)))))
    assert len(table.groups) <= teams
    found = [sorted(map(int, table.rows_of([group]))) for group in range(len(table.groups))]
    wanted: dict[int, list[int]] = {}
    for place in range(len(table)):
        wanted.setdefault(int(table.column("group")[place]), []).append(place)
    assert found == [wanted[group] for group in range(len(table.groups))]
    assert sorted(map(int, table.rows_of(range(len(table.groups))))) == list(range(len(table)))


def test_rows_that_came_after_sorting_are_found_too() -> None:
    table = UsageTable()
    table.group_by(frozenset({"team"}))
    for number in range(10):
        table.put(a_row(f"u{number}"))
    assert len(table.rows_of([0])) == 10
    table.put(a_row("late", labels=(("team", "new"),)))
    table.put(a_row("later"))
    assert len(table.rows_of([0])) == 11
    assert [table.uid(int(each)) for each in table.rows_of([1])] == ["late"]


def test_asking_for_another_key_tells_more_groups_apart() -> None:
    table = UsageTable()
    table.put(a_row("u1", labels=(("team", "a"), ("tier", "x"))))
    table.put(a_row("u2", labels=(("team", "a"), ("tier", "y"))))
    assert len(table.groups) == 1
    table.group_by(frozenset({"tier"}))
    assert len(table.groups) == 2
    assert np.unique(table.column("group")).tolist() == [0, 1]


@given(st.lists(some_rows, max_size=12), st.integers(0, 25))
def test_forgetting_leaves_the_rest_as_it_was(rows: list[UsageRow], before: int) -> None:
    table = UsageTable()
    for row in rows:
        table.put(row)
    table.group_by(frozenset({"team"}))
    was = _bounds(table)
    dropped = table.prune(before)
    left = {key for key, (_, _, _, high) in was.items() if high >= before}
    assert dropped in (0, len(was) - len(left))
    if dropped:
        assert _bounds(table) == {key: was[key] for key in left}
        assert sorted(map(int, table.rows_of(range(len(table.groups))))) == list(range(len(table)))
        assert {each.labels for each in table.groups} == {row.labels for row in table}
        for row in table:
            assert row in table.of_pod(row.uid)
        assert all(table.uid(int(table.column("first")[n])) == table.uid(n) for n in range(len(table)))


def test_rows_that_ended_long_ago_are_forgotten() -> None:
    table = UsageTable()
    table.put(a_row("old", ended=10, evidence=3))
    table.put(a_row("new", ended=100, evidence=3))
    table.put(a_row("open", seen_until=5))
    assert table.prune(before=50) == 1
    assert sorted(row.uid for row in table) == ["new", "open"]
    assert table.of_pod("old") == []
    assert table.put(a_row("new", ended=100, evidence=3)) is None

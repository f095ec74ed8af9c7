"""Pods that were split any number of times: what follows from their rows, and that one more costs no more than the first."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.core.usage import observing
from headroom.core.usage.keeping import Keeper, PricingContext
from headroom.core.usage.observing import Look, PodAllocation
from headroom.model.tables import NodeTable
from headroom.model.usage import LATE_MS, UsageRow, merged
from headroom.model.usage_table import OPEN, PodRows, UsageTable
from tests.builders import a_pod

GPU = (("nvidia.com/gpu", 1_000_000),)
Bound = tuple[int, int, int, bool]

starts = st.integers(0, 30).map(lambda moment: moment * 7_000)


def a_row(start: int, **fields: Any) -> UsageRow:
    base: dict[str, Any] = {"earliest": start, "seen_until": start, "labels": (("team", "a"),), "amounts": GPU}
    return UsageRow(cluster="default", uid="u", start=start, **base | fields)


def made(start: int, before: int, seen: int, gone: int | None, version: int, end: tuple[int | None, int]) -> UsageRow:
    return a_row(
        start,
        earliest=max(0, start - before),
        seen_until=start + seen,
        gone_by=None if gone is None else start + gone,
        version=version,
        ended=None if end[0] is None else start + end[0],
        evidence=end[1],
    )


short = st.integers(0, 20_000)
no_end: st.SearchStrategy[tuple[int | None, int]] = st.just((None, 0))
ends = st.one_of(no_end, no_end, no_end, st.tuples(short, st.sampled_from([1, 2, 3])))
some_rows = st.builds(made, starts, short, short, st.none() | short, st.integers(0, 40), ends)


def expected(rows: list[UsageRow], *, alive: bool) -> dict[int, Bound]:
    """What follows from all rows of a pod, looked at from the first to the last."""
    over = min(((-row.evidence, row.ended or 0) for row in rows if row.evidence), default=(0, OPEN))[1]
    kept, found, newest, since = list[UsageRow](), dict[int, Bound](), 0, 0
    for row in sorted(rows, key=lambda each: each.start):
        if row.version and row.version < newest and row.start - since < LATE_MS:
            found[row.start] = row.start, row.start, row.start, False
            continue
        kept.append(row)
        newest, since = (row.version, row.start) if row.version >= newest else (newest, since)
    before = -1
    for row, following in zip_longest(kept, kept[1:]):
        low, high = _ends(row, following, alive=alive)
        low, high = max(row.start, min(low, over)), max(row.start, min(high, over))
        high_start = min(row.start, max(row.earliest, before))
        found[row.start] = high_start, low, max(low, high), alive and following is None
        before = low
    return found


def _ends(row: UsageRow, following: UsageRow | None, *, alive: bool) -> tuple[int, int]:
    if row.ended is not None:
        low = high = row.ended
    elif following is not None:
        low = following.start if following.earliest >= following.start else max(row.seen_until, following.earliest)
        high = following.start
        if row.gone_by is not None and row.seen_until >= row.gone_by:
            low = high = row.gone_by
    elif alive:
        low = high = OPEN
    else:
        low, high = row.seen_until, OPEN if row.gone_by is None else max(row.gone_by, row.seen_until)
    return (low, high) if following is None else (min(low, following.start), min(high, following.start))


def found(table: UsageTable) -> dict[int, Bound]:
    columns = [table.column(name).tolist() for name in ("start", "high_start", "low_end", "high_end", "current")]
    return {start: (begin, low, high, bool(now)) for start, begin, low, high, now in zip(*columns, strict=True)}


@given(st.lists(st.one_of(some_rows, st.booleans()), max_size=40))
def test_what_follows_from_many_rows_is_the_same_in_whatever_order_they_come(steps: list[UsageRow | bool]) -> None:
    table, known, alive = UsageTable(), dict[int, UsageRow](), False
    for step in steps:
        if isinstance(step, bool):
            table.set_alive("u", step)
            alive = step
        else:
            table.put(step)
            known[step.start] = merged(known[step.start], step) if step.start in known else step
        wanted = expected(list(known.values()), alive=alive)
        assert found(table) == wanted
        unsure = {start for start, (begin, low, high, _) in wanted.items() if begin != start or low != high}
        assert {int(table.column("start")[each]) for each in table.uncertain} == unsure
        assert table.has_end("u") == any(row.evidence for row in known.values())
    assert list(table.of_pod("u")) == sorted(known.values(), key=lambda row: row.start)


class Looked(PodRows):
    """Rows that note how many of them were looked at."""

    def __init__(self, rows: PodRows) -> None:
        super().__init__(rows._make, rows._numbers)
        self.looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
        return super().__getitem__(place)


def split(times: int) -> tuple[UsageTable, Any]:
    """A pod whose labels changed so often, once in two seconds."""
    # Of devices, nothing but claims need be known.
    keeper, around = Keeper(UsageTable()), PricingContext(NodeTable(), {}, (), {}, {}, ())
    pod = a_pod(phase="Running", started=1000, created=1000, node="n")
    for number in range(times):
        moment = 10_000 + number * 2000
        pod = structs.replace(pod, labels=(("team", str(number)),), resource_version=str(number + 1))
        keeper.see(pod, around, Look("default", moment, moment))
    return keeper.table, pod


def test_an_event_looks_at_as_many_rows_after_a_thousand_splits_as_after_three() -> None:
    looks = []
    for times in (3, 1000):
        table, pod = split(times)
        assert len(table.of_pod(pod.uid)) == times
        now = 10_000 + times * 2000
        held, look = PodAllocation(GPU, None, (("team", "new"),)), Look("default", now, now)
        ended = structs.replace(pod, phase="Succeeded", ended=now - 500, ended_by="ContainerFinish")
        for see, state in ((observing.observed, pod), (observing.observed, ended), (observing.gone, pod)):
            rows = Looked(table.of_pod(pod.uid))
            assert see(rows, state, held, look)
            looks.append(rows.looks)
    assert looks[:3] == looks[3:]


class Touched(dict[str, Any]):
    """Columns that note how often one was asked for."""

    touches = 0

    def __getitem__(self, name: str) -> Any:
        self.touches += 1
        return super().__getitem__(name)


def test_one_more_row_touches_as_much_after_a_thousand_splits_as_after_a_few() -> None:
    touches = []
    for times in (12, 1000):
        table, pod = split(times)
        columns = Touched(table._columns)
        table._columns = table._bounds._columns = columns
        last = table.of_pod(pod.uid)[-1]
        table.put(structs.replace(last, start=last.start + 1, earliest=last.start + 1))
        touches.append(columns.touches)
    assert touches[1] <= touches[0] + 50

"""What every ledger promises, asked of all three."""

import asyncio

import pytest
from msgspec import structs

from headroom.adapters.ledger.encoding import BEFORE_ALL
from headroom.model.errors import Refused
from headroom.model.history import Entry
from headroom.model.usage import DAY, Evidence, Heartbeat
from tests.adapters.ledger.rows import CLUSTER, TODAY, Kept, everything, flat, row, united


async def test_what_is_written_is_read_back_as_it_was(ledger: Kept) -> None:
    rows = [
        row(1),
        row(2, cluster="other", uid="no uuid", namespace="", pod="", price=None, labels=(), amounts=()),
        row(3, ended=TODAY + 9, evidence=Evidence.CONTAINER_FINISH, gone_by=TODAY + 10),
    ]
    await ledger.write(rows)
    assert await everything(ledger) == {each.key: each for each in rows}


async def test_an_empty_ledger_has_nothing(ledger: Kept) -> None:
    assert await flat(ledger.read(0)) == []
    assert await ledger.heartbeats() == {}
    assert await ledger.changes(await ledger.cursor()) == ([], await ledger.cursor())
    await ledger.write([])
    assert await ledger.merge([]) == 0


async def test_read_gives_what_may_reach_beyond_a_moment(ledger: Kept) -> None:
    since = TODAY + DAY
    before, at, after = since - 1, since, since + 1
    kept = [
        row(1),
        row(2, ended=after, evidence=3),
        row(3, gone_by=after),
        row(4, ended=after, gone_by=before, evidence=1),
    ]
    dropped = [
        row(5, ended=before, evidence=3),
        row(6, ended=at, evidence=3),
        row(7, gone_by=at),
        row(8, ended=before, gone_by=after, evidence=1),
    ]
    await ledger.write(kept + dropped)
    assert (await everything(ledger, since)).keys() == {each.key for each in kept}


async def test_a_read_of_many_rows_comes_in_parts_and_misses_none(ledger: Kept) -> None:
    rows = [row(number, created=TODAY + number % 3 * DAY, start=number % 2) for number in range(1, 20_002)]
    await ledger.write(rows)
    assert await everything(ledger) == {each.key: each for each in rows}


async def test_large_batches_merge_as_small_ones_do(ledger: Kept) -> None:
    first = [row(number, observed=number % 3, price=number) for number in range(1, 1501)]
    second = [row(number, observed=number % 2, price=None, ended=number, evidence=2) for number in range(700, 2200)]
    assert await ledger.merge(first) == 1500
    assert await ledger.merge([*second, *first]) == 1500
    assert await everything(ledger) == united(first + second)
    assert await ledger.merge([*first, *second]) == 0


async def test_equal_labels_and_amounts_are_one_object(sql_ledger: Kept) -> None:
    await sql_ledger.write([row(1, labels=(("a", "b"),)), row(2, labels=(("a", "b"),))])
    first, second = await flat(sql_ledger.read(0))
    assert first.labels == second.labels
    assert first.labels is second.labels
    assert first.amounts is second.amounts


async def test_changes_tell_of_each_write_that_changed_something(ledger: Kept) -> None:
    await ledger.write([row(1), row(2)])
    cursor = await ledger.cursor()
    assert await ledger.changes(cursor) == ([], cursor)
    assert await ledger.merge([row(1), row(2)]) == 0
    assert await ledger.cursor() == cursor
    later = row(2, seen_until=TODAY + DAY)
    assert await ledger.merge([row(1), later, row(3)]) == 2
    found, new_cursor = await ledger.changes(cursor)
    assert sorted(found, key=lambda each: each.uid) == sorted([later, row(3)], key=lambda each: each.uid)
    assert new_cursor > cursor
    assert await ledger.changes(new_cursor) == ([], new_cursor)


async def test_a_cursor_outlives_pruning(ledger: Kept) -> None:
    """The number of the newest row must not be given away again when that row is forgotten."""
    await ledger.write([row(1, ended=TODAY, evidence=3)])
    cursor = await ledger.cursor()
    assert await ledger.prune(CLUSTER, TODAY + 1) == 1
    await ledger.write([row(2)])
    assert (await ledger.changes(cursor))[0] == [row(2)]


async def test_prune_forgets_what_was_over_and_nothing_else(ledger: Kept) -> None:
    before = TODAY + DAY
    kept = [row(1), row(2, ended=before, evidence=3), row(3, gone_by=before)]
    gone = [row(4, ended=before - 1, evidence=3), row(5, gone_by=before - 1)]
    await ledger.write(kept + gone, Heartbeat(cluster=CLUSTER, complete_until=1))
    assert await ledger.prune(CLUSTER, before) == 2
    assert await everything(ledger) == {each.key: each for each in kept}
    assert await ledger.prune(CLUSTER, before) == 0
    assert await ledger.heartbeats() == {CLUSTER: 1}


async def test_the_last_word_counts_even_if_it_is_an_earlier_moment(ledger: Kept) -> None:
    for until in (5, 9, 7):
        await ledger.write([], Heartbeat(cluster=CLUSTER, complete_until=until))
    await ledger.write([row(1)], Heartbeat(cluster="other", complete_until=3))
    assert await ledger.heartbeats() == {CLUSTER: 7, "other": 3}


async def test_history_is_there_once_and_the_newest_first(ledger: Kept) -> None:
    entries = [
        Entry(
            cluster=CLUSTER,
            at=at,
            resource="GPUWorkloadBudget/a/b",
            reason=reason,
            message="m\tm\n\x00",
            actions='[{"type":"X"}]',
        )
        for at, reason in ((1, "One"), (3, "Three"), (2, "Two"))
    ]
    await ledger.note(entries)
    await ledger.note(entries[:1])
    assert [entry.reason for entry in await ledger.history(BEFORE_ALL, 10)] == ["Three", "Two", "One"]
    assert await ledger.history(2, 10) == [entries[1], entries[2]]
    assert await ledger.history(0, 1) == [entries[1]]
    elsewhere = structs.replace(entries[0], cluster="elsewhere", at=9)
    await ledger.note([elsewhere])
    assert await ledger.history(0, 1, "elsewhere") == [elsewhere]
    assert await ledger.history(0, 2, CLUSTER) == [entries[1], entries[2]], "the limit counts those that are asked for"
    await ledger.prune(CLUSTER, 2)
    assert [entry.reason for entry in await ledger.history(BEFORE_ALL, 10, CLUSTER)] == ["Three", "Two"]


@pytest.mark.parametrize(
    "bad",
    [
        {"seen_until": 2**63},
        {"pod": "\ud800"},
        {"labels": (("\udfff", ""),)},
        {"amounts": (("x", -1),)},
        {"amounts": (("x", 10**25),)},
    ],
)
@pytest.mark.parametrize("beside", [1, 1000])
async def test_what_cannot_be_held_is_refused_and_nothing_of_its_batch_is_written(
    sql_ledger: Kept, bad: dict[str, object], beside: int
) -> None:
    with pytest.raises(Refused, match=r"does not fit|cannot store this"):
        await sql_ledger.write([*map(row, range(10, 10 + beside)), row(2, **bad)])
    assert await everything(sql_ledger) == {}
    await sql_ledger.write([row(1)])
    assert len(await everything(sql_ledger)) == 1


async def test_a_ledger_that_is_closed_says_so(sql_ledger: Kept) -> None:
    await sql_ledger.write([row(1)])
    await sql_ledger.close()
    await sql_ledger.close()
    with pytest.raises(Refused, match="closed"):
        await sql_ledger.write([row(2)])


async def test_many_at_once_take_turns(ledger: Kept) -> None:
    await asyncio.gather(*(ledger.write([row(number), row(number + 1)]) for number in range(50)))
    assert len(await everything(ledger)) == 51

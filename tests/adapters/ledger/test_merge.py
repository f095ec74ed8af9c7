"""All three ledgers merge rows exactly as `merged` does, in any order, in any batches, from two writers at once."""

import asyncio
import itertools
from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headroom.adapters.ledger import encoding
from headroom.model.usage import Evidence, UsageRow, merged
from tests.adapters.ledger.rows import Kept, any_row, everything, united

Writers = Callable[[], tuple[Kept, Kept]]

clusters = itertools.count()
many = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])

precedence = ["version", "observed", "labels", "amounts", "price", "namespace", "pod", "created"]
differing = st.sets(st.sampled_from(UsageRow.__struct_fields__), max_size=3) | st.sets(
    st.sampled_from(precedence), min_size=2, max_size=2
)


def in_its_own_cluster(batches: list[list[UsageRow]]) -> list[list[UsageRow]]:
    """The same rows under a cluster that no other example has."""
    name = f"cluster-{next(clusters)}"
    fields = UsageRow.__struct_fields__
    return [
        [UsageRow(**{field: getattr(each, field) for field in fields} | {"cluster": name}) for each in rows]
        for rows in batches
    ]


async def send(ledger: Kept, batches: list[list[UsageRow]]) -> None:
    for rows in batches:
        await ledger.write(rows)


@many
@given(st.lists(st.lists(any_row(), min_size=1, max_size=4), max_size=6), st.randoms())
def test_two_writers_in_any_order_end_where_merged_ends(
    writers: Writers, batches: list[list[UsageRow]], chance: Random
) -> None:
    batches = in_its_own_cluster(batches)
    again = list(batches)
    chance.shuffle(again)

    async def scenario() -> None:
        one, other = writers()
        cursor = await one.cursor()
        await asyncio.gather(send(one, batches), send(other, again))
        wanted = united([each for rows in batches for each in rows])
        found = {key: each for key, each in (await everything(one)).items() if each.key in wanted}
        assert found == wanted
        told, end = await other.changes(cursor)
        assert united(told) == wanted
        # Everything once more is nothing new.
        assert await one.merge([each for rows in again for each in rows]) == 0
        assert await one.cursor() == end
        for ledger in {id(each): each for each in (one, other)}.values():
            await ledger.close()

    asyncio.run(scenario())


@many
@given(any_row(), any_row(), differing)
def test_of_two_rows_each_field_is_what_merged_says(
    writers: Writers, first: UsageRow, other_row: UsageRow, differ: set[str]
) -> None:
    """One write each, so that the database merges them. They differ in few fields, so that each of them decides at times."""
    [[first]] = in_its_own_cluster([[first]])
    known = {field: getattr(other_row if field in differ else first, field) for field in UsageRow.__struct_fields__}
    known |= {"cluster": first.cluster, "uid": first.uid, "start": first.start}
    known["created"] = first.created + known["created"] % 2
    known["evidence"] = Evidence.NONE if known["ended"] is None else known["evidence"]
    second = UsageRow(**known)

    async def scenario() -> None:
        one, other = writers()
        assert await one.merge([first]) == 1
        said_more = await other.merge([second])
        wanted = merged(first, second)
        assert (await everything(one))[first.key] == wanted
        assert bool(said_more) == (wanted != first)
        for ledger in {id(each): each for each in (one, other)}.values():
            await ledger.close()

    asyncio.run(scenario())


@given(any_row(), any_row())
def test_texts_are_ordered_as_what_they_stand_for(first: UsageRow, second: UsageRow) -> None:
    labels, amounts = [each.labels for each in (first, second)], [each.amounts for each in (first, second)]
    texts = [encoding.labels_text(each).encode() for each in labels]
    assert (texts[0] < texts[1]) == (labels[0] < labels[1])
    assert [encoding.labels_of(text.decode()) for text in texts] == labels
    texts = [encoding.amounts_text(each).encode() for each in amounts]
    assert (texts[0] < texts[1]) == (amounts[0] < amounts[1])
    assert [encoding.amounts_of(text.decode()) for text in texts] == amounts


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_survives_as_an_identifier(text: str) -> None:
    assert encoding.identified(encoding.identifier(text)) == text
    assert encoding.unescaped(encoding.escaped(text)) == text

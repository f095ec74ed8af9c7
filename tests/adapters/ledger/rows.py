"""Rows of usage for the tests, by hand and at random."""

import uuid
from collections.abc import AsyncIterator
from typing import Any, Protocol

from hypothesis import strategies as st

from headroom.adapters.ledger.copying import CopySource, CopyTarget
from headroom.adapters.ledger.encoding import BEFORE_ALL
from headroom.model.ports import Ledger
from headroom.model.usage import DAY, UNSEEN, Ending, Evidence, UsageRow, merged

TODAY = 20_000 * DAY
CLUSTER = "0d8a1f1e-5a5c-4c5e-9a57-d0f2b1c5a001"


class Kept(Ledger, CopySource, CopyTarget, Protocol):
    """What all three ledgers can do."""


def uid(number: int) -> str:
    return str(uuid.UUID(int=number, version=4))


def row(number: int = 1, **more: Any) -> UsageRow:
    """An hour on one GPU, still running; anything about it can be said otherwise."""
    start = more.pop("start", TODAY + number * 1000)
    known: dict[str, Any] = {
        "cluster": CLUSTER,
        "uid": uid(number),
        "start": start,
        "namespace": "team-a",
        "pod": f"train-{number}",
        "created": TODAY,
        "observed": start + 500,
        "earliest": start,
        "seen_until": start + 3_600_000,
        "amounts": (("nvidia.com/gpu", 1_000_000),),
        "labels": (("app", "train"), ("team", "a")),
        "price": 2_500_000,
    }
    return UsageRow(**(known | more))


async def everything(ledger: Ledger, since: int = BEFORE_ALL) -> dict[tuple[str, int, str, int], UsageRow]:
    """All rows by key; the same key twice is an error."""
    found: dict[tuple[str, int, str, int], UsageRow] = {}
    async for rows in ledger.read(since):
        for each in rows:
            assert each.key not in found
            found[each.key] = each
    return found


async def flat(batches: AsyncIterator[list[UsageRow]]) -> list[UsageRow]:
    """All rows of all batches."""
    return [each async for rows in batches for each in rows]


def united(rows: list[UsageRow]) -> dict[tuple[str, int, str, int], UsageRow]:
    """What `merged` makes of rows."""
    found: dict[tuple[str, int, str, int], UsageRow] = {}
    for each in rows:
        found[each.key] = merged(found[each.key], each) if each.key in found else each
    return found


# Few values each, so that rows often have the same key and often tie; some of the texts are traps for an order or an encoding.
_texts = st.sampled_from(
    [
        "",
        "a",
        "b",
        "ab",
        "a\tb",
        "a\n",
        "\x00",
        "\x01",
        "\x0b",
        "é",
        "z\u00e9",
        "\U0001f600",
        "\uffff",
        "A",
        "a-b",
        "a_b",
        "a b",
    ]
)
_moments = st.integers(0, 3).map(lambda number: TODAY + number)
_maybe = st.none() | _moments
_names = st.sampled_from(["", "nvidia.com/gpu", "cpu", "a\tb"])


@st.composite
def any_row(draw: st.DrawFn, cluster: str = CLUSTER) -> UsageRow:
    ended = draw(_maybe)
    return UsageRow(
        cluster=cluster,
        uid=draw(st.sampled_from([uid(1), uid(2), uid(1).upper(), "", "fifteen-letters", "sixteen--letters", "\x00x"])),
        start=draw(st.sampled_from([0, -5, TODAY, TODAY + 1])),
        namespace=draw(_texts),
        pod=draw(_texts),
        created=draw(st.sampled_from([TODAY, TODAY + 1, TODAY + DAY])),
        observed=draw(_moments),
        version=draw(st.integers(0, 2)),
        earliest=draw(_moments),
        seen_until=draw(_moments),
        ended=ended,
        evidence=Evidence.NONE if ended is None else draw(st.sampled_from(list(Evidence))),
        gone_by=draw(_maybe),
        amounts=draw(st.lists(st.tuples(_names, st.sampled_from([0, 9, 10, 10**24])), max_size=2).map(tuple)),
        labels=draw(st.lists(st.tuples(_texts | st.just(UNSEEN), _texts), max_size=2).map(tuple)),
        price=draw(st.sampled_from([None, 0, 1])),
        ending=draw(st.sampled_from(list(Ending))),
        details=draw(st.lists(st.tuples(_texts, _texts), max_size=2).map(tuple)),
    )

"""Verdicts of home clusters in all ledgers: the last word of each counts, and nobody touches another's."""

from msgspec import structs

from headroom.model.verdicts import HomeVerdict
from tests.adapters.ledger.rows import CLUSTER, TODAY, Kept

OTHER = "another"


def a_verdict(budget: str = "lab/a", cluster: str = CLUSTER, *, holds: bool = True, at: int = TODAY) -> HomeVerdict:
    return HomeVerdict(cluster=cluster, budget=budget, holds=holds, since=TODAY - 5 if holds else 0, at=at)


async def test_there_are_none_at_first(ledger: Kept) -> None:
    assert await ledger.verdicts() == ()


async def test_the_last_word_of_each_cluster_counts(ledger: Kept) -> None:
    one, two, other = a_verdict(), a_verdict("lab/b", holds=False), a_verdict("lab/a", OTHER)
    await ledger.publish(CLUSTER, [one, two])
    await ledger.publish(OTHER, [other])
    assert set(await ledger.verdicts()) == {one, two, other}
    later = structs.replace(one, holds=False, since=0, at=TODAY + 1)
    await ledger.publish(CLUSTER, [later, two])
    assert set(await ledger.verdicts()) == {later, two, other}
    # Be it an earlier moment: a clock that was ahead can be corrected.
    await ledger.publish(CLUSTER, [one])
    assert set(await ledger.verdicts()) == {one, other}
    await ledger.publish(CLUSTER, [])
    assert await ledger.verdicts() == (other,)

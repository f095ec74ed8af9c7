"""Two operators on one PostgreSQL: what the home cluster of a budget decides is done in the other one, and nothing without its word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.api.budget_hold import hold_name
from headroom.api.kinds import AnyResource
from headroom.core.budgets import PLAN, hold_of
from headroom.model.actions import Action, ApplyBudgetHold, DeleteBudgetHold, ReleasePod
from headroom.model.changes import EVERYTHING
from headroom.model.facts import Hold
from headroom.model.times import MINUTE, SECOND
from headroom.model.world import LedgerState, World
from headroom.runtime.verdicts import Verdicts
from tests.builders import NOON, a_used_world
from tests.core.stage import a_budget, brief, gated
from tests.postgres import Postgres
from tests.runtime.test_history_kept import HandClock

KEY = "team-a/one"


class Cluster:
    """One cluster with a budget of all of them, and its operator as far as verdicts go."""

    def __init__(self, name: str, ledger: PostgresLedger, *pods: Any) -> None:
        self.name, self.pods, self.clock = name, pods, HandClock()
        self.budget: AnyResource = a_budget(hours="18", enforce="Hold", homeCluster="east")
        self.holds: dict[str, Hold] = {}
        self.verdicts = Verdicts(ledger, self.clock)

    def world(self, **more: Any) -> World:
        state = LedgerState(verdicts=self.verdicts.known)
        given: dict[str, Any] = {"now": self.clock.now(), "cluster": self.name, "ledger": state, "pods": self.pods}
        return a_used_world(self.budget, holds=self.holds, **given | more)

    def hold(self) -> None:
        spec = hold_of(self.world(), self.budget)
        self.holds = {hold_name(KEY): Hold(name=hold_name(KEY), created=self.clock.now(), spec=spec)}

    async def exchange(self, *, may_vouch: bool = True, **more: Any) -> bool:
        self.clock.elapsed += 6 * SECOND
        return await self.verdicts.exchange(self.world(**more), may_vouch=may_vouch)

    def decided(self) -> list[Action]:
        (decision,) = PLAN.decide(self.world(), EVERYTHING)
        chores = list(PLAN.chores(self.world()))
        return [
            each for each in decision.actions if isinstance(each, (ApplyBudgetHold, DeleteBudgetHold, ReleasePod))
        ] + chores


@pytest.fixture
async def both(postgres: Postgres) -> AsyncIterator[tuple[Cluster, Cluster]]:
    url = postgres.new_database()
    ledgers = PostgresLedger(url), PostgresLedger(url)
    yield Cluster("east", ledgers[0]), Cluster("west", ledgers[1], gated("p", created=NOON))
    for each in ledgers:
        await each.close()


async def test_the_other_cluster_holds_and_releases_by_the_word_of_home(both: tuple[Cluster, Cluster]) -> None:
    east, west = both
    east.hold()
    assert not await east.exchange()
    assert await west.exchange()
    assert not await west.exchange(), "the same word is no news"
    assert brief(west.decided()) == [f"ApplyBudgetHold {KEY}"]
    west.hold()
    assert west.decided() == []
    east.holds = {}
    await east.exchange()
    assert await west.exchange()
    assert west.decided() == [DeleteBudgetHold(budget=KEY), ReleasePod(pod="team-a/p", uid="uid-p")]


async def test_nothing_is_undone_while_home_says_nothing_or_cannot_vouch(both: tuple[Cluster, Cluster]) -> None:
    east, west = both
    east.hold()
    west.hold()
    for _ in range(2):
        await east.exchange()
        await west.exchange()
    east.holds = {}
    await east.exchange(may_vouch=False)
    await east.exchange(stopped=True)
    await west.exchange()
    assert west.decided() == []
    west.clock.elapsed += 5 * MINUTE
    await west.exchange()
    assert west.decided() == [], "an old word is none"
    assert west.verdicts.known[0].holds


async def test_who_has_no_budget_of_several_clusters_asks_nothing(both: tuple[Cluster, Cluster]) -> None:
    _, west = both
    west.budget = a_budget(hours="18", enforce="Hold")
    west.verdicts = Verdicts(None, west.clock)  # type: ignore[arg-type]  # there is nothing to be asked
    assert not await west.exchange()

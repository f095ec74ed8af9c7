"""Verdicts between clusters: who leads in the home cluster of a budget tells the others through the ledger whether it holds."""

from __future__ import annotations

from typing import Final

from headroom.api.budget_hold import hold_name
from headroom.core.usage import KIND
from headroom.model.ports import Clock, Ledger
from headroom.model.times import SECOND
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import World
from headroom.runtime.clock import Due

PUBLISH_SECONDS: Final = 5.0
READ_SECONDS: Final = 2.0
NEWS_MS: Final = 30 * SECOND
"""After so long without a word, the same word is news."""


class Verdicts:
    """Tells what is decided here, and hears what is decided elsewhere."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._due = ledger, Due(clock)
        self.known: tuple[HomeVerdict, ...] = ()
        """What other clusters said last of budgets that are here too."""

    async def exchange(self, world: World, *, may_vouch: bool) -> bool:
        """Tell and hear what is due; whether there is news. Who cannot vouch for what stands here says nothing."""
        spanning = [
            (budget.spec.home_cluster, f"{ref.namespace}/{ref.name}")
            for ref, budget in world.of_kind(KIND)
            if budget.spec is not None and budget.spec.home_cluster
        ]
        mine = [key for home, key in spanning if home == world.cluster]
        if mine and may_vouch and not world.stopped and self._due.is_time("publish", PUBLISH_SECONDS):
            await self._ledger.publish(world.cluster, [_verdict(world, key) for key in sorted(mine)])
            self._due.did("publish")
        wanted = {each for each in spanning if each[0] != world.cluster}
        if not wanted:
            is_news, self.known = bool(self.known), ()
            return is_news
        if not self._due.is_time("read", READ_SECONDS):
            return False
        found = await self._ledger.verdicts()
        before, self.known = self.known, tuple(each for each in found if (each.cluster, each.budget) in wanted)
        self._due.did("read")
        return _is_news(before, self.known)


def _verdict(world: World, key: str) -> HomeVerdict:
    hold = world.holds.get(hold_name(key))
    since = hold.created if hold is not None else 0
    return HomeVerdict(cluster=world.cluster, budget=key, holds=hold is not None, since=since, at=world.now)


def _is_news(before: tuple[HomeVerdict, ...], after: tuple[HomeVerdict, ...]) -> bool:
    known = {(each.cluster, each.budget, each.holds, each.since): each.at for each in before}
    return len(before) != len(after) or any(
        abs(each.at - known.get((each.cluster, each.budget, each.holds, each.since), 0)) > NEWS_MS for each in after
    )

"""Up to when usage is known: what other clusters write counts up to their last word."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headroom.core.usage.coverage import BudgetScope
from headroom.model.numbering import Ints
from headroom.model.usage_table import OPEN, UsageTable
from headroom.model.world import World

LOST_MS: Final = 120_000
"""A quiet watch speaks once a minute, and is begun anew after a minute and a half; a cluster that is later than this is not waited for."""


class LastWords(NamedTuple):
    """Up to when all clusters of a scope have told of themselves."""

    as_of: int
    """The moment that sums over the scope are true for."""
    stale: dict[str, int]
    """Clusters that nobody waits for, each with its last word."""

    def ends(self, table: UsageTable, group: Ints, end: Ints) -> Ints:
        """When rows end: what runs in a stale cluster is known to run only up to that cluster's last word."""
        if not self.stale:
            return end
        last = np.array([self.stale.get(each.terms.cluster, OPEN) for each in table.groups], np.int64)
        return np.where(end == OPEN, last[group], end)


def heard_of(world: World, scope: BudgetScope) -> LastWords:
    """What is heard of the clusters of a scope."""
    if scope.clusters:
        return LastWords(world.as_of, {})
    others = {each.terms.cluster for each in world.usage.groups} - {world.cluster}
    words = {name: world.ledger.complete_until.get(name, 0) for name in others}
    stale = {name: word for name, word in words.items() if word < world.as_of - LOST_MS}
    return LastWords(min([world.as_of, *(word for name, word in words.items() if name not in stale)]), stale)

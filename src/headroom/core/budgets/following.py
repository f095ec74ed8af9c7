"""A budget that spans clusters queues in all of them, by the verdict of its home cluster.

That cluster tells through the ledger whether it holds. While its word is fresh, the others do the same. Without it they keep what they
have and release nothing; a hold begins by their own count then, which is of the same rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headroom.api.budgets import Following
from headroom.api.kinds import AnyResource
from headroom.model import times
from headroom.model.times import MINUTE
from headroom.model.world import World

STALE_MS: Final = 2 * MINUTE
"""A verdict of so long ago may be another one by now."""
AHEAD_MS: Final = MINUTE
"""The home cluster's clock may be ahead of ours by so much."""


class Followed(NamedTuple):
    """What is known of the home cluster's verdict."""

    cluster: str
    holds: bool
    since: int
    at: int | None
    """When it was told; None if never."""
    is_fresh: bool

    @property
    def lets_release(self) -> bool:
        """Whether what waits may start here: only on the fresh word that home does not hold."""
        return self.is_fresh and not self.holds

    def wants_hold(self, *, own: bool, stands: bool, waits: bool) -> bool:
        """Whether a hold should stand here; `own` is what our own count says."""
        if not self.is_fresh:
            return own or stands
        return self.holds or (stands and waits)

    def told(self) -> Following:
        """As the status has it."""
        since = times.text(self.since) if self.holds and self.since else ""
        return Following(cluster=self.cluster, holding=self.holds, since=since, stale=not self.is_fresh)

    def words(self) -> str:
        """Whose verdict it is, as a sentence."""
        if self.at is None:
            return f"Cluster {self.cluster} decides and has not reported yet: new pods are queued by the usage counted here, and none is released."
        if not self.is_fresh:
            return f"Cluster {self.cluster} decides and has not reported since {times.text(self.at)}: queued pods stay queued."
        return f"Cluster {self.cluster} decides."


def is_elsewhere(world: World, spec: object) -> bool:
    """Whether another cluster decides on the budget."""
    home = getattr(spec, "home_cluster", "")
    return bool(home) and home != world.cluster


def followed(world: World, budget: AnyResource) -> Followed | None:
    """What another cluster decided on a budget; None for one that is decided here."""
    if not is_elsewhere(world, budget.spec):
        return None
    home, key = budget.spec.home_cluster, f"{budget.namespace}/{budget.name}"
    found = next((each for each in world.ledger.verdicts if (each.cluster, each.budget) == (home, key)), None)
    if found is None:
        return Followed(home, holds=False, since=0, at=None, is_fresh=False)
    is_fresh = -AHEAD_MS <= world.now - found.at < STALE_MS
    return Followed(home, found.holds, found.since, found.at, is_fresh)

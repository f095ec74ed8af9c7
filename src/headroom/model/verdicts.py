"""What the home cluster of a budget decided, for the other clusters that the budget spans."""

from __future__ import annotations

from msgspec import Struct


class HomeVerdict(Struct, frozen=True, kw_only=True):
    """Whether new pods of a budget wait. Moments are milliseconds."""

    cluster: str
    """The home cluster, which says so."""
    budget: str
    """namespace/name."""
    holds: bool
    since: int = 0
    """Since when its hold stands."""
    at: int
    """When this was last true, by the clock of the home cluster."""

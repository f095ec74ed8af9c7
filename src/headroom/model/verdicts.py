"""What the home cluster of a budget decided, for the other clusters that the budget spans."""

from __future__ import annotations

from msgspec import Struct


class HomeVerdict(Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether new pods of a budget wait. Moments are milliseconds."""

    name: str = ""
    """Of the document that says so, where one does."""
    cluster: str = ""
    """The home cluster, which says so."""
    budget: str = ""
    """namespace/name."""
    holds: bool = False
    since: int = 0
    """Since when its hold stands."""
    at: int = 0
    """When this was last true, by the clock of the home cluster."""

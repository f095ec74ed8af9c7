"""How often the operator does what nothing calls for: looking again, renewing, asking whether a silent watch is still alive."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Pace(Struct, frozen=True, kw_only=True):
    """What happens is answered at once, at any pace. A simulated week needs a slower one than a cluster."""

    lease_seconds: int = 15
    """For how long a lease is taken."""
    renew_seconds: float = 2.0
    idle_seconds: float = 1.0
    """With nothing to decide, it is looked for retries and at the right to act so often."""
    full_pass_seconds: float = 60.0
    """How often each plan is asked about everything."""
    turn_ms: Mapping[str, int] = {}
    """By kind: a decision that knows its next turn is not looked at again before that, or before so long."""
    numbers_seconds: tuple[float, float] = (5.0, 60.0)
    """How often a status of which only numbers moved is written: least, with few resources, and most, with many."""
    record_seconds: float = 1.0
    """How often usage is looked at and written to the ledger."""
    watch_seconds: tuple[int, int] = (300, 600)
    """For how long a stream is asked for, at random, so that many do not end at once."""
    silent_seconds: float = 90.0
    """Silence after which a stream counts as dead; the server sends a bookmark about once a minute."""
    oldest_seconds: float = 120.0
    """A watch that was silent for longer may hide anything."""
    absent_seconds: tuple[float, float] = (20.0, 40.0)
    """When a kind of others that the cluster does not have is looked for again: most clusters lack some, and never get them."""

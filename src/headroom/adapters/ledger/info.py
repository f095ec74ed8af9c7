"""What a ledger holds, in a few numbers for people."""

from __future__ import annotations

from msgspec import Struct


class Info(Struct, frozen=True, kw_only=True, rename="camel"):
    """A summary of one ledger; moments are milliseconds."""

    place: str
    version: int
    rows: int
    oldest: int | None
    """The earliest begin of any row."""
    newest: int | None
    """The last moment that any row tells of."""
    clusters: dict[str, int]
    """Up to when each cluster's view is complete."""
    size: int
    """Bytes on disk."""

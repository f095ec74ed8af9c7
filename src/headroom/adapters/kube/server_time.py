"""What time it is by the API server's clock: the Date of its answers, moved on by our monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

HALF_A_SECOND: Final = 500
"""A Date is in whole seconds."""


class ServerTime:
    """Learns from every answer; several connections to one API server may share it, from several threads."""

    def __init__(self) -> None:
        self._known: tuple[int, float] | None = None

    def heard(self, headers: Mapping[str, str], monotonic: float) -> None:
        """An answer came just now."""
        date = headers.get("date")
        if date is None:
            return
        try:
            said = parsedate_to_datetime(date)
        except (ValueError, OverflowError):
            return  # no time that anybody could read; the last one stands
        self._known = round(said.timestamp()) * 1000 + HALF_A_SECOND, monotonic

    def now(self, monotonic: float) -> int | None:
        """Milliseconds since 1970; None if no answer has told."""
        known = self._known
        return None if known is None else known[0] + round((monotonic - known[1]) * 1000)

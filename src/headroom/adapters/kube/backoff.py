"""How long a watch that failed waits before it is opened again."""

from __future__ import annotations

import random
from typing import Final

QUICK_PAUSE: Final = (0.1, 0.2)
"""While a kind still counts as seen: there are only seconds in which to lose nothing, so few requests come of it."""
SHORTEST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 15.0
"""So that all is well again soon after whatever was wrong has ended."""


class Backoff:
    """Exponential with full jitter, but not before there is nothing left to lose; never shorter than the server asks for."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        """All is well."""
        self._failures = 0

    def pause(self, *, is_seen: bool, asked_for: float | None) -> float:
        """Seconds to wait; `is_seen` says whether what was watched still counts as seen."""
        if is_seen:
            pause = self._rng.uniform(*QUICK_PAUSE)
        else:
            pause = self._rng.uniform(0, min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(self._failures, 16)))
            self._failures += 1
        return max(pause, min(asked_for or 0.0, LONGEST_PAUSE))

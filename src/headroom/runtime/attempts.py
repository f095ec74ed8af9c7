"""What was tried for each resource, how it went, and when it may be tried again.

It is memory that may be lost at any moment: without it the operator would only repeat itself sooner.
"""

from __future__ import annotations

import random
from typing import Final

from msgspec import Struct

from headroom.model.decisions import Ref
from headroom.model.ports import Clock

REPEAT_AFTER_SECONDS: Final = 30.0
"""How long a thing that was done is left to take effect before the same may be done again."""
LONGEST_BACKOFF_SECONDS: Final = 300.0
"""After a refusal; whoever refused must change something first."""
LONGEST_OUTAGE_SECONDS: Final = 20.0
"""After anything that passes by itself: then all is well soon after."""
STATUS: Final = b""
"""The key of a status write."""
SHOWN: Final = 3


class Attempt(Struct):
    """How often something failed, and before when it is not tried again."""

    failures: int = 0
    not_before: float = 0.0
    why: str = ""


class Attempts:
    """The memory of one writer."""

    def __init__(self, clock: Clock, rng: random.Random, repeat: float = REPEAT_AFTER_SECONDS) -> None:
        self._clock, self._rng, self._repeat = clock, rng, repeat
        self._tried: dict[Ref, dict[bytes, Attempt]] = {}
        self._look_again: set[tuple[Ref, float]] = set()

    def is_due(self, ref: Ref, key: bytes) -> bool:
        """Whether it may be tried now."""
        known = self._tried.get(ref, {}).get(key)
        return known is None or known.not_before <= self._clock.monotonic()

    def succeeded(self, ref: Ref, key: bytes, repeat: float | None = None) -> None:
        """It was done, and is not done again for `repeat` seconds."""
        tried = self._tried.setdefault(ref, {})
        before = tried.pop(key, None)
        if key == STATUS:
            return
        now = self._clock.monotonic()
        tried[key] = Attempt(not_before=now + (self._repeat if repeat is None else repeat))
        if before is not None and before.failures:
            self._look_again.add((ref, now))  # so that the condition about the failure goes

    def failed(
        self, ref: Ref, key: bytes, first_pause: float, why: str, longest: float = LONGEST_BACKOFF_SECONDS
    ) -> None:
        """It was not done; the pause before the next try grows with each failure, up to the `longest`."""
        known = self._tried.setdefault(ref, {}).setdefault(key, Attempt())
        pause = min(longest, first_pause * 2**known.failures) * self._rng.uniform(1.0, 1.5)
        known.failures = min(known.failures + 1, 16)
        known.not_before = self._clock.monotonic() + pause
        known.why = why
        # Decided anew at once, so that the owner sees what failed, and again when it may be tried again.
        self._look_again |= {(ref, self._clock.monotonic()), (ref, known.not_before)}

    def forgive(self) -> None:
        """Whatever failed may be tried again at once: what stood in the way may be gone."""
        now = self._clock.monotonic()
        for ref, tried in self._tried.items():
            for each in tried.values():
                if each.failures:
                    each.failures, each.not_before = 0, now
                    self._look_again.add((ref, now))

    def keep_only(self, ref: Ref, wanted: frozenset[bytes]) -> None:
        """Forget failures of actions that nobody wants any more, and successes that are long past."""
        now, tried = self._clock.monotonic(), self._tried.get(ref, {})
        for key in [each for each in tried if each != STATUS and each not in wanted]:
            if tried[key].failures or tried[key].not_before <= now:
                del tried[key]

    def forget(self, ref: Ref) -> None:
        """The resource is gone."""
        self._tried.pop(ref, None)
        self._look_again = {(each, at) for each, at in self._look_again if each != ref}

    def failures(self, ref: Ref) -> str:
        """What could not be done for a resource, in words; empty if there is nothing."""
        tried = self._tried.get(ref, {})
        found = sorted({known.why for key, known in tried.items() if key != STATUS and known.failures})
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        return "; ".join(found[:SHOWN]) + more

    def take_due(self) -> set[Ref]:
        """The resources that should be decided anew because something about them failed."""
        now = self._clock.monotonic()
        due = {(ref, at) for ref, at in self._look_again if at <= now}
        self._look_again -= due
        return {ref for ref, _ in due}

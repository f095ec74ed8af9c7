"""Lengths of time as people and the API server write them: 90s, 30m, 1h30m."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Meta

from headroom.api.schema import Rule, extra

PATTERN: Final = r"^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,7}s)?$"
"""Hours, minutes and seconds, in this order: a part of what CEL's duration() reads."""
LONGEST: Final = 24
HINT: Final = "a length of time such as 90s, 30m or 1h30m"
_PARTS: Final = re.compile(PATTERN[1:-1], re.ASCII)


def milliseconds(text: str | None) -> int | None:
    """The length; None for what is none, or for no time at all."""
    match = _PARTS.fullmatch(text) if text and len(text) <= LONGEST else None
    if match is None:
        return None
    hours, minutes, seconds = (int((part or "0 ")[:-1]) for part in match.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 or None


def length(description: str) -> Meta:
    """A field that takes a length of time above 0."""
    return Meta(
        min_length=2,
        max_length=LONGEST,
        pattern=PATTERN,
        description=description,
        extra=extra(
            Rule(
                # The pattern is asked again: a text that duration() cannot read would be an error of the rule itself.
                cel=f"!self.matches('{PATTERN}') || self == '' || duration(self) > duration('0s')",
                message="must be more than no time",
                holds=lambda text: _PARTS.fullmatch(text) is None or not text or milliseconds(text) is not None,
            ),
            hint=HINT,
        ),
    )

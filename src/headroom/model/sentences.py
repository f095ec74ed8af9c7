"""How messages name what is done."""

from __future__ import annotations

from typing import NamedTuple


class Sentence(NamedTuple):
    """How messages name an effect."""

    weight: int
    """What matters most comes first: the lowest."""
    reason: str
    begins: str
    names_targets: bool = True
    """Whether what it is done to follows: not where that is the resource itself."""

"""Words about machines, prices and pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHOWN: Final = 3
_MILLION: Final = 1_000_000


def of_machines(count: int) -> str:
    """So many machines."""
    return "1 machine" if count == 1 else f"{count} machines"


def of_pods(count: int) -> str:
    """So many pods."""
    return "1 pod" if count == 1 else f"{count} pods"


def few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - SHOWN
    if more > 0:
        return f"{', '.join(names[:SHOWN])} and {more} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def dollars(millionths: int | None) -> str:
    """A price in dollars, exactly; empty where there is none."""
    if millionths is None:
        return ""
    whole, rest = divmod(millionths, _MILLION)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


def price(millionths: int) -> str:
    """A price for people."""
    return f"${millionths / _MILLION:.2f}"


def where(instance_type: str, zone: str) -> str:
    """A type in a zone."""
    return f"{instance_type} in {zone}" if zone else instance_type


def small(text: str) -> str:
    """A sentence as the end of another one."""
    return text if text.startswith("Karpenter") else text[:1].lower() + text[1:]

"""Amounts as text."""

from __future__ import annotations

from typing import Final

_DECIMALS: Final = 12


def decimal(amount: int, whole: int) -> str:
    """An amount as decimal text, rounded only beyond the twelfth decimal."""
    scaled = (2 * amount * 10**_DECIMALS + whole) // (2 * whole)
    digits, rest = divmod(scaled, 10**_DECIMALS)
    return f"{digits}.{rest:0{_DECIMALS}d}".rstrip("0").rstrip(".")


def short(amount: int, whole: int) -> str:
    """An amount with three decimals, for sentences."""
    return f"{(2000 * amount + whole) // (2 * whole) / 1000:.3f}"

"""Amounts as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_DECIMALS: Final = 12


def decimal(amount: int, whole: int) -> str:
    """An amount as decimal text, rounded only beyond the twelfth decimal."""
    if not amount:
        return "0"
    scaled = (2 * amount * 10**_DECIMALS + whole) // (2 * whole)
    digits, rest = divmod(scaled, 10**_DECIMALS)
    return f"{digits}.{rest:0{_DECIMALS}d}".rstrip("0").rstrip(".")


def short(amount: int, whole: int) -> str:
    """GPU-hours for sentences: with one decimal, or two below 10."""
    hundredths = (200 * amount + whole) // (2 * whole)
    return f"{hundredths / 100:.2f}" if hundredths < 1000 else f"{(20 * amount + whole) // (2 * whole) / 10:.1f}"


def dollars(amount: int, whole: int) -> str:
    """Dollars for sentences, with cents."""
    return f"{(200 * amount + whole) // (2 * whole) / 100:.2f}"


def beside(amount: int, limit: int, whole: int, rounded: Callable[[int, int], str] = short) -> str:
    """An amount that stands beside its limit: as `rounded` says it, with more decimals where two that differ would read the same."""
    text = rounded(amount, whole)
    if amount == limit or text != rounded(limit, whole):
        return text
    for digits in range(2, _DECIMALS + 1):
        scaled = amount * 10**digits // whole
        if scaled * whole != limit * 10**digits:
            return f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}"
    return text


def gpus(micro: int) -> str:
    """GPUs for columns: whole, or with at most two decimals."""
    return f"{(micro + 5_000) // 10_000 / 100:.2f}".rstrip("0").rstrip(".")

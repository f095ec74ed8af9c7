"""Kubernetes quantities read exactly: text in, whole numbers out, and a reason instead of an exception.

Every amount that a person or another program writes (`8`, `500m`, `1.5G`, `1Gi`, `1e3`) passes here once. The result is an
integer count of billionths (nano-units), rounded up beyond that as Kubernetes does, so nothing inside ever holds a float.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

NANO: Final = 10**9
MAX_LENGTH: Final = 64
"""Longer text is refused unread: no real quantity needs it, and the time to read one stays bounded."""

PATTERN: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
"""Kubernetes' own syntax, but the exponent has at most three digits: the API server's `quantity('1e1000000000000')` never
returns and keeps a core busy for ever, so no rule may come near such a text."""

CEL_MATCHES: Final = f"string(self).matches('{PATTERN.replace(chr(92), chr(92) * 2)}')"
"""Whether `self` is such a text, for a rule to ask first: a text that fails its pattern is still handed to the rules."""

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)(?:(?P<binary>[KMGTPE])i|(?P<suffix>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_WELL_FORMED: Final = re.compile(PATTERN[1:-1])
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_LARGEST_EXPONENT: Final = 40


class InvalidQuantity(Struct, frozen=True):
    """Why a text is not the amount it should be, as the end of a sentence: `"1e309": is too large`."""

    reason: str


def nano(text: str | int, *, largest: int = 10**18) -> int | InvalidQuantity:
    """The quantity in billionths; `largest` is in whole units."""
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        return InvalidQuantity("must be a quantity such as 8, 500m or 1.5k")
    if isinstance(text, int):
        return text * NANO if abs(text) <= largest else InvalidQuantity(f"must be at most {largest}")
    if len(text) > MAX_LENGTH:
        return InvalidQuantity(f"must be at most {MAX_LENGTH} characters long")
    if not _WELL_FORMED.fullmatch(text):
        return InvalidQuantity("must be a quantity such as 8, 500m or 1.5k")
    found = _scaled(text)
    if found is None or abs(found) > largest * NANO:
        return InvalidQuantity(f"must be at most {largest}")
    return found


def _scaled(text: str) -> int | None:
    """Billionths of a well-formed quantity, rounded away from zero; None when it is beyond any use."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    whole, fraction = match["whole"], match["fraction"]
    digits = int((whole + fraction) or "0")
    factor = 1 << _BINARY[match["binary"]] if match["binary"] else 1
    power = _DECIMAL[match["suffix"]] if match["suffix"] else int(match["exponent"] or 0)
    if digits == 0:
        return 0
    if power > _LARGEST_EXPONENT:
        return None
    # Below one billionth Kubernetes rounds up, so every tiny amount is one billionth.
    scale = max(power, -2 * MAX_LENGTH) + 9 - len(fraction)
    amount: int = digits * factor
    amount = amount * 10**scale if scale >= 0 else -(-amount // 10**-scale)
    return -amount if match["sign"] == "-" else amount

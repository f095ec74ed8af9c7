"""A million absurd bandwidth values, in both families: none raises, and none is silently nothing.

make bench NAME=rates                           half a minute
"""

import random
import sys
import time
from fractions import Fraction

from bench import results
from bench.results import Row
from headroom.api.bandwidth_config import Unit
from headroom.api.quantities import InvalidQuantity
from headroom.core.bandwidth.rates import parse_rate
from headroom.model.bandwidth import LEAST_BITS, MOST_BITS

VALUES = 1_000_000
SEED = 20
UNITS: tuple[Unit, Unit] = ("bits", "Mbps")
LETTERS = "0123456789.+-eEkKMGTPimnu /_,xNaIf１２M\x00\n"
SUFFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "m": -3, "u": -6, "n": -9}


def _anything(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randrange(12)))


def _number(rng: random.Random) -> str:
    sign, suffix = rng.choice(["", "", "+", "-"]), rng.choice([*SUFFIXES, "Ki", "Mi", "Gi", "e3", "E-2", "e309"])
    return f"{sign}{rng.randrange(10 ** rng.randrange(1, 20))}{rng.choice(['', '.', '.5', '.000001'])}{suffix}"


def _huge(rng: random.Random) -> str:
    return rng.choice("19M") * rng.randrange(65, 4096)


def values(rng: random.Random) -> list[str]:
    """Texts of every kind, most of them nearly right."""
    makers = (_anything, _number, _number, _number)
    return [_huge(rng) if number % 1000 == 0 else rng.choice(makers)(rng) for number in range(VALUES)]


def _exact(text: str, unit: Unit) -> int | None:
    """What a plain decimal number with a decimal suffix is, by fractions; None for any other text."""
    suffix = text[-1:] if text[-1:] in SUFFIXES and unit == "bits" else ""
    digits = text.removesuffix(suffix)
    if not digits.replace(".", "", 1).isdecimal() or not digits.isascii() or len(text) > 64:
        return None
    exact = Fraction(digits.strip(".") if digits.endswith(".") else digits) * Fraction(10) ** SUFFIXES[suffix]
    bits = exact * (10**6 if unit == "Mbps" else 1)
    return -(-bits.numerator // bits.denominator)


def main(_arguments: list[str]) -> int:
    """Read them all in both units, and write the results."""
    given = values(random.Random(SEED))
    raised = silent = wrong = good = 0
    slowest = 0.0
    for text in given:
        for unit in UNITS:
            began = time.thread_time()
            try:
                found = parse_rate(text, unit)
            except Exception as error:  # noqa: BLE001  what is counted here
                print(f"{text!r} ({unit}): {error!r}", file=sys.stderr)
                raised += 1
                continue
            slowest = max(slowest, time.thread_time() - began)
            exact = _exact(text, unit)
            if isinstance(found, InvalidQuantity):
                silent += not found.reason
                wrong += exact is not None and LEAST_BITS <= exact <= MOST_BITS
            else:
                good += 1
                silent += not LEAST_BITS <= found <= MOST_BITS
                wrong += exact is not None and exact != found
    rows = [
        Row(figure=f"{VALUES:,} texts in two units: raised", value=raised, unit="texts", goal=0),
        Row(figure="the same: nothing, out of range, or refused without a reason", value=silent, unit="texts", goal=0),
        Row(figure="the same: other than by exact fractions", value=wrong, unit="texts", goal=0),
        Row(figure="the same: read as a rate", value=good, unit="texts", goal=VALUES // 10, sense="min"),
        Row(figure="the same: CPU of the slowest", value=round(slowest * 1000, 2), unit="ms"),
    ]
    return 1 if results.write("rates", rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

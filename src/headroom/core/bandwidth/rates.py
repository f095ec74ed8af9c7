"""What pods ask for: annotations read exactly, as the CNI reads them, with a reason instead of an exception and never a silent zero."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from headroom.api.bandwidth_config import EXAMPLES, Unit
from headroom.api.quantities import MAX_LENGTH, NANO, InvalidQuantity, nano
from headroom.model.bandwidth import LEAST_BITS, MEGABIT, MOST_BITS, AnnotationKey, BandwidthRules, Rates
from headroom.model.facts import Pairs, Pod

_PLAIN: Final = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_WANTED: Final[Mapping[Unit, str]] = {
    "bits": "must be bits per second such as 100M",
    "Mbps": "must be megabits per second such as 100, without a suffix",
}
_RANGE: Final[Mapping[Unit, str]] = {
    "bits": "must be between 1k and 1P bits per second",
    "Mbps": "must be between 0.001 and 1000000000 megabits per second",
}


class Malformed(Struct, frozen=True, gc=False):
    """An annotation that nobody can read."""

    key: str
    value: str
    """Its first characters."""
    example: str
    reason: str
    """The end of a sentence: `must be bits per second such as 100M`."""


class AskedRates(Struct, frozen=True, gc=False):
    """What a pod asks for."""

    rates: Rates = Rates()
    keys: tuple[str, ...] = ()
    """The annotations that say so, egress first."""
    malformed: tuple[Malformed, ...] = ()

    @property
    def problem(self) -> Malformed | None:
        """The first of what cannot be read."""
        return self.malformed[0] if self.malformed else None


def parse_rate(text: object, unit: Unit = "bits") -> int | InvalidQuantity:
    """Whole bits per second, rounded up as the CNI plugins do; from 1k to 1P, and a reason for anything else."""
    if not isinstance(text, str):
        return InvalidQuantity(_WANTED[unit])
    if len(text) > MAX_LENGTH:
        return InvalidQuantity(f"must be at most {MAX_LENGTH} characters long")
    if unit == "Mbps" and not _PLAIN.fullmatch(text):
        return InvalidQuantity(_WANTED[unit])
    found = nano(text, largest=10**40)
    if isinstance(found, InvalidQuantity):
        return InvalidQuantity(_RANGE[unit] if found.reason.startswith("must be at most") else _WANTED[unit])
    bits = -(-found * (MEGABIT if unit == "Mbps" else 1) // NANO)
    return bits if LEAST_BITS <= bits <= MOST_BITS else InvalidQuantity(_RANGE[unit])


def parse_pair(text: str) -> Rates | InvalidQuantity:
    """`UP/DOWN`, or one value for both, in bits per second: `25G/10G`."""
    up, slash, down = text.partition("/")
    one = parse_rate(up.strip())
    other = parse_rate(down.strip()) if slash else one
    if isinstance(one, InvalidQuantity):
        return one
    return other if isinstance(other, InvalidQuantity) else Rates(one, other)


def asked_by(pod: Pod, rules: BandwidthRules) -> AskedRates:
    """What a pod asks for now, by its annotations."""
    return asked_in(pod.annotations, rules)


def asked_in(annotations: Pairs, rules: BandwidthRules) -> AskedRates:
    """What these annotations ask for. What is not said is the default, if there is one; what cannot be read is a default in any case."""
    if not annotations:
        return AskedRates(rates=rules.defaults) if rules.defaults else _NOTHING
    given = dict(annotations)
    up, down = _one(given, rules.egress), _one(given, rules.ingress)
    malformed = (*up.malformed, *down.malformed)
    defaults, fallback = rules.defaults or Rates(), rules.fallback
    rates = Rates(_bits(up, defaults.up, fallback.up), _bits(down, defaults.down, fallback.down))
    keys = tuple(each.key for each in (up, down) if each.key)
    if not (keys or rules.defaults):
        return _NOTHING
    return AskedRates(rates=rates, keys=keys, malformed=malformed)


_NOTHING: Final = AskedRates()


class _Direction(Struct, frozen=True, gc=False):
    key: str = ""
    bits: int | None = None
    malformed: tuple[Malformed, ...] = ()


def _one(given: Mapping[str, str], keys: tuple[AnnotationKey, ...]) -> _Direction:
    """What is said of one direction: the first annotation counts, and every one that cannot be read is told."""
    present = [key for key in keys if key.name in given]
    if not present:
        return _Direction()
    found = [(key, _parsed(given[key.name], key.unit)) for key in present]
    malformed = tuple(
        malformed_of(key, given[key.name], bits) for key, bits in found if isinstance(bits, InvalidQuantity)
    )
    first, bits = found[0]
    return _Direction(first.name, None if isinstance(bits, InvalidQuantity) else bits, malformed)


def _parsed(text: str, unit: Unit) -> int | InvalidQuantity:
    return _few_parsed(text, unit) if len(text) <= MAX_LENGTH else parse_rate(text, unit)


_few_parsed: Final = lru_cache(maxsize=4096)(parse_rate)
"""Very many pods say the same."""


def malformed_of(key: AnnotationKey, value: str, why: InvalidQuantity) -> Malformed:
    """What is said about an unreadable value."""
    return Malformed(key.name, value[:MAX_LENGTH], EXAMPLES[key.unit], why.reason)


def _bits(said: _Direction, default: int, fallback: int) -> int:
    if said.bits is not None:
        return said.bits
    return fallback if said.key else default

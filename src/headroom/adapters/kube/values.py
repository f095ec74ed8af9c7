"""Small values that very many objects share: equal ones become one object, and are worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from headroom.adapters.kube import raw
from headroom.model import facts, gangs, times
from headroom.model.bandwidth import BandwidthRules

OURS: Final = "headroom.dev/"
"""How all of our own annotations, labels, gates and finalizers begin."""
KEPT_ANNOTATIONS: Final = {
    *(key.name for key in BandwidthRules().keys),
    gangs.MIRROR,
    *gangs.READ_ANNOTATIONS,
}
"""Of others; an administrator's settings may add some before anything is read."""
LONGEST_REMEMBERED: Final = 2048
"""Bytes of a text that is remembered; longer ones are seldom equal."""
NULL: Final = (b"", b"null", b"{}", b"[]")


@lru_cache(maxsize=16384)
def one(text: str) -> str:
    """One object for equal texts. The least used are forgotten, so unique ones cannot pile up."""
    return text


@lru_cache(maxsize=16384)
def _pair(key: str, value: str) -> tuple[str, str]:
    return (key, value)


@lru_cache(maxsize=4096)
def owner(kind: str, name: str, uid: str, api_version: str = "") -> facts.Owner:
    """The controller of a pod."""
    group, _, version = api_version.partition("/")
    return facts.Owner(one(kind), name, uid, one(group) if version else "")


def pairs(mapping: msgspec.Raw | bytes) -> facts.Pairs:
    """A mapping from text to text."""
    json = bytes(mapping)
    if json in NULL:
        return ()
    return _few_pairs(json) if len(json) <= LONGEST_REMEMBERED else _sorted_pairs(json)


def keep(annotations: Iterable[str]) -> None:
    """Read these annotations too, from now on; a process does so once, by its settings."""
    KEPT_ANNOTATIONS.update(annotations)


def _sorted_pairs(json: bytes) -> facts.Pairs:
    return tuple(sorted([_pair(key, value) for key, value in raw.strings(json).items()]))


_few_pairs: Final = lru_cache(maxsize=1024)(_sorted_pairs)


def kept_annotations(given: Mapping[str, str] | None) -> facts.Pairs:
    """Those that Headroom reads."""
    if not given:
        return ()
    kept = [pair for pair in given.items() if pair[0] in KEPT_ANNOTATIONS or pair[0].startswith(OURS)]
    return tuple(sorted(kept)) if kept else ()


def ours(finalizers: list[str] | None) -> tuple[str, ...]:
    """The finalizers that are Headroom's own."""
    return names(each for each in finalizers if each.startswith(OURS)) if finalizers else ()


def names(given: Iterable[str | None]) -> tuple[str, ...]:
    """Those that are not empty."""
    return _few_names(tuple([each for each in given if each]))


@lru_cache(maxsize=1024)
def _few_names(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([one(each) for each in texts])


def moment(text: str | None) -> int | None:
    """The moment in a text, if there is one."""
    return None if text is None or len(text) > 64 else _few_moments(text)


@lru_cache(maxsize=16384)
def _few_moments(text: str) -> int | None:
    """The moment, None for the empty time of Go programs (year 1) and anything else before 1970."""
    found = times.moment(text)
    return found if found is not None and found >= 0 else None


# The API knows 32 bits; a manifest may say anything, and the columns hold 64.
_LARGEST: Final = 2**31
GRACE_SECONDS: Final = 30
"""How long a pod may take to end that says nothing of it."""


def priority(given: int | None) -> int:
    """The priority of a pod."""
    return 0 if given is None else max(-_LARGEST, min(_LARGEST, given))


def length(seconds: int | None) -> int | None:
    """A length of time in milliseconds; None for what is none."""
    return min(seconds, _LARGEST) * 1000 if seconds is not None and seconds > 0 else None


def grace(seconds: int | None) -> int:
    """How many seconds a pod may take to end."""
    return GRACE_SECONDS if seconds is None else max(0, min(seconds, _LARGEST))

"""Rows as the tables hold them: small, and ordered by the database exactly as Python orders them.

A uid takes 16 bytes. Labels and amounts are text that compares as the tuples do: what separates is smaller than every character that
may stand inside. A table of shared texts would save a quarter to a half of the space where many pods have equal labels; it was measured to be
1.6 times slower where each pod has its own, as the pods of an indexed Job have, so the text stands in the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from headroom.model.errors import Refused
from headroom.model.facts import Amounts, Pairs
from headroom.model.usage import DAY, UsageRow, merged

Values = tuple[Any, ...]

COLUMNS: Final = (
    "cluster",
    "day",
    "uid",
    "start",
    "namespace",
    "pod",
    "created",
    "observed",
    "version",
    "earliest",
    "seen_until",
    "ended",
    "evidence",
    "gone_by",
    "labels",
    "amounts",
    "price",
    "ending",
    "details",
)
TEXTS: Final = ("namespace", "pod", "labels", "amounts", "details")
READ: Final = tuple(name for name in COLUMNS if name != "day")
"""What is asked for: the day is known from `created`."""
LARGEST_AMOUNT: Final = 10**25 - 1
BEFORE_ALL: Final = -(2**63)
"""A moment before all others, and the smallest number that a database holds."""
BEFORE_FIRST_KEY: Final[Values] = (b"", BEFORE_ALL, b"", BEFORE_ALL)

_SHARED: Final = 16_384

_UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LOW: Final = re.compile("[\x00-\x0b]")
_ESCAPED: Final = re.compile("\x0b(.)", re.DOTALL)


def identifier(text: str) -> bytes:
    """16 bytes for a UUID as Kubernetes writes them; anything else as it is, behind zeros that keep it from being 16 bytes."""
    if len(text) == 36 and _UUID.fullmatch(text):
        return bytes.fromhex(text.replace("-", ""))
    plain = escaped(text).encode()
    return (b"\x00\x00" if len(plain) == 15 else b"\x00") + plain


def identified(stored: bytes) -> str:
    """The text of an identifier."""
    if len(stored) == 16:
        digits = stored.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return unescaped(stored.lstrip(b"\x00").decode())


cluster_identifier = lru_cache(1024)(identifier)
_cluster_identified = lru_cache(1024)(identified)


def escaped(text: str) -> str:
    """Text without the characters that separate, in the same order; Kubernetes allows none of them, so it is rarely another."""
    return text if text.isprintable() else _LOW.sub(lambda found: "\x0b" + chr(ord(found[0]) + 32), text)


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return _ESCAPED.sub(lambda found: chr(ord(found[1]) - 32), text) if "\x0b" in text else text


@lru_cache(_SHARED)
def labels_text(labels: Pairs) -> str:
    """Labels as they are stored: a line each, with a tab between key and value."""
    return "".join([f"{escaped(key)}\t{escaped(value)}\n" for key, value in labels])


@lru_cache(_SHARED)
def amounts_text(amounts: Amounts) -> str:
    """Amounts as they are stored; all are equally long, so the larger number is the larger text."""
    for name, amount in amounts:
        if not 0 <= amount <= LARGEST_AMOUNT:
            raise Refused(f"writing to the ledger: an amount of {amount} millionths of {name!r} does not fit")
    return "".join([f"{escaped(name)}\t{amount:025d}\n" for name, amount in amounts])


@lru_cache(_SHARED)
def labels_of(text: str) -> Pairs:
    """Labels from their text; equal ones are the same object, as long as they come one soon after the other."""
    found = [line.partition("\t") for line in text.split("\n")[:-1]]
    if "\x0b" in text:
        return tuple([(unescaped(first), unescaped(second)) for first, _, second in found])
    return tuple([(first, second) for first, _, second in found])


@lru_cache(_SHARED)
def amounts_of(text: str) -> Amounts:
    """Amounts from their text."""
    return tuple([(name, int(amount)) for name, amount in labels_of(text)])


def encoded(rows: Iterable[UsageRow]) -> list[Values]:
    """The columns of the rows, one per key and sorted by it."""
    found: dict[Values, UsageRow] = {}
    try:
        for row in rows:
            key = (cluster_identifier(row.cluster), row.day, identifier(row.uid), row.start)
            before = found.get(key)
            found[key] = row if before is None else merged(before, row)
        return [(*key, *_rest(found[key])) for key in sorted(found)]
    except UnicodeError as error:
        raise Refused(f"writing to the ledger: it cannot store this: {error}") from error


def _rest(row: UsageRow) -> Values:
    """The columns after the key."""
    return (
        escaped(row.namespace),
        escaped(row.pod),
        row.created,
        row.observed,
        row.version,
        row.earliest,
        row.seen_until,
        row.ended,
        int(row.evidence),
        row.gone_by,
        labels_text(row.labels),
        amounts_text(row.amounts),
        row.price,
        int(row.ending),
        labels_text(row.details),
    )


def key_of(stored: Sequence[Any]) -> Values:
    """The key of what was read."""
    return stored[0], stored[READ.index("created")] // DAY, stored[1], stored[2]


def decoded(stored: Iterable[Sequence[Any]]) -> list[UsageRow]:
    """Rows from what was read."""
    return [
        UsageRow(
            cluster=_cluster_identified(cluster),
            uid=identified(uid),
            start=start,
            namespace=unescaped(namespace),
            pod=unescaped(pod),
            created=created,
            observed=observed,
            version=version,
            earliest=earliest,
            seen_until=seen,
            ended=ended,
            evidence=evidence,
            gone_by=gone,
            labels=labels_of(labels),
            amounts=amounts_of(amounts),
            price=price,
            ending=ending,
            details=labels_of(details),
        )
        for (
            cluster, uid, start, namespace, pod, created, observed, version, earliest, seen, ended, evidence, gone, labels, amounts, price,
            ending, details
        ) in stored
    ]  # fmt: skip  # eighteen names on eighteen lines would hide what is done with them

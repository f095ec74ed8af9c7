"""The page of decisions: the journal, searched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headroom.model import times
from headroom.model.errors import Misconfigured
from headroom.runtime.journal import EntryIndex, Noted
from headroom.web.pages import parts, weight
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope

USUAL_SINCE: Final = "24h"
USUAL_LIMIT: Final = 200
MOST: Final = 1000
LONGEST_QUERY: Final = 200
LONGEST_NUMBER: Final = 12


class Search(NamedTuple):
    """The search."""

    words: tuple[str, ...]
    since: str
    length: int
    limit: int
    asked: str
    type: str = ""
    """Only entries of this type; empty for all."""


def search(query: Mapping[str, str]) -> Search:
    """Parse a query string. Raises `Misconfigured` if that fails."""
    asked, since = query.get("q", "")[:LONGEST_QUERY], query.get("since", USUAL_SINCE)
    length = times.duration(since) if len(since) <= LONGEST_NUMBER else None
    if length is None:
        raise Misconfigured(
            f"reading since: it must be a duration such as 30m, 24h or 7d, not {since[:LONGEST_NUMBER]!r}"
        )
    limit = query.get("limit", str(USUAL_LIMIT))
    is_number = limit.isascii() and limit.isdigit() and len(limit) <= LONGEST_NUMBER
    if not is_number or not 1 <= int(limit) <= MOST:
        raise Misconfigured(f"reading limit: it must be a number from 1 to {MOST}, not {limit[:LONGEST_NUMBER]!r}")
    kind = query.get("type", "")
    if kind and kind not in weight.TYPES:
        raise Misconfigured(f"reading type: it must be one of {', '.join(weight.TYPES)}, not {kind[:LONGEST_NUMBER]!r}")
    return Search(tuple(asked.lower().split()), since, length, int(limit), asked, kind)


def model(journal: EntryIndex, now: int, scope: Scope, wanted: Search) -> Model:
    """The page without its frame."""

    def fits(entry: Noted) -> bool:
        text = journal.text(entry)
        is_wanted = all(word in text for word in wanted.words) and parts.may_see(entry, scope)
        return is_wanted and wanted.type in ("", weight.type_of(entry))

    found = journal.newest(now - wanted.length, wanted.limit + 1, fits)
    return {
        "entries": parts.entries(found[: wanted.limit]),
        "more": len(found) > wanted.limit,
        "q": wanted.asked,
        "since": wanted.since,
        "type": wanted.type,
    }

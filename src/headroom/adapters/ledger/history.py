"""Entries of the history as columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headroom.adapters.ledger.encoding import Values, escaped, identified, identifier, unescaped
from headroom.model.history import Entry


def history_values(entry: Entry) -> Values:
    """An entry as columns."""
    texts = map(escaped, (entry.resource, entry.reason, entry.message, entry.actions))
    return entry.at, entry.key, identifier(entry.cluster), *texts


def entry_of(values: Sequence[Any]) -> Entry:
    """An entry from columns."""
    at, _, cluster, *texts = values
    resource, reason, message, actions = map(unescaped, texts)
    return Entry(cluster=identified(cluster), at=at, resource=resource, reason=reason, message=message, actions=actions)

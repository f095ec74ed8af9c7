"""What was decided and done, kept for people: one entry per decision that mattered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from headroom.adapters.ledger.encoding import Values, escaped, identified, identifier, unescaped


class Entry(Struct, frozen=True, kw_only=True):
    """One decision. The same entry noted twice is there once."""

    cluster: str
    at: int
    resource: str
    """Kind, namespace and name, as in `GPUWorkloadBudget/team-a/budget`."""
    reason: str
    message: str = ""
    actions: str = "[]"
    """The actions as JSON text, in their wire form."""

    @property
    def key(self) -> bytes:
        """Its name, made from all of its content."""
        content = json.dumps([self.cluster, self.at, self.resource, self.reason, self.message, self.actions])
        return hashlib.blake2b(content.encode(), digest_size=16).digest()


def history_values(entry: Entry) -> Values:
    """An entry as columns."""
    texts = map(escaped, (entry.resource, entry.reason, entry.message, entry.actions))
    return entry.at, entry.key, identifier(entry.cluster), *texts


def entry_of(values: Sequence[Any]) -> Entry:
    """An entry from columns."""
    at, _, cluster, *texts = values
    resource, reason, message, actions = map(unescaped, texts)
    return Entry(cluster=identified(cluster), at=at, resource=resource, reason=reason, message=message, actions=actions)

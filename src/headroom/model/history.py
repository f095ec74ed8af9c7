"""What was decided and done, kept for people: one entry per decision that mattered."""

from __future__ import annotations

import hashlib
import json

from msgspec import Struct


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

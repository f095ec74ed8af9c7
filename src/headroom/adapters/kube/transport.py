"""The seam between Headroom and an API server: requests and streams of lines, nothing else.

`http.HttpTransport` speaks to a real server; `headroom.sim.apiserver` answers the same calls in memory. Everything above
(verbs, list-watch, decoding, leases, effects) is the same code for both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

from msgspec import Struct

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Reply(Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    """Header names in lower case."""


class Transport(Protocol):
    """A connection to one API server with one identity."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Reply:
        """One request, one reply. Raises `Unavailable` when no reply came; then the effect is unknown."""
        ...

    def stream(
        self, path: str, *, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a watch, each one JSON event; `opened` is called when the server has answered that it will send them.

        Raises `StreamRefused` (with the reply) if the server does not answer 200, and `Unavailable` when the connection breaks or
        nothing was heard for `idle` seconds. Ends normally when the server ends it.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class StreamRefused(Exception):
    """The server answered a watch with something else than 200."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"status {reply.status}")
        self.reply = reply

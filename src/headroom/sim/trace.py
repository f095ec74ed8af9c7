"""What happened in a simulation: every write request in order, so that two runs can be compared byte for byte."""

from __future__ import annotations

import hashlib

from msgspec import Struct

from headroom.model import times


class Written(Struct, frozen=True):
    """One write request and its answer."""

    at: int
    actor: str
    method: str
    path: str
    """With its query."""
    body: str
    """The beginning of the body's hash."""
    status: int

    def __str__(self) -> str:
        return f"{times.text(self.at)} {self.actor} {self.method} {self.path} {self.body} {self.status}"


class Trace:
    """All write requests of a run."""

    def __init__(self) -> None:
        self.writes: list[Written] = []

    def add(self, at: int, actor: str, request: tuple[str, str, bytes], status: int) -> None:
        """Note a request (method, path, body) and its status."""
        method, path, body = request
        self.writes.append(Written(at, actor, method, path, hashlib.sha256(body).hexdigest()[:16], status))

    def text(self) -> str:
        """The whole trace, one line for each write."""
        return "".join(f"{each}\n" for each in self.writes)

    def digest(self) -> str:
        """A hash of the whole trace: equal for equal runs."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def by(self, actor: str) -> list[Written]:
        """The writes of one actor."""
        return [each for each in self.writes if each.actor == actor]

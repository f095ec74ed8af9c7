"""Answers cached for a moment, so that many viewers cost no more than one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Paced(Generic[Answer]):
    """One answer, computed again when it is too old or the question is another one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: tuple[object, float, Answer] | None = None

    def get(self, question: object, answer: Callable[[], Answer]) -> Answer:
        """The answer to a question; questions are compared by identity."""
        now = time.monotonic()
        if self._kept is None or self._kept[0] is not question or now - self._kept[1] >= self._seconds:
            self._kept = (question, now, answer())
        return self._kept[2]

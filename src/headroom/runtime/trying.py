"""Work with a ledger that may fail: tried again, and what is wrong said once where people look."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from headroom.model.errors import HeadroomError
from headroom.model.ports import Ledger
from headroom.runtime.surroundings import Runtime

Work = Callable[[], Coroutine[Any, Any, None]]

RETRY_SECONDS: Final = (1.0, 15.0)


class Trying:
    """What can be done with a ledger now, and why not."""

    def __init__(self, ledger: Ledger, around: Runtime, tell: Callable[[], None]) -> None:
        self._ledger, self._around, self._tell = ledger, around, tell
        self._problems: dict[str, str] = {}
        self.problem = ""
        """The first of what is wrong, as a sentence; empty while all is well."""
        self.failures = 0
        """How often in a row something failed that counts."""

    @property
    def lag_ms(self) -> int:
        """How long the oldest of what waits in the ledger's queue has waited."""
        return round(1000 * getattr(self._ledger, "lag_seconds", 0.0))

    async def tried(self, work: Work, *, counts: bool = True) -> bool:
        """Do something; a failure is said, and only what `counts` makes the next try wait longer."""
        try:
            await work()
        except HeadroomError as error:
            self.failures += counts
            self._say(work, f"{error}.".replace("..", "."))
            return False
        self._say(work, "")
        return True

    def pause(self) -> float:
        """How long to wait before the next try."""
        return min(RETRY_SECONDS[1], RETRY_SECONDS[0] * 2.0 ** min(self.failures - 1, 8)) if self.failures else 0.0

    def _say(self, work: Work, problem: str) -> None:
        self._problems[work.__name__] = problem
        # A ledger with a queue takes everything and says by itself that it is not well.
        self._problems["itself"] = getattr(self._ledger, "problem", "")
        problem = next((each for each in self._problems.values() if each), "")
        if problem == self.problem:
            return
        is_news = _without_numbers(problem) != _without_numbers(self.problem)
        self.problem = problem
        if is_news:
            log = self._around.log.warning if problem else self._around.log.info
            log("the ledger cannot be used" if problem else "the ledger is in use", why=problem)
            self._tell()


def _without_numbers(problem: str) -> str:
    """How much waits is no news."""
    return "".join(letter for letter in problem if not letter.isdigit())

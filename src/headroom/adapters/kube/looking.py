"""What is asked of the API server now and then because it cannot be watched, or hardly ever changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.reviews import RequiredRight, lacking
from headroom.model.errors import HeadroomError

LOOK_SECONDS: Final = 60.0
ASK_SECONDS: Final = 5.0


class Looking(ABC):
    """Looks once a minute, and tells what is wrong once for each reason."""

    def __init__(self, kube: Kube, tell: Callable[[str], None]) -> None:
        """`tell` takes a sentence."""
        self._kube, self._tell = kube, tell
        self._told = ""

    async def look(self) -> None:
        """Ask once. What is known stays while nobody answers."""
        try:
            problem = await self._look()
        except HeadroomError as error:
            problem = str(error)
        if problem != self._told:
            self._told = problem
            if problem:
                self._tell(problem)

    async def follow(self) -> None:
        """Ask again and again. Never returns."""
        while True:
            await self._kube.clock.sleep(LOOK_SECONDS)  # none of it can be watched
            await self.look()

    @abstractmethod
    async def _look(self) -> str:
        """What is wrong, as a sentence; empty if nothing is."""


class RightToDelete(Looking):
    """Whether we may delete pods, which only steps with `afterDeadline: Delete` need."""

    def __init__(self, kube: Kube, note: Callable[[bool], None], tell: Callable[[str], None]) -> None:
        """`note` takes the answer."""
        super().__init__(kube, tell)
        self._note = note

    async def _look(self) -> str:
        self._note(not await lacking(self._kube, [RequiredRight("delete", "pods")]))
        return ""

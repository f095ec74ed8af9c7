"""What happens in a demo, in words: one line for each turn, taken from the decisions of the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headroom.api.kinds import AnyResource
from headroom.cli.capabilities import FACES
from headroom.cli.face import Line
from headroom.model import times
from headroom.model.decisions import Decision, Ref

MOST_AT_ONCE: Final = 4


class Teller:
    """Remembers what it has told. `decided` hears of every decision, `news` also looks at what only moves in a status."""

    def __init__(self) -> None:
        self._waiting: list[Line] = []
        self._stories = {kind: face.story() for kind, face in FACES.items() if face.story is not None}

    def decided(self, decision: Decision, now: int) -> None:
        """A decision that differs from the one before it."""
        if (story := self._stories.get(decision.resource.kind)) is not None:
            self._waiting += story.decided(decision, now)

    def news(self, decisions: Mapping[Ref, Decision], resources: Mapping[Ref, AnyResource], now: int) -> list[str]:
        """What has happened since it was last asked, in the order in which it did; of very much, only the first."""
        for ref, decision in sorted(decisions.items()):
            resource, story = resources.get(ref), self._stories.get(ref.kind)
            if resource is not None and story is not None:
                self._waiting += story.news(ref, decision, resource, now)
        lines = [f"{times.text(at)[11:16]}  {said}" for at, said in sorted(self._waiting, key=lambda line: line[0])]
        self._waiting.clear()
        more = len(lines) - MOST_AT_ONCE
        return lines if more <= 0 else [*lines[:MOST_AT_ONCE], f"       and {more} more, which the dashboard shows"]

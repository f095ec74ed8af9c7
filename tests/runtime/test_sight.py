"""The log of what is not seen: each turn once, with its cause, and no flood."""

from typing import Any

from headroom.model.world import World
from headroom.runtime.sight import REPEAT_SECONDS, SightLog
from tests.adapters.played import Clock
from tests.builders import NOON


class Written:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, Any]] = []

    def debug(self, event: str, **facts: Any) -> None:
        self.lines.append(("debug", event, facts))

    def info(self, event: str, **facts: Any) -> None:
        self.lines.append(("info", event, facts))

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append(("warning", event, facts))

    error = exception = warning


class Watched:
    def __init__(self) -> None:
        self.clock, self.log = Clock(), Written()
        self.sight = SightLog(self.clock, self.log)

    def look(self, complete: bool = True, **unseen: str) -> bool:
        self.clock.time += 1
        return self.sight.look(World(now=NOON, complete=complete, unseen=unseen))

    @property
    def words(self) -> list[tuple[str, str]]:
        return [(level, event) for level, event, _ in self.log.lines]


def test_a_turn_is_told_once_with_its_cause_and_its_end() -> None:
    watched = Watched()
    assert [watched.look(), watched.look(False, pods="503"), watched.look(False, pods="503"), watched.look()] == [
        False,
        True,
        False,
        True,
    ]
    assert watched.words == [
        ("warning", "a kind cannot be read"),
        ("warning", "the view of the cluster is not complete: no effects until it is"),
        ("info", "a kind can be read again"),
        ("info", "the view of the cluster is complete again"),
    ]
    assert watched.log.lines[0][2] == {"kind": "pods", "why": "503"}
    assert watched.log.lines[1][2] == {"why": {"pods": "503"}}
    assert watched.log.lines[2][2] == {"kind": "pods", "seconds": 2}


def test_causes_that_change_with_every_try_are_no_flood() -> None:
    watched = Watched()
    watched.look()
    for number in range(round(3 * REPEAT_SECONDS)):
        watched.look(False, pods=f"cause {number}")
    assert len(watched.log.lines) == 2 + 2


def test_before_the_first_complete_view_nothing_is_lost() -> None:
    watched = Watched()
    watched.look(False, pods="no answer yet")
    assert watched.words == []
    watched.look(workloads="webhook")
    assert watched.words == [("warning", "a kind cannot be read")]

"""`headroom status --watch`: in place on a terminal, one picture below the other elsewhere, whatever happens to the cluster."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.cli import watching
from headroom.model.errors import Unavailable
from headroom.sim.clock import SimClock
from tests.cli.served import Served
from tests.cli.stage import fleet_behind_a_port
from tests.cli.terminals import Terminal, on_a_terminal
from tests.cli.test_behaviour import ENVIRONMENT, PROGRAM


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path) as made:
        yield made


def words(fleet: Served) -> tuple[str, ...]:
    return "status", "--watch", "--every", "0.2", "--kubeconfig", str(fleet.kubeconfig())


def pictures(terminal: Terminal) -> int:
    """How many of them were drawn."""
    return terminal.screen.count("As of")


def end(terminal: Terminal) -> list[str]:
    """What a person sees after Ctrl-C."""
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 130
    assert terminal.screen.rfind("\x1b[?25l") < terminal.screen.rfind("\x1b[?25h"), "the cursor is back"
    assert "Traceback" not in terminal.screen
    return terminal.seen()


@pytest.mark.parametrize("columns", [120, 60, 24])
def test_a_terminal_shows_one_picture_in_place(fleet: Served, columns: int) -> None:
    with on_a_terminal(*words(fleet), columns=columns, lines=200) as terminal:
        terminal.until(lambda _: pictures(terminal) > 3 and "Ctrl-C ends" in " ".join(terminal.seen()))
        left = end(terminal)
    assert not any("Ctrl-C" in line for line in left)
    assert sum(line.startswith("As of") for line in left) == 1
    assert "vision/team-b" in "\n".join(left)
    assert max(map(len, left)) <= columns


def test_a_short_terminal_says_how_much_more_there_is(fleet: Served) -> None:
    with on_a_terminal(*words(fleet), lines=8) as terminal:
        terminal.until(lambda _: pictures(terminal) > 3)
        left = end(terminal)
    shown = [line for line in left if line]
    assert len(shown) <= 8
    assert "more lines: `headroom top` fits the terminal" in shown[-1]


def test_a_lost_cluster_leaves_the_last_picture_with_its_age(fleet: Served) -> None:
    with on_a_terminal(*words(fleet), lines=200) as terminal:
        terminal.until(lambda _: pictures(terminal) > 1)
        fleet.stop()
        terminal.until(lambda screen: "Not newer for 1 s: " in screen)
        left = end(terminal)
    assert sum(line.startswith("As of") for line in left) == 1
    assert any("Not newer for" in line and "tried again every 0.2 s" in " ".join(left) for line in left)


def test_without_a_terminal_pictures_are_separated(fleet: Served) -> None:
    with subprocess.Popen(
        [*PROGRAM, *words(fleet), "-o", "yaml"], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        separators = 0
        while separators < 2:
            line = process.stdout.readline()
            assert "\x1b" not in line
            separators += line == "---\n"
        process.terminate()


class Ended(Exception):
    """Enough was read."""


def test_a_cluster_that_comes_back_is_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[str | None] = ["12:01", None, None, "12:04"]

    async def read() -> dict[str, Any]:
        if not answers:
            raise Ended
        at = answers.pop(0)
        if at is None:
            raise Unavailable("asking the server: no answer")
        return {"at": at}

    watched = watching.Watched(read, lambda found: print(found["at"]), SimClock(0, speed=1e9), 5.0)
    with pytest.raises(Ended):
        asyncio.run(watching.watch({"at": "12:00"}, watched, is_data=False))
    printed = capsys.readouterr()
    assert printed.out.split() == ["12:00", "---", "12:01", "---", "12:04"]
    assert printed.err == "Not newer than 12:01: asking the server: no answer; tried again every 5 s\n"

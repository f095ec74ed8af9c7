"""`headroom status --watch`: the same picture again and again, in place on a terminal and one below the other elsewhere.

What cannot be read leaves the last picture where it is, with its age, and is tried again.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from headroom.cli import output
from headroom.model.errors import HeadroomError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from headroom.model.ports import Clock

Found = dict[str, Any]

SEPARATOR: Final = "---"
"""Between pictures where nothing is overwritten; to YAML it begins another document."""
_LOOK_SECONDS: Final = 1.0
"""How often the age of a picture is told anew."""


class Watched(NamedTuple):
    """What is read and shown, and how often."""

    read: Callable[[], Awaitable[Found]]
    show: Callable[[Found], None]
    clock: Clock
    every: float
    """Seconds."""


async def watch(found: Found, watched: Watched, *, is_data: bool) -> NoReturn:
    """Show what was found, and what is read every so many seconds, until somebody ends it."""
    if is_data or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        await _one_below_the_other(found, watched)
    else:
        await _in_place(found, watched)


async def _one_below_the_other(found: Found, watched: Watched) -> NoReturn:
    watched.show(found)
    problem = ""
    while True:
        before = problem
        found, problem = await _later(found, watched)
        if problem and problem != before:
            output.say(f"Not newer than {found['at']}: {problem}; tried again every {watched.every:g} s")
        elif not problem:
            print(SEPARATOR, flush=True)
            watched.show(found)


async def _in_place(found: Found, watched: Watched) -> NoReturn:
    from rich.console import Console
    from rich.live import Live

    seen, problem = watched.clock.now(), ""
    with Live(console=Console(), auto_refresh=False, redirect_stdout=False) as live:

        def draw(foot: str) -> None:
            live.update(_Picture(_drawn(watched, found), foot, is_bad=bool(problem)), refresh=True)

        try:
            while True:
                coming = asyncio.ensure_future(_later(found, watched))
                while not coming.done():
                    draw(f"{_age(watched.clock.now() - seen, watched, problem)}; Ctrl-C ends")
                    await asyncio.wait({coming}, timeout=_LOOK_SECONDS)
                found, problem = coming.result()
                seen = seen if problem else watched.clock.now()
        finally:
            coming.cancel()
            draw(_age(watched.clock.now() - seen, watched, problem) if problem else "")


def _age(age: int, watched: Watched, problem: str) -> str:
    ago = output.spoken(max(0, age))
    if problem:
        return f"Not newer for {ago}: {problem}; tried again every {watched.every:g} s"
    return f"Read {ago} ago, every {watched.every:g} s"


async def _later(before: Found, watched: Watched) -> tuple[Found, str]:
    """What is found after a while; what was found before, and why, while nothing can be read."""
    await watched.clock.sleep(watched.every)
    try:
        return await watched.read(), ""
    except HeadroomError as error:
        return before, str(error)


# --- drawing ----------------------------------------------------------------------------------------------------------------


class _Terminal(io.StringIO):
    """Takes what the terminal would be given."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a text in memory has none of its own
        """That of the terminal: it says which characters there are."""
        return self._encoding

    def isatty(self) -> bool:
        """It is coloured and wrapped for the terminal."""
        return True


def _drawn(watched: Watched, found: Found) -> str:
    """What a command prints on this terminal, as text."""
    with redirect_stdout(_Terminal(sys.stdout.encoding)) as page:
        watched.show(found)
    return page.getvalue()


class _Picture:
    """Text from a command with a line beneath that always has room; what is too long for the terminal is cut there."""

    def __init__(self, text: str, foot: str, *, is_bad: bool) -> None:
        self._text, self._foot, self._is_bad = text, foot, is_bad

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.text import Text

        def lines_of(text: Text) -> list[list[Segment]]:
            return console.render_lines(text, options, pad=False)

        foot = self._foot and lines_of(
            Text(output.clean(self._foot), style="red" if self._is_bad else "dim", overflow="fold")
        )
        room = max(0, console.height - len(foot) - 1)
        lines = lines_of(Text.from_ansi(self._text, overflow="fold"))
        if len(lines) > room:
            room = max(0, room - 1)
            more = f"{output.counted(len(lines) - room, 'more line')}: `headroom top` fits the terminal, -n shows one namespace"
            lines = [*lines[:room], *lines_of(Text(more, style="dim", overflow="fold"))[:1]]
        for number, line in enumerate((*lines, *foot)):
            if number:
                yield Segment.line()
            yield from line

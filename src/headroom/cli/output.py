"""What the commands print: text from a cluster is made harmless first, colour is for terminals only."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

OK: Final = 0
PROBLEMS: Final = 1
"""The input was read, and something in it is wrong."""
COULD_NOT_RUN: Final = 2
LEAST_BESIDE_NAMES: Final = 40
"""Columns for the rest of a table, even where the terminal is too narrow for that."""


def clean(text: object) -> str:
    """The text on one line, without control characters: names and messages of a cluster must not drive the terminal."""
    flat = " ".join(str(text).split())
    return "".join(char for char in flat if char.isprintable())


def say(text: object) -> None:
    """A line for the person at the terminal, beside the output proper."""
    print(clean(text), file=sys.stderr, flush=True)


def line(text: object) -> None:
    """A line of the output."""
    print(clean(text), flush=True)


def as_json(value: Any) -> None:
    """A JSON document; what is not ASCII is escaped, so nothing in it can drive a terminal."""
    print(json.dumps(value, indent=2))


def as_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for people; long text is wrapped, never cut, and the names in the first column stay whole."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        # The first names the row, and a name that is broken cannot be copied.
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    longest = 0
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
        longest = max(longest, len(clean(row[0])))
    console = Console()
    if console.width < longest + LEAST_BESIDE_NAMES:
        console = Console(width=longest + LEAST_BESIDE_NAMES)
    if not console.is_terminal:
        # Wide enough that a line of output stays a line in a pipe or a log.
        console = Console(width=240)
    console.print(table)

"""What the commands print: text from a cluster is made harmless first, colour is for terminals only."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from headroom.cli.options import Form, Manifests

OK: Final = 0
PROBLEMS: Final = 1
"""The input was read, and something in it is wrong."""
COULD_NOT_RUN: Final = 2
DUE: Final = 2
"""With `plan --exit-code`, where a failure is 1: nothing is wrong, and something is due."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells have it."""

_LEAST_FOR_TEXT: Final = 20
_MOST_LINES: Final = 3
"""Fewer columns, or more lines, and a text is easier to read beneath its row than beside it."""
_GAP: Final = "  "
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9.,]*%?")
_COLOURS: Final = {"good": "32", "warn": "33", "bad": "31", "idle": "2"}
_WIDEST: Final = 10_000
"""For rich, which must not cut a name: what is wider than a terminal is broken by the terminal alone."""
_STYLES: Final = {"good": "green", "warn": "yellow", "bad": "red", "idle": "dim"}


class Toned(NamedTuple):
    """A word that a terminal shows in the colour of its meaning: good, warn, bad or idle."""

    text: str
    tone: str

    def __str__(self) -> str:
        return self.text


def clean(text: object) -> str:
    """The text on one line, without control characters: names and messages of a cluster must not drive the terminal."""
    flat = " ".join(str(text).split())
    return flat if flat.isprintable() else "".join(char for char in flat if char.isprintable())


def say(text: object) -> None:
    """A line for the person at the terminal, beside the output proper."""
    print(clean(text), file=sys.stderr, flush=True)


def line(text: object = "", indent: int = 0, hang: int = 0) -> None:
    """A line of the output; on a terminal it is wrapped between words, what follows indented further by `hang`."""
    margin, words = " " * indent, clean(text)
    if is_terminal() and len(margin) + len(words) > width():
        print(_wrapped(words, margin, margin + " " * hang), flush=True)
    else:
        print(f"{margin}{words}".rstrip(), flush=True)


def toned_line(text: str, tone: str) -> None:
    """A line in the colour of its meaning, as it stands: it is not wrapped, so that what it names can be copied."""
    margin = text[: len(text) - len(text.lstrip())]
    print(f"{margin}{_painted(Toned(clean(text), tone))}", flush=True)


def _wrapped(text: str, first: str, others: str) -> str:
    """The text on lines that fit; a name is not broken, even if it does not."""
    return "\n".join(_lines(text, max(width(), _LEAST_FOR_TEXT), first, others))


def _lines(text: str, size: int, first: str = "", others: str = "") -> list[str]:
    wrapping = textwrap.TextWrapper(
        size, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
    return wrapping.wrap(text)


def counted(count: int | str, thing: str) -> str:
    """So many things: `1 GPU`, `2 GPUs`, `0.5 GPUs`."""
    return f"{count} {thing}" + ("" if str(count) == "1" else "s")


def spoken(length: int) -> str:
    """A length of time as people say it, in its two largest parts: 2d 3h, 5h 45m, 12 s."""
    seconds = length // 1000
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = ((days, "d"), (hours, "h"), (0 if days else rest, "m"))
    return " ".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0 s"


# --- for programs -----------------------------------------------------------------------------------------------------------


def as_data(value: Any, form: Form) -> None:
    """A document as JSON or YAML; what is not ASCII is escaped, so nothing in it can drive a terminal."""
    text = json.dumps(value, indent=2)
    if form == "json":
        print(text)
        return
    import yaml

    # By way of JSON: YAML would not know our own types of mappings and words.
    print(yaml.safe_dump(json.loads(text), sort_keys=False, width=120), end="")


def as_manifests(documents: Iterable[Any], form: Manifests) -> None:
    """Objects for `kubectl apply`: YAML documents, or a List as JSON."""
    if form == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}, indent=2))
        return
    import yaml

    print(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120), end="")


# --- for people -------------------------------------------------------------------------------------------------------------


def is_terminal() -> bool:
    """Whether a person sees the output as it comes."""
    return sys.stdout.isatty() or os.environ.get("FORCE_COLOR", "") not in ("", "0")


def width() -> int:
    """How many columns there are."""
    return shutil.get_terminal_size().columns


def _is_painted(word: object) -> TypeGuard[Toned]:
    """Whether a word is coloured: only on a terminal, and never where NO_COLOR is set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_terminal()
    return isinstance(word, Toned) and not plain


def _style(word: object) -> str:
    """The same for rich."""
    return _STYLES[word.tone] if _is_painted(word) else ""


def _painted(word: object) -> str:
    """A word as it is printed."""
    return f"\x1b[{_COLOURS[word.tone]}m{word}\x1b[0m" if _is_painted(word) else str(word)


def bar(percent: float, cells: int = 8) -> str:
    """How full something is: full at 100 alone, with an arrow at its end beyond that."""
    full, empty, over = ("█", "░", "▶") if shows_blocks() else ("#", ".", ">")
    if percent > 100:
        return full * (cells - 1) + over
    filled = cells if percent == 100 else min(cells - 1, round(max(percent, 0) * cells / 100))
    return full * filled + empty * (cells - filled)


def percent(value: float) -> str:
    """A share for people: whole, and with one decimal where that tells whether it is below or above 100%."""
    return f"{value:.1f}%" if 95 <= value <= 105 and value != round(value) else f"{value:.0f}%"


def hours(value: float | str) -> str:
    """GPU-hours for people: one decimal, two below 10."""
    number = float(value)
    return f"{number:.2f}" if abs(number) < 10 else f"{number:.1f}"


def shows_blocks() -> bool:
    """Whether the output can hold block characters."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def as_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and what stands for each, below one another."""
    known = list(fields)
    longest = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        begin, words = f"{name:<{longest}}{_GAP}", value if isinstance(value, Toned) else clean(value)
        if is_terminal() and len(begin) + len(str(words)) > width():
            lines = _wrapped(str(words), begin, " " * len(begin))
            print(_painted(Toned(lines, words.tone)) if isinstance(words, Toned) else lines, flush=True)
        else:
            print(f"{begin}{_painted(words)}".rstrip(), flush=True)


class _Layout(NamedTuple):
    """How a table is laid out."""

    widths: list[int]
    right: list[bool]
    """Columns of numbers, whose ends stand below one another."""
    names: int
    """Columns that are never broken."""
    indent: int


def as_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, texts: int = 1, indent: int = 0, figures: int = 0
) -> None:
    """A table for people, of which the last columns are sentences, `texts` of them, or `figures`, aligned at the right.

    In a pipe or a log a row is one line. On a terminal sentences are wrapped to its width, or stand beneath their row where there
    is no room beside it. Names are never broken, since a broken name cannot be copied.
    """
    cells = [
        [Toned(clean(each), each.tone) if isinstance(each, Toned) else clean(each) for each in row] for row in rows
    ]
    laid_out = _layout(columns, cells, texts, indent)
    if figures:
        laid_out = laid_out._replace(right=[number >= len(columns) - figures for number in range(len(columns))])
    if not is_terminal():
        _print_plain(columns, cells, laid_out)
        return
    longest = laid_out.widths[laid_out.names :]
    room = width() - indent - sum(laid_out.widths[: laid_out.names]) - len(_GAP) * (len(columns) - 1)
    share = room
    if texts and sum(longest) > room:
        share = room // texts
        if share < _LEAST_FOR_TEXT or max(longest) > share * _MOST_LINES:
            _print_beneath(columns, cells, laid_out)
            return
    for each in _drawn(columns, cells, laid_out, share):
        print(f"{' ' * indent}{each}".rstrip(), flush=True)


def _layout(columns: Sequence[str], cells: Sequence[Sequence[object]], texts: int, indent: int) -> _Layout:
    names = len(columns) - texts
    widths, right = [], []
    for number, (column, *words) in enumerate(zip(columns, *cells, strict=True)):
        found = [str(each) for each in words]
        widths.append(max(len(each) for each in (str(column), *found)))
        is_number = any(found) and all(not each or _NUMBER.fullmatch(each) for each in found)
        right.append(number < names and is_number)
    return _Layout(widths, right, names, indent)


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[object]], layout: _Layout) -> None:
    """A line for each row, however many there are: rich would take far longer."""
    signs = [">" if right else "<" for right in layout.right]
    for row in (columns, *cells):
        parts = (f"{each!s:{sign}{size}}" for each, sign, size in zip(row, signs, layout.widths, strict=True))
        print(f"{' ' * layout.indent}{_GAP.join(parts)}".rstrip(), flush=True)


def _drawn(columns: Sequence[str], cells: Sequence[Sequence[object]], layout: _Layout, share: int) -> list[str]:
    """The lines of a table by rich, with sentences no wider than `share`, wrapped between words alone."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="")
    for column, right in zip(columns, layout.right, strict=False):
        table.add_column(Text(column), justify="right" if right else "left", no_wrap=True, overflow="crop")
    for row in cells:
        texts = [
            Text(str(each) if number < layout.names else "\n".join(_lines(str(each), max(share, 1))), _style(each))
            for number, each in enumerate(row)
        ]
        table.add_row(*texts)
    console = Console(width=_WIDEST, force_terminal=True, color_system="standard", highlight=False)
    with console.capture() as drawn:
        console.print(table)
    return drawn.get().splitlines()


def _print_beneath(columns: Sequence[str], cells: Sequence[Sequence[object]], layout: _Layout) -> None:
    """The names of each row on a line, and each of its texts on lines of its own."""
    names = layout.names
    head, *lines = _drawn(columns[:names], [row[:names] for row in cells], layout, 0)
    margin = " " * (layout.indent + 2)
    print(f"{' ' * layout.indent}{head}".rstrip(), flush=True)
    for row, drawn in zip(cells, lines, strict=True):
        print(f"{' ' * layout.indent}{drawn}".rstrip(), flush=True)
        for column, text in zip(columns[names:], row[names:], strict=True):
            if str(text):
                print(_wrapped(f"{column.lower()}: {text}", margin, f"{margin}  "), flush=True)

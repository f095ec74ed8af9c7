"""The whole terminal as `headroom top` fills it: sections one below the other, each with as many rows as it has room for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headroom.cli import face_budgets, output, status
from headroom.cli.face_tables import name_of

if TYPE_CHECKING:
    from headroom.cli.top import Seen

WIDE: Final = 150
"""From so many columns on, the queue and machines stand side by side."""
_STYLES: Final = {"good": "green", "warn": "yellow", "bad": "red", "idle": "dim"}
_SENTENCES: Final = ("OUTLOOK", "WHY", "WHAT", "ABOUT")
_LINES_AROUND: Final = 3
"""The frame of a section, and its headings."""


@contextmanager
def shown() -> Iterator[Callable[[Seen], None]]:
    """Take the whole terminal; what is given is shown there until the next. Afterwards the terminal is as before."""
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda seen: live.update(_layout(seen, console.width), refresh=True)


def _layout(seen: Seen, width: int) -> Layout:
    day = seen.found["at"][:10]
    head = _fields(status.head(seen.found))
    queue = Layout(
        _Section(
            "Queue", ("WHAT", "BUDGET", "GPUS", "SINCE", "ESTIMATED START"), [_queued(each, day) for each in seen.queue]
        ),
        ratio=2,
    )
    machines = Layout(
        _Section("Machines", ("POOL", "SIZE", "STATE", "WHY"), _pools(seen.found)), name="machines", ratio=2
    )
    whole, middle = Layout(), Layout(ratio=2 if width >= WIDE else 4)
    (middle.split_row if width >= WIDE else middle.split_column)(queue, machines)
    whole.split_column(
        Layout(head, size=head.row_count),
        Layout(
            _Section("Budgets", ("BUDGET", "USED", "", "QUOTA", "GPUS", "STATE", "OUTLOOK"), _budgets(seen.found)),
            ratio=3,
        ),
        middle,
        Layout(
            _Section("Decisions", ("AT", "", "WHAT", "ABOUT"), [_decision(each, day) for each in seen.decisions]),
            ratio=3,
        ),
        Layout(_foot(seen), size=1),
    )
    return whole


def _fields(fields: Iterator[tuple[str, object]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow=_cut())
    for name, value in fields:
        table.add_row(name, _text(value))
    return table


def _foot(seen: Seen) -> Text:
    if seen.problem:
        return Text(output.clean(f"Not newer: {seen.problem}"), style="red", no_wrap=True, overflow=_cut())
    return Text("q quits, r reads now", style="dim")


class _Section:
    """A framed table with as many rows as there is room for."""

    def __init__(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self._title, self._columns, self._rows = title, columns, rows

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        room = max(0, (options.height or len(self._rows) + _LINES_AROUND) - _LINES_AROUND)
        shown = self._rows[:room]
        table = Table(box=None, pad_edge=False, expand=False, header_style="bold")
        for number, column in enumerate(self._columns):
            # Only sentences are cut where there is no room.
            cells = (len(output.clean(row[number])) for row in shown)
            least = None if column in _SENTENCES else max(len(column), *cells, 0)
            table.add_column(column, no_wrap=True, overflow=_cut(), min_width=least)
        for row in shown:
            table.add_row(*map(_text, row))
        more = f", {len(self._rows) - len(shown)} more" if len(self._rows) > len(shown) else ""
        yield Panel(
            table if self._rows else Text("none", style="dim"),
            title=f"{self._title}: {len(self._rows)}{more}",
            title_align="left",
            height=options.height,
        )


def _text(value: object) -> Text:
    """Plain text in the colour of its meaning; nothing in it is markup or drives the terminal."""
    return Text(output.clean(value), style=_STYLES[value.tone] if isinstance(value, output.Toned) else "")


def _cut() -> Any:
    return "ellipsis" if output.shows_blocks() else "crop"


# --- rows -------------------------------------------------------------------------------------------------------------------


def _budgets(found: dict[str, Any]) -> list[tuple[object, ...]]:
    """The fullest first."""
    from headroom.model import times

    at = times.moment(found["at"]) or 0
    rows = sorted(found["budgets"], key=lambda each: (-each.get("percent", 0), name_of(each)))
    return [
        (
            name_of(each),
            output.bar(each.get("percent", 0)),
            output.percent(each.get("percent", 0)),
            face_budgets.of_quota(each),
            each.get("burnRateGpus", ""),
            output.Toned(each["state"], each["tone"]),
            face_budgets.outlook(each, at),
        )
        for each in rows
    ]


def _pools(found: dict[str, Any]) -> list[tuple[object, ...]]:
    """Power pools, spot pools and pools of offers: their machines by state."""
    pools = [each for section in ("pools", "spotPools", "leftoverNodePools") for each in found[section]]
    return [
        (
            name_of(each),
            ", ".join(f"{count} {state}" for state, count in each.get("states", {}).items()),
            output.Toned(each["state"], each["tone"]),
            each["message"],
        )
        for each in pools
    ]


def _queued(row: tuple[str, ...], day: str) -> tuple[object, ...]:
    what, budget, gpus, since, start = row
    return what, budget, gpus, _brief(since, day), _brief(start, day)


def _brief(moment: str, day: str) -> str:
    """A moment without its date if it is of that day, and without parts of a second."""
    date, has_time, time = moment.partition("T")
    if not has_time:
        return moment
    return f"{time[:8]}Z" if date == day else f"{date} {time[:5]}Z"


def _decision(row: tuple[str, ...], day: str) -> tuple[object, ...]:
    at, sign, what, about = row
    tone = {"+": "good", "~": "warn", "-": "bad", "!": "bad"}.get(sign, "")
    return (
        _brief(at, day),
        output.Toned(sign, tone) if tone else sign,
        output.Toned(what, tone) if sign == "!" else what,
        about,
    )

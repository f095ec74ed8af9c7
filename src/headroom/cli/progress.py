"""How far a long piece of work is, for a person at a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int], None]
"""Told how much is done so far."""


def silent(done: int) -> None:
    """Tell nobody."""
    del done


@contextmanager
def shown(doing: str, things: str, total: int | None = None) -> Iterator[Progress]:
    """Show a line that counts, and a bar where the end is known; it is gone when the work is done."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Shown

    count = f"{{task.completed:,.0f}} of {{task.total:,.0f}} {things}" if total else f"{{task.completed:,.0f}} {things}"
    middle = (BarColumn(),) if total else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *middle, TextColumn(count), TimeElapsedColumn())
    with Shown(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(doing, total=total)
        yield lambda done: bars.update(task, completed=done)

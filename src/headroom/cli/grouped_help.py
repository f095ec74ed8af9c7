"""Plain `--help` in groups: commands by what people want to do, options by what they are about, examples to copy at the end.

The groups are typer's `rich_help_panel`. Rich itself would take longer to load than most commands to run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

EXAMPLE: Final = "Example: "
_SHORT: Final = 80
_TYPE: Final = re.compile(r"<(int|float|str|Path)( range)?>")
_NAMES: Final = {"int": "NUMBER", "float": "NUMBER", "Path": "FILE"}
"""What people call the types of Python that click names."""


class GroupedCommand(TyperCommand):
    """A command whose options stand in groups."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  click gives it
        """The text without its examples."""
        _write_text(self.help or "", formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """What is given by place, then the options, group by group."""
        _write_parameters(self.get_params(ctx), ctx, formatter)
        _write_examples(self.help or "", formatter)


class GroupedCommands(TyperGroup):
    """A group of commands, itself in groups."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  click gives it
        """The text without its examples."""
        _write_text(self.help or "", formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The commands first: they are what people look for."""
        self.format_commands(ctx, formatter)
        _write_parameters(self.get_params(ctx), ctx, formatter)
        _write_examples(self.help or "", formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with what it does, under what people want to do."""
        groups: dict[str, list[tuple[str, str]]] = {}
        longest = max(map(len, self.commands), default=0)
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            row = f"{name:<{longest}}", command.get_short_help_str(_SHORT)
            groups.setdefault(command.rich_help_panel or "Commands", []).append(row)
        _write_sections(groups, formatter)


def _write_text(text: str, formatter: Any) -> None:
    words = "\n\n".join(each for each in _paragraphs(text) if not each.startswith(EXAMPLE))
    if words:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(words)


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for each in parameters:
        if each.param_type_name == "argument":
            # The metavar alone: click adds how Python calls the type.
            name = each.metavar or each.name.upper()
            several = "..." if each.nargs == -1 and not name.endswith("...") else ""
            groups["Arguments"].append((name + several, each.help or ""))
        elif (record := each.get_help_record(ctx)) is not None:
            name = _TYPE.sub(lambda found: _NAMES.get(found[1], "TEXT"), record[0])
            groups.setdefault(getattr(each, "rich_help_panel", None) or "Options", []).append((name, record[1]))
    _write_sections(groups, formatter)


def _write_examples(text: str, formatter: Any) -> None:
    """Each on a line of its own, however long, so that it can be copied."""
    examples = [each.removeprefix(EXAMPLE) for each in _paragraphs(text) if each.startswith(EXAMPLE)]
    if examples:
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"  {each}\n")


def _write_sections(groups: dict[str, list[tuple[str, str]]], formatter: Any) -> None:
    for title, rows in groups.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n") if each.strip()]

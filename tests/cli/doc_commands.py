"""The commands of the pages, as people copy them, and whether the program would understand them."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, Final

from typer.exceptions import TyperException
from typer.main import get_command

from headroom.cli.main import app
from tests.cli.stage import ROOT

PAGES: Final = sorted(
    path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if path.parent.name != "reference"
)
_FIGURES = re.compile(r"<!-- figures: .*?<!-- end of figures -->", re.DOTALL)
_OTHER_FENCES = re.compile(r"^ *```(?!sh\n|bash\n|shell\n).*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```(?:sh|bash|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROMPTED = re.compile(r"^ {4}\$ (?P<command>[^\n]*)\n(?:(?: {4}(?!\$ )[^\n]*)?\n)*", re.MULTILINE)
_COMMAND = re.compile(
    r"^(?: {4,})?((?:[A-Z_]+=\S+ )*(?:\.venv/bin/headroom|headroom|kubectl|make) [^\n]*)$", re.MULTILINE
)
_INLINE = re.compile(r"`(headroom [a-z][^`]*)`")


def commands_of(text: str) -> list[str]:
    """The lines in blocks that are to be typed, each with its continuation, without the remark beside it."""
    text = _OTHER_FENCES.sub("", _FIGURES.sub("", text))
    text = re.sub(r"\s*\\\n\s*", " ", _PROMPTED.sub(r"    \g<command>\n", text))
    fenced = "\n".join(_SHELL.findall(text))
    indented = "\n".join(line for line in _SHELL.sub("", text).splitlines() if line.startswith("    "))
    return [re.split(r"\s{2,}", line)[0] for line in _COMMAND.findall(f"{fenced}\n{indented}")]


def named_in(text: str) -> list[str]:
    """Commands that a sentence or a table names; what they are given may be left out there."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(found.split()) for found in _INLINE.findall(plain)]


def parts(command: str) -> list[list[str]]:
    """The programs of a pipe with their words, without what stands before and behind them."""
    found: list[list[str]] = [[]]
    for word in shlex.split(re.split(r" [>&]", command)[0]):
        if word == "|":
            found.append([])
        elif found[-1] or not re.fullmatch(r"[A-Z_]+=.*", word):
            found[-1].append(word)
    return found


@cache
def _program() -> Any:
    return get_command(app)


def misunderstood(words: list[str], *, whole: bool = True) -> str:
    """Why the program would not understand these words, empty if it would; not whole: options may lack what they are given."""
    command: Any = _program()
    rest = list(words)
    while hasattr(command, "commands"):
        name = rest.pop(0) if rest else ""
        if name.startswith("-"):
            return "" if _options(command) >= {name} else f"no option {name}"
        if name not in command.commands:
            return f"no command {name}" if name else ("it needs a command" if whole else "")
        command = command.commands[name]
    options = _options(command)
    given = [each.partition("=")[0] for each in rest if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", each)]
    if wrong := [each for each in given if each not in options]:
        return f"no option {wrong[0]}"
    return _unparsed(command, rest) if whole else ""


def _options(command: Any) -> set[str]:
    """Every option by each of its names."""
    found = {name for each in command.params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}
    return found | {"--help", "-h"}


def _unparsed(command: Any, words: list[str]) -> str:
    """What the parser says of options without a value, of words too many, and of those that are missing."""
    context = command.context_class(command, info_name=command.name)
    try:
        values, rest, _ = command.make_parser(context).parse_args(list(words))
    except TyperException as refused:
        return str(refused) or type(refused).__name__
    missing = [each.name for each in command.params if each.required and not values.get(each.name)]
    return f"too many words: {rest}" if rest else f"no {missing[0]}" if missing else ""


def document_of(path: Path) -> str:
    """The first manifest of ours that a page shows, empty without one."""
    return next(iter(re.findall(r"```yaml\n(apiVersion: headroom.*?)```", path.read_text(), re.DOTALL)), "")

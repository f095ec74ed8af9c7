"""`headroom completion`: what a shell needs to complete command lines, and what it is told when it asks.

The scripts ask this very program, so they never fall behind it: `headroom completion --for -- WORD...` prints what may stand in
place of the last word, one to a line, with a tab before the explanation. Nothing is asked of a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

# What goes wrong while a line is typed must not be written across it, so the scripts drop our standard error.
_BASH: Final = """\
# bash completion for headroom: source it, or put it into /etc/bash_completion.d
_headroom() {
    local IFS=$'\\n'
    local words
    words=$(headroom completion --for -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=($(cut -f1 <<< "$words"))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
}
complete -o default -F _headroom headroom
"""
_ZSH: Final = """\
#compdef headroom
# zsh completion for headroom: source it after compinit, or save it as _headroom in a folder of $fpath
_headroom() {
    local -a found
    local line
    for line in "${(@f)$(headroom completion --for -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    if (( $#found )); then _describe headroom found; else _files; fi
}
compdef _headroom headroom
"""
_FISH: Final = """\
# fish completion for headroom: save it as ~/.config/fish/completions/headroom.fish
function __headroom_complete
    set -l words (commandline -opc) (commandline -ct)
    headroom completion --for -- $words[2..-1] 2>/dev/null
end
complete -c headroom -a '(__headroom_complete)'
"""
_INSTALL: Final = {
    "bash": "for this shell: source <(headroom completion bash); for good: add that line to ~/.bashrc",
    "zsh": "for this shell: source <(headroom completion zsh); for good: add that line to ~/.zshrc, after compinit",
    "fish": "for good: headroom completion fish > ~/.config/fish/completions/headroom.fish",
}
_NO_FILES: Final = 4
_FILES: Final = 0
"""What kubectl does when nothing is offered: its own completion prints such a number."""

Offer = tuple[str, str]
"""A word that may follow, and what it means."""


class Shell(StrEnum):
    """The shells that a script is there for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    shell: Annotated[
        Shell | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)
    ] = None,
) -> None:
    """Print the completion script of a shell.

    It completes commands, options and kinds. For the current shell: source <(headroom completion bash). To keep it, add that line to
    ~/.bashrc or ~/.zshrc; fish reads ~/.config/fish/completions/headroom.fish. kubectl completes `kubectl headroom` with the program
    kubectl_complete-headroom, which is installed beside this one.

    Example: headroom completion bash
    """
    from headroom.cli import output
    from headroom.model.errors import Misconfigured

    if shell is None:
        raise Misconfigured("printing the script: name a shell: bash, zsh or fish")
    print({"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell], end="")
    if sys.stdout.isatty():
        output.say(_INSTALL[shell])


def asked() -> list[str] | None:
    """The words that a script wants to be completed, whatever they are; None if this is no such question."""
    return sys.argv[4:] if sys.argv[1:4] == ["completion", "--for", "--"] else None


def answer(words: Sequence[str]) -> None:
    """Print what may stand in place of the last word."""
    for word, meaning in offers(words):
        print(f"{word}\t{meaning}" if meaning else word)


def answer_kubectl(words: Sequence[str]) -> None:
    """The same for kubectl, which wants to know at the end whether files would do too."""
    found = list(offers(words))
    for word, meaning in found:
        print(f"{word}\t{meaning}" if meaning else word)
    print(f":{_NO_FILES if found else _FILES}")


def offers(words: Sequence[str]) -> Iterator[Offer]:
    """What may stand in place of the last word; nothing where a file or a free text is wanted."""
    from typer.main import get_command

    from headroom.cli.main import app

    # bash parts --output=j into three words.
    *before, begun = [word for number, word in enumerate(words) if word != "=" or number == len(words) - 1] or [""]
    begun = "" if begun == "=" else begun
    command: Any = get_command(app)
    path, wants = [], None
    for word in before:
        if wants is not None:
            wants = None
        elif word.startswith("-"):
            wants = _valued(command, word)
        elif word in getattr(command, "commands", {}):
            command = command.commands[word]
            path.append(word)
    if wants is not None:
        possible = [(each, "") for each in _choices(wants)]
    elif begun.startswith("-"):
        possible = list(_options(command))
    elif hasattr(command, "commands"):
        possible = [(name, each.get_short_help_str(80)) for name, each in command.commands.items() if not each.hidden]
    else:
        possible = _arguments(" ".join(path))
    yield from (each for each in possible if each[0].startswith(begun))


def _valued(command: Any, word: str) -> Any:
    """The option of that name, if a value must follow it."""
    if "=" in word:
        return None
    return next((each for each in command.params if word in each.opts and not getattr(each, "is_flag", False)), None)


def _choices(option: Any) -> list[str]:
    """The words that an option takes: those that have a list of words have one of them as their default."""
    return [str(each) for each in type(option.default)] if isinstance(option.default, StrEnum) else []


def _options(command: Any) -> Iterator[Offer]:
    for each in command.params:
        if each.param_type_name == "option" and not each.hidden:
            meaning = " ".join((each.help or "").split())
            yield from ((name, meaning) for name in (*each.opts, *each.secondary_opts) if name.startswith("--"))
    yield "--help", "Show this message and exit."


def _arguments(command: str) -> list[Offer]:
    """The beginnings of what can be named without asking a cluster."""
    from headroom.api.kinds import KINDS
    from headroom.cli.capabilities import PARTS
    from headroom.cli.explain_pods import WORDS

    others = [(f"{kind.lower()}/", f"A {kind}.") for kind in dict.fromkeys(WORDS.values())]
    if command == "explain":
        return (
            [(f"{kind.short_names[0]}/", f"A {kind.name}.") for kind in KINDS.values()]
            + others
            + [(f"{each.words[0]}/", each.meaning) for each in PARTS.values()]
        )
    if command == "release":
        return others
    return [(str(each), "") for each in Shell] if command == "completion" else []

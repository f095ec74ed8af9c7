"""Completion of command lines, by bash itself and as kubectl asks for it, and the names under which the program is installed."""

import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from headroom.cli.completion import offers
from tests.cli.conftest import Headroom

ROOT = Path(__file__).parents[2]


def words(*line: str) -> list[str]:
    return [word for word, _ in offers(line)]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["sta"], ["status"]),
        (["re"], ["release", "resume", "replay"]),
        (["ledger", "b"], ["backup"]),
        (["explain", "p"], ["pp/", "pod/"]),
        (["explain", "gw"], ["gwb/"]),
        (["explain", "m"], ["machine/"]),
        (["release", "j"], ["job/", "jobset/"]),
        (["plan", "-o", ""], ["table", "json", "yaml"]),
        (["plan", "--output", "j"], ["json"]),
        (["plan", "--output", "=", "j"], ["json"]),
        (["plan", "--output", "="], ["table", "json", "yaml"]),
        (["plan", "-o", "json", "--no"], ["--now"]),
        (["status", "--wa"], ["--watch"]),
        (["status", "--watch", "--al"], ["--all-namespaces", "--all"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["check", "docs/"], []),
        (["plan", "-f", ""], []),
        (["nothing-such", ""], words("")),
    ],
)
def test_what_may_follow(line: list[str], offered: list[str]) -> None:
    assert words(*line) == offered


def test_every_offer_of_a_command_says_what_it_is() -> None:
    assert dict(offers([""]))["status"] == "Show the whole fleet on one screen."
    assert all(meaning for _, meaning in offers([""]))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for(headroom: Headroom, shell: str) -> None:
    done = headroom("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "headroom completion --for -- " in done.out


def test_no_shell_is_one_sentence(headroom: Headroom) -> None:
    done = headroom("completion")
    assert (done.code, done.out) == (2, "")
    assert done.err == "headroom: printing the script: name a shell: bash, zsh or fish\n"


@pytest.mark.parametrize(
    ("line", "offered"),
    [("headroom sta", "status"), ("headroom plan -o ''", "table json yaml"), ("headroom explain gwb", "gwb/")],
)
def test_bash_completes(headroom: Headroom, tmp_path: Path, line: str, offered: str) -> None:
    (tmp_path / "headroom.bash").write_text(headroom("completion", "bash").out)
    script = f"""
headroom() {{ "{sys.executable}" -m headroom "$@"; }}
compopt() {{ :; }}  # there is no line to edit here
source {tmp_path}/headroom.bash
COMP_WORDS=({line})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_headroom
echo "${{COMPREPLY[*]}}"
"""
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, timeout=180, check=True)
    assert (done.stdout.split(), done.stderr) == (offered.split(), "")


def called_as(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program under one of the names that pyproject.toml gives it."""
    target = scripts()[name]
    module, _, function = target.partition(":")
    code = f"import sys; sys.argv[0] = '/usr/bin/{name}'; from {module} import {function}; {function}()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=180, check=False
    )


def scripts() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return found


def test_every_script_leads_somewhere() -> None:
    assert set(scripts()) == {"headroom", "kubectl-headroom", "kubectl_complete-headroom"}
    for target in scripts().values():
        module, _, function = target.partition(":")
        assert callable(getattr(import_module(module), function))


def test_as_a_plugin_it_speaks_of_kubectl() -> None:
    assert called_as("kubectl-headroom", "--help").stdout.startswith("Usage: kubectl headroom [OPTIONS] COMMAND")
    assert called_as("kubectl-headroom", "plan", "--help").stdout.startswith("Usage: kubectl headroom plan [OPTIONS]")
    wrong = called_as("kubectl-headroom", "plan", "--nope")
    assert (wrong.returncode, wrong.stderr.splitlines()[0]) == (2, "Usage: kubectl headroom plan [OPTIONS] [FILE]...")
    assert called_as("headroom", "--help").stdout.startswith("Usage: headroom [OPTIONS] COMMAND")


def test_kubectl_is_told_what_may_follow_and_whether_files_may() -> None:
    done = called_as("kubectl_complete-headroom", "for")
    assert done.stdout == "forecast\tPredict when budgets go over quota, or back under it.\n:4\n"
    assert called_as("kubectl_complete-headroom", "check", "").stdout == ":0\n"

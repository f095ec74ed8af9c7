"""The pages show what commands really print: HEADROOM_GOLDEN=write writes them anew."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from headroom.api.power import PowerPolicy
from headroom.runtime.clock import RealClock
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import NOON_MS, ROOT, fill, fleet_behind_a_port, steady
from tests.cli.test_behaviour import commands
from tests.cli.test_golden import WRITES

CLI = ROOT / "docs" / "cli.md"
POWER = ROOT / "docs" / "power.md"
PAGES = (CLI, POWER, *(ROOT / "docs" / f"{name}.md" for name in ("bandwidth", "spot-pools")))
POLICY = {each.encode_name: each.default for each in structs.fields(PowerPolicy)}
BLOCK = re.compile(r"^    \$ (?P<command>[^\n]*)\n(?P<shown>(?:(?:    (?!\$ )[^\n]*)?\n)*)", re.MULTILINE)
INDENT = "    "


def blocks(page: Path) -> list[tuple[str, str]]:
    """Every command of a page, with what is shown below it."""
    return [(found["command"], found["shown"].strip("\n")) for found in BLOCK.finditer(page.read_text())]


SHOWN = [(page, number) for page in PAGES for number in range(len(blocks(page)))]


@pytest.fixture
def folder(tmp_path: Path, headroom: Headroom, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files that the pages name, and the fleet behind KUBECONFIG."""
    fill(tmp_path)
    for name in ("docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)
    for name, value in {"COLUMNS": "100", "FORCE_COLOR": "1", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    with fleet_behind_a_port(tmp_path) as fleet:
        monkeypatch.setenv("KUBECONFIG", str(fleet.kubeconfig()))
        _before(headroom, fleet)
        yield tmp_path


def _before(headroom: Headroom, fleet: Served) -> None:
    """What the page has done already where a command follows another."""
    headroom("snapshot", "-o", "world.json")
    headroom("ledger", "backup", "monday.db", "--ledger-url", "ledger.db")


def printed(headroom: Headroom, folder: Path, command: str) -> str:
    line, _, head = command.partition(" | head -")
    program, *words = shlex.split(line)
    assert program == "headroom"
    if words[:2] == ["ledger", "backup"]:
        Path("monday.db").unlink()
    if words == ["resume"]:
        headroom("stop")
    given = [str(each) for word in words for each in (sorted(Path().glob(word)) if "*" in word else [word])]
    done = headroom(*given)
    assert done.code in (0, 1)
    lines = steady(done.out + done.err, folder).rstrip("\n").splitlines()
    return "\n".join(f"{INDENT}{each}".rstrip() for each in (lines[: int(head)] if head else lines))


def test_the_page_speaks_of_every_command() -> None:
    text = CLI.read_text()
    shown = {" ".join(command.split()[1:3]) for command, _ in blocks(CLI)}
    alone = {each.split()[0] for each in shown}
    missing = [name for name in commands() if name not in shown | alone and f"[{name.split()[0]}.md]" not in text]
    # A live view has a section, and no output that could be printed there.
    assert [name for name in missing if name != "simulate" and f"\n## {name}\n" not in text] == []


def test_the_page_of_power_has_every_field_of_the_policy_with_its_default() -> None:
    """What is not given at all has a word of its own there."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", POWER.read_text(), re.MULTILINE)
    told = {name: default.strip() for name, default in rows if name in POLICY}
    wanted = {name: str(default).lower() if isinstance(default, bool) else default for name, default in POLICY.items()}
    assert list(told) == list(wanted)
    assert {name: told[name] for name, default in wanted.items() if default not in (None, ())} == {
        name: str(default) for name, default in wanted.items() if default not in (None, ())
    }


@pytest.mark.parametrize(
    ("page", "number"), SHOWN, ids=[f"{page.name}: {blocks(page)[number][0]}" for page, number in SHOWN]
)
def test_the_page_shows_what_is_printed(headroom: Headroom, folder: Path, page: Path, number: int) -> None:
    command, shown = blocks(page)[number]
    said = printed(headroom, folder, command)
    if WRITES:
        found = list(BLOCK.finditer(page.read_text()))[number]
        text, end = page.read_text(), "\n\n" if said else "\n"
        page.write_text(f"{text[: found.start()]}{INDENT}$ {command}\n{said}{end}{text[found.end() :]}".rstrip() + "\n")
        shown = said
    assert said == shown, f"HEADROOM_GOLDEN=write writes {page.name} anew"

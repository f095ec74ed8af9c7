"""The files of the dashboard keep its rules: short modules, no markup made from text, nothing inline, nothing from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headroom.cli import capabilities
from headroom.web import server
from headroom.web.shell import document

SCRIPTS = sorted((server.HERE / "static").rglob("*.js"))
STYLES = sorted((server.HERE / "static").rglob("*.css"))
MOST_LINES = 300

FORBIDDEN = {
    "markup made from text": r"\.(?:inner|outer)HTML\s*=|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser",
    "code made from text": r"\beval\(|new Function\(|set(?:Timeout|Interval)\(\s*[\"'`]",
    "a style attribute, which the policy forbids": r"setAttribute\(\s*[\"']style|[\"{,\s]style:\s*[\"'`]",
    "another place": r"https?://",
}


def named(files: list[Path]) -> list[str]:
    return [str(each.relative_to(server.HERE)) for each in files]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_scripts_do_not_have(what: str) -> None:
    assert named([each for each in SCRIPTS if re.search(FORBIDDEN[what], each.read_text())]) == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("markup made from text", "node.innerHTML = name"),
        ("code made from text", 'setTimeout("alert(1)")'),
        ("a style attribute, which the policy forbids", 'h("p", { style: "color: red" })'),
        ("another place", 'import "https://elsewhere/x.js"'),
    ],
)
def test_these_rules_can_fail(what: str, text: str) -> None:
    assert re.search(FORBIDDEN[what], text)


def test_files_are_short_and_open_with_what_they_are_for() -> None:
    assert named([each for each in SCRIPTS if len(each.read_text().splitlines()) > MOST_LINES]) == []
    assert named([each for each in SCRIPTS if not each.read_text().startswith("// ")]) == []
    assert named([each for each in STYLES if not each.read_text().startswith("/* ")]) == []


def test_the_document_has_nothing_inline_and_asks_early_for_every_module() -> None:
    modules = {
        str(each.relative_to(server.HERE / "static")) for each in SCRIPTS if each.parent.name in {"app", "pages"}
    }
    text = document(capabilities.pages(), sorted(modules))
    assert re.findall(r"<script(?![^>]*\bsrc=)|\bstyle=|\son\w+=|<style", text) == []
    assert re.findall(r"(?:href|src)=\"(?:/|\w+:)", text) == [], (
        "all addresses are relative: it may stand under a prefix"
    )
    assert set(re.findall(r"(?:href|src)=\"static/(app/[^\"]+)\"", text)) == modules


def test_the_charting_library_is_locked_by_hash_and_not_by_place() -> None:
    lock = json.loads((server.HERE / "package-lock.json").read_text())["packages"]
    packages = {name: each for name, each in lock.items() if name}
    assert list(packages) == ["node_modules/uplot"]
    assert all(each["integrity"].startswith("sha512-") and "resolved" not in each for each in packages.values())

"""Every link from one page to another leads somewhere, every file of code that a page names exists, and pages of one sort look alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
CODE_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|js))`")
FILES = [
    path.relative_to(ROOT).as_posix() for top in ("src", "tests", "bench") for path in (ROOT / top).rglob("*.[pj]*")
]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings, and what a page names itself."""
    headings = HEADING.findall(FENCED.sub("", text))
    named = set(re.findall(r'<a id="([^"]+)">', text))
    return named | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> list[str]:
    found = []
    for link in LINK.finditer(text):
        target = page.parent / link[1] if link[1] else page
        if not target.exists() or (link[2] and link[2] not in anchors(target.read_text())):
            line = text.count("\n", 0, link.start()) + 1
            found.append(f"{page.relative_to(ROOT)}:{line}: {link[1]}{f'#{link[2]}' if link[2] else ''}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


CAPABILITIES = ("budgets", "enforcement", "power", "spot-pools", "cheapest-capacity", "bandwidth")
HEADINGS = [
    "What it does",
    "Quick example",
    "How it works",
    "Fields",
    "Status and metrics",
    "Troubleshooting",
    "Limits",
]


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_capability_page_has_the_headings_of_all(name: str) -> None:
    text = FENCED.sub("", (ROOT / "docs" / f"{name}.md").read_text())
    found = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert found[: len(HEADINGS)] == HEADINGS
    assert f"({name}.md#troubleshooting)" in (ROOT / "docs" / "troubleshooting.md").read_text()


def unknown_files(text: str) -> list[str]:
    """Files of code that the text names, whole or by the end of their path, and that do not exist."""
    return [name for name in CODE_FILE.findall(text) if not any(f"/{each}".endswith(f"/{name}") for each in FILES)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    assert unknown_files(page.read_text()) == []


def test_a_file_that_does_not_exist_is_found() -> None:
    assert unknown_files("`core/plan.py`, `plan.py`, `core/budgets/plan.py`, `lan.py`") == ["core/plan.py", "lan.py"]


def test_a_link_that_leads_nowhere_is_found() -> None:
    page = ROOT / "README.md"
    text = "\n[a](docs/nothing.md) [b](ARCHITECTURE.md) [c](ARCHITECTURE.md#nothing) [d](https://example.com/x.md#y)"
    assert broken(page, text) == ["README.md:2: docs/nothing.md", "README.md:2: ARCHITECTURE.md#nothing"]


def test_headings_are_found_as_github_names_them() -> None:
    assert anchors('# Suspend and `Evict`, 60×\n<a id="here"></a>\n```\n# no heading\n```\n') == {
        "suspend-and-evict-60",
        "here",
    }

"""Every setting of the operator is on a page, and what a page quotes from its log is what it logs."""

import re
from pathlib import Path

from msgspec import structs

from headroom.runtime.settings import Settings

ROOT = Path(__file__).parents[2]
TEXT = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))


def test_every_setting_is_on_a_page() -> None:
    names = [each.name for each in structs.fields(Settings)]
    known = {each for each in names if f"HEADROOM_{each.upper()}" in TEXT or f"--{each.replace('_', '-')}" in TEXT}
    bandwidth = {each for each in names if each.startswith("bandwidth_") and f"`{each.upper()}`" in TEXT}
    assert sorted(set(names) - known - bandwidth) == []


def test_what_a_page_quotes_from_the_log_is_logged() -> None:
    logged = "\n".join(path.read_text() for path in (ROOT / "src" / "headroom").rglob("*.py"))
    quoted = re.findall(r"`([^`]+)`\s+in\s+the\s+log|\blogs?\s+(?:says\s+)?`([^`]+)`", TEXT)
    lines = {" ".join((first or second).split()) for first, second in quoted}
    assert len(lines) > 5
    assert [each for each in sorted(lines) if f'"{each}' not in logged] == []

"""The pages speak the words of the glossary: what scripts put on them, and what the operator says in their data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_words import ROOT, habits

WEB = ROOT / "src" / "headroom" / "web"
SPOKEN = [
    *sorted((WEB / "static" / "app").rglob("*.js")),
    *sorted((WEB / "pages").glob("*.py")),
    *sorted((WEB / "templates").glob("*.html")),
]


@pytest.mark.parametrize("path", SPOKEN, ids=lambda path: path.relative_to(WEB).as_posix())
def test_a_page_speaks_the_words_of_the_glossary(path: Path) -> None:
    # A regular expression or a format is no sentence.
    text = re.sub(r"(?m)^.*re\.compile.*$", "", path.read_text())
    assert habits(path.name, text) == []

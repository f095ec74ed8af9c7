"""The document around all pages, and the list of pages for its scripts: both made from the same records."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Final

import msgspec

from headroom.web.page import Page

TEMPLATE: Final = Path(__file__).parent / "templates" / "shell.html"


def document(pages: Sequence[Page], modules: Iterable[str]) -> str:
    """The one document: links to the pages, and every module asked for early."""
    preloads = [f'<link rel="modulepreload" href="static/{each}">' for each in modules if each != "app/main.js"]
    links = [
        f'<a href="#/{"" if each is pages[0] else each.path}" data-page="{each.path}">{html.escape(each.link)}</a>'
        for each in pages
        if each.link
    ]
    return Template(TEMPLATE.read_text()).substitute(preloads="\n".join(preloads), links="\n".join(links))


def listing(pages: Iterable[Page]) -> str:
    """A module for the scripts: what is where, who draws it, and what it is about."""
    rows = [{name: getattr(each, name) for name in ("path", "script", "kind", "noun")} for each in pages]
    return f"// The pages, the first of which is shown where no other is named.\n\nexport const PAGES = {msgspec.json.encode(rows).decode()};\n"

"""What axe finds on a page, in both themes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_ALL: Final[dict[str, Any]] = {"resultTypes": ["violations"]}
_COLOURS: Final = _ALL | {"runOnly": ["color-contrast", "link-in-text-block"]}
"""What another theme can break: it changes colours and nothing else."""
_THEMES: Final[tuple[tuple[Literal["light", "dark"], dict[str, Any]], ...]] = (("light", _ALL), ("dark", _COLOURS))


def found(page: Page, impacts: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Each thing with its theme, of these impacts or of all."""
    said: list[tuple[str, str, str]] = []
    for theme, options in _THEMES:
        page.emulate_media(color_scheme=theme)
        each = Axe().run(page, options=options).response["violations"]
        said += [(theme, one["id"], one["nodes"][0]["html"]) for one in each if not impacts or one["impact"] in impacts]
    return said

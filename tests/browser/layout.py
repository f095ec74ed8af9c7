"""How a page is laid out, read at one moment: it moves when a notice comes, or when a chart hears of the window's new width."""

from __future__ import annotations

from typing import Final, NamedTuple

from playwright.sync_api import Locator, Page

_FITS: Final = "width => window.innerWidth === width && document.documentElement.scrollWidth <= width"
_BOXES: Final = """nodes => nodes.map(node => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return [x, y, width, height];
})"""


class Box(NamedTuple):
    """Where something lies."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


def boxes(nodes: Locator) -> list[Box]:
    """Where each of these lies."""
    return [Box(*each) for each in nodes.evaluate_all(_BOXES)]


def fits(page: Page, width: int) -> None:
    """Wait until the window is so wide and nothing on the page is wider: charts hear of it a moment after everything else."""
    page.wait_for_function(_FITS, arg=width)


def resized(page: Page, width: int, height: int = 800) -> None:
    """Another window, once the page fits into it."""
    page.set_viewport_size({"width": width, "height": height})
    fits(page, width)


def row_ends(page: Page) -> set[int]:
    """Where the rows of tiles end: at one place, if no tile stands alone beside nothing."""
    ends: dict[float, float] = {}
    for each in boxes(page.locator(".tile:visible")):
        ends[each.y] = max(ends.get(each.y, 0), each.right)
    return {round(end) for end in ends.values()}


def nav_rows(page: Page) -> int:
    """In how many rows the links to the pages stand."""
    return len({each.y for each in boxes(page.locator("nav a"))})

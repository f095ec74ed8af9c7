"""Pictures of every page, of a demo that has come to the point where pods wait: `python -m tests.browser.pictures [FOLDER]`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.error import URLError

from playwright.sync_api import Browser

from tests.browser.chromium import PAGES, chromium, opened
from tests.processes import Guard, Process, free_ports

IMAGES: Final = Path(__file__).parent.parent.parent / "docs" / "images"
SEED: Final = "1"
STORY_SECONDS: Final = 420
"""In which the demo must have come to its point: a budget is used up, pods wait for it, and others were let go or stopped."""
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 780}
TALLEST: Final = {1280: 1100, 360: 900}
"""A long page is cut off here: the picture shows what it is like, not all that is on it."""


@contextmanager
def demo() -> Iterator[str]:
    """A demo of its own, and its address."""
    with tempfile.TemporaryDirectory(prefix="headroom-pictures-") as folder:
        port, guard = free_ports(1)[0], Guard(Path(folder))
        command = [sys.executable, "-m", "headroom", "demo", "--port", str(port), "--seed", SEED]
        process = Process(command, Path(folder) / "demo.log", guard, dict(os.environ))
        url = f"http://127.0.0.1:{port}"
        try:
            process.wait_ready(lambda: bool(asked(url, "overview")), timeout=60)
            yield url
        finally:
            process.stop()
            guard.close()


def asked(url: str, page: str) -> dict[str, Any]:
    """The model of a page; empty if nobody answers yet."""
    try:
        with urllib.request.urlopen(f"{url}/api/{page}", timeout=10) as reply:
            found: dict[str, Any] = json.load(reply)
            return found
    except (URLError, OSError):
        return {}


def worth_showing(url: str) -> str:
    """The budget that has the most to tell, once there is one: pods wait, and somebody was let go or stopped."""
    deadline = time.monotonic() + STORY_SECONDS
    while time.monotonic() < deadline:
        rows: dict[str, Any] = asked(url, "overview").get("budgets", {})
        for name in sorted(rows, key=lambda each: -rows[each]["heldPods"]):
            page = asked(url, f"budgets/{name}") if rows[name]["heldPods"] else {}
            if page.get("held") and (page.get("released") or page.get("stopped")):
                return name
        time.sleep(1)
    sys.exit(f"the demo came to no point worth showing in {STORY_SECONDS} s")


def take(browser: Browser, url: str, budget: str, folder: Path) -> None:
    """Every page in both themes, and once as on a phone."""
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for suffix, size, theme in [(f"-{each}", WIDE, each) for each in themes] + [("-phone", PHONE, themes[0])]:
        context = browser.new_context(viewport={"width": size["width"], "height": size["height"]}, color_scheme=theme)
        page = context.new_page()
        for name, address in PAGES.items():
            opened(page, url, address.format(budget=budget))
            page.wait_for_function("document.fonts.status === 'loaded'")
            height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST[size["width"]])
            clip = {"x": 0, "y": 0, "width": size["width"], "height": height}
            file = folder / f"dashboard-{name}{suffix}.png"
            page.screenshot(path=file, full_page=True, clip=clip, animations="disabled")  # type: ignore[arg-type]  # a TypedDict
            print(file)
        context.close()


def main(arguments: list[str]) -> int:
    """Take the pictures."""
    folder = Path(arguments[0]) if arguments else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with demo() as url, chromium() as browser:
        print(f"waiting for the demo at {url} to come to a point worth showing")
        take(browser, url, worth_showing(url), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

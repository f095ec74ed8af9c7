"""Pictures of every page, of a demo that has come to the point where pods are queued, of the what-if report, and of `headroom top`: `python -m tests.browser.pictures [FOLDER]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.error import URLError

from playwright.sync_api import Browser, FloatRect, Page, ViewportSize

from tests.browser.chromium import PAGES, address_of, chromium, opened
from tests.browser.terminal import page_of, screen_of
from tests.processes import Guard, Process, free_ports

IMAGES: Final = Path(__file__).parent.parent.parent / "docs" / "images"
SEED: Final = "1"
STORY_SECONDS: Final = 900
"""In which the demo must have come to its point: a budget is over quota, pods are queued, and others were released or stopped."""
HALF: Final = """\
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: vision, namespace: vision}
spec:
  selector: {matchLabels: {team: vision}}
  quota: {gpuHours: "120", windowHours: 24}
  enforcement: {steps: [{at: 80%, action: AlertOnly}, {at: 100%, action: Hold}]}
"""
"""The demo's budget of team vision, with half its quota."""
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
PHONE: Final[ViewportSize] = {"width": 360, "height": 780}
SHOWN: Final = {"offers": "#/offers/cheapest"}
"""Where a page of the demo says more than the one that tests open everywhere."""
PLAIN: Final = frozenset({"resources"})
"""Pages that no document shows."""
ON_A_PHONE: Final = ("overview", "budget", "nodes")
DAY_SECONDS: Final = 150
"""For how long a demo is recorded."""
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
            process.wait_ready(lambda: bool(asked(url, "overview")))
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
    """The budget that has the most to tell, once there is one: pods are queued, and some were released or stopped."""
    deadline = time.monotonic() + STORY_SECONDS
    while time.monotonic() < deadline:
        rows: dict[str, Any] = asked(url, "overview").get("budgets", {})
        for name in sorted(rows, key=lambda each: -rows[each]["heldPods"]):
            page = asked(url, f"budgets/{name}") if rows[name]["heldPods"] else {}
            if page.get("held") and (page.get("released") or page.get("stopped")):
                return name
        time.sleep(1)
    sys.exit(f"the demo came to no point worth showing in {STORY_SECONDS} s")


def a_pod_of(url: str, budget: str) -> str:
    """A pod that this budget keeps queued, else any."""
    nodes = asked(url, "nodes")
    queued = [each["pod"] for each in nodes.get("waiting", []) if each.get("budget") == budget]
    running = [pod["pod"] for node in nodes.get("nodes", {}).values() for pod in node["pods"]]
    return str((queued or running)[0])


def take(browser: Browser, url: str, budget: str, folder: Path) -> None:
    """Every page in both themes, and some as on a phone."""
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for suffix, size, theme in [(f"-{each}", WIDE, each) for each in themes] + [("-phone", PHONE, themes[0])]:
        context = browser.new_context(viewport=size, color_scheme=theme)
        page = context.new_page()
        for name in ON_A_PHONE if size is PHONE else sorted(PAGES.keys() - PLAIN):
            opened(page, url, SHOWN.get(name) or address_of(name, budget, a_pod_of(url, budget)))
            shoot(page, folder / f"dashboard-{name}{suffix}.png")
        context.close()


def shoot(page: Page, file: Path) -> None:
    """The upper part of a page, as it is."""
    page.wait_for_function("document.fonts.status === 'loaded'")
    width: int = page.evaluate("window.innerWidth")
    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST[width])
    clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": height}
    page.screenshot(path=file, full_page=True, clip=clip, animations="disabled")
    print(file)


def take_record(browser: Browser, folder: Path) -> None:
    """What commands show of a demo's day: the what-if report with half the quota of one of its budgets, and `headroom top`."""
    with tempfile.TemporaryDirectory(prefix="headroom-report-") as scratch:
        world, report = Path(scratch) / "world.json", Path(scratch) / "report.html"
        headroom = [sys.executable, "-m", "headroom"]
        port = str(free_ports(1)[0])
        recorded = ["demo", "--port", port, "--seed", SEED, "--for", str(DAY_SECONDS), "--snapshot", str(world)]
        change = Path(scratch) / "half.yaml"
        change.write_text(HALF)
        asked_for = ["simulate", "--from", str(world), "--change", str(change), "--html", str(report)]
        for arguments in (recorded, asked_for):
            subprocess.run([*headroom, *arguments], check=True, stdout=subprocess.DEVNULL)
        page = browser.new_page()
        page.set_content(page_of(screen_of([*headroom, "top", "--from", str(world)])))
        page.locator("body").screenshot(path=folder / "top.png")
        print(folder / "top.png")
        themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
        for theme in themes:
            context = browser.new_context(viewport=WIDE, color_scheme=theme)
            page = context.new_page()
            page.goto(report.as_uri())
            shoot(page, folder / f"what-if-{theme}.png")
            context.close()


def main(arguments: list[str]) -> int:
    """Take the pictures."""
    folder = Path(arguments[0]) if arguments else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with demo() as url, chromium() as browser:
        print(f"waiting for the demo at {url} to come to a point worth showing")
        take(browser, url, worth_showing(url), folder)
        take_record(browser, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

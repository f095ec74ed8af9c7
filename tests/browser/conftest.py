"""A browser, pages that complain, dashboards over made-up views, and the demo."""

from __future__ import annotations

import os
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from headroom.model.world import World
from headroom.web.guard import Judge
from tests.browser import chromium as browsers
from tests.browser.chromium import PATIENCE_MS
from tests.browser.served import Served
from tests.browser.worlds import a_fleet
from tests.processes import Guard, Process, free_ports

expect.set_options(timeout=PATIENCE_MS)

VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for this tier. Not for longer: Playwright keeps an event loop running, and other tiers have theirs."""
    if why := browsers.lacking():
        pytest.skip(why)
    with browsers.chromium() as browser:
        yield browser


@pytest.fixture
def profile(chromium: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes profiles for one test: `profile(color_scheme="dark")`."""
    with ExitStack() as stack:
        yield lambda **more: _profile(stack, chromium, more)


def _profile(stack: ExitStack, browser: Browser, more: dict[str, Any]) -> BrowserContext:
    # Nothing pulses: a browser without a graphics card draws it sixty times a second, which takes more than all else.
    made = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"} | more)
    stack.callback(made.close)
    made.set_default_timeout(PATIENCE_MS)
    return made


@pytest.fixture
def context(profile: Callable[..., BrowserContext]) -> BrowserContext:
    """A profile for one test."""
    return profile()


@pytest.fixture(scope="package")
def open_to_axe(chromium: Browser) -> Iterator[Page]:
    """Only here the policy is passed over: axe is a script that the page does not have."""
    with ExitStack() as stack:
        yield _profile(stack, chromium, {"bypass_csp": True}).new_page()


class Complaints(list[str]):
    """What a page said to the console, what its scripts threw, and what its policy forbade."""

    def watch(self, page: Page) -> None:
        page.add_init_script(VIOLATIONS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.append(f"thrown: {error}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            self.append(f"{message.type}: {message.text}")


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints, serve: Callable[..., Served]) -> Iterator[Page]:
    """A page that must end without complaints; a test that provokes some clears them. It ends before what it looks at."""
    made = context.new_page()
    complaints.watch(made)
    yield made
    violations = made.evaluate("window.violations")
    made.close()
    assert (complaints, violations) == ([], [])


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Makes dashboards: `serve(world)`."""
    made: list[Served] = []

    def start(world: World, judge: Judge | None = None) -> Served:
        made.append(Served(world, judge).start())
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def fleet(serve: Callable[..., Served]) -> Served:
    """A dashboard over a cluster with a bit of everything."""
    return serve(a_fleet())


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address of a demo that runs, as a process of its own: for one file only, since it is never idle."""
    with tempfile.TemporaryDirectory(prefix="headroom-demo-") as folder:
        port, guard = free_ports(1)[0], Guard(Path(folder))
        command = [sys.executable, "-m", "headroom", "demo", "--port", str(port), "--speed", "10"]
        process = Process(command, Path(folder) / "demo.log", guard, dict(os.environ))
        try:
            process.wait_ready(lambda: _answers(f"http://127.0.0.1:{port}/api/overview"))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stop()
            guard.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return b'"budgets"' in reply.read()
    except (URLError, OSError):
        return False

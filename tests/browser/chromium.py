"""Debian's Chromium, driven by Playwright: the same for tests, screenshots and measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

EXECUTABLE: Final = "/usr/bin/chromium"
WITHOUT: Final = (
    # Its address bar draws its suggestions as two pages of their own, for each new window: half of the time of most tests.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    # A process for a page that may come is started anew for each page that has come.
    "SpareRendererForSitePerProcess",
    # What Playwright switches off itself: only the last list of such names counts.
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
"""Features that nobody here needs."""
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(WITHOUT)}",
)
PAGES: Final = {
    "overview": "#/",
    "budget": "#/budgets/{budget}",
    "pod": "#/pods/{pod}",
    "namespace": "#/namespaces/{namespace}",
    "nodes": "#/nodes",
    "power": "#/power",
    "pool": "#/power/basement",
    "offers": "#/offers",
    "bandwidth": "#/bandwidth",
    "decisions": "#/decisions",
    "resources": "#/resources",
}
PATIENCE_MS: Final = 60_000  # a busy machine is not a bug
READY: Final = ".page:not([data-loading])"
"""A page that has drawn its first model."""


def address_of(name: str, budget: str, pod: str = "") -> str:
    """Where a page is, for those that are about one thing: a budget, its namespace, or a pod."""
    return PAGES[name].format(budget=budget, namespace=budget.partition("/")[0], pod=pod)


def lacking() -> str:
    """Why there is no browser; empty if there is one."""
    return "" if Path(EXECUTABLE).exists() else "there is no chromium; tools/setup dev installs it"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone afterwards."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=EXECUTABLE, args=list(FLAGS), headless=True)
        try:
            yield browser
        finally:
            browser.close()


def opened(page: Page, url: str, address: str = "#/") -> Page:
    """The page at an address of the dashboard, once it has drawn what it shows."""
    page.goto(f"{url}/{address}")
    page.wait_for_selector(READY)
    return page

"""Every page of the demo: drawn, without complaints of the browser, readable by everybody, in both themes and on a phone."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import PAGES, address_of, opened
from tests.browser.served import Served
from tests.browser.worlds import HOSTILE, empty

BUDGET = "vision/vision"
CUT = """
() => [...document.querySelectorAll(".wide")]
  .filter((node) => node.offsetParent && node.scrollWidth > node.clientWidth + 1)
  .map((node) => `${node.getAttribute("aria-label")}: ${node.scrollWidth} in ${node.clientWidth}`)
"""
"""Tables that are wider than their place."""
WIDTHS = (360, 820, 1024, 1600, 2560)
HEADINGS = {
    "overview": "Overview",
    "budget": BUDGET,
    "namespace": "vision",
    "nodes": "Nodes",
    "power": "Power",
    "pool": "basement",
    "offers": "Cheapest capacity",
    "bandwidth": "Bandwidth",
    "decisions": "Decisions",
    "resources": "Resources",
}


def address(name: str, demo: str = "") -> str:
    return address_of(name, BUDGET, a_pod_of(demo) if demo and name == "pod" else "")


def a_pod_of(demo: str) -> str:
    """Some pod that runs there just now."""
    with urllib.request.urlopen(f"{demo}/api/nodes", timeout=10) as reply:
        nodes = json.load(reply)["nodes"]
    return str(next(pod["pod"] for node in nodes.values() for pod in node["pods"]))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_the_demo_is_drawn(page: Page, demo: str, name: str) -> None:
    where = address(name, demo)
    opened(page, demo, where)
    heading = HEADINGS.get(name) or where.removeprefix("#/pods/")
    expect(page.locator("h1")).to_have_text(heading)
    expect(page).to_have_title(re.compile(rf"^{heading} · simulated · Headroom demo$"))
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#speed")).to_contain_text("60× real time")
    assert page.locator("main time").count() + page.locator("main .badge").count() > 0
    charts = {"overview": 1, "budget": 1}.get(name, 0)
    assert page.locator(".plot canvas").count() >= charts


def test_the_demo_moves(page: Page, demo: str) -> None:
    opened(page, demo)
    first = page.locator("#clock").inner_text()
    held = page.locator(".tile").first.inner_text()
    page.wait_for_function(
        "([clock, held]) => document.getElementById('clock').innerText !== clock && document.querySelector('.tile').innerText !== held",
        arg=[first, held],
        timeout=60_000,
    )


def test_charts_have_something_on_them(page: Page, demo: str) -> None:
    opened(page, demo, address("budget"))
    colours = page.locator(".plot canvas").first.evaluate(
        """canvas => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )
    assert colours > 20


@pytest.fixture(scope="module")
def open_to_axe(chromium: Browser) -> Iterator[Page]:
    """Only here the policy is passed over: axe is a script that the page does not have."""
    context = chromium.new_context(bypass_csp=True, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(open_to_axe: Page, demo: str, name: str, theme: Literal["light", "dark"]) -> None:
    open_to_axe.emulate_media(color_scheme=theme)
    page = opened(open_to_axe, demo, address(name, demo))
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    bad = [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in {"serious", "critical"}]
    assert bad == []


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_needs_no_sideways_scrolling(page: Page, demo: str, name: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page, demo, address(name, demo))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for link in page.locator("nav a").all():
        expect(link).to_be_in_viewport()


@pytest.mark.parametrize("name", PAGES)
def test_tables_hold_at_every_width(page: Page, demo: str, name: str) -> None:
    """Nothing is cut off, and no name is split where it could have been broken at its slash, or not at all."""
    opened(page, demo, address(name, demo))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        # Charts hear of their new width a moment after everything else has it.
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
        assert page.evaluate(CUT) == [], width


@pytest.mark.parametrize("name", ["overview", "nodes", "power", "decisions", "resources"])
def test_an_empty_cluster_says_so(page: Page, serve: Callable[..., Served], name: str) -> None:
    opened(page, serve(empty()).url, address(name))
    said = {
        "overview": "kubectl apply -f budget.yaml",
        "nodes": "The cluster has no nodes yet.",
        "power": "kubectl apply -f pool.yaml",
        "decisions": "No decision matches.",
        "resources": "There are none.",
    }
    expect(page.locator("main")).to_contain_text(said[name])


def test_a_wrong_address_leads_back(page: Page, fleet: Served) -> None:
    page.goto(f"{fleet.url}/#/nowhere")
    expect(page.locator("h1")).to_have_text("There is no such page")
    page.get_by_role("link", name="overview", exact=True).click()
    expect(page.locator("h1")).to_have_text("Overview")


def test_what_a_cluster_says_is_text_and_never_markup(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/budgets/team-a/broken")
    expect(page.locator("main")).to_contain_text("Invalid")
    assert page.locator("main img").count() == 0
    opened(page, fleet.url, f"#/decisions?q={HOSTILE}")
    assert page.get_by_role("searchbox").input_value() == HOSTILE
    assert page.locator("main img").count() == 0


def test_without_the_charting_library_the_numbers_are_there(page: Page, fleet: Served, complaints: list[str]) -> None:
    page.route("**/charts/**", lambda route: route.abort())
    opened(page, fleet.url)
    expect(page.locator("#held")).to_contain_text("The charting library is not installed")
    page.get_by_text("Show the numbers").click()
    expect(page.locator("#held tbody tr").first).to_be_visible()
    complaints.clear()

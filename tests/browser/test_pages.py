"""Every page of the demo: drawn, without complaints of the browser, readable by everybody, in both themes and on a phone."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser import axe
from tests.browser.chromium import PAGES, PATIENCE_MS, address_of, opened
from tests.browser.layout import resized
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
    """A pod that runs there for two hours from the start: one of the story, none of those that end any moment."""
    with urllib.request.urlopen(f"{demo}/api/nodes", timeout=60) as reply:
        nodes = json.load(reply)["nodes"]
    pods = (str(pod["pod"]) for node in nodes.values() for pod in node["pods"])
    return next(pod for pod in pods if pod.startswith("vision/"))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_the_demo_is_drawn(page: Page, demo: str, name: str) -> None:
    where = address(name, demo)
    opened(page, demo, where)
    heading = HEADINGS.get(name) or where.removeprefix("#/pods/")
    expect(page.locator("h1")).to_have_text(heading)
    expect(page).to_have_title(re.compile(rf"^{heading} · simulated · Headroom demo$"))
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#speed")).to_have_text(
        re.compile(r"^\d+× real time$")
    )  # less where the machine cannot keep up
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
        timeout=5 * PATIENCE_MS,
    )


def test_charts_have_something_on_them(page: Page, demo: str) -> None:
    opened(page, demo, address("budget"))
    page.wait_for_function(
        """() => {
            const canvas = document.querySelector(".plot canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size > 20;
        }"""
    )


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(open_to_axe: Page, demo: str, name: str) -> None:
    assert axe.found(opened(open_to_axe, demo, address(name, demo)), ("serious", "critical")) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_needs_no_sideways_scrolling_and_tables_hold_at_every_width(page: Page, demo: str, name: str) -> None:
    """Nothing is cut off, and no name is split where it could have been broken at its slash, or not at all."""
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page, demo, address(name, demo))
    for link in page.locator("nav a").all():
        expect(link).to_be_in_viewport()
    for width in WIDTHS:
        resized(page, width, 900)
        assert page.evaluate(CUT) == [], width


@pytest.mark.parametrize("name", ["overview", "nodes", "power", "decisions", "resources"])
def test_an_empty_cluster_says_so(page: Page, serve: Callable[..., Served], name: str) -> None:
    opened(page, serve(empty()).url, address(name))
    said = {
        "overview": "kubectl apply -f budget.yaml",
        "nodes": "The cluster has no nodes yet.",
        "power": "kubectl apply -f pool.yaml",
        "decisions": "No decision matches.",
        "resources": "None yet.",
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

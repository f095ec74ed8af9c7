"""How people get around: sorting, filtering, searching, by keyboard and by address; themes; charts without eyes or mouse."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from headroom.model.world import World
from tests.browser.chromium import opened
from tests.browser.served import Served
from tests.browser.worlds import BUDGETS, NODES, a_fleet, large
from tests.builders import NOON


@pytest.fixture(scope="module")
def crowd() -> World:
    """500 budgets, 10,000 pods and 1,000 nodes; made once, because that takes a while."""
    return large()


def names(page: Page) -> list[str]:
    return page.locator("#budgets tbody th a").all_inner_texts()


def test_the_budgets_are_sorted_and_the_order_is_in_the_address(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)
    head = page.get_by_role("columnheader", name="Budget", exact=True)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert names(page) == sorted(names(page))
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names(page) == sorted(names(page), reverse=True)
    expect(page).to_have_url(re.compile(r"sort=-name"))
    shown = names(page)
    page.reload()
    page.wait_for_selector("#budgets tbody th a")
    assert names(page) == shown


def test_the_worst_budgets_come_first(page: Page, serve: Callable[..., Served]) -> None:
    opened(page, serve(a_fleet(train_hours=9)).url)
    expect(page.get_by_role("columnheader", name="State")).to_have_attribute("aria-sort", "ascending")
    tones = page.locator("#budgets tbody .badge").evaluate_all("nodes => nodes.map(node => node.dataset.tone)")
    order = ["bad", "warn", "good", "idle"]
    assert tones == sorted(tones, key=order.index)
    assert tones[0] == "bad"


def test_a_filter_keeps_what_matches_every_word(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)
    page.get_by_role("searchbox").fill("team-a roomy")
    expect(page.locator("#budgets tbody tr")).to_have_count(1)
    expect(page.locator("#budgets [role=status]")).to_have_text("1 of 4 budgets match")
    expect(page).to_have_url(re.compile(r"q=team-a\+roomy"))


def test_decisions_are_searched_as_one_types_and_the_search_is_in_the_address(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/decisions")
    box = page.get_by_role("searchbox")
    box.press_sequentially("elsewhere two")
    expect(page.locator(".entry")).to_have_count(1)
    expect(page.locator(".entry")).to_contain_text("elsewhere/two")
    expect(page).to_have_url(re.compile(r"q=elsewhere\+two"))
    expect(box).to_be_focused()
    page.reload()
    page.wait_for_selector(".entry")
    assert box.input_value() == "elsewhere two"
    expect(page.locator(".entry")).to_have_count(1)
    box.fill("nothing like it")
    expect(page.locator("main")).to_contain_text("No decision matches.")


def test_nodes_are_filtered_by_what_they_hold(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/nodes")
    expect(page.locator(".node")).to_have_count(2)
    page.get_by_role("searchbox").fill("train")
    expect(page.locator(".node h3")).to_have_text(["n"])
    page.get_by_role("searchbox").fill("")
    page.get_by_role("combobox").select_option(label="Not ready or cordoned")
    expect(page.locator(".node h3")).to_have_text(["m"])
    expect(page).to_have_url(re.compile(r"show=trouble"))


def test_a_time_says_how_far_away_it_is_and_on_hovering_when(page: Page, serve: Callable[..., Served]) -> None:
    opened(page, serve(a_fleet(now=NOON)).url, "#/decisions")
    moment = page.locator(".entry time").first
    expect(moment).to_have_text(re.compile(r"^(now|\d+ s ago)$"))
    moment.hover()
    expect(moment).to_have_attribute("title", re.compile(r"\(2026-11-15T12:00:00Z\)$"))


def test_a_walk_by_keyboard(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    expect(page.locator("#skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    for link in page.locator(".tile").get_by_role("link").all():
        page.keyboard.press("Tab")
        expect(link).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_role("link", name="team-a/one").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("team-a/one")
    expect(page.locator("h1")).to_be_focused()
    expect(page).to_have_title("team-a/one · Headroom")


def test_every_stop_of_the_keyboard_can_be_seen(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)
    page.locator("#skip").focus()
    for _ in range(page.locator("a, button, input, select, summary, [tabindex='0']").count()):
        page.keyboard.press("Tab")
        style, width = page.evaluate(
            "(({ outlineStyle, outlineWidth }) => [outlineStyle, parseFloat(outlineWidth)])(getComputedStyle(document.activeElement))"
        )
        if page.evaluate("document.activeElement === document.body"):
            return
        assert (style, width >= 1) == (style, True)
        assert style != "none", page.evaluate("document.activeElement.outerHTML")


def test_a_chart_is_read_by_keyboard(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/budgets/team-a/one")
    chart = page.locator("#curve .plot")
    expect(chart).to_have_attribute("aria-label", re.compile(r"Now 12 of 20 GPU-hours"))
    chart.focus()
    page.keyboard.press("End")
    said = page.locator("#announcements")
    expect(said).to_contain_text("quota 20 GPU-hours")
    before = said.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(said).not_to_have_text(before)
    expect(page.locator("#curve .readout")).to_have_text(said.inner_text())
    page.locator("#curve summary").click()
    rows = page.locator("#curve tbody tr")
    expect(rows.last).to_be_attached()
    assert rows.count() > 20


def test_going_back_returns_to_the_same_place(page: Page, serve: Callable[..., Served], crowd: World) -> None:
    opened(page, serve(crowd).url, "#/?sort=name")
    link = page.get_by_role("link", name="team-a/team-300")
    link.scroll_into_view_if_needed()
    place = page.evaluate("window.scrollY")
    assert place > 1000
    link.click()
    expect(page.locator("h1")).to_have_text("team-a/team-300")
    assert page.evaluate("window.scrollY") == 0
    page.go_back()
    expect(link).to_be_in_viewport()
    assert abs(page.evaluate("window.scrollY") - place) < 200


def test_500_budgets_and_1000_nodes(page: Page, serve: Callable[..., Served], crowd: World) -> None:
    served = serve(crowd)
    opened(page, served.url)
    rows = page.locator("#budgets tbody tr")
    expect(rows).to_have_count(BUDGETS)
    rows.evaluate_all("rows => rows.forEach(row => { row.marked = true; })")
    page.evaluate(
        """() => {
            window.touched = new Set();
            const body = document.querySelector("#budgets tbody");
            const watch = new MutationObserver(found => found.forEach(({ target }) => {
                const node = target.nodeType === 1 ? target : target.parentElement;
                const row = node.closest("tr");
                if (row && !node.closest("time")) window.touched.add(row); // times go on by themselves
            }));
            watch.observe(body, { subtree: true, childList: true, characterData: true, attributes: true });
        }"""
    )
    changed = page.get_by_role("row").filter(has_text="team-a/team-000").locator("td[data-title=Used]")
    before = changed.inner_text()
    served.become(large(spent=9))
    expect(changed).not_to_have_text(before)
    assert rows.evaluate_all("rows => rows.every(row => row.marked)")
    assert page.evaluate("window.touched.size") < BUDGETS / 10
    page.get_by_role("searchbox").fill("team-49")
    expect(rows).to_have_count(10)
    page.get_by_role("link", name="Nodes").click()
    expect(page.locator(".node")).to_have_count(NODES)
    page.get_by_role("searchbox").fill("node-0007")
    expect(page.locator(".node")).to_have_count(1)


@pytest.mark.parametrize(("system", "dark"), [("light", False), ("dark", True)])
def test_the_theme_follows_the_system_until_one_is_chosen(
    profile: Callable[..., BrowserContext], fleet: Served, system: str, dark: bool
) -> None:
    page = opened(profile(color_scheme=system).new_page(), fleet.url)

    def is_dark() -> bool:
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", paper)[:3])) < 384

    assert is_dark() is dark
    button = page.get_by_role("button", name="Theme")
    for said, wanted in (("light", False), ("dark", True), ("as the system", dark)):
        button.click()
        expect(button).to_have_accessible_name(f"Theme: {said}")
        assert is_dark() is wanted
    button.click()
    page.reload()
    expect(button).to_have_accessible_name("Theme: light")
    assert is_dark() is False


def test_nothing_moves_for_those_who_want_it_so(profile: Callable[..., BrowserContext], fleet: Served) -> None:
    name = "getComputedStyle(document.getElementById('live'), '::before').animationName"
    for motion, animation in (("no-preference", "beat"), ("reduce", "none")):
        page = opened(profile(reduced_motion=motion).new_page(), fleet.url)
        expect(page.locator("#live")).to_have_text("Live")
        assert page.evaluate(name) == animation
        assert page.evaluate("document.getAnimations().length > 0") == (motion != "reduce")

"""Live pages: what changes is shown without disturbing whoever reads, and what is old says so."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from headroom.model.times import MINUTE
from tests.browser.chromium import opened
from tests.browser.served import Served
from tests.browser.worlds import a_fleet
from tests.builders import NOON

TOP = "node => node.getBoundingClientRect().top"
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def used(page: Page, name: str = "team-a/one") -> str:
    return page.get_by_role("row").filter(has_text=name).locator("td[data-title=Used]").inner_text()


def test_an_update_leaves_focus_filter_selection_and_scroll_alone(page: Page, fleet: Served) -> None:
    page.set_viewport_size({"width": 900, "height": 300})
    opened(page, fleet.url)
    page.get_by_role("searchbox").fill("team-a")
    before = used(page)
    link = page.locator("#budgets").get_by_role("link", name="team-a/one")
    link.evaluate("node => { node.marked = true; }")
    link.focus()
    page.evaluate("window.loadedOnce = true; window.scrollTo(0, 300)")
    place = link.evaluate(TOP)
    fleet.become(a_fleet(train_hours=4))
    expect(page.get_by_role("row").filter(has_text="team-a/one").locator("td[data-title=Used]")).not_to_have_text(
        before
    )
    assert page.evaluate("document.activeElement.marked")
    assert page.get_by_role("searchbox").input_value() == "team-a"
    assert page.evaluate("window.loadedOnce")
    # What stands above may take another line; the browser scrolls by whole pixels, and once it has drawn.
    stays = "place => Math.abs(document.activeElement.getBoundingClientRect().top - place) < 3"
    page.wait_for_function(stays, arg=place)


def test_a_row_that_changes_its_place_keeps_the_focus(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)
    first = page.locator("#budgets tbody th a").first
    expect(first).not_to_have_text("team-a/one")
    page.locator("#budgets").get_by_role("link", name="team-a/one").focus()
    fleet.become(a_fleet(train_hours=9))
    expect(first).to_have_text("team-a/one")
    expect(first).to_be_focused()


def test_a_link_in_a_part_that_is_drawn_anew_keeps_the_focus(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)
    link = page.locator(".tile").get_by_role("link", name="team-a/one")
    link.focus()
    link.evaluate("node => { node.marked = true; }")
    fleet.become(a_fleet(train_hours=4))
    page.wait_for_function("() => ![...document.querySelectorAll('.tile a')].some(node => node.marked)")
    expect(link).to_be_focused()


def test_what_somebody_opened_stays_open(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/nodes")
    page.get_by_role("button", name="pods on n").click()
    shown = page.locator(".node-pods").filter(has_text="team-a/train")
    expect(shown).to_be_visible()
    fleet.become(a_fleet(train_hours=5, now=NOON + MINUTE))
    expect(page.locator("#clock time")).to_have_text(re.compile(r":01:\d\d$"))
    expect(shown).to_be_visible()


def test_the_page_of_a_budget_follows_it(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/budgets/team-a/one")
    expect(page.locator(".title-row .badge")).to_have_text("Alert")
    fleet.become(a_fleet(train_hours=9))
    expect(page.locator(".title-row .badge")).to_have_text("Over quota")
    expect(page.locator("#announcements")).to_contain_text("team-a/one: Over quota.")
    expect(page.locator("#history .entry")).to_have_count(2)


def test_a_budget_that_is_deleted_says_so_and_stays_readable(page: Page, fleet: Served, complaints: list[str]) -> None:
    opened(page, fleet.url, "#/budgets/team-a/one")
    fleet.become(a_fleet(without="one"))
    expect(page.locator("#stale")).to_contain_text("The budget team-a/one was deleted")
    expect(page.locator("#live")).to_have_text("Gone")
    expect(page.locator("h1")).to_have_text("team-a/one")
    expect(page.locator(".tiles")).to_be_visible()
    complaints.clear()


def test_the_operator_restarts_in_mid_view(page: Page, fleet: Served, complaints: list[str]) -> None:
    opened(page, fleet.url)
    page.get_by_role("searchbox").fill("one")
    fleet.stop()
    expect(page.locator("#live")).to_have_text("No connection")
    expect(page.locator("#stale")).to_contain_text("No answer from the operator since")
    expect(page.get_by_role("link", name="team-a/one").first).to_be_visible()
    complaints.clear()  # that nobody answers
    fleet.made.become(a_fleet(train_hours=4))  # in no other state, which would be announced too
    fleet.start()
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#announcements")).to_have_text("Live again.")
    assert page.get_by_role("searchbox").input_value() == "one"
    complaints.clear()


def test_a_tab_that_nobody_looks_at_lets_go(page: Page, fleet: Served) -> None:
    page.clock.install()
    opened(page, fleet.url)
    page.evaluate(HIDE, True)
    page.clock.fast_forward(6_000)
    expect(page.locator("#live")).to_have_text("Paused")
    before = used(page)
    fleet.become(a_fleet(train_hours=5))
    page.evaluate(HIDE, False)
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.get_by_role("row").filter(has_text="team-a/one").locator("td[data-title=Used]")).not_to_have_text(
        before
    )


def test_what_everybody_must_know_stands_at_the_top(page: Page, serve: Callable[..., Served]) -> None:
    served = serve(a_fleet(stopped=True))
    served.made.why, served.made.leads = ["watching pods: timed out"], False
    opened(page, served.url, "#/nodes")
    for said in ("All effects are stopped", "watching pods: timed out", "Another replica leads"):
        expect(page.locator("#notices")).to_contain_text(said)

"""The pages of cheapest capacity: the picture of price and risk, rungs, offers, live, by keyboard and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from headroom.model.world import World
from tests.browser import axe
from tests.browser.chromium import opened
from tests.browser.layout import boxes, fits, nav_rows, resized, row_ends
from tests.browser.served import Served
from tests.browser.told import told
from tests.browser.worlds import HOSTILE
from tests.builders import a_resource, a_used_world
from tests.core.offer_stage import Stage
from tests.web import cheap

PHONE: ViewportSize = {"width": 360, "height": 740}
POOL = "#/offers/cheap"


def world_of(stage: Stage) -> World:
    return cheap.world_of(stage, a_resource("LeftoverNodePool", "broken", region="US"))


def become(served: Served, stage: Stage, *, failing: bool = False) -> None:
    """Let this be what was decided last."""
    left = cheap.left_by(stage)
    world = world_of(stage)
    served.become(cheap.failing(world) if failing else world, left)


@pytest.fixture
def market(serve: Callable[..., Served]) -> Served:
    """A dashboard with one pool that has a bit of everything, and one that is invalid."""
    stage = cheap.a_stage()
    served = serve(world_of(stage))
    become(served, stage)
    return served


def row(page: Page, table: str, name: str) -> Locator:
    return page.locator(f"#{table} tbody tr").filter(has=page.get_by_role("rowheader", name=re.compile(name)))


# --- all of them --------------------------------------------------------------------------------------------------------------


def test_every_pool_has_its_row_and_leads_to_its_page(page: Page, market: Served) -> None:
    opened(page, market.url)
    page.get_by_role("link", name="Offers", exact=True).click()
    expect(page.locator(".lead")).to_have_text(
        "3 nodes of 2 pools. 1 pool needs a look: broken. They cost $1.52 an hour less than on-demand machines."
    )
    expect(page.locator("#pools tbody th a")).to_have_text(["broken", "cheap"])
    second = page.locator("#pools tbody tr").nth(1)
    expect(second.locator(".badge")).to_have_text("Launch failed")
    expect(second.locator("td[data-title=First]")).to_have_text("g5.xlarge in us-east-1a")
    expect(second.locator("td[data-title='Cost / GPU-h']")).to_have_text("$0.4125")
    expect(second.locator("td[data-title=Rungs]")).to_have_text("4 active, 1 resting")
    page.get_by_role("link", name="cheap").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("cheap")
    expect(page.locator("h1")).to_be_focused()
    expect(page.locator("nav a[aria-current]")).to_have_text("Offers")


def test_without_a_pool_there_is_one_to_begin_with(page: Page, serve: Callable[..., Served]) -> None:
    opened(page, serve(a_used_world()).url, "#/offers")
    expect(page.locator("#first-steps")).to_contain_text("kind: LeftoverNodePool")
    expect(page.locator("#pools")).to_be_hidden()


# --- one of them --------------------------------------------------------------------------------------------------------------


def test_the_picture_has_every_offer_and_is_read_by_keyboard(page: Page, market: Served) -> None:
    opened(page, market.url, POOL)
    expect(page.locator("#chart svg .point")).to_have_count(6)
    expect(page.locator("#chart svg .point-first")).to_have_count(1)
    expect(page.locator("#chart svg .point-kept")).to_have_count(4)
    expect(page.locator("#chart svg .point-resting")).to_have_count(1)
    expect(page.locator("#chart .same-cost")).to_have_count(1)
    expect(page.locator("#chart rect.point")).to_have_count(2)
    plot = page.locator("#chart .plot")
    expect(plot).to_have_attribute("aria-label", re.compile("6 offers. First is g5.xlarge in us-east-1a"))
    plot.focus()
    page.keyboard.press("ArrowRight")
    best = "g5.xlarge in us-east-1a: $0.4000 a GPU-hour, risk adds 3.1%, $0.4125 expected, first."
    expect(page.locator("#chart .readout")).to_have_text(best)
    expect(page.locator("#announcements")).to_have_text(best)
    page.keyboard.press("End")
    expect(page.locator("#chart .readout")).to_contain_text("on demand")


def test_pointing_at_an_offer_reads_it(page: Page, market: Served) -> None:
    opened(page, market.url, POOL)
    page.locator("#chart svg .point-first").hover(force=True)
    expect(page.locator("#chart .readout")).to_contain_text("g5.xlarge in us-east-1a")


def test_rungs_offers_and_reasons_are_told(page: Page, market: Served) -> None:
    opened(page, market.url, POOL)
    expect(page.locator("#rungs tbody tr")).to_have_count(5)
    expect(page.locator("#rungs")).to_contain_text("so a cheaper one may weigh less")
    expect(page.locator("#rungs tbody tr").first.locator("td[data-title=Weight]")).to_have_text("100")
    resting = page.locator("#rungs tbody tr").filter(has_text="Resting")
    expect(resting).to_contain_text("Why: a launch failed. Tried again in")
    expect(page.locator("#why li")).to_have_text(
        [
            re.compile("g5.xlarge in us-east-1a has been first since"),
            "The next best, g6.xlarge in us-east-1a, costs 27.7% more.",
            "Passed over: 1 of another family; 1 sold out.",
        ]
    )
    first = page.locator("#offers tbody tr").first
    expect(first.locator("td[data-title='Risk adds']")).to_have_text("3.1%")
    expect(first.locator("td[data-title=Rung]")).to_have_text("first place")
    expect(page.locator("#passed")).to_have_text("Passed over: 1 of another family; 1 sold out.")
    expect(page.locator("#facts")).to_contain_text("5% for 30m, and 2h in the first place")
    expect(page.locator("#warnings")).to_be_hidden()


def test_offers_are_filtered_and_sorted_and_the_address_keeps_it(page: Page, market: Served) -> None:
    opened(page, market.url, POOL)
    page.get_by_role("searchbox").fill("on-demand")
    expect(page.locator("#offers tbody tr")).to_have_count(2)
    page.get_by_role("searchbox").fill("")
    head = page.locator("#offers").get_by_role("columnheader", name="Risk adds")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(page).to_have_url(re.compile(r"sort=-risk"))
    expect(page.locator("#offers tbody th").first).to_contain_text("g4dn.xlarge")


def test_an_update_moves_points_and_rows_and_leaves_the_rest_alone(page: Page, market: Served) -> None:
    opened(page, market.url, POOL)
    page.locator("#rungs tbody tr").first.evaluate("row => { row.marked = true; }")
    become(market, cheap.moved(), failing=True)
    expect(page.locator("#why li").first).to_contain_text("g6.xlarge in us-east-1a has been first")
    expect(page.locator("#rungs tbody .badge").filter(has_text="Leaving")).to_have_count(2)
    expect(page.locator("#warnings .notice")).to_have_text(["Parts of the cloud cannot be read now: Throttled by EC2."])
    expect(page.locator(".title-row .badge")).to_have_text("Feed failing")
    assert page.locator("#rungs tbody tr").evaluate_all("rows => rows.some(row => row.marked)")


def test_an_invalid_one_says_what_is_wrong(page: Page, market: Served) -> None:
    opened(page, market.url, "#/offers/broken")
    expect(page.locator("#warnings .notice")).to_contain_text("spec.region")
    for hidden in ("#chart", "#rungs", "#offers", "#why", ".tiles"):
        expect(page.locator(hidden)).to_be_hidden()


def test_what_a_cloud_says_is_text_and_never_markup(page: Page, market: Served) -> None:
    def hostile(model: dict[str, Any]) -> None:
        first = next(iter(model["offers"]))
        model["offers"][first] |= {"type": HOSTILE, "zone": HOSTILE}
        model["pool"]["feedProblem"] = HOSTILE

    told(page, market, "offers/cheap", hostile)
    opened(page, market.url, POOL)
    expect(page.locator("#offers tbody tr").first).to_contain_text(HOSTILE)
    expect(page.locator("#warnings")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("address", ["#/offers", POOL])
def test_axe_finds_nothing(open_to_axe: Page, market: Served, address: str) -> None:
    assert axe.found(opened(open_to_axe, market.url, address)) == []


@pytest.mark.parametrize("address", ["#/offers", POOL])
def test_a_phone_shows_cards_and_needs_no_sideways_scrolling(page: Page, market: Served, address: str) -> None:
    page.set_viewport_size(PHONE)
    opened(page, market.url, address)
    fits(page, PHONE["width"])
    for table in page.locator("table:visible").all():
        expect(table.locator("thead")).to_be_hidden()
    assert nav_rows(page) <= 2


@pytest.mark.parametrize("address", ["#/offers", POOL])
def test_no_tile_stands_alone_beside_nothing(page: Page, market: Served, address: str) -> None:
    opened(page, market.url, address)
    for width in (360, 768, 1000, 1280):
        resized(page, width)
        assert len(row_ends(page)) == 1, width


def test_the_axes_have_round_numbers(page: Page, market: Served) -> None:
    opened(page, market.url, POOL)
    module = "import('./static/app/scatter.js')"
    assert page.evaluate(f"{module}.then(module => module.ticks(0, 42, 4))") == [0, 20, 40]
    assert page.evaluate(f"{module}.then(module => module.logTicks(0.3, 6))") == [0.5, 1, 2, 5]


def test_few_offers_and_many_are_drawn_within_the_picture(page: Page, market: Served) -> None:
    def crowded(model: dict[str, Any]) -> None:
        name, one = next(iter(model["offers"].items()))
        model["offers"] = {
            f"{name}-{each}": one
            | {
                "place": each + 1,
                "pricePerGpuHour": f"{0.05 * 1.05**each:.4f}",
                "costPerGpuHour": f"{0.15 * 1.05**each:.4f}",
            }
            for each in range(120)
        }

    told(page, market, "offers/cheap", crowded)
    opened(page, market.url, POOL)
    expect(page.locator("#chart svg .point")).to_have_count(120)
    picture, *points = boxes(page.locator("#chart .scatter, #chart svg .point"))
    for each in points:
        assert picture.x <= each.x
        assert each.right <= picture.right + 1
        assert picture.y <= each.y

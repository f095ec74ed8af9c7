"""The pages of spot pools: slots in every state, what rests, who is unserved, live, by keyboard and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from playwright.sync_api import Locator, Page, ViewportSize, expect

from headroom.model.times import HOUR, MINUTE
from headroom.model.world import World
from tests.browser import axe
from tests.browser.chromium import opened
from tests.browser.layout import fits, nav_rows, resized, row_ends
from tests.browser.served import Served
from tests.browser.told import told
from tests.browser.worlds import HOSTILE
from tests.builders import NOON, a_used_world
from tests.core.stage import running
from tests.web import pools, spots

PHONE: ViewportSize = {"width": 360, "height": 740}
POOL = "#/spot/team-a/inference"
STEADY = spots.SLOTS[:2]


def world_of(*left: pools.Left, now: int = NOON) -> World:
    pods = [running("train", HOUR, gpus=3, node="spot-0")]
    resources = [each.resource for each in left]
    return a_used_world(*resources, pods=pods, nodes=spots.nodes_of(), now=now, **spots.facts_of())


def become(served: Served, *left: pools.Left, now: int = NOON) -> None:
    """Let these pools be what was decided last."""
    served.become(world_of(*left, now=now), *left)


@pytest.fixture
def cloud(serve: Callable[..., Served]) -> Served:
    """A dashboard with two pools, one of which has a bit of everything."""
    served = serve(world_of())
    become(served, spots.troubled(), spots.a_spot_pool("batch", namespace="team-b", slots=STEADY))
    return served


def row(page: Page, slot: str) -> Locator:
    return page.locator("#slots tbody tr").filter(has=page.get_by_role("rowheader", name=slot, exact=True))


# --- all pools ----------------------------------------------------------------------------------------------------------------


def test_every_pool_has_its_row_and_leads_to_its_page(page: Page, cloud: Served) -> None:
    opened(page, cloud.url)
    page.get_by_role("link", name="Spot", exact=True).click()
    expect(page.locator(".lead")).to_have_text(
        "6 machines of at most 12. 1 pool needs a look: team-a/inference. 3 pending pods are unserved."
    )
    expect(page.locator("#pools tbody th a")).to_have_text(["team-a/inference", "team-b/batch"])
    first = page.locator("#pools tbody tr").first
    expect(first.locator(".badge")).to_have_text("Join failing")
    expect(first.locator("td[data-title=Machines] .amount")).to_have_text(
        "2 running, 1 launching, 1 cancelling, 1 draining, 1 ending"
    )
    expect(first.locator("td[data-title=Range]")).to_have_text("1 to 6")
    expect(first.locator("td[data-title='Cost / h']")).to_have_text("$6.25")
    page.get_by_role("searchbox").fill("steady")
    expect(page.locator("#pools tbody th a")).to_have_text(["team-b/batch"])
    page.get_by_role("link", name="team-b/batch").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("batch")
    expect(page.locator("h1")).to_be_focused()
    expect(page.locator("nav a[aria-current]")).to_have_text("Spot")


def test_without_a_pool_there_is_one_to_begin_with(page: Page, serve: Callable[..., Served]) -> None:
    opened(page, serve(a_used_world()).url, "#/spot")
    expect(page.locator("#first-steps")).to_contain_text("kind: Spotpool")
    expect(page.locator("#pools")).to_be_hidden()
    expect(page.locator(".tiles")).to_be_hidden()


# --- one pool -----------------------------------------------------------------------------------------------------------------


def test_each_slot_says_what_it_is_doing(page: Page, cloud: Served) -> None:
    opened(page, cloud.url, POOL)
    expect(page.locator("#slots tbody th")).to_have_text(["0", "1", "2", "3", "4", "10"])
    expect(page.locator("#slots tbody .badge")).to_have_text(
        ["Running", "Running", "Launching", "Draining", "Cancelling", "Ending"]
    )
    expect(row(page, "0").locator("td[data-title=Machine]")).to_contain_text("i-000")
    expect(row(page, "0").locator("td[data-title=GPUs]")).to_have_text("3 of 4 allocated")
    expect(row(page, "0").locator("td[data-title='Cost / h']")).to_have_text("$2.20")
    expect(row(page, "1").locator("td[data-title=Remarks]")).to_contain_text("Idle for 5m.")
    expect(row(page, "2").locator("td[data-title=Machine]")).to_contain_text("not known yet")
    expect(row(page, "3").locator("td[data-title=Remarks]")).to_contain_text("The cloud reclaims it in 2m")
    expect(row(page, "10").locator("td[data-title=Remarks]")).to_contain_text("Why: its node never became ready.")
    row(page, "0").get_by_role("link", name="spot-0").click()
    expect(page.locator(".node h3")).to_have_text(["spot-0"])


def test_what_people_must_know_stands_at_the_top(page: Page, cloud: Served) -> None:
    opened(page, cloud.url, POOL)
    expect(page.locator("#warnings .notice")).to_have_text(
        [
            "Braked: 4 of 6 machines are missing from the list.",
            "Join failing: The last 3 machines did not join, so one is launched at a time.",
            "Orphans: 1 machine of this cluster belongs to no Spotpool: i-lost. Nobody ends them.",
        ]
    )
    expect(page.locator("#unserved tbody tr").first).to_contain_text("It needs 16 nvidia.com/gpu and 4 are there.")
    expect(page.locator("#sold-out tbody tr").first).to_contain_text("sold out")
    expect(page.locator("#sold-out tbody tr").nth(1)).to_contain_text("all zones")
    expect(page.locator("#facts")).to_contain_text("$3.50 an hour for a machine")
    expect(page.locator("#facts")).to_contain_text("as many as pending pods need")
    expect(page.locator("#history .entry")).not_to_have_count(0)
    opened(page, cloud.url, "#/spot/team-b/batch")
    for hidden in ("#warnings", "#unserved", "#sold-out"):
        expect(page.locator(hidden)).to_be_hidden()


def test_slots_are_sorted_and_filtered_and_the_address_keeps_it(page: Page, cloud: Served) -> None:
    opened(page, cloud.url, POOL)
    page.get_by_role("searchbox").fill("g6 running")
    expect(page.locator("#slots tbody tr")).to_have_count(1)
    expect(page.locator("#slots [role=status]")).to_have_text("1 of 6 slots match")
    page.get_by_role("searchbox").fill("")
    head = page.get_by_role("columnheader", name="Cost / h")
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(page).to_have_url(re.compile(r"sort=-price"))
    page.reload()
    expect(page.locator("#slots tbody th").first).to_have_text(re.compile("^[03]$"))


def test_an_update_turns_one_slot_and_leaves_the_rest_alone(page: Page, cloud: Served) -> None:
    opened(page, cloud.url, POOL)
    page.locator("#slots tbody tr").evaluate_all("rows => rows.forEach(row => { row.marked = true; })")
    row(page, "0").get_by_role("link").focus()
    came = structs.replace(spots.SLOTS[2], state="Running", instance_id="i-002")
    slots = tuple(came if each.slot == 2 else each for each in spots.SLOTS)
    become(cloud, spots.a_spot_pool(slots=slots), now=NOON + MINUTE)
    expect(row(page, "2").locator(".badge")).to_have_text("Running")
    expect(row(page, "2").locator("td[data-title=Machine]")).to_contain_text("i-002")
    expect(page.locator(".title-row .badge")).to_have_text("Changing")
    expect(page.locator("#announcements")).to_have_text(re.compile(r"2: Running\.|inference: Changing\."))
    assert page.locator("#slots tbody tr").evaluate_all("rows => rows.every(row => row.marked)")
    expect(row(page, "0").get_by_role("link")).to_be_focused()
    expect(page.locator("#warnings")).to_be_hidden()


def test_a_pool_that_is_deleted_says_so_and_one_that_is_not_there_is_offered_another(
    page: Page, cloud: Served, complaints: list[str]
) -> None:
    opened(page, cloud.url, POOL)
    become(cloud, spots.a_spot_pool("batch", namespace="team-b", slots=STEADY))
    expect(page.locator("#stale")).to_contain_text("The spot pool team-a/inference was deleted")
    page.goto(f"{cloud.url}/#/spot/team-b/bacth")
    expect(page.locator("h1")).to_have_text("There is no spot pool team-b/bacth, or you may not see it")
    page.get_by_role("link", name="batch").click()
    expect(page.locator("h1")).to_have_text("batch")
    complaints.clear()


def test_what_a_cloud_says_is_text_and_never_markup(page: Page, cloud: Served) -> None:
    def hostile(model: dict[str, Any]) -> None:
        model["slots"]["0"] |= {"instance": HOSTILE, "zone": HOSTILE, "node": HOSTILE}
        model["unserved"][0]["message"] = HOSTILE

    told(page, cloud, "spot/team-a/inference", hostile)
    opened(page, cloud.url, POOL)
    expect(row(page, "0")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0


def test_other_pages_lead_here(page: Page, cloud: Served) -> None:
    opened(page, cloud.url, "#/resources")
    page.get_by_role("link", name="team-a/inference").click()
    expect(page.locator("h1")).to_have_text("inference")
    opened(page, cloud.url, "#/decisions?q=inference")
    page.get_by_role("link", name="Spotpool team-a/inference").first.click()
    expect(page.locator("h1")).to_have_text("inference")


def test_nodes_tell_cost_and_reclaim(page: Page, cloud: Served) -> None:
    opened(page, cloud.url, "#/nodes")
    heads = page.locator(".node-head .quiet")
    expect(heads.nth(0)).to_have_text(re.compile(r"allocated · \$2\.20 / h$"))
    expect(heads.nth(2)).to_have_text(re.compile(r"\$2\.20 / h · reclaimed in 2m$"))


# --- for everybody ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["#/spot", POOL])
def test_axe_finds_nothing(open_to_axe: Page, cloud: Served, address: str) -> None:
    assert axe.found(opened(open_to_axe, cloud.url, address)) == []


@pytest.mark.parametrize("address", ["#/spot", POOL])
def test_a_phone_shows_cards_and_needs_no_sideways_scrolling(page: Page, cloud: Served, address: str) -> None:
    page.set_viewport_size(PHONE)
    opened(page, cloud.url, address)
    fits(page, PHONE["width"])
    for table in page.locator("table:visible").all():
        expect(table.locator("thead")).to_be_hidden()
    assert nav_rows(page) <= 2


@pytest.mark.parametrize("address", ["#/spot", POOL, "#/spot/team-b/batch"])
def test_no_tile_stands_alone_beside_nothing(page: Page, cloud: Served, address: str) -> None:
    opened(page, cloud.url, address)
    for width in (360, 768, 1000, 1280):
        resized(page, width)
        assert len(row_ends(page)) == 1, width

"""The pages of bandwidth: bars of every node, the fullest first, what a tenant sees, live, by keyboard and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from headroom.model.world import World
from tests.browser import axe
from tests.browser.chromium import opened
from tests.browser.layout import nav_rows, resized, row_ends
from tests.browser.served import Served
from tests.browser.told import told
from tests.browser.worlds import HOSTILE
from tests.builders import a_node, a_used_world
from tests.web import links, pools

NODE = "#/bandwidth/full"


def world_of(*left: pools.Left) -> World:
    return a_used_world(*(each.resource for each in left), nodes=[a_node(each.resource.name) for each in left])


def become(served: Served, *left: pools.Left) -> None:
    """Let these nodes be what was decided last."""
    served.become(world_of(*left), *left)


@pytest.fixture
def fleet_links(serve: Callable[..., Served]) -> Served:
    """A dashboard with four nodes that have a bit of everything."""
    served = serve(world_of())
    become(served, *links.a_bit_of_everything())
    return served


def node(page: Page, name: str) -> Locator:
    return page.locator(".node").filter(has=page.get_by_role("heading", name=name, exact=True))


# --- all nodes ----------------------------------------------------------------------------------------------------------------


def test_every_node_has_its_bars_the_fullest_first(page: Page, fleet_links: Served) -> None:
    opened(page, fleet_links.url)
    page.get_by_role("link", name="Bandwidth", exact=True).click()
    expect(page.locator(".lead")).to_have_text(
        "6 pods have bandwidth reserved on 2 nodes of 4. 1 node is overcommitted. "
        "Placement by bandwidth is off: it is accounted, and pods may go anywhere."
    )
    expect(page.locator(".node h3")).to_have_text(["full", "odd", "calm"])
    full = node(page, "full")
    expect(full.locator(".badge")).to_have_text("Overcommitted")
    expect(full.locator("dt")).to_have_text(["Network up", "Network down", "Switch up", "Switch down"])
    expect(full.locator(".amount").first).to_have_text("1.12 of 1 Gbps")
    expect(full.locator(".strip").first).to_have_attribute("data-over", "")
    expect(full.locator(".beyond")).to_have_count(1)
    calm = node(page, "calm")
    expect(calm.locator(".beyond")).to_have_count(0)
    expect(calm.locator(".strip").nth(0).locator(".box")).to_have_text(["web", "free"])
    expect(calm.locator(".strip").nth(2).locator(".box")).to_have_text(["web", "rank-0", "free"])
    expect(calm.locator(".box[data-link-local]")).to_have_count(1)
    expect(node(page, "odd")).to_contain_text("headroom.dev/network-bandwidth 'much'")


def test_nodes_are_filtered_and_the_address_keeps_it(page: Page, fleet_links: Served) -> None:
    opened(page, fleet_links.url, "#/bandwidth")
    page.get_by_label("Which nodes").select_option("all")
    expect(page.locator(".node h3")).to_have_text(["full", "odd", "calm", "quiet"])
    page.get_by_role("searchbox").first.fill("rank-0")
    expect(page.locator(".node h3")).to_have_text(["calm"])
    expect(page.locator("#links [role=status]")).to_have_text("1 of 4 nodes")
    page.reload()
    expect(page.locator(".node h3")).to_have_text(["calm"])
    page.get_by_role("searchbox").first.fill("nothing like it")
    expect(page.locator("#links")).to_contain_text("No node matches.")


def test_an_update_moves_one_node_and_leaves_the_rest_alone(page: Page, fleet_links: Served) -> None:
    opened(page, fleet_links.url, "#/bandwidth")
    page.locator(".node").evaluate_all("items => items.forEach(item => { item.marked = true; })")
    node(page, "calm").get_by_role("link").focus()
    eased = links.a_node_with("full", links.holds("team-a/train-0", 900, 400))
    become(fleet_links, eased, *(each for each in links.a_bit_of_everything() if each.resource.name != "full"))
    expect(node(page, "full").locator(".badge")).to_have_text("Within capacity")
    expect(page.locator(".node h3")).to_have_text(["odd", "full", "calm"])
    expect(page.locator("#announcements")).to_have_text("full: Within capacity.")
    assert page.locator(".node").evaluate_all("items => items.every(item => item.marked)")
    expect(node(page, "calm").get_by_role("link")).to_be_focused()


def test_of_very_many_nodes_the_fullest_are_drawn_and_each_can_be_found(
    page: Page, serve: Callable[..., Served]
) -> None:
    many = [links.a_node_with(f"n{each:04}", links.holds(f"team-a/p{each}", 1 + each % 900)) for each in range(1500)]
    served = serve(world_of())
    become(served, *many)
    opened(page, served.url, "#/bandwidth")
    expect(page.locator(".node")).to_have_count(100)
    expect(page.locator("#links")).to_contain_text("one of the 1,400 others")
    page.get_by_role("searchbox").first.fill("n0007")
    expect(page.locator(".node h3")).to_have_text(["n0007"])
    expect(node(page, "n0007").locator(".amount").first).to_have_text("0.008 of 1 Gbps")


def test_without_a_node_it_says_so(page: Page, serve: Callable[..., Served]) -> None:
    opened(page, serve(a_used_world()).url, "#/bandwidth")
    expect(page.locator("#links")).to_contain_text("The cluster has no nodes yet.")
    expect(page.locator(".tiles")).to_be_hidden()


# --- one node -----------------------------------------------------------------------------------------------------------------


def test_one_node_lists_all_reservations_with_what_is_odd_about_them(page: Page, fleet_links: Served) -> None:
    opened(page, fleet_links.url, "#/bandwidth")
    node(page, "full").get_by_role("link").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("full")
    expect(page.locator("h1")).to_be_focused()
    expect(page.locator("nav a[aria-current]")).to_have_text("Bandwidth")
    expect(page.locator(".lead")).to_contain_text("More is reserved than there is: 120 Mbps up")
    expect(page.locator("#reservations tbody th")).to_have_text(["team-a/train-0", "team-b/later", "team-b/odd"])
    rows = page.locator("#reservations tbody tr")
    expect(rows.nth(0).locator("td[data-title=Up]")).to_have_text("900 Mbps")
    expect(rows.nth(1).locator("td[data-title=Remarks]")).to_contain_text("Edited since it was bound")
    expect(rows.nth(2).locator("td[data-title=Remarks]")).to_contain_text("cannot be read")
    expect(page.locator("#reservations")).to_contain_text("and 1 pod more that is not listed here")
    expect(page.locator("#bars")).to_contain_text("an annotation of the node")
    page.get_by_role("searchbox").fill("edited")
    expect(page.locator("#reservations tbody th")).to_have_text(["team-b/later"])


def test_a_node_that_goes_says_so_and_one_that_is_not_there_is_offered_another(
    page: Page, fleet_links: Served, complaints: list[str]
) -> None:
    opened(page, fleet_links.url, NODE)
    become(fleet_links, links.a_node_with("calm"))
    expect(page.locator("#stale")).to_contain_text("The Bandwidth of full was deleted with its node")
    page.goto(f"{fleet_links.url}/#/bandwidth/clam")
    expect(page.locator("h1")).to_have_text("There is no node with bandwidth clam, or you may not see it")
    complaints.clear()


def test_what_a_pod_is_called_is_text_and_never_markup(page: Page, fleet_links: Served) -> None:
    def hostile(model: dict[str, Any]) -> None:
        model["nodes"]["calm"]["bar"][0] |= {"pod": f"team-a/{HOSTILE}", "owner": HOSTILE}
        model["nodes"]["odd"]["message"] = HOSTILE

    told(page, fleet_links, "bandwidth", hostile)
    opened(page, fleet_links.url, "#/bandwidth")
    expect(node(page, "odd")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0


# --- a tenant -----------------------------------------------------------------------------------------------------------------


def test_a_tenant_sees_the_own_reservations_and_no_node(page: Page, fleet_links: Served) -> None:
    def tenants(model: dict[str, Any]) -> None:
        own = {"team-a/web": {"node": "calm", "up": 300, "down": 100, "owner": "Job train", "linkLocal": True}}
        model |= {"maySee": False, "nodes": {}, "own": own, "ownCount": 3}

    told(page, fleet_links, "bandwidth", tenants)
    opened(page, fleet_links.url, "#/bandwidth")
    expect(page.locator(".lead")).to_contain_text("takes the right to list nodes")
    expect(page.locator("#links")).to_be_hidden()
    expect(page.locator("#own tbody th")).to_have_text(["team-a/web"])
    expect(page.locator("#own")).to_contain_text("Link-local")
    expect(page.locator("#own")).to_contain_text("and 2 more")


# --- for everybody ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["#/bandwidth", NODE])
def test_axe_finds_nothing(open_to_axe: Page, fleet_links: Served, address: str) -> None:
    assert axe.found(opened(open_to_axe, fleet_links.url, address)) == []


@pytest.mark.parametrize("address", ["#/bandwidth", NODE])
def test_no_width_needs_sideways_scrolling(page: Page, fleet_links: Served, address: str) -> None:
    opened(page, fleet_links.url, address)
    for width in (360, 420, 520, 641, 768, 1000, 1600, 2560):
        resized(page, width)
        assert nav_rows(page) <= (1 if width > 640 else 2), f"{width}: one row of pages, or two on a phone"
        assert len(row_ends(page)) <= 1, f"{width}: no tile alone beside nothing"

"""The pages of power: machines in every state, their last hours, who waits, and all of it live, by keyboard and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from headroom.api.power_status import State
from headroom.model.decisions import Ref
from headroom.model.times import HOUR, MINUTE
from headroom.model.world import World
from tests.browser import axe
from tests.browser.chromium import opened
from tests.browser.layout import boxes, fits, nav_rows, resized, row_ends
from tests.browser.served import Served
from tests.browser.told import told
from tests.browser.worlds import HOSTILE
from tests.builders import NOON, a_used_world
from tests.control_plane import wait_until
from tests.core.stage import running
from tests.web import pools

BASEMENT = Ref("PowerPool", "", "basement")
MANY = 512
RACK: dict[str, State] = {f"r-{number:03}": "On" if number % 2 else "Off" for number in range(MANY)} | {
    "r-000": "Failed"
}
PHONE: ViewportSize = {"width": 360, "height": 740}


def world_of(*left: pools.Left, now: int = NOON) -> World:
    pods = [running("train", HOUR, gpus=3, node="l4-1")]
    return a_used_world(*(each.resource for each in left), pods=pods, nodes=pools.nodes_of(), now=now)


def become(served: Served, *left: pools.Left, now: int = NOON) -> None:
    """Let these pools be what was decided last."""
    served.become(world_of(*left, now=now), *left)


@pytest.fixture
def cellar(serve: Callable[..., Served]) -> Served:
    """A dashboard with two pools, one of which has a bit of everything."""
    served = serve(world_of())
    pools.turned(served.made, BASEMENT, NOON - 3 * HOUR, ("l4-1", "Off"), ("l4-5", "On"))
    pools.turned(served.made, BASEMENT, NOON - 13 * MINUTE, ("l4-1", "Booting"))
    become(served, pools.troubled(), pools.a_pool("attic", {"a-1": "On", "a-2": "Off"}))
    return served


def row(page: Page, name: str) -> Locator:
    return page.locator("#machines tbody tr").filter(has=page.get_by_role("rowheader", name=re.compile(f"^{name}\\b")))


# --- all pools ----------------------------------------------------------------------------------------------------------------


def test_every_pool_has_its_row_and_leads_to_its_page(page: Page, cellar: Served) -> None:
    opened(page, cellar.url)
    page.get_by_role("link", name="Power", exact=True).click()
    expect(page.locator(".lead")).to_have_text(
        "3 of 10 machines are on. 1 pool needs a look: basement. 4 pods are unserved."
    )
    expect(page.locator("#pools tbody th a")).to_have_text(["basement", "attic"])
    first = page.locator("#pools tbody tr").first
    expect(first.locator(".badge")).to_have_text("Machines failed")
    expect(first.locator("td[data-title=Machines] .amount")).to_have_text(
        "2 on, 1 booting, 1 draining, 1 going to sleep, 1 asleep, 1 failed, 1 not known"
    )
    expect(first.locator("td[data-title='GPUs free']")).to_have_text("5 of 8")
    expect(first.locator("td[data-title=Saved]")).to_have_text("34.5 kWh")
    page.get_by_role("searchbox").fill("steady")
    expect(page.locator("#pools tbody th a")).to_have_text(["attic"])
    page.get_by_role("link", name="attic").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("attic")
    expect(page.locator("h1")).to_be_focused()
    expect(page.locator("nav a[aria-current]")).to_have_text("Power")


def test_without_energy_there_is_no_column_for_it(page: Page, cellar: Served) -> None:
    def without(model: dict[str, dict[str, dict[str, str]]]) -> None:
        for each in model["pools"].values():
            del each["savedKwh"], each["usedKwh"]

    told(page, cellar, "power", without)
    opened(page, cellar.url, "#/power")
    expect(page.get_by_role("columnheader", name="GPUs free")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Saved")).to_have_count(0)
    expect(page.locator(".tiles")).not_to_contain_text("kWh")


def test_who_sees_one_namespace_is_told_why_there_is_nothing(page: Page, cellar: Served) -> None:
    told(page, cellar, "power", lambda model: model.update({"maySee": False, "pools": {}}))
    opened(page, cellar.url, "#/power")
    expect(page.locator(".lead")).to_contain_text("viewing them needs fleet-wide access")
    expect(page.locator("#first-steps")).to_be_hidden()
    expect(page.locator("#pools")).to_be_hidden()


# --- one pool -----------------------------------------------------------------------------------------------------------------


def test_each_machine_says_what_it_does_in_words_and_colours(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/power/basement")
    expect(page.locator("#machines tbody .badge")).to_have_text(
        ["On", "Booting", "Draining", "Going to sleep", "Asleep", "Failed", "Not known", "On"]
    )
    tones = page.locator("#machines tbody .badge").evaluate_all("nodes => nodes.map(node => node.dataset.tone)")
    assert tones == ["good", "busy", "busy", "busy", "idle", "bad", "warn", "good"]
    names = page.locator("#machines tbody th").all_inner_texts()
    assert [each.split()[0] for each in names][-2:] == ["l4-7", "l4-10"], "as people count"
    expect(row(page, "l4-1").locator("td[data-title=GPUs]")).to_have_text("3 of 4 allocated")
    expect(row(page, "l4-5").locator("td[data-title='Last command']")).to_contain_text("sleep 11m ago")
    expect(row(page, "l4-10").locator("td[data-title='Idle for']")).to_have_text("5m")
    failed = row(page, "l4-6").locator("td[data-title=Remarks]")
    expect(failed).to_contain_text("No node after 900 s. Failed 2 times in a row. No command is sent again before")
    row(page, "l4-1").get_by_role("link", name="l4-1").click()
    expect(page.locator(".node h3")).to_have_text(["l4-1", "l4-10"])


def test_what_people_must_know_stands_at_the_top(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/power/basement")
    expect(page.locator("#warnings .notice")).to_have_text(
        [
            "Shared with Karpenter: NodePool gpu could serve 3 pods that wait.",
            "Held back: 4 of 8 machines turned idle within 60 s.",
            "Machines failed: l4-6 did not boot.",
        ]
    )
    expect(page.locator("#unserved tbody tr").first).to_contain_text("It needs 16 nvidia.com/gpu and 4 are there.")
    expect(page.locator("#facts")).to_contain_text("Mon Fri 08:00 to 18:00 Europe/Berlin, 1 on")
    expect(page.locator("#facts")).to_contain_text("Woken on trial")
    expect(page.locator("#facts")).to_contain_text("Tried, no help so far")
    expect(page.locator("#history .entry")).not_to_have_count(0)
    opened(page, cellar.url, "#/power/attic")
    expect(page.locator("#warnings")).to_be_hidden()
    expect(page.locator("#unserved")).to_be_hidden()


def test_machines_are_sorted_and_filtered_and_the_address_keeps_it(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/power/basement")
    page.get_by_role("searchbox").fill("redfish on")
    expect(page.locator("#machines tbody tr")).to_have_count(1)
    expect(page.locator("#machines [role=status]")).to_have_text("1 of 8 machines match")
    page.get_by_role("searchbox").fill("")
    head = page.get_by_role("columnheader", name="State")
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("#machines tbody .badge").first).to_have_text("Failed")
    expect(page).to_have_url(re.compile(r"sort=state"))
    page.reload()
    expect(page.locator("#machines tbody .badge").first).to_have_text("Failed")


def test_an_update_turns_one_machine_and_leaves_the_rest_alone(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/power/basement")
    page.locator("#machines tbody tr").evaluate_all("rows => rows.forEach(row => { row.marked = true; })")
    row(page, "l4-5").get_by_role("link").focus()
    pools.turned(cellar.made, BASEMENT, NOON + MINUTE, ("l4-2", "On"))
    after = pools.a_pool(states=pools.BASEMENT | {"l4-2": "On", "l4-6": "Off"})
    become(cellar, after, now=NOON + MINUTE)
    expect(row(page, "l4-2").locator(".badge")).to_have_text("On")
    expect(page.locator(".title-row .badge")).to_have_text("Changing")
    expect(page.locator("#announcements")).to_have_text(re.compile(r"l4-2: On\.|basement: Changing\."))
    assert page.locator("#machines tbody tr").evaluate_all("rows => rows.every(row => row.marked)")
    expect(row(page, "l4-5").get_by_role("link")).to_be_focused()
    expect(page.locator("#warnings")).to_be_hidden()


def test_a_pool_that_is_deleted_says_so_and_one_that_is_not_there_is_offered_another(
    page: Page, cellar: Served, complaints: list[str]
) -> None:
    opened(page, cellar.url, "#/power/basement")
    become(cellar, pools.a_pool("attic", {"a-1": "On"}))
    expect(page.locator("#stale")).to_contain_text("The power pool basement was deleted")
    expect(row(page, "l4-1").locator(".badge")).to_have_text("On")
    page.goto(f"{cellar.url}/#/power/atitc")
    expect(page.locator("h1")).to_have_text("There is no power pool atitc, or you may not see it")
    page.get_by_role("link", name="attic").click()
    expect(page.locator("h1")).to_have_text("attic")
    complaints.clear()


def test_what_a_switch_says_is_text_and_never_markup(page: Page, cellar: Served) -> None:
    def hostile(model: dict[str, dict[str, dict[str, str]]]) -> None:
        model["machines"]["l4-6"]["reason"] = HOSTILE

    told(page, cellar, "power/basement", hostile)
    opened(page, cellar.url, "#/power/basement")
    expect(row(page, "l4-6")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0


def test_other_pages_lead_here(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/resources")
    page.get_by_role("link", name="basement").click()
    expect(page.locator("h1")).to_have_text("basement")
    opened(page, cellar.url, "#/decisions?q=l4-1")
    page.get_by_role("link", name="PowerPool basement").first.click()
    expect(page.locator("h1")).to_have_text("basement")


def test_a_node_that_sleeps_is_not_sick(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/nodes")
    expect(page.locator(".lead")).to_contain_text("4 of 7 nodes are ready, 2 asleep or booting")
    page.get_by_role("combobox").select_option(label="Asleep or booting")
    expect(page.locator(".node .badge")).to_have_text(["booting", "asleep"])
    expect(page.locator(".node .box")).to_have_text(["booting", "asleep"])
    page.get_by_role("combobox").select_option(label="Not ready or cordoned")
    expect(page.locator(".node h3")).to_have_text(["l4-3", "l4-4", "l4-7"])
    opened(page, cellar.url)
    expect(page.locator(".tiles")).to_contain_text("4 asleep, 4 booting, 8 cordoned, 4 unreachable")


# --- the last hours -----------------------------------------------------------------------------------------------------------


def test_the_last_hours_are_bars_with_words(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/power/basement")
    strip = row(page, "l4-1").locator(".past")
    expect(strip).to_have_attribute(
        "aria-label", re.compile(r"^l4-1: On since .*, before that Booting since .*, before that Asleep since ")
    )
    shown = strip.locator(".past-bar").evaluate_all(
        """bars => {
            const { left, width } = bars[0].parentElement.parentElement.getBoundingClientRect();
            return bars.map(bar => {
                const box = bar.getBoundingClientRect();
                return [bar.className, (box.left - left) / width, Math.min(1, (box.right - left) / width)];
            });
        }"""
    )
    assert [each[0].split("past-")[-1] for each in shown] == ["Off", "Booting", "On"]
    moments = [(180, 13), (13, 10), (10, 0)]
    for (_, left, right), (begin, end) in zip(shown, moments, strict=True):
        assert left == pytest.approx(1 - begin / 360, abs=0.01)
        assert right == pytest.approx(1 - end / 360, abs=0.01)
    heights = strip.locator(".past-bar").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().height)")
    assert heights[0] < heights[1] < heights[2], "told apart without colours"
    expect(strip.locator(".past-bar").nth(1)).to_have_attribute("title", re.compile(r"Booting from .* \(3m\)$"))
    expect(page.locator(".legend.states li")).to_have_count(8)


def test_as_time_passes_the_bars_move(page: Page, cellar: Served) -> None:
    opened(page, cellar.url, "#/power/basement")
    strip = row(page, "l4-5").locator(".past")
    place = "bar => bar.getBoundingClientRect().left - bar.parentElement.parentElement.getBoundingClientRect().left"
    before = strip.locator(".past-bar").first.evaluate(place)
    become(cellar, pools.troubled(), now=NOON + HOUR)
    expect(page.locator("#clock time")).to_have_text(re.compile(r":00:\d\d$"))
    wait_until(lambda: strip.locator(".past-bar").first.evaluate(place) < before - 10, "the bars have moved")
    width = strip.evaluate("node => node.getBoundingClientRect().width")
    after = strip.locator(".past-bar").first.evaluate(place)
    assert before - after == pytest.approx(width / 6, abs=2)


# --- for everybody ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["#/power", "#/power/basement"])
def test_axe_finds_nothing(open_to_axe: Page, cellar: Served, address: str) -> None:
    assert axe.found(opened(open_to_axe, cellar.url, address)) == []


@pytest.mark.parametrize("address", ["#/power", "#/power/basement"])
def test_a_phone_shows_cards_and_needs_no_sideways_scrolling(page: Page, cellar: Served, address: str) -> None:
    page.set_viewport_size(PHONE)
    opened(page, cellar.url, address)
    fits(page, PHONE["width"])
    for table in page.locator("table:visible").all():
        expect(table.locator("thead")).to_be_hidden()
    expect(page.locator("table td:empty:visible")).to_have_count(0)
    for link in page.locator("nav a").all():
        expect(link).to_be_in_viewport(ratio=1)
    assert nav_rows(page) <= 2
    assert all(strip.right <= PHONE["width"] for strip in boxes(page.locator(".past:visible")))


@pytest.mark.parametrize("address", ["#/power", "#/power/basement", "#/power/attic"])
def test_no_tile_stands_alone_beside_nothing(page: Page, cellar: Served, address: str) -> None:
    opened(page, cellar.url, address)
    for width in (360, 768, 1000, 1280):
        resized(page, width)
        assert len(row_ends(page)) == 1, width


def test_512_machines(page: Page, serve: Callable[..., Served]) -> None:
    left = pools.a_pool("rack", RACK)
    served = serve(a_used_world(left.resource))
    pools.leave(served.made, left)
    opened(page, served.url, "#/power/rack")
    rows = page.locator("#machines tbody tr")
    expect(rows).to_have_count(MANY)
    expect(page.locator("#facts")).to_contain_text("5% of the machines beyond the recent peak")
    page.evaluate(
        """() => {
            window.touched = new Set();
            const watch = new MutationObserver(found => found.forEach(({ target }) => {
                const node = target.nodeType === 1 ? target : target.parentElement;
                const row = node.closest("tr");
                if (row && !node.closest("time")) window.touched.add(row); // times go on by themselves
            }));
            watch.observe(document.querySelector("#machines tbody"), { subtree: true, childList: true, characterData: true, attributes: true });
        }"""
    )
    turned = pools.a_pool("rack", RACK | {"r-007": "Failed"})
    pools.leave(served.made, turned)
    expect(row(page, "r-007").locator(".badge")).to_have_text("Failed")
    assert page.evaluate("window.touched.size") == 1
    page.get_by_role("searchbox").fill("failed")
    expect(rows).to_have_count(2)

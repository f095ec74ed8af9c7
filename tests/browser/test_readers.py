"""What each reader comes for: why a pod does not run, what a team has used, which GPUs are free, and what was evicted."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from headroom.model.times import HOUR, MINUTE, SECOND, text
from tests.browser.chromium import opened
from tests.browser.served import Served
from tests.browser.told import Model, told
from tests.browser.worlds import a_fleet
from tests.builders import NOON

POD = "pods/team-a/waits"
TEAM = "namespaces/team-a"


def test_a_pod_leads_to_why_it_does_not_run(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/nodes")
    row = page.locator("#waiting").get_by_role("row").filter(has_text="team-a/waits")
    expect(row.locator("td[data-title=State]")).to_have_text("Queued")
    row.get_by_role("link", name="team-a/waits").click()
    expect(page.locator("h1")).to_have_text("team-a/waits")
    expect(page.locator(".title-row .badge")).to_have_text("Queued")
    expect(page.locator(".lead")).to_contain_text("team-a/one")
    page.locator("#facts").get_by_role("link", name="team-a/one").click()
    expect(page.locator("h1")).to_have_text("team-a/one")


def test_a_pending_pod_says_what_it_needs_and_what_there_is(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/pods/team-a/late")
    expect(page.locator(".needs").first).to_contain_text(
        "1 pending pod needs 1 GPU of not named on one node; enough are free; kube-scheduler has another reason"
    )
    opened(page, fleet.url)
    expect(page.locator("#models .needs")).to_contain_text("1 pending pod needs 1 GPU")
    row = page.locator("#models").get_by_role("row").filter(has_text="not named")
    expect(row.locator("td[data-title=Allocated]")).to_have_text("7")
    expect(row.locator("td[data-title=Free]")).to_have_text("1")
    expect(row.locator("td[data-title=Unreachable]")).to_have_text("8")


def test_when_a_queued_pod_starts_stands_first(page: Page, fleet: Served) -> None:
    told(page, fleet, POD, lambda model: model["pod"].update({"startsAt": text(NOON + 15 * MINUTE - SECOND)}))
    opened(page, fleet.url, f"#/{POD}")
    expect(page.locator(".tile").filter(has_text="Estimated start")).to_contain_text("in 14m")


def test_links_to_other_tools_open_apart_and_only_the_web(page: Page, fleet: Served) -> None:
    hrefs = ["https://g.example.com/?pod=waits", "javascript:alert(1)", "//evil.example.com/", " https://x.example.com"]
    links = [{"name": f"tool {number}", "href": each} for number, each in enumerate(hrefs)]
    told(page, fleet, POD, lambda model: model.update({"tools": links}))
    opened(page, fleet.url, f"#/{POD}")
    outward = page.locator("main .outward")
    expect(outward).to_have_count(1)
    expect(outward).to_have_attribute("href", hrefs[0])
    expect(outward).to_have_attribute("rel", "noopener noreferrer")


def test_the_page_of_a_team_has_what_it_used_and_who(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{TEAM}")
    expect(page.locator("#budgets tbody tr")).to_have_count(3)
    expect(page.locator("#who tbody tr").first).to_contain_text("train")
    page.get_by_role("button", name="By user").click()
    expect(page.locator("#who")).to_contain_text("name it in the setting dashboard-user")
    page.get_by_role("button", name="By pod").click()
    page.locator("#who").get_by_role("link", name="team-a/train").click()
    expect(page.locator("h1")).to_have_text("team-a/train")
    expect(page.locator(".tile").filter(has_text="Used")).to_contain_text("GPU-hours")


def test_a_namespace_without_anything_is_not_there(page: Page, fleet: Served) -> None:
    page.goto(f"{fleet.url}/#/namespaces/nowhere")
    expect(page.locator("h1")).to_have_text("There is no namespace nowhere, or you may not see it")


def test_budgets_stand_by_the_time_that_is_left(page: Page, fleet: Served) -> None:
    def change(model: Model) -> None:
        for name, hours in (("team-a/one", 20), ("team-a/roomy", 1), ("elsewhere/two", 3)):
            row = model["budgets"][name]
            row.update({"tone": "good", "state": "Ok", "percent": hours, "exhaustedAt": text(NOON + hours * HOUR)})

    told(page, fleet, "overview", change)
    opened(page, fleet.url)
    names = page.locator("#budgets tbody th a")
    expect(names).to_have_text(["team-a/broken", "team-a/roomy", "elsewhere/two", "team-a/one"])
    expect(page.locator(".tile").filter(has_text="Next over quota")).to_contain_text("team-a/roomy")


def test_evictions_stand_out_and_can_be_selected(page: Page, fleet: Served) -> None:
    entry = {"kind": "GPUWorkloadBudget", "namespace": "team-a", "name": "one", "actions": [], "count": 0}
    entry |= {"resource": "GPUWorkloadBudget/team-a/one", "message": "x"}
    entries = {
        "0000000000003-a": entry | {"at": text(NOON), "reason": "Evicting", "type": "stops"},
        "0000000000002-b": entry | {"at": text(NOON - 25 * HOUR), "reason": "MachineOff", "type": "machines"},
    }
    query = "decisions?since=24h&limit=200"
    told(page, fleet, query, lambda model: model.update({"entries": entries}))
    opened(page, fleet.url, "#/decisions")
    expect(page.locator(".day")).to_have_text(["Today", "Yesterday"])
    expect(page.locator(".entry").first).to_have_attribute("data-tone", "bad")
    expect(page.locator(".entry").last).not_to_have_attribute("data-tone", re.compile("."))
    page.get_by_label("Which decisions").select_option("Evictions and suspensions")
    expect(page.locator("main")).to_contain_text("No decision matches.")
    expect(page).to_have_url(re.compile(r"type=stops"))


def test_the_legend_says_which_forecast_a_line_is(page: Page, fleet: Served) -> None:
    def change(model: Model) -> None:
        ahead = model["curve"]["ahead"]
        model["curve"]["aheadEndless"] = {"t": ahead["t"], "used": [each + 1 for each in ahead["used"]]}

    told(page, fleet, "budgets/team-a/one", change)
    opened(page, fleet.url, "#/budgets/team-a/one")
    expect(page.locator("#curve .legend li")).to_have_text(
        ["used", "forecast with declared durations", "if no running pod ended", "quota"]
    )


def test_one_forecast_says_what_it_assumes(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/budgets/team-a/one")
    expect(page.locator("#curve .legend li")).to_have_text(["used", "forecast while the current pods run", "quota"])


def test_no_sentence_stands_twice_on_the_page_of_a_budget(page: Page, serve: Callable[..., Served]) -> None:
    opened(page, serve(a_fleet(train_hours=9)).url, "#/budgets/team-a/one")
    # At one moment: times in sentences go on.
    read = "() => ['.lead', 'main', '#facts'].map(each => document.querySelector(each).innerText)"
    lead, everything, facts = page.evaluate(read)
    assert len(lead) > 20
    assert everything.count(lead) <= 2, "at the top, and in the history of what was decided"
    assert lead not in facts


def test_history_and_settings_are_folded_on_a_phone(page: Page, fleet: Served) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page, fleet.url, "#/budgets/team-a/one")
    expect(page.locator("#history .entry").first).to_be_hidden()
    page.get_by_text("Show settings and conditions").click()
    expect(page.locator("#facts dd").first).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.reload()
    expect(page.locator("#history .entry").first).to_be_visible()


def test_what_has_no_effects_is_not_green(page: Page, fleet: Served) -> None:
    def change(model: Model) -> None:
        model["others"]["PowerPool/basement"].update({"ready": "True", "acts": False})

    told(page, fleet, "overview", change)
    opened(page, fleet.url, "#/resources")
    mark = page.locator("#resources .badge")
    expect(mark).to_have_text("Valid, no effects")
    expect(mark).to_have_attribute("data-tone", "idle")

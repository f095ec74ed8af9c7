"""What a page says is never at odds with itself: numbers beside each other, states and what comes next, and what is not there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from headroom.model.times import HOUR, MINUTE, SECOND, text
from tests.browser.chromium import opened
from tests.browser.served import Served
from tests.browser.told import Model, told
from tests.browser.worlds import a_fleet
from tests.builders import NOON

BUDGET = "budgets/team-a/one"
ALMOST = {"consumedGpuHours": "239.963", "quotaGpuHours": "240", "percent": 99.9, "exhaustedAt": text(NOON + 3 * HOUR)}
HOLDS = ALMOST | {"state": "Holding", "tone": "bad"}
NO_CLASH = ["vision", "climate", "robotics", "lab"]
"""Names that lead to different colours."""
STARTS = text(
    NOON + 15 * MINUTE - SECOND
)  # in 14m, however long the page takes: whole minutes are told, and time goes on


def js(page: Page, module: str, call: str) -> Any:
    """What a function of one of the modules answers."""
    return page.evaluate(f"import('./static/app/{module}.js').then(module => module.{call})")


NUMBERS = [
    ("percent(99.97)", "99.9%"),
    ("percent(99)", "99%"),
    ("percent(98.64)", "98.6%"),
    ("percent(94.6)", "95%"),
    ("percent(103.26)", "103.2%"),
    ("percent(105.6)", "106%"),
    ("percent(100)", "100%"),
    ("percent(0.3)", "<1%"),
    ("span(5180000)", "1h 26m"),
    ("span(273600000)", "3d 4h"),
    ("span(40000)", "40s"),
    ("usedOf('239.963', '240', 'GPU-hours')", ["239.96", "240"]),
    ("usedOf('239.9996', '240', 'GPU-hours')", ["239.9996", "240"]),
    ("usedOf('240.000', '240', 'GPU-hours')", ["240", "240"]),
    ("usedOf('240.03', '240', 'GPU-hours')", ["240.03", "240"]),
    ("usedOf('522.05', '2400', 'dollars')", ["$522.05", "$2,400.00"]),
    ("usedOf('2399.998', '2400', 'dollars')", ["$2,399.998", "$2,400.00"]),
    ("column(['40.93', '24', '9.5'])", ["40.9", "24.0", "9.5"]),
    ("column(['8', '24'])", ["8", "24"]),
    ("left('0.044')", "0.04"),
    ("left('0.004')", "<0.01"),
    ("left('0')", "0"),
    ("left('21.25')", "21.3"),
]


def test_numbers_beside_each_other_do_not_contradict(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)
    assert [(call, js(page, "format", call)) for call, _ in NUMBERS] == NUMBERS


@pytest.mark.parametrize(
    ("row", "comes"),
    [
        (HOLDS | {"heldPods": 2, "nextStartsAt": STARTS}, "2 pods queued; estimated start of the first in 14m"),
        (HOLDS | {"heldPods": 1}, "1 pod queued; estimated start not known yet"),
        (HOLDS | {"heldPods": 0}, "new pods are queued until usage falls"),
        (HOLDS | {"heldPods": 0, "recoversAt": STARTS}, "new pods are queued; back under quota in 14m"),
        (ALMOST | {"state": "Pausing", "tone": "bad", "recoversAt": STARTS}, "pods stay paused; back under quota"),
        (
            ALMOST | {"state": "Stopping", "tone": "bad", "percent": 101},
            "pods are being stopped while the current pods run",
        ),
        (ALMOST | {"state": "Alerting", "tone": "warn"}, "over quota in"),
    ],
)
def test_what_comes_next_fits_the_state(page: Page, fleet: Served, row: Model, comes: str) -> None:
    told(page, fleet, "overview", lambda model: model["budgets"]["team-a/one"].update({"heldPods": 0} | row))
    opened(page, fleet.url)
    shown = page.get_by_role("row").filter(has_text="team-a/one")
    expect(shown.locator("td[data-title='What comes next']")).to_contain_text(comes)
    if row["state"] != "Alerting":
        expect(shown.locator("td[data-title='What comes next']")).not_to_contain_text("over quota")


def test_a_forecast_goes_by_declared_ends_and_says_what_differs_without(page: Page, fleet: Served) -> None:
    row = {"percent": 80, "state": "Ok", "tone": "good", "burnRateGpus": "78", "exhaustedAtIfNothingEnds": STARTS}

    def change(model: Model) -> None:
        model["budgets"]["team-a/one"].pop("exhaustedAt", None)
        model["budgets"]["team-a/one"].update({"heldPods": 0} | row)

    told(page, fleet, "overview", change)
    opened(page, fleet.url)
    comes = page.get_by_role("row").filter(has_text="team-a/one").locator("td[data-title='What comes next']")
    expect(comes).to_have_text(re.compile(r"^stays within quota\s*If nothing ended: over quota in 14m$"))


def test_a_budget_that_is_almost_used_up_says_by_how_little(page: Page, fleet: Served) -> None:
    told(page, fleet, "overview", lambda model: model["budgets"]["team-a/one"].update(HOLDS))
    opened(page, fleet.url)
    row = page.get_by_role("row").filter(has_text="team-a/one")
    expect(row.locator("td[data-title=Used]")).to_have_text("99.9%")
    expect(row.locator("td[data-title=GPU-hours] .amount")).to_have_text("239.96 of 240")


def test_a_step_that_still_stands_below_its_beginning_says_why(page: Page, fleet: Served) -> None:
    since = text(NOON - HOUR)
    ladder = [{"at": "100%", "action": "Hold", "since": since, "endsBelow": "95%"}, {"at": "120%", "action": "Evict"}]
    told(page, fleet, BUDGET, lambda model: model["budget"].update(HOLDS | {"ladder": ladder}))
    opened(page, fleet.url, f"#/{BUDGET}")
    expect(page.locator("#still")).to_contain_text(
        '99.9% is used. "Queue new pods" became active at 100% and clears below 95%'
    )
    expect(page.locator(".ladder li").first).to_contain_text(re.compile(r"active since 1h ago\s+clears below 95%"))
    expect(page.locator(".ladder li").last).to_contain_text("not active")
    expect(page.locator(".tile").first).to_contain_text("239.96of 240 GPU-hours")


def test_where_no_step_still_stands_nothing_is_explained(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{BUDGET}")
    expect(page.locator("#still")).to_be_hidden()


def test_a_start_that_is_not_known_is_not_a_state(page: Page, fleet: Served) -> None:
    unit = {"unit": "Job/lab/x", "gpus": "8", "pods": 1, "state": "Reserved"}
    waiting = [
        unit,
        unit | {"unit": "Job/lab/y", "startsAt": STARTS},
        unit | {"unit": "Job/lab/z", "state": "NeverFits"},
    ]
    told(page, fleet, BUDGET, lambda model: model.update({"held": waiting, "heldUnits": 3, "heldPods": 3}))
    opened(page, fleet.url, f"#/{BUDGET}")
    starts = page.locator("#waiting td[data-title='Estimated start']")
    expect(starts).to_have_text(["not known yet", "in 14m", "never: it exceeds the quota on its own"])


def test_what_was_stopped_may_run_again(page: Page, fleet: Served) -> None:
    stopped = {"unit": "Job/lab/x", "action": "Evict", "at": text(NOON - HOUR), "outcome": "Stopped"}
    told(page, fleet, BUDGET, lambda model: model.update({"stopped": [stopped, stopped | {"outcome": "Blocked"}]}))
    opened(page, fleet.url, f"#/{BUDGET}")
    expect(page.locator("#stopped td[data-title=Outcome]")).to_have_text(["was stopped", "could not be stopped"])


def test_pods_that_a_budget_holds_do_not_wait_for_a_node(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, "#/nodes")
    expect(page.locator(".lead")).to_contain_text("1 pod is queued by a budget, 1 pending.")


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["Queued"] * 5, "5 pods are queued by a budget."),
        (["Queued"], "1 pod is queued by a budget."),
        (["Gated", "Pending"], "1 pod is kept by somebody else's gate, 1 pending."),
    ],
)
def test_who_waits_for_what(page: Page, fleet: Served, states: list[str], said: str) -> None:
    pods = [
        {"pod": f"lab/{number}", "gpus": "1", "state": each, "why": "", "budgets": []}
        for number, each in enumerate(states)
    ]
    told(page, fleet, "nodes", lambda model: model.update({"waiting": pods, "waitingCount": len(pods)}))
    opened(page, fleet.url, "#/nodes")
    expect(page.locator(".lead")).to_contain_text(f"free. {said}")


def test_gangs_are_not_counted_as_pods(page: Page, fleet: Served) -> None:
    """A gang of two and a pod of its own are three pods, wherever pods are counted."""
    gang = {"unit": "Job/team-a/x", "gpus": "8", "pods": 2, "state": "Waiting", "budget": "team-a/one"}
    queue = [gang, gang | {"unit": "Pod/team-a/y", "pods": 1}]
    told(page, fleet, "namespaces/team-a", lambda model: model.update({"queue": queue, "pending": []}))
    opened(page, fleet.url, "#/namespaces/team-a")
    tile = page.locator(".tile").filter(has_text="Pods queued")
    expect(tile).to_have_text("Pods queued30 pods pending")
    told(page, fleet, BUDGET, lambda model: model.update({"held": queue, "heldUnits": 2, "heldPods": 3}))
    opened(page, fleet.url, f"#/{BUDGET}")
    expect(tile).to_have_text("Pods queued3as 2 pods or gangs")


def test_nobody_needs_what_no_pod_waits_for(page: Page, fleet: Served) -> None:
    """What pending pods need is counted more rarely than how many there are."""
    told(page, fleet, "overview", lambda model: model["fleet"].update({"waiting": 1, "heldPods": 1}))
    opened(page, fleet.url)
    expect(page.locator(".tile").filter(has_text="Pods pending")).to_contain_text("no pod lacks a node")
    expect(page.locator("#models .needs")).to_be_hidden()


def test_a_model_leads_to_its_nodes_and_who_uses_them(page: Page, fleet: Served) -> None:
    def change(model: Model) -> None:
        held = [{"pod": "team-a/a", "gpus": "3", "budgets": ["team-a/one"]}, {"pod": "x/b", "gpus": "1", "budgets": []}]
        node = model["nodes"]["n"] | {"model": "H100", "pods": held}
        model["nodes"] = {"n": node, "o": node, "p": node | {"model": "L4", "pods": held[1:]}}

    told(page, fleet, "nodes", change)
    opened(page, fleet.url, "#/nodes")
    page.get_by_text("Who uses them").click()
    rows = page.locator(".users tbody tr")
    expect(rows).to_have_text(["H100team-a/one62", "H100no budget22", "L4no budget11"])
    expect(page.locator(".holders li")).to_have_text(["team-a/one 6", "no budget 3"])
    page.locator(".users").get_by_role("link", name="L4").click()
    expect(page).to_have_url(re.compile("q=L4"))
    expect(page.locator(".holders li")).to_have_text(["no budget 1"])
    opened(page, fleet.url)
    expect(page.locator("#models").get_by_role("link").first).to_have_attribute("href", "#/nodes?q=not+named")


def test_what_lets_pods_go_is_no_warning(page: Page, fleet: Served) -> None:
    def change(model: Model) -> None:
        [entry] = model["history"].values()
        both = [entry | {"type": "queue", "reason": reason} for reason in ("HoldBegins", "Releasing")]
        model["history"] = {f"{number:013d}-a": each for number, each in enumerate(both)}

    told(page, fleet, BUDGET, change)
    opened(page, fleet.url, f"#/{BUDGET}")
    badges = page.locator("#history .entry .badge")
    expect(badges).to_have_text(["Releasing", "Hold begins"])
    assert [each.get_attribute("data-tone") for each in badges.all()] == ["good", "warn"]


def test_a_team_has_one_colour_on_all_pages(page: Page, fleet: Served) -> None:
    """By its name, whoever is seen first; the first eight differ."""
    opened(page, fleet.url)
    names = ["vision", "climate", "speech", "robotics", "search", "lab", "ads", "bio"]
    one, other = (
        page.evaluate(
            "([names, copy]) => import(`./static/app/colours.js?${copy}`).then(({ hue }) => names.map(hue))",
            [each, copy],
        )
        for copy, each in (("one", NO_CLASH), ("other", NO_CLASH[::-1]))
    )
    assert one == other[::-1]
    assert sorted(js(page, "colours", f"hue('{name}')") for name in names) == list(range(8))

    def change(model: Model) -> None:
        pods = [{"pod": f"vision/{each}", "gpus": "1", "budgets": [f"vision/{each}"]} for each in ("a", "b")]
        model["nodes"]["n"]["pods"] = pods

    told(page, fleet, "nodes", change)
    opened(page, fleet.url, "#/nodes")
    hues = page.locator(".node .box[data-hue]").evaluate_all("boxes => boxes.map(box => box.dataset.hue)")
    assert set(hues) == {str(js(page, "colours", "hue('vision')"))}


def test_on_a_phone_queued_pods_are_not_hidden_below_the_edge(page: Page, fleet: Served) -> None:
    """A few are there without a box that scrolls, and a button says how many there are."""
    pods = [
        {"pod": f"team-a/{number}", "gpus": "1", "state": "Queued", "budget": "team-a/one", "since": text(NOON)}
        for number in range(12)
    ]
    page.set_viewport_size({"width": 360, "height": 740})
    told(page, fleet, "nodes", lambda model: model.update({"waiting": pods, "waitingCount": len(pods)}))
    opened(page, fleet.url, "#/nodes")
    box = page.locator("#waiting .wide")
    rows = box.locator("tbody tr:visible")
    expect(rows).to_have_count(8)
    assert box.evaluate("node => node.scrollHeight <= node.clientHeight")
    page.get_by_role("button", name="Show all 12").click()
    expect(rows).to_have_count(12)
    why = box.locator("td[data-title=Why] > span").first
    assert why.evaluate("node => node.getClientRects().length") == 1
    expect(why).to_have_text("by budget team-a/one")


@pytest.mark.parametrize("width", [984, 1024, 1100])
def test_no_figure_of_a_narrow_column_is_cut(page: Page, fleet: Served, width: int) -> None:
    each = {"owner": "Pod/team-a/finetune-detector-1042", "gpus": "1024", "usedGpus": "1012"}
    each |= {"at": text(NOON - 26 * HOUR - 37 * MINUTE), "until": text(NOON + 27 * MINUTE)}
    told(page, fleet, BUDGET, lambda model: model.update({"released": [each]}))
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, fleet.url, f"#/{BUDGET}")
    box = page.locator("#released .wide")
    assert box.evaluate("node => node.scrollWidth - node.clientWidth") <= 0


def test_a_list_that_is_cut_says_of_how_many(page: Page, fleet: Served) -> None:
    told(page, fleet, "overview", lambda model: model.update({"decidedInHour": 7}))
    opened(page, fleet.url)
    expect(page.locator("#decided [role=status]")).to_have_text("The newest 4 of 7.")
    expect(page.locator("#decided .entry")).to_have_count(4)


def test_a_list_that_is_whole_says_nothing(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{BUDGET}")
    expect(page.locator("#history .entry")).to_have_count(1)
    expect(page.locator("#history [role=status]")).to_be_hidden()


# --- what is not there --------------------------------------------------------------------------------------------------


def test_a_budget_that_is_not_there_leads_to_those_that_are(page: Page, fleet: Served) -> None:
    page.goto(f"{fleet.url}/#/budgets/team-a/oen")
    expect(page.locator("h1")).to_have_text("There is no budget team-a/oen, or you may not see it")
    expect(page.locator("h1")).to_be_focused()
    expect(page).to_have_title("Not found · Headroom")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("main .badge")).to_have_count(0)
    expect(page.get_by_role("link", name="overview", exact=True)).to_be_visible()
    page.get_by_role("link", name="team-a/one").click()
    expect(page.locator(".title-row .badge")).to_have_text("Alert")


def test_nothing_like_it_is_offered_where_nothing_is_like_it(page: Page, fleet: Served) -> None:
    page.goto(f"{fleet.url}/#/budgets/quite/different")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("main")).not_to_contain_text("Perhaps")


def test_a_budget_that_is_made_while_somebody_waits_for_it_appears(page: Page, serve: Callable[..., Served]) -> None:
    served = serve(a_fleet(without="one"))
    page.goto(f"{served.url}/#/{BUDGET}")
    expect(page.locator("h1")).to_contain_text("There is no budget team-a/one")
    expect(page.locator("#live")).to_have_text("Live")
    served.become(a_fleet())
    expect(page.locator("h1")).to_have_text("team-a/one")
    expect(page.locator(".tiles")).to_be_visible()


def test_a_wrong_address_after_one_is_live(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{BUDGET}")
    fleet.become(a_fleet(without="one"))
    expect(page.locator("#live")).to_have_text("Gone")
    page.evaluate("location.hash = '#/nonsense'")
    expect(page.locator("h1")).to_have_text("There is no such page")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#stale")).to_be_hidden()
    fleet.become(a_fleet(without="one", now=NOON + MINUTE))
    expect(page.locator("#clock")).to_have_text(re.compile(r":01:\d\d$"))

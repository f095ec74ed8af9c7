"""How pages are laid out: nothing lies on something else, nothing stands alone, and tables are cards where there is no room."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from headroom.model.times import HOUR, text
from tests.browser.chromium import opened
from tests.browser.served import Served
from tests.browser.told import Model, told
from tests.builders import NOON

BUDGET = "budgets/team-a/roomy"
PHONE = {"width": 360, "height": 740}
LONG = "vision/vit-large-pretrain-with-a-long-name-0"


def full(model: Model) -> None:
    """A budget with something in every table, and two steps reached."""
    since = text(NOON - 2 * HOUR)
    steps = [("80%", "AlertOnly", "75%"), ("100%", "Hold", "95%")]
    model["budget"]["ladder"] = [
        {"at": at, "action": action, "since": since, "endsBelow": ends} for at, action, ends in steps
    ]
    model["held"] = [{"unit": f"Job/{LONG}", "gpus": "8", "pods": 2, "since": since, "state": "Waiting"}]
    namespace, _, name = LONG.partition("/")
    used = {"namespace": namespace, "name": name, "gpuHours": "40.93", "usd": "112.36", "pods": 1}
    model["who"] = {"hours": 24, "gpuHours": "40.93", "pods": 1, "byJob": [used], "byPod": [used]}
    model["released"] = [{"owner": f"Job/{LONG}", "gpus": "8", "usedGpus": "4", "at": since, "until": since}]
    model["refused"] = [{"unit": f"Job/{LONG}", "by": ["vision/stay"], "since": since, "deletedAt": since}]
    model["following"] = {"cluster": "home", "holding": True, "since": since, "stale": True}
    model["stopped"] = [{"unit": f"Job/{LONG}", "action": "Evict", "at": since, "outcome": "Stopped"}]


def box(node: Locator) -> FloatRect:
    found = node.bounding_box()
    assert found is not None
    return found


def test_on_a_phone_a_step_and_since_when_do_not_lie_on_each_other(page: Page, fleet: Served) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    told(page, fleet, BUDGET, full)
    opened(page, fleet.url, f"#/{BUDGET}")
    for step in page.locator(".ladder li").all():
        words, reached = box(step.locator("b")), box(step.locator(".reached"))
        assert reached["y"] >= words["y"] + words["height"] or reached["x"] >= words["x"] + words["width"]
        assert reached["x"] + reached["width"] <= PHONE["width"]
        assert words["height"] < 30, "one line"


@pytest.mark.parametrize("address", [f"#/{BUDGET}", "#/nodes", "#/", "#/resources"])
def test_on_a_phone_every_table_is_cards(page: Page, fleet: Served, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    told(page, fleet, BUDGET, full)
    opened(page, fleet.url, address)
    for numbers in page.locator(".numbers summary:visible").all():
        numbers.click()
        expect(numbers.locator("xpath=..").locator("tbody tr").first).to_be_attached()
    tables = page.locator("table:visible").all()
    assert tables
    for table in tables:
        expect(table.locator("thead")).to_be_hidden()
        caption = table.locator("caption:not(.away)")
        assert not caption.count() or box(caption)["width"] == box(table)["width"]
        cells = table.locator("tbody td:visible").evaluate_all(
            "cells => cells.map(cell => [cell.dataset.title, getComputedStyle(cell, '::before').content])"
        )
        assert cells
        assert [said for _, said in cells] == [json.dumps(title) for title, _ in cells], "each says its column"
    expect(page.locator("table.plain td:empty:visible")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_on_a_phone_names_are_not_broken_into_many_lines(page: Page, fleet: Served) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    told(page, fleet, BUDGET, full)
    opened(page, fleet.url, f"#/{BUDGET}")
    names = page.locator(
        "#who th:visible, #waiting th:visible, #stopped th:visible, #released th:visible, #refused th:visible"
    )
    expect(names).to_have_count(5)
    assert max(box(name)["height"] for name in names.all()) < 60, "two lines at most"


def test_charts_beside_each_other_begin_and_end_on_the_same_lines(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{BUDGET}")
    hours, dollars = box(page.locator("#curve .plot")), box(page.locator("#usd-curve .plot"))
    assert hours["x"] < dollars["x"]
    assert (hours["y"], hours["height"]) == (dollars["y"], dollars["height"])
    assert box(page.locator("#curve"))["height"] == box(page.locator("#usd-curve"))["height"]


def test_the_numbers_of_a_chart_of_dollars_are_dollars(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{BUDGET}")
    page.locator("#usd-curve summary").click()
    page.wait_for_selector("#usd-curve tbody td[data-title=used]")
    cells = page.locator("#usd-curve tbody td[data-title=used]").all_inner_texts()
    assert [each for each in cells if each and not each.startswith("$")] == []
    expect(page.locator("#usd-curve .plot")).to_have_attribute(
        "aria-label", re.compile(r"Now \$[\d.,]+ of \$500\.00\.")
    )


@pytest.mark.parametrize(
    ("marks", "end"),
    [
        ([(50, "now", "now"), (90, "exhausted", "used up")], 100),  # its word fits at the left of its line
        ([(88, "now", "now"), (95, "exhausted", "used up")], None),  # there it would cross the line of now
        ([(88, "now", "now")], 100),
        ([(10, "now", "now"), (15, "exhausted", "used up")], 100),  # it fits at the right
    ],
)
def test_the_word_of_a_mark_has_room(
    page: Page, fleet: Served, marks: list[tuple[int, str, str]], end: int | None
) -> None:
    opened(page, fleet.url)
    given = json.dumps([{"t": at, "kind": kind, "label": label} for at, kind, label in marks])
    found = page.evaluate(f"import('./static/app/chart.js').then(({{ roomFor }}) => roomFor({given}, 0, 100, 500))")
    if end is None:
        at, _, label = marks[-1]
        assert (found - at) / found * 500 >= len(label) * 7
    else:
        assert found == end


@pytest.mark.parametrize("width", [360, 768, 1000, 1280])
@pytest.mark.parametrize("address", ["#/", f"#/{BUDGET}"])
def test_no_tile_stands_alone_beside_nothing(page: Page, fleet: Served, width: int, address: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, fleet.url, address)
    boxes = [box(tile) for tile in page.locator(".tile").all()]
    rows = [[each for each in boxes if each["y"] == top] for top in sorted({each["y"] for each in boxes})]
    ends = {round(max(each["x"] + each["width"] for each in row)) for row in rows}
    assert len(ends) == 1, "every row is filled"
    if width > 640:
        assert min(len(row) for row in rows) > 1

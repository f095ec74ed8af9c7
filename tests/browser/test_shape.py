"""How pages are laid out: nothing lies on something else, nothing stands alone, and tables are cards where there is no room."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from headroom.model.times import HOUR, text
from tests.browser.chromium import opened
from tests.browser.layout import boxes, fits, resized, row_ends
from tests.browser.served import Served
from tests.browser.told import Model, told
from tests.builders import NOON

BUDGET = "budgets/team-a/roomy"
PHONE: ViewportSize = {"width": 360, "height": 740}
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


def test_on_a_phone_a_step_and_since_when_do_not_lie_on_each_other(page: Page, fleet: Served) -> None:
    page.set_viewport_size(PHONE)
    told(page, fleet, BUDGET, full)
    opened(page, fleet.url, f"#/{BUDGET}")
    parts = boxes(page.locator(".ladder li b, .ladder li .reached"))
    assert len(parts) == 4
    for words, reached in zip(parts[::2], parts[1::2], strict=True):
        assert reached.y >= words.bottom or reached.x >= words.right
        assert reached.right <= PHONE["width"]
        assert words.height < 30, "one line"


@pytest.mark.parametrize("address", [f"#/{BUDGET}", "#/nodes", "#/", "#/resources"])
def test_on_a_phone_every_table_is_cards(page: Page, fleet: Served, address: str) -> None:
    page.set_viewport_size(PHONE)
    told(page, fleet, BUDGET, full)
    opened(page, fleet.url, address)
    for numbers in page.locator(".numbers summary:visible").all():
        numbers.click()
        expect(numbers.locator("xpath=..").locator("tbody tr").first).to_be_attached()
    tables = page.locator("table:visible").all()
    assert tables
    for table in tables:
        expect(table.locator("thead")).to_be_hidden()
        wide = {each.width for each in boxes(table.locator("xpath=self::* | caption[not(contains(@class, 'away'))]"))}
        assert len(wide) == 1, "its caption is as wide"
        cells = table.locator("tbody td:visible").evaluate_all(
            "cells => cells.map(cell => [cell.dataset.title, getComputedStyle(cell, '::before').content])"
        )
        assert cells
        assert [said for _, said in cells] == [json.dumps(title) for title, _ in cells], "each says its column"
    expect(page.locator("table.plain td:empty:visible")).to_have_count(0)
    fits(page, PHONE["width"])


def test_on_a_phone_names_are_not_broken_into_many_lines(page: Page, fleet: Served) -> None:
    page.set_viewport_size(PHONE)
    told(page, fleet, BUDGET, full)
    opened(page, fleet.url, f"#/{BUDGET}")
    names = page.locator(
        "#who th:visible, #waiting th:visible, #stopped th:visible, #released th:visible, #refused th:visible"
    )
    expect(names).to_have_count(5)
    assert max(each.height for each in boxes(names)) < 60, "two lines at most"


def test_charts_beside_each_other_begin_and_end_on_the_same_lines(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{BUDGET}")
    fits(page, 1280)
    one, hours, other, dollars = boxes(page.locator("#curve, #curve .plot, #usd-curve, #usd-curve .plot"))
    assert hours.x < dollars.x
    assert (hours.y, hours.height, one.height) == (dollars.y, dollars.height, other.height)


def test_the_numbers_of_a_chart_of_dollars_are_dollars(page: Page, fleet: Served) -> None:
    opened(page, fleet.url, f"#/{BUDGET}")
    page.locator("#usd-curve summary").click()
    page.wait_for_selector("#usd-curve tbody td[data-title=used]")
    cells = page.locator("#usd-curve tbody td[data-title=used]").all_inner_texts()
    assert [each for each in cells if each and not each.startswith("$")] == []
    expect(page.locator("#usd-curve .plot")).to_have_attribute(
        "aria-label", re.compile(r"Now \$[\d.,]+ of \$500\.00\.")
    )


def test_the_word_of_a_mark_has_room(page: Page, fleet: Served) -> None:
    opened(page, fleet.url)

    def ends(*marks: tuple[int, str, str]) -> float:
        given = json.dumps([{"t": at, "kind": kind, "label": label} for at, kind, label in marks])
        script = f"import('./static/app/chart.js').then(({{ roomFor }}) => roomFor({given}, 0, 100, 500))"
        return float(page.evaluate(script))

    assert ends((88, "now", "now")) == 100
    assert ends((50, "now", "now"), (90, "exhausted", "used up")) == 100, "its word fits at the left of its line"
    assert ends((10, "now", "now"), (15, "exhausted", "used up")) == 100, "it fits at the right"
    end = ends((88, "now", "now"), (95, "exhausted", "used up"))
    assert (end - 95) / end * 500 >= len("used up") * 7, "at the left it would cross the line of now"


@pytest.mark.parametrize("address", ["#/", f"#/{BUDGET}"])
def test_no_tile_stands_alone_beside_nothing(page: Page, fleet: Served, address: str) -> None:
    opened(page, fleet.url, address)
    for width in (360, 768, 1000, 1280):
        resized(page, width)
        assert len(row_ends(page)) == 1, width
        rows = Counter(each.y for each in boxes(page.locator(".tile")))
        assert width <= 640 or min(rows.values()) > 1, width

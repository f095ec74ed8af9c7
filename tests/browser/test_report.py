"""The what-if report in a browser: its charts, and the same on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from headroom.cli.simulate import _assets
from headroom.model.times import HOUR
from headroom.sim.whatif.comparing import Comparison
from headroom.sim.whatif.page import page as report_page
from tests.core.stage import a_budget
from tests.sim.test_whatif import a_case, a_work, played

CHART = """() => {
    const canvas = document.querySelector("canvas");
    const axis = getComputedStyle(document.documentElement).getPropertyValue("--soft");
    return [canvas.width / devicePixelRatio, axis.trim(), document.querySelectorAll("canvas").length];
}"""


def test_a_report_is_drawn_again_for_paper(page: Page, tmp_path: Path) -> None:
    works = [a_work(f"job-{number}", at=number * 20, hours=2, deadline=2 * HOUR) for number in range(8)]
    case = a_case(*works, hours=12)
    before, after = played(case), played(case, a_budget(hours="8", enforce="Hold"))
    found = Comparison(case=case, changes=["a budget"], every=1000, before=before, after=after)
    file = tmp_path / "report.html"
    file.write_text(report_page(found, _assets()))
    page.emulate_media(color_scheme="dark")
    page.goto(file.as_uri())
    expect(page.locator("figure")).to_have_count(3)
    screen: list[Any] = page.evaluate(CHART)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    paper = page.evaluate(CHART)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert (screen[0] > 1000, screen[1:], page.evaluate(CHART)) == (True, ["#a3acb7", 3], screen)
    assert paper == [660, "#5b6470", 3]

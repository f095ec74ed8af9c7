"""The dashboard behind its guard: a team sees its own, a stranger nothing, and no credential comes near the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from headroom.adapters.kube.reviews import RequiredRight, Who, key_of
from tests.browser.chromium import PAGES, READY, address_of, opened
from tests.browser.served import Served
from tests.browser.worlds import a_fleet

TOKEN = "made-up-but-secret"


class Judge:
    """Knows one token; its owner may see one namespace and, if so wanted, the nodes."""

    def __init__(self, *, nodes: bool = True) -> None:
        self._nodes = nodes

    async def who(self, token: str) -> Who | None:
        return Who(key_of(token.encode()), "alice") if token == TOKEN else None

    async def allowed(self, who: Who, needs: Iterable[RequiredRight]) -> frozenset[RequiredRight]:
        return frozenset(
            need for need in needs if need.namespace == "team-a" or (self._nodes and need.resource == "nodes")
        )


@pytest.fixture
def guarded(serve: Callable[..., Served]) -> Served:
    return serve(a_fleet(), Judge())


def as_alice(context: BrowserContext) -> None:
    """What `headroom dashboard` does: the credential is added on the way, the page never has it."""
    context.set_extra_http_headers({"Authorization": f"Bearer {TOKEN}"})


def test_a_team_sees_its_own(context: BrowserContext, page: Page, guarded: Served) -> None:
    as_alice(context)
    opened(page, guarded.url)
    expect(page.locator(".lead")).to_contain_text("You see what is in team-a.")
    expect(page.locator("#about")).to_contain_text("Seen as alice")
    expect(page.get_by_role("link", name="team-a/one").first).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("elsewhere")
    opened(page, guarded.url, "#/nodes")
    expect(page.locator("main")).to_contain_text("a pod of another team")
    expect(page.locator("main")).not_to_contain_text("secret")


def test_nodes_are_for_whoever_may_list_them(context: BrowserContext, page: Page, serve: Callable[..., Served]) -> None:
    as_alice(context)
    opened(page, serve(a_fleet(), Judge(nodes=False)).url, "#/nodes")
    expect(page.locator(".lead")).to_contain_text("You may not list nodes")
    expect(page.locator(".node")).to_have_count(0)
    expect(page.locator("#nodes")).to_be_hidden()


def test_what_a_team_may_not_see_is_as_if_it_were_not_there(
    context: BrowserContext, page: Page, guarded: Served, complaints: list[str]
) -> None:
    as_alice(context)
    page.goto(f"{guarded.url}/#/budgets/elsewhere/two")
    expect(page.locator("h1")).to_have_text("There is no budget elsewhere/two, or you may not see it")
    expect(page.locator("main")).not_to_contain_text("Perhaps")
    page.goto(f"{guarded.url}/#/pods/elsewhere/secret")
    expect(page.locator("h1")).to_have_text("There is no pod elsewhere/secret, or you may not see it")
    page.wait_for_selector(READY)  # all but the heading is hidden until then
    guessed = page.locator("main").inner_text()
    page.goto(f"{guarded.url}/#/pods/elsewhere/nonexs")
    expect(page.locator("h1")).to_have_text("There is no pod elsewhere/nonexs, or you may not see it")
    page.wait_for_selector(READY)
    assert page.locator("main").inner_text().replace("nonexs", "secret") == guessed
    page.goto(f"{guarded.url}/#/namespaces/elsewhere")
    expect(page.locator("h1")).to_have_text("There is no namespace elsewhere, or you may not see it")
    complaints.clear()


def test_no_credential_comes_near_any_page(context: BrowserContext, page: Page, guarded: Served) -> None:
    as_alice(context)
    for name in PAGES:
        opened(page, guarded.url, address_of(name, "team-a/one", "team-a/train"))
        kept = page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])")
        assert TOKEN not in page.content() + kept, name
        assert context.cookies() == [], name


def test_a_credential_that_ends_says_so_and_comes_back(
    context: BrowserContext, page: Page, guarded: Served, complaints: list[str]
) -> None:
    as_alice(context)
    opened(page, guarded.url)
    context.set_extra_http_headers({"Authorization": "Bearer another"})
    guarded.stop()
    guarded.start()
    expect(page.locator("#stale")).to_contain_text("Authentication required")
    as_alice(context)
    expect(page.locator("#live")).to_have_text("Live")
    complaints.clear()

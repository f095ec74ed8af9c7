"""The dashboard as `headroom dashboard` shows it: entered with a key that works once, in a folder of its own, with no credential near it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from playwright.sync_api import Page, expect

from headroom.adapters.kube.reviews import RequiredRight, Who, key_of
from headroom.model.errors import Unavailable
from headroom.web.listening import Servers
from headroom.web.relay import Relay
from tests.browser.conftest import Complaints
from tests.browser.served import Served
from tests.browser.worlds import a_fleet

TOKEN = "made-up-but-secret"


class Judge:
    """Knows one token, whose owner sees everything."""

    async def who(self, token: str) -> Who | None:
        return Who(key_of(token.encode()), "alice") if token == TOKEN else None

    async def allowed(self, who: Who, needs: Iterable[RequiredRight]) -> frozenset[RequiredRight]:
        return frozenset(needs)


class Operator:
    """The way to a dashboard, with a token."""

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def answer(self, method: str, path: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        shown = {**headers, "Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            try:
                response = await session.request(method, self._url + path, headers=shown)
            except aiohttp.ClientError as problem:
                raise Unavailable("reaching the operator: nobody is there") from problem
            async with response:
                yield response


class Relayed:
    """A relay before a dashboard, in a thread of its own."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers = Servers()
        self.relay = Relay(Operator(url))
        self._run(self._start())

    async def _start(self) -> None:
        self.relay.port = await self._servers.listen(self.relay.app(), "127.0.0.1:0", "--port")

    def end(self) -> None:
        self._run(self._servers.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve(a_fleet(), Judge())


@pytest.fixture
def relayed(served: Served) -> Iterator[Relayed]:
    made = Relayed(served.url)
    yield made
    made.end()


def test_one_visit_with_the_key_and_the_pages_are_there(relayed: Relayed, page: Page) -> None:
    page.goto(relayed.relay.address)
    expect(page.get_by_role("link", name="team-a/one").first).to_be_visible()
    expect(page).not_to_have_url(re.compile("key"))
    page.get_by_role("link", name="team-a/one").first.click()
    expect(page.locator("main")).to_contain_text("team-a/one")
    page.reload()
    expect(page.locator("main")).to_contain_text("team-a/one")
    expect(page.locator("#about")).to_contain_text("Seen as alice")
    known = page.content() + str(
        page.evaluate("[document.cookie, JSON.stringify(sessionStorage), JSON.stringify(localStorage)]")
    )
    assert TOKEN not in known
    assert page.evaluate("document.cookie") == ""


def test_the_page_goes_on_after_the_operator_was_away(
    relayed: Relayed, page: Page, served: Served, complaints: Complaints
) -> None:
    page.goto(relayed.relay.address)
    expect(page.get_by_role("link", name="team-a/one").first).to_be_visible()
    served.stop()
    expect(page.locator("body")).to_contain_text(
        "The operator does not answer: reaching the operator: nobody is there."
    )
    expect(page.get_by_role("link", name="team-a/one").first).to_be_visible()
    served.start()
    expect(page.locator("body")).not_to_contain_text("nobody is there")
    complaints.clear()  # the browser says that answers were missing

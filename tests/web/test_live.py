"""Live pages: the whole first, then what changed, for as long as somebody looks and may."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.model.errors import Unavailable
from headroom.model.times import HOUR, MINUTE
from headroom.web import editions, live
from headroom.web.access import ACCESS
from headroom.web.live import Streams
from headroom.web.page import Page
from headroom.web.pages import Model, overview
from headroom.web.patching import patch
from headroom.web.scope import EVERYTHING, Scope
from headroom.web.server import main_app
from headroom.web.source import Address, Local, Sheet
from headroom.web.view import OperatorView, Showing
from tests.builders import NOON, a_used_world
from tests.core.stage import a_budget, running
from tests.web.showing import Made, Team, page_at, served

values = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
)
models = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def merged(into: Any, change: Any) -> Any:
    """A merge patch applied, by the letter of RFC 7396."""
    if not isinstance(change, dict):
        return change
    out = dict(into) if isinstance(into, dict) else {}
    for name, value in change.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merged(out.get(name), value)
    return out


@given(models, models)
def test_a_patch_leads_from_one_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = patch(before, after)
    assert merged(before, found) == after
    assert bool(found) == (before != after)


async def events(client: aiohttp.ClientSession, path: str) -> AsyncGenerator[tuple[str, Any], None]:
    """Every event of a stream, as it comes."""
    async with client.get(path) as reply:
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "text/event-stream"
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert reply.headers["Cache-Control"] == "no-store"
        kind = ""
        async for line in reply.content:
            name, _, said = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = said
            elif name == "data":
                yield kind, json.loads(said)


def a_world(used_hours: int, now: int = NOON) -> Any:
    return a_used_world(a_budget(hours="10"), pods=[running("p", used_hours * HOUR)], now=now)


async def test_the_whole_page_comes_first_and_then_what_changed() -> None:
    made = Made(a_world(1))
    async with served(main_app(Local(made.showing()), None)) as client, asyncio.timeout(120):
        async with aclosing(events(client, "/api/live/overview")) as stream:
            kind, page = await anext(stream)
            assert (kind, page["budgets"]["team-a/one"]["consumedGpuHours"]) == ("state", "1")
            made.become(a_world(2))
            while page["budgets"]["team-a/one"]["consumedGpuHours"] != "2":
                kind, change = await anext(stream)
                assert kind == "patch"
                assert "title" not in change
                page = merged(page, change)
        async with client.get("/api/overview") as reply:
            assert (await reply.json())["budgets"] == page["budgets"]


async def test_nothing_is_sent_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SILENCE_SECONDS", 0.01)
    monkeypatch.setattr(live, "ALIVE_SECONDS", 0.05)
    made = Made(a_world(1))
    async with (
        served(main_app(Local(made.showing()), None)) as client,
        asyncio.timeout(120),
        client.get("/api/live/nodes") as reply,
    ):
        seen = [await reply.content.readline() for _ in range(9)]
    assert sum(line.startswith(b"event:") for line in seen) == 1
    assert b": still here\n" in seen


async def test_another_operator_takes_over_in_the_middle_of_a_page() -> None:
    first, second = Made(a_world(1)), Made(a_world(3))
    showing: Showing = first.showing()
    async with (
        served(main_app(Local(showing), None)) as client,
        asyncio.timeout(120),
        aclosing(events(client, "/api/live/budgets/team-a/one")) as stream,
    ):
        _, page = await anext(stream)
        showing.view = second.view()
        while page["budget"]["consumedGpuHours"] != "3":
            page = merged(page, (await anext(stream))[1])


async def test_a_budget_that_goes_says_so() -> None:
    made = Made(a_world(1))
    async with (
        served(main_app(Local(made.showing()), None)) as client,
        asyncio.timeout(120),
        aclosing(events(client, "/api/live/budgets/team-a/one")) as stream,
    ):
        assert (await anext(stream))[0] == "state"
        made.become(a_used_world(now=NOON + MINUTE))
        found = [kind async for kind, _ in stream]
    assert found[-1] == "gone"


def for_a_team(made: Made, team: Any) -> web.Application:
    """An app whose viewer is always the same."""
    app = main_app(Local(made.showing()), None)

    @web.middleware
    async def as_team(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[ACCESS] = team
        return await handler(request)

    app.middlewares.append(as_team)
    return app


@pytest.mark.parametrize("left", [frozenset({"elsewhere"}), frozenset[str]()])
async def test_who_loses_a_right_loses_the_page(left: frozenset[str]) -> None:
    made, team = Made(a_world(1)), Team("team-a")
    async with (
        served(for_a_team(made, team)) as client,
        asyncio.timeout(120),
        aclosing(events(client, "/api/live/budgets/team-a/one")) as stream,
    ):
        assert (await anext(stream))[0] == "state"
        team.sees = Scope(namespaces=left)
        made.bell.ring()
        assert (await anext(stream))[0] == "gone"


async def test_a_stream_ends_when_nobody_can_say_what_may_be_seen() -> None:
    class Silent(Team):
        asked = 0

        async def scope(self) -> Scope:
            self.asked += 1
            if self.asked > 1:
                raise Unavailable("creating a SubjectAccessReview: no answer")
            return self.sees

    made = Made(a_world(1))
    async with served(for_a_team(made, Silent("team-a"))) as client, asyncio.timeout(120):
        found = [kind async for kind, _ in events(client, "/api/live/overview")]
    assert found == ["state"]


def counting(made: Made) -> tuple[web.Application, list[Scope]]:
    """An app, and for whom its first page was made so far."""
    counted, showing, page = list[Scope](), made.showing(), page_at("overview")

    def first(view: OperatorView, scope: Scope) -> Model | None:
        counted.append(scope)
        return page(view, scope)

    showing.pages = (Page("overview", "overview", lambda: first),)
    return main_app(Local(showing), None), counted


async def test_a_page_is_made_once_for_all_who_look_at_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOVING_SECONDS", 0.0)
    made = Made(a_world(1))
    app, counted = counting(made)
    monkeypatch.setattr(editions, "SHOWN_SECONDS", 60.0)
    async with served(app) as client, asyncio.timeout(120):
        for _ in range(5):
            async with client.get("/api/overview") as reply:
                assert reply.status == 200
        assert len(counted) == 1
        monkeypatch.setattr(editions, "SHOWN_SECONDS", 0.0)
        made.become(a_world(2))
        async with client.get("/api/overview") as reply:
            assert (await reply.json())["budgets"]["team-a/one"]["consumedGpuHours"] == "2"


async def test_parameters_that_mean_nothing_make_no_page_anew() -> None:
    made = Made(a_world(1))
    app, counted = counting(made)
    async with served(app) as client, asyncio.timeout(120):
        for number in range(5):
            async with client.get(f"/api/overview?x={number}") as reply:
                assert reply.status == 200
    assert len(counted) < 5


async def test_one_viewer_cannot_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_OF_ONE", 1)
    made = Made(a_world(1))
    async with (
        served(for_a_team(made, Team("team-a"))) as client,
        asyncio.timeout(120),
        aclosing(events(client, "/api/live/overview")) as stream,
    ):
        await anext(stream)
        async with client.get("/api/live/overview") as reply:
            assert (reply.status, "Too many" in (await reply.json())["problem"]) == (503, True)


async def test_a_stream_has_no_head() -> None:
    async with (
        served(main_app(Local(Made(a_world(1)).showing()), None)) as client,
        client.head("/api/live/overview") as reply,
    ):
        assert reply.status == 405


async def test_there_are_only_so_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    made = Made(structs.replace(a_world(1)))
    async with served(main_app(Local(made.showing()), None)) as client, asyncio.timeout(120):
        async with aclosing(events(client, "/api/live/overview")) as stream:
            await anext(stream)
            async with client.get("/api/live/overview") as reply:
                assert reply.status == 503
        for _ in range(3000):
            async with client.get("/api/live/overview") as reply:
                if reply.status == 200:
                    return
            await asyncio.sleep(0.02)
    pytest.fail("a stream that was closed still counts")


class Dear(Local):
    """The operator, whose pages take as long as a test says."""

    asked, took, rest = 0, 0.0, 0.0

    async def make(self, address: Address, scope: Scope) -> Sheet:
        self.asked += 1
        return structs.replace(await super().make(address, scope), took=self.took, rest=self.rest)


def test_a_page_is_followed_by_nine_times_as_long_without_one() -> None:
    sheet = Local(Made(a_world(1)).showing()).made(("overview",), EVERYTHING)
    assert sheet.took > 0
    assert sheet.rest == 9 * sheet.took


def test_a_page_that_waits_for_a_busy_processor_is_not_dear() -> None:
    """Else it would not be made anew for ten times as long as it waited."""
    showing = Made(a_world(1)).showing()

    def waits(view: OperatorView, scope: Scope) -> Model | None:
        time.sleep(0.5)
        return {}

    showing.pages = (Page("overview", "overview", lambda: waits),)
    assert Local(showing).made(("overview",), EVERYTHING).took < 0.25


async def test_nobody_has_a_page_made_while_the_operator_is_left_alone() -> None:
    source = Dear(Made(a_world(1)).showing())
    source.rest = 1e6
    streams = Streams(source)
    await streams.made(("overview",), EVERYTHING, "ann")
    another = asyncio.create_task(streams.made(("nodes",), EVERYTHING, "bob"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (source.asked, another.done()) == (1, False)
    another.cancel()


async def test_a_page_that_was_dear_is_shown_again_though_there_is_news() -> None:
    made = Made(a_world(1))
    source = Dear(made.showing())
    source.took = 1e6
    streams = Streams(source)
    first = await streams.made(("overview",), EVERYTHING, "ann")
    made.become(a_world(2))
    assert await streams.made(("overview",), EVERYTHING, "bob") is first
    assert source.asked == 1


def test_news_is_shown_at_once_and_rows_that_only_moved_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOVING_SECONDS", 0.0)
    monkeypatch.setattr(overview, "MOST_MOVED", 3)
    monkeypatch.setattr(overview, "MOVED_SECONDS", 0.0)
    monkeypatch.setattr(overview, "LATEST_SECONDS", math.inf)
    teams = [f"team-{number}" for number in range(8)]
    budgets = [structs.replace(a_budget(hours="10"), namespace=each) for each in teams]
    pods, new = [running(each, HOUR, namespace=each) for each in teams], running("new", 0, namespace="team-7")
    made, page = Made(a_used_world(*budgets, pods=pods)), page_at("overview")
    seen = [(page(made.view(), EVERYTHING) or {})["budgets"]]
    for step in range(1, 5):
        made.become(a_used_world(*budgets, pods=[*pods, new], now=NOON + step * MINUTE))
        seen.append((page(made.view(), EVERYTHING) or {})["budgets"])
    moved = [{name for name in after if after[name] != before[name]} for before, after in itertools.pairwise(seen)]
    assert moved[0] == {"team-7/one"}, "a pod more is news"
    assert [len(each) for each in moved] == [1, 3, 3, 3]
    assert set().union(*moved) == {f"{each}/one" for each in teams}, "whoever waits longest comes first"

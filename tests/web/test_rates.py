"""Fair shares: by tenant, whatever its tokens and accounts are called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from headroom.model.errors import Unavailable
from headroom.web import live, rates
from headroom.web.access import ACCESS
from headroom.web.rates import Allowance, Turns, one_to_close, tenant_of
from headroom.web.scope import EVERYTHING, Scope
from headroom.web.server import main_app
from headroom.web.source import Address, Local, Sheet
from tests.web.showing import Made, served
from tests.web.test_live import a_world, events


def test_accounts_of_one_namespace_are_one_tenant() -> None:
    named = ("system:serviceaccount:lab:a", "system:serviceaccount:lab:b", "system:serviceaccount:lab2:a", "ann", "lab")
    assert len({tenant_of(each) for each in named}) == 4
    assert tenant_of(named[0]) == tenant_of(named[1])


def test_an_allowance_is_used_up_and_comes_back() -> None:
    now = [0.0]
    allowance = Allowance(lambda: now[0])
    assert [allowance.take("ann") for _ in range(100)] == [0.0] * 100
    assert allowance.take("ann") == pytest.approx(0.1)
    assert allowance.take("bob") == 0.0
    now[0] = 1.0
    assert [allowance.take("ann", 5.0) for _ in range(2)] == [0.0, 0.0]
    assert allowance.take("ann", 5.0) > 0
    now[0] = 1e6
    assert [allowance.take("ann") for _ in range(101)].count(0.0) == 100


def test_only_so_many_tenants_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_TENANTS", 3)
    allowance = Allowance(lambda: 0.0)
    for number in range(10):
        allowance.take(str(number))
    assert len(allowance._left) == 3


async def test_who_asks_much_waits_no_less_than_who_asks_once() -> None:
    turns, order = Turns(), list[str]()

    async def one(tenant: str) -> None:
        async with turns.turn(tenant):
            order.append(tenant)

    async with asyncio.timeout(120):
        async with turns.turn("first"):
            waiting = [asyncio.create_task(one("greedy")) for _ in range(20)]
            await asyncio.sleep(0)
            waiting.append(asyncio.create_task(one("modest")))
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
    assert order.index("modest") <= 1
    assert len(order) == 21


async def test_who_gives_up_waiting_hands_the_turn_on() -> None:
    turns = Turns()

    async def one() -> None:
        async with turns.turn("ann"):
            pass

    async with asyncio.timeout(120):
        async with turns.turn("first"):
            waiting = [asyncio.create_task(one()) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await one()


async def test_one_tenant_may_not_wait_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_WAITING", 2)
    turns = Turns()
    async with asyncio.timeout(120), turns.turn("ann"):
        waiting = [asyncio.create_task(turns._wait("ann")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="too many of your requests"):
            await turns._wait("ann")
    await asyncio.sleep(0.01)
    for task in waiting:
        task.cancel()


@pytest.mark.parametrize(
    ("streams", "tenant", "closed"),
    [
        ("aaab", "c", 2),
        ("aaab", "b", 2),
        ("aab", "b", None),
        ("ab", "c", None),
        ("aabb", "c", 3),
        ("", "c", None),
    ],
)
def test_who_has_most_gives_one_up(streams: str, tenant: str, closed: int | None) -> None:
    assert one_to_close(enumerate(streams), tenant) == closed


class Somebody:
    """A viewer who says who they are in a header, as a test's API server would."""

    def __init__(self, name: str) -> None:
        self.name, self.tenant = name, tenant_of(name)

    async def scope(self) -> Scope:
        return EVERYTHING


def for_anybody(source: Any, seen: Callable[[str], None] = lambda _: None) -> web.Application:
    """An app that believes everybody, and says who asks."""
    app = main_app(source, None)

    @web.middleware
    async def named(request: web.Request, handler: Handler) -> web.StreamResponse:
        user = request.headers.get("X-User", "nobody")
        request[ACCESS] = Somebody(user)
        seen(user)
        return await handler(request)

    app.middlewares.append(named)
    return app


def by(user: str) -> dict[str, str]:
    return {"X-User": user}


async def test_a_search_for_the_sake_of_searching_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "PER_SECOND", 0.001)  # however long the searches take
    async with served(for_anybody(Local(Made(a_world(1)).showing()))) as client, asyncio.timeout(120):
        found = []
        for number in range(40):
            account = f"system:serviceaccount:lab:{number}"
            async with client.get(f"/api/decisions?q=x{number}", headers=by(account)) as reply:
                found.append(reply.status)
                if reply.status == 429:
                    assert int(reply.headers["Retry-After"]) >= 1
                    assert "Too many requests" in (await reply.json())["problem"]
        assert found == [200] * 20 + [429] * 20
        async with client.get("/api/decisions?q=mine", headers=by("ann")) as reply:
            assert reply.status == 200


async def test_metrics_are_not_asked_for_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "PER_SECOND", 0.001)  # however long they take
    async with served(for_anybody(Local(Made(a_world(1)).showing()))) as client, asyncio.timeout(120):
        found = [(await client.get("/metrics", headers=by("greedy"))).status for _ in range(30)]
        assert found[0] == 200
        assert found[-1] == 429
        assert (await client.get("/metrics", headers=by("prometheus"))).status == 200


async def test_many_accounts_of_one_namespace_share_the_streams_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_OF_ONE", 2)
    async with (
        served(for_anybody(Local(Made(a_world(1)).showing()))) as client,
        asyncio.timeout(120),
        AsyncExitStack() as open_streams,
    ):
        found = []
        for number in range(4):
            reply = await open_streams.enter_async_context(
                client.get("/api/live/overview", headers=by(f"system:serviceaccount:lab:{number}"))
            )
            found.append(reply.status)
        assert found == [200, 200, 503, 503]
        reply = await open_streams.enter_async_context(
            client.get("/api/live/overview", headers=by("system:serviceaccount:lab2:a"))
        )
        assert reply.status == 200


async def test_a_newcomer_gets_a_place_of_whoever_has_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 3)
    app = for_anybody(Local(Made(a_world(1)).showing()))
    async with served(app) as client, asyncio.timeout(120), AsyncExitStack() as open_streams:
        greedy = [
            await open_streams.enter_async_context(client.get("/api/live/nodes", headers=by("greedy")))
            for _ in range(3)
        ]
        reply = await open_streams.enter_async_context(client.get("/api/live/nodes", headers=by("ann")))
        assert reply.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await greedy[-1].content.read()
        again = await open_streams.enter_async_context(client.get("/api/live/nodes", headers=by("greedy")))
        assert again.status == 503


async def test_a_page_that_takes_long_keeps_nobody_else_waiting_for_more_than_one() -> None:
    order = list[str]()
    arrived = asyncio.Event()

    class Slow(Local):
        async def make(self, address: Address, scope: Scope) -> Sheet:
            order.append(str(address[0]))
            await self._take_long()
            return await super().make(address, scope)

        async def make_together(self, addresses: Sequence[Address], scope: Scope) -> dict[Address, Sheet]:
            order.extend(str(each[0]) for each in addresses)
            await self._take_long()
            return await super().make_together(addresses, scope)

        async def _take_long(self) -> None:
            """The second page: until the other one has come."""
            if len(order) == 2:
                await arrived.wait()

    def seen(user: str) -> None:
        if user == "ann":
            arrived.set()

    made = Made(a_world(1))
    async with (
        served(for_anybody(Slow(made.showing()), seen)) as client,
        asyncio.timeout(120),
        asyncio.TaskGroup() as asking,
    ):

        async def search(number: int) -> None:
            async with client.get(f"/api/decisions?q=x{number}", headers=by("greedy")) as reply:
                await reply.read()

        for number in range(15):
            asking.create_task(search(number))
        while len(order) < 2:  # noqa: ASYNC110  nothing tells a test when
            await asyncio.sleep(0.001)
        async with client.get("/api/overview", headers=by("ann")) as reply:
            assert reply.status == 200
        assert order.index("overview") <= 4


async def test_a_stream_goes_on_while_somebody_searches() -> None:
    made = Made(a_world(1))
    async with (
        served(for_anybody(Local(made.showing()))) as client,
        asyncio.timeout(120),
        aclosing(events(client, "/api/live/overview")) as stream,
    ):
        assert (await anext(stream))[0] == "state"
        searching = asyncio.gather(*(client.get(f"/api/decisions?q={n}", headers=by("greedy")) for n in range(15)))
        made.become(a_world(2))
        while "budgets" not in (await anext(stream))[1]:
            pass
        for reply in await searching:
            reply.release()

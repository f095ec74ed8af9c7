"""Faults strike whom, what and when their data say, and the same seed strikes the same blows."""

import asyncio
import json
from typing import Any

import pytest

from headroom.adapters.kube.transport import StreamRefused
from headroom.model.errors import Misconfigured, Unavailable
from headroom.sim.apiserver import ApiServer
from headroom.sim.connection import SimTransport
from headroom.sim.faults import Crash, Faults, fault, split
from tests.sim.world import MAPS, START, ask, config_map, read, simulated


def disturbed(server: ApiServer, *documents: dict[str, Any], actor: str = "operator-1", seed: int = 0) -> SimTransport:
    faults = Faults(server.clock, START, seed, [fault(each) for each in documents])
    return server.transport(actor=actor, faults=faults)


async def names(server: ApiServer) -> list[str]:
    return [each["metadata"]["name"] for each in read(await ask(server.transport(), "GET", MAPS))["items"]]


def test_a_lost_reply_has_its_effect() -> None:
    async def work(server: ApiServer) -> list[str]:
        client = disturbed(server, {"type": "LostReply", "verb": "create", "nth": 2})
        await ask(client, "POST", MAPS, config_map("a"))
        with pytest.raises(Unavailable, match="the reply was lost"):
            await ask(client, "POST", MAPS, config_map("b"))
        await ask(client, "POST", MAPS, config_map("c"))
        return await names(server)

    assert simulated(work) == ["a", "b", "c"]


def test_a_refusal_has_no_effect_and_says_when_to_come_back() -> None:
    async def work(server: ApiServer) -> list[str]:
        client = disturbed(server, {"type": "Refusal", "status": 429, "retryAfter": 3, "times": 1})
        reply = await ask(client, "POST", MAPS, config_map("a"))
        assert (reply.status, reply.headers["retry-after"]) == (429, "3")
        assert read(reply)["reason"] == "TooManyRequests"
        stream = disturbed(server, {"type": "Refusal", "status": 403}).stream(MAPS, query={}, idle=5)
        with pytest.raises(StreamRefused):
            await anext(aiter(stream))
        return await names(server)

    assert simulated(work) == []


@pytest.mark.parametrize(("kind", "left"), [("CrashBefore", []), ("CrashAfter", ["a"])])
def test_a_crash_ends_the_client_for_good(kind: str, left: list[str]) -> None:
    async def work(server: ApiServer) -> list[str]:
        client = disturbed(server, {"type": kind, "actor": "operator-*", "verb": "create"})
        stream = aiter(client.stream(MAPS, query={"resourceVersion": "0"}, idle=60))
        died: list[str] = []
        client.on_crash = lambda: died.append("yes")

        async def listen() -> None:
            async for _ in stream:
                pass

        listener = asyncio.create_task(listen())
        await asyncio.sleep(0)
        with pytest.raises(Crash):
            await ask(client, "POST", MAPS, config_map("a"))
        with pytest.raises(Crash):
            await ask(client, "POST", MAPS, config_map("b"))
        with pytest.raises(Crash):
            await listener
        assert died == ["yes"]
        return await names(server)

    assert simulated(work) == left


def test_an_outage_has_a_beginning_and_an_end_and_breaks_streams() -> None:
    async def work(server: ApiServer) -> None:
        client = disturbed(server)
        client._faults.add(fault({"type": "Outage", "from": "10s", "until": "20s"}))
        assert (await ask(client, "GET", MAPS)).status == 200
        with pytest.raises(Unavailable, match="broke"):
            async for _ in client.stream(MAPS, query={}, idle=60):
                pass
        assert server.clock.now() == START + 10_000
        with pytest.raises(Unavailable, match="cannot be reached"):
            await ask(client, "GET", MAPS)
        await server.clock.sleep(10)
        assert (await ask(client, "GET", MAPS)).status == 200

    simulated(work)


async def heard(server: ApiServer, client: SimTransport, count: int) -> list[tuple[int, str]]:
    """When which events arrive, of three objects that are made one second apart."""

    async def make() -> None:
        for name in "abc":
            await server.clock.sleep(1)
            await ask(server.transport(), "POST", MAPS, config_map(name))

    maker = asyncio.create_task(make())
    found = []
    try:
        async for line in client.stream(MAPS, query={"resourceVersion": "0"}, idle=30):
            found.append((server.clock.now() - START, str(json.loads(line)["object"]["metadata"]["name"])))
            if len(found) == count:
                break
    finally:
        await maker
    return found


@pytest.mark.parametrize(
    ("document", "events"),
    [
        ({"type": "WatchDelay", "ms": 5000}, [(6000, "a"), (7000, "b"), (8000, "c")]),
        ({"type": "StaleView", "until": "10s"}, [(10_000, "a"), (10_000, "b"), (10_000, "c")]),
        ({"type": "Duplicate", "nth": 2}, [(1000, "a"), (2000, "b"), (2000, "b"), (3000, "c")]),
        ({"type": "WatchDelay", "ms": 5000, "path": "*/pods"}, [(1000, "a"), (2000, "b"), (3000, "c")]),
    ],
)
def test_a_view_can_be_late_stale_or_doubled(document: dict[str, Any], events: list[tuple[int, str]]) -> None:
    assert simulated(lambda server: heard(server, disturbed(server, document), len(events))) == events


def test_a_stream_can_break_or_fall_silent() -> None:
    async def breaks(server: ApiServer) -> None:
        with pytest.raises(Unavailable, match="broke"):
            await heard(server, disturbed(server, {"type": "DroppedStream", "nth": 2}), 9)
        assert server.clock.now() == START + 3000

    async def silent(server: ApiServer) -> None:
        client = disturbed(server)
        server.clock.call_later(1.5, lambda: client._faults.add(fault({"type": "BlackHole"})))
        with pytest.raises(Unavailable, match="nothing was received for 30s"):
            await heard(server, client, 9)
        assert server.clock.now() == START + 31_000
        assert len(await heard_again(client)) == 3  # a new stream is not struck

    async def heard_again(client: SimTransport) -> list[bytes]:
        query = {"resourceVersion": "0", "timeoutSeconds": "1"}
        return [line async for line in client.stream(MAPS, query=query, idle=5)]

    simulated(breaks)
    simulated(silent)


def test_history_can_expire_under_a_request() -> None:
    async def work(server: ApiServer) -> str:
        await ask(server.transport(), "POST", MAPS, config_map("a"))
        client = disturbed(server, {"type": "Expire", "verb": "watch"})
        line = await anext(aiter(client.stream(MAPS, query={"resourceVersion": "2"}, idle=5)))
        return str(json.loads(line)["object"]["reason"])

    assert simulated(work) == "Expired"


def test_a_slow_server_is_too_late_for_an_impatient_client() -> None:
    async def work(server: ApiServer) -> list[str]:
        client = disturbed(server, {"type": "Slow", "ms": 5000})
        assert (await ask(client, "POST", MAPS, config_map("a"))).status == 201
        body = json.dumps(config_map("b")).encode()
        with pytest.raises(Unavailable, match="no reply within 2s"):
            await client.request("POST", MAPS, body=body, timeout=2)
        assert server.clock.now() == START + 7000
        return await names(server)

    assert simulated(work) == ["a", "b"]


def test_chance_is_the_same_for_the_same_seed_and_each_actor_has_its_own() -> None:
    def blows(actor: str, seed: int) -> list[int]:
        async def work(server: ApiServer) -> list[int]:
            client = disturbed(server, {"type": "Refusal", "status": 500, "probability": 0.3}, actor=actor, seed=seed)
            return [(await ask(client, "GET", MAPS)).status for _ in range(100)]

        return simulated(work)

    assert blows("a", 1) == blows("a", 1)
    assert blows("a", 1) != blows("b", 1)
    assert blows("a", 1) != blows("a", 2)
    assert 10 < blows("a", 1).count(500) < 50
    assert split(1, "x").random() == split(1, "x").random()


def test_what_happened_is_noted_and_healing_ends_it() -> None:
    async def work(server: ApiServer) -> None:
        client = disturbed(server, {"type": "Refusal"})
        await ask(client, "GET", MAPS)
        assert client._faults.happened == [(START, "operator-1", "Refusal")]
        client._faults.clear()
        assert (await ask(client, "GET", MAPS)).status == 200

    simulated(work)


@pytest.mark.parametrize(
    "document",
    [
        {"type": "Nonsense"},
        {"type": "Slow"},
        {"type": "Outage", "until": "soon"},
        {"type": "Outage", "x": 1},
        {"type": "StaleView"},
        [],
    ],
)
def test_a_fault_that_is_none_is_refused_with_a_reason(document: object) -> None:
    with pytest.raises(Misconfigured, match="reading a fault"):
        fault(document)

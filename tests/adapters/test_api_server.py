"""The API server by all its numbers: none of them is called on a resource's word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.egress import Guard, NoAnswer, Request, entries, target_of
from headroom.adapters.kube.api_server import VARIABLE, ApiServerNumbers
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.transport import Reply
from headroom.model.errors import Refused
from tests.runtime.fakes import HandClock

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


class Server:
    """An API server that says where it is."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {
            SERVICE: {"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]}},
            SLICE: {"endpoints": [{"addresses": ["10.0.0.10"]}, {"addresses": ["10.0.0.11", "fd00::b"]}]},
        }

    async def request(self, method: str, path: str, **_: Any) -> Reply:
        assert method == "GET"
        if self.said[path] is None:
            return Reply(403, json.dumps({"message": "no", "reason": "Forbidden"}).encode())
        return Reply(200, json.dumps(self.said[path]).encode())

    def stream(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        raise AssertionError("nothing is watched here")

    async def close(self) -> None:
        pass


async def refused(guard: Guard, number: str) -> bool:
    host = f"[{number}]" if ":" in number else number
    try:
        await guard._checked(target_of(f"http://{host}/"))
    except Refused as why:
        return "the API server" in str(why)
    return False


@pytest.fixture
def guard() -> Guard:
    return Guard(entries("http://0.0.0.0/0,http://[::]/0"), api_server="https://10.0.0.9:6443")


async def test_every_number_of_the_api_server_is_refused(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "10.96.0.2")
    server, told = Server(), list[str]()
    numbers = ApiServerNumbers(Kube(server, HandClock()), guard.protect, told.append)
    assert not await refused(guard, "10.0.0.10")
    await numbers.look()
    for number in ("10.0.0.9", "10.96.0.1", "10.96.0.2", "fd00::1", "10.0.0.10", "10.0.0.11", "fd00::b"):
        assert await refused(guard, number), number
    assert not await refused(guard, "10.0.0.12")
    server.said[SLICE] = {"endpoints": [{"addresses": ["10.0.0.12"]}]}
    await numbers.look()
    assert await refused(guard, "10.0.0.12")
    assert not told


@pytest.mark.parametrize("said", [None, [], {"endpoints": [{"addresses": 7}]}])
async def test_what_was_known_holds_while_it_cannot_be_read(guard: Guard, said: Any) -> None:
    server, told = Server(), list[str]()
    numbers = ApiServerNumbers(Kube(server, HandClock()), guard.protect, told.append)
    await numbers.look()
    server.said[SLICE] = said
    for _ in range(2):
        await numbers.look()
    assert await refused(guard, "10.0.0.10")
    assert len(told) == 1


@pytest.mark.parametrize("interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"])
async def test_a_flood_of_interim_answers_ends_the_call(interim: bytes) -> None:
    sent = [0]

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(interim * 100)
                sent[0] += 100
                await writer.drain()
        except OSError:
            writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    guard = Guard(entries(f"http://127.0.0.1:{port}"))
    async with asyncio.timeout(120), server:
        with pytest.raises(NoAnswer, match="broke"):
            await guard.call(Request(url=f"http://127.0.0.1:{port}/"), 600)
    assert sent[0] * len(interim) < 5_000_000
    guard.close()


async def test_a_few_interim_answers_are_fine() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\non")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    guard = Guard(entries(f"http://127.0.0.1:{port}"))
    async with asyncio.timeout(120), server:
        found = await guard.call(Request(url=f"http://127.0.0.1:{port}/"), 20)
    assert (found.status, found.body) == (200, b"on")
    guard.close()

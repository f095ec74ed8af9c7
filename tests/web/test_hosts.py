"""Which names lead to a server on the loopback: its own, and none that only looks like them or leads there."""

from __future__ import annotations

import asyncio

import pytest

from headroom.web.hosts import is_loopback, parsed
from headroom.web.listening import Servers
from headroom.web.server import main_app
from headroom.web.source import Local
from tests.web.showing import Made
from tests.web.test_live import a_world

OURS = ["127.0.0.1", "127.0.0.1:8443", "127.8.9.1:1", "localhost", "LocalHost:80", "[::1]", "[::1]:8443", "[0:0::1]:1"]
OTHERS = [
    "127.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1.",
    "127.1",
    "0127.0.0.1",
    "2130706433",
    "0x7f000001",
    "127.0.0.1@evil.example",
    "evil.example@127.0.0.1",
    "user:word@localhost",
    "localhost.",
    "localhost.evil.example",
    "evil.localhost",
    "localtest.me",
    "evil.example:127",
    "127.0.0.1:",
    "127.0.0.1:99999",
    "127.0.0.1:80:80",
    "localhost:x",
    "localhost/",
    "localhost ",
    "localhost,evil.example",
    "::1",
    "[::1",
    "[::ffff:127.0.0.1]",
    "[::]",
    "[::1%25lo]",
    "0.0.0.0",
    "10.0.0.1",
    "１２７.0.0.1",
    "",
]


@pytest.mark.parametrize("host", OURS)
def test_names_of_the_loopback(host: str) -> None:
    found = parsed(host)
    assert found is not None
    assert is_loopback(found[0])


@pytest.mark.parametrize("host", OTHERS)
def test_names_that_only_look_like_it(host: str) -> None:
    found = parsed(host)
    assert found is None or not is_loopback(found[0])


async def _status(port: int, said: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    line = await reader.readline()
    writer.transport.abort()
    return line.split()[1]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"200"),
        (b"GET /api/overview HTTP/1.1\r\nHost: 127.evil.example\r\n\r\n", b"403"),
        (b"GET /api/overview HTTP/1.1\r\nHost: \r\n\r\n", b"403"),
        (b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n", b"40"),
        (b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", b"40"),
        (b"GET http://evil.example/api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"403"),
        (b"GET http://127.0.0.1/api/overview HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
        (b"GET /api/overview HTTP/1.0\r\n\r\n", b"403"),
        (b"GET /metrics HTTP/1.1\r\nHost: 127.evil.example\r\n\r\n", b"403"),
        (b"GET /static/icon.svg HTTP/1.1\r\nHost: localtest.me\r\n\r\n", b"403"),
    ],
)
async def test_a_request_must_name_the_loopback_once(said: bytes, status: bytes) -> None:
    servers = Servers()
    port = await servers.listen(main_app(Local(Made(a_world(1)).showing()), None), "127.0.0.1:0", "x")
    async with asyncio.timeout(120):
        assert (await _status(port, said)).startswith(status)
    await servers.close()

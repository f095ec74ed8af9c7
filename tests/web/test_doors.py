"""The door: slow, idle, many and greedy clients, and whoever just wants an answer meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from headroom.web import certificate, doors
from headroom.web.addresses import bound
from headroom.web.doors import Door, Limits, in_door, peer_of
from headroom.web.listening import Servers

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n"
WHOLE = HALF + b"\r\n"
QUICK = Limits(request_seconds=0.2, reading_seconds=0.2)
LARGE = 20_000_000


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _large(_: web.Request) -> web.Response:
    return web.Response(body=bytes(LARGE))


async def _forever(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(bytes(100_000))
        await asyncio.sleep(0.001)


class House:
    """A server behind a door."""

    def __init__(self, door: Door, port: int) -> None:
        self.door, self.port = door, port

    async def come(self, said: bytes = b"", by: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client, which has said something already."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(by, 0), limit=2**16)
        writer.write(said)
        return reader, writer

    async def ask(self, said: bytes = WHOLE, by: str = "127.0.0.1") -> bytes:
        """What an honest client gets."""
        reader, writer = await self.come(said, by)
        answer = await reader.readuntil(b"\r\n")
        writer.transport.abort()
        return answer

    async def holds(self, count: int) -> None:
        """Until so many connections are open."""
        while len(self.door._open) != count:  # noqa: ASYNC110  nothing tells a test when
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def house(limits: Limits, tls: ssl.SSLContext | None = None) -> AsyncIterator[House]:
    app = web.Application(middlewares=[in_door])
    app.add_routes([web.get("/", _hello), web.get("/large", _large), web.get("/forever", _forever)])
    servers, listening = Servers(), bound("127.0.0.1:0", "x")
    port = listening[0].getsockname()[1]
    door = await servers.serve(app, listening, tls, limits)
    try:
        async with asyncio.timeout(120):
            yield House(door, port)
    finally:
        await servers.close()


async def gone(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed; whatever it said before does not matter."""
    with contextlib.suppress(ConnectionError):  # a reset is an end too
        while await reader.read(65536):
            pass
    return True


@pytest.mark.parametrize(
    "said", [b"", b"GET", HALF, WHOLE, WHOLE + HALF], ids=["silent", "word", "half", "idle", "second"]
)
async def test_who_sends_no_whole_request_in_time_is_closed(said: bytes) -> None:
    async with house(QUICK) as here:
        reader, writer = await here.come(said)
        assert await gone(reader)
        await here.holds(0)
        writer.close()


async def test_headers_that_trickle_do_not_count_as_a_request() -> None:
    async with house(QUICK) as here:
        reader, writer = await here.come(b"GET / HTTP/1.1\r\n")
        closing = asyncio.create_task(gone(reader))
        while not closing.done():
            writer.write(b"X-A: b\r\n")
            await asyncio.sleep(0.02)
        await here.holds(0)
        writer.close()


async def test_a_handshake_that_does_not_end_is_closed() -> None:
    async with house(QUICK, certificate.context("", "", ())) as here:
        for said in (b"", b"\x16\x03\x01\x02\x00", WHOLE):
            reader, writer = await here.come(said)
            assert await gone(reader)
            writer.close()
        await here.holds(0)


async def test_a_body_is_not_waited_for() -> None:
    async with house(Limits()) as here:
        said = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999999\r\n\r\n"
        reader, writer = await here.come(said)
        assert b"405" in await reader.readuntil(b"\r\n")
        assert await gone(reader)
        writer.close()


@pytest.mark.parametrize("path", [b"/large", b"/forever"])
async def test_who_does_not_read_the_answer_is_closed(path: bytes) -> None:
    async with house(QUICK) as here:
        _, writer = await here.come(WHOLE.replace(b"/ ", path + b" ", 1))
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket, which reads too
        await here.holds(1)
        await here.holds(0)
        writer.transport.abort()


async def test_requests_one_after_the_other_without_waiting_are_not_hoarded() -> None:
    async with house(QUICK) as here:
        reader, writer = await here.come(WHOLE.replace(b"/ ", b"/forever ", 1))
        await reader.readuntil(b"\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # its public end is the writer
        sent = 0
        while here.door._open and not writer.transport.is_closing():
            if writer.transport.get_write_buffer_size() < 1_000_000:
                writer.write(WHOLE * 1000)
                sent += 1000
            await asyncio.sleep(0.005)
        # What the kernel and the library take in between is a few hundred kilobytes, not all that is sent.
        assert writer.transport.get_write_buffer_size() > 0 or sent < 100_000
        writer.transport.abort()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-A: " + b"b" * 20_000 + b"\r\n\r\n", b"400"),
        (b"GET /" + b"b" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 500 + b"\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (
            WHOLE[:-2] + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n",
            b"200",
        ),
    ],
    ids=["long header", "long line", "many headers", "http2", "h2c"],
)
async def test_what_is_not_plain_http_is_refused_without_a_word_in_the_log(
    said: bytes, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(QUICK) as here:
        assert answer in await here.ask(said)
        await here.holds(0)
    assert not caplog.records


async def test_with_no_place_left_whoever_waited_longest_makes_room() -> None:
    async with house(Limits(connections=5, of_one_peer=5)) as here:
        slow = [await here.come(HALF) for _ in range(50)]
        assert b"200" in await here.ask()
        assert all([await gone(reader) for reader, _ in slow[:40]])
        await here.holds(4)
        for _, writer in slow:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("limits", "left"),
    [(Limits(connections=5, of_one_peer=100), 5), (Limits(connections=100, of_one_peer=3), 9)],
    ids=["in all", "of one peer"],
)
async def test_each_limit_holds_by_itself(limits: Limits, left: int) -> None:
    async with house(limits) as here:
        crowd = [await here.come(HALF, by=f"127.0.0.{2 + number % 3}") for number in range(60)]
        await here.holds(left)
        assert here.door.refused == 60 - left
        for _, writer in crowd:
            writer.transport.abort()


async def test_one_peer_makes_room_for_itself_only() -> None:
    async with house(Limits(connections=10, of_one_peer=5)) as here:
        reader, honest = await here.come(HALF, by="127.0.0.2")
        await here.holds(1)
        flood = [await here.come(HALF) for _ in range(50)]
        await gone(flood[40][0])
        honest.write(b"\r\n")
        assert b"200" in await reader.readuntil(b"\r\n")
        for writer in (honest, *(each for _, each in flood)):
            writer.transport.abort()


async def test_a_crowd_of_few_addresses_makes_room_at_its_own_cost() -> None:
    async with house(Limits(connections=9, of_one_peer=5)) as here:
        reader, honest = await here.come(HALF, by="127.0.0.2")
        await here.holds(1)
        crowd = [await here.come(HALF, by=f"127.0.0.{3 + number % 3}") for number in range(60)]
        await gone(crowd[30][0])
        honest.write(b"\r\n")
        assert b"200" in await reader.readuntil(b"\r\n")
        for writer in (honest, *(each for _, each in crowd)):
            writer.transport.abort()


async def test_a_request_that_is_being_answered_keeps_its_place() -> None:
    async with house(Limits(connections=2, of_one_peer=2)) as here:
        streams = [await here.come(WHOLE.replace(b"/ ", b"/forever ", 1)) for _ in range(2)]
        for reader, _ in streams:
            await reader.readuntil(b"\r\n")
        writer = streams[0][1]
        with contextlib.suppress(ConnectionError):  # it may be turned away before it has said a word
            late, writer = await here.come(HALF)
            assert await gone(late)
        assert here.door.refused == 1
        assert len(await streams[0][0].readexactly(1_000_000)) == 1_000_000
        for each in (writer, *(each for _, each in streams)):
            each.transport.abort()


@pytest.mark.parametrize("has_tls", [False, True])
async def test_thousands_that_come_and_go_leave_nothing_behind(has_tls: bool) -> None:
    async with house(
        Limits(connections=20, of_one_peer=20), certificate.context("", "", ()) if has_tls else None
    ) as here:
        for _ in range(20):
            churn = [await here.come(HALF) for _ in range(50)]
            for _, writer in churn:
                writer.transport.abort()
            assert len(here.door._open) <= 20
        await here.holds(0)
        assert not here.door._of_peer
        assert not here.door._waiting


class Exhausted:
    """A socket that listens, in a process that has no descriptors left for now."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner, self.is_over, self.asked = inner, False, 0

    def accept(self) -> object:
        self.asked += 1
        if not self.is_over:
            raise OSError(24, "Too many open files")
        return self._inner.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


async def test_without_descriptors_it_rests_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "REST_SECONDS", 1e6)
    app = web.Application(middlewares=[in_door])
    app.add_routes([web.get("/", _hello)])
    servers, listening = Servers(), bound("127.0.0.1:0", "x")
    stubborn = Exhausted(listening[0])
    limits = Limits(request_seconds=1e6)
    door = await servers.serve(app, [stubborn], limits=limits)  # type: ignore[list-item]  # a socket in all that is used
    here = House(door, listening[0].getsockname()[1])
    async with asyncio.timeout(120):
        stubborn.is_over = True
        slow, writer = await here.come(HALF)
        await here.holds(1)
        stubborn.is_over, stubborn.asked = False, 0
        asking = asyncio.create_task(here.ask())
        assert await gone(slow)  # whoever has waited longest gives theirs up
        for _ in range(100):
            await asyncio.sleep(0)  # the door takes a turn of the loop
        assert stubborn.asked == 1  # it is not woken for ever for what cannot be accepted
        stubborn.is_over = True
        door._go_on(stubborn)  # type: ignore[arg-type]  # as above
        assert b"200" in await asking
    writer.transport.abort()
    await servers.close()


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::"),
        ("fd00:1:2:3::9", "fd00:1:2:3::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_a_peer_is_an_address_or_a_network(address: str, peer: str) -> None:
    assert peer_of(address) == peer


async def test_an_address_with_ipv6_is_served_at_one_port() -> None:
    listening = bound("localhost:0", "x")
    assert len({each.getsockname()[1] for each in listening}) == 1
    for each in listening:
        each.close()

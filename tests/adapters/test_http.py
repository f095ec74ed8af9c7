"""The transport, against a server on this machine that misbehaves in every way that servers and networks do."""

import asyncio
import contextlib
import gzip
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headroom.adapters.kube import errors
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import ClientConfig, ExecPlugin, Pem
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.transport import StreamRefused
from headroom.model.errors import Misconfigured, Unavailable
from tests.certificates import Authority
from tests.processes import PATIENCE_SECONDS


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> int:
        return int((time.time() + self.ahead) * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Asked:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


Behaviour = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Speaks just enough HTTP, and does to each request what `behave` does."""

    behave: Behaviour
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    config: ClientConfig = field(default_factory=lambda: ClientConfig(source="a test", server=""))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.asked.append(Asked(method, target, headers, body))
                await self.behave(self.asked[-1], writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has heard enough
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serving(
    behave: Behaviour, tls: ssl.SSLContext | None = None, **config: Any
) -> AsyncIterator[tuple[Server, HttpTransport]]:
    served = Server(behave)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(served.serve(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    served.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    transport = HttpTransport(ClientConfig(source="a test", server=served.url, **config), Clock())
    try:
        yield served, transport
    finally:
        await transport.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listener.close()
        await asyncio.sleep(0.01)  # closing takes a few turns of the loop


def reply(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def always(data: bytes) -> Behaviour:
    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return behave


def then_drop(data: bytes) -> Behaviour:
    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return behave


async def collect(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]


async def until_broken(transport: HttpTransport, idle: float = 5) -> tuple[list[bytes], str]:
    """The lines heard, and the sentence it broke with."""
    heard: list[bytes] = []

    async def listen() -> None:
        async for line in transport.stream("/api/v1/pods", query={"watch": "true"}, idle=idle):
            heard.append(line)  # noqa: PERF401  what was heard before it broke counts

    with pytest.raises(Unavailable) as caught:
        await listen()
    return heard, str(caught.value)


# Requests


async def test_a_request_says_who_it_is_from_and_reads_the_reply() -> None:
    async with serving(always(reply(200, b"{}", "X-Some: thing")), token="t") as (server, transport):
        answer = await transport.request("PATCH", "/a%2Fb", query={"x": "1&2"}, body=b"{}", content_type="some/type")
    assert (answer.status, answer.body, answer.headers["x-some"]) == (200, b"{}", "thing")
    asked = server.asked[0]
    assert (asked.method, asked.target, asked.body, asked.token) == ("PATCH", "/a%2Fb?x=1%262", b"{}", "t")
    assert asked.headers["user-agent"].startswith("headroom/")
    assert asked.headers["content-type"] == "some/type"


async def test_lists_may_be_compressed() -> None:
    packed = reply(200, gzip.compress(b"x" * 100_000), "Content-Encoding: gzip")
    async with serving(always(packed)) as (server, transport):
        assert (await transport.request("GET", "/")).body == b"x" * 100_000
    assert "gzip" in server.asked[0].headers["accept-encoding"]


async def test_connections_are_used_again() -> None:
    async with serving(always(reply(200, b"{}"))) as (server, transport):
        for _ in range(5):
            await transport.request("GET", "/")
    assert server.connections == 1


async def test_redirects_are_not_followed() -> None:
    async with serving(always(reply(302, b"", "Location: http://127.0.0.1:1/"))) as (_, transport):
        assert (await transport.request("GET", "/")).status == 302


async def test_nobody_listens() -> None:
    async with serving(always(b"")) as (_, transport):
        pass
    with pytest.raises(Unavailable, match=r"^reading pods lab/a: cannot reach http://127\.0\.0\.1:\d+: "):
        await transport.request("GET", "/api/v1/namespaces/lab/pods/a")
    await transport.close()


async def test_no_answer_in_time() -> None:
    async with serving(always(b"")) as (_, transport):
        with pytest.raises(Unavailable, match=r"^creating pods: no answer within 0\.2s$"):
            await transport.request("POST", "/api/v1/pods", body=b"{}", timeout=0.2)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_broken_reply(method: str) -> None:
    async with serving(then_drop(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")) as (server, transport):
        with pytest.raises(Unavailable, match="broke"):
            await transport.request(method, "/api/v1/pods", body=b"{}")
    assert len(server.asked) == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_is_never_sent_twice(method: str) -> None:
    """Not even on a kept connection that breaks, where aiohttp would repeat a PUT by itself."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            writer.write(reply(200, b"{}"))
        else:
            writer.close()

    async with serving(behave) as (server, transport):
        await transport.request("GET", "/")
        with pytest.raises(Unavailable, match="broke"):
            await transport.request(method, "/", body=b"{}")
    assert [asked.method for asked in server.asked] == ["GET", method]


async def test_not_http_at_all() -> None:
    async with serving(then_drop(b"SSH-2.0-OpenSSH\r\n\r\n")) as (_, transport):
        with pytest.raises(Unavailable):
            await transport.request("GET", "/")


# TLS


async def test_a_certificate_of_another_authority(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*theirs.server("server"))
    async with serving(always(reply(200, b"{}")), tls, authority=Pem("a test", file=ours.file)) as (_, transport):
        with pytest.raises(
            Misconfigured, match=r"is not trusted \(.*\); correct certificate-authority or server in a test"
        ):
            await transport.request("GET", "/api/v1/pods")
        with pytest.raises(Misconfigured, match="is not trusted"):
            await collect(transport.stream("/api/v1/pods", query={}, idle=5))
        ours.file.write_bytes(theirs.file.read_bytes())
        assert (await transport.request("GET", "/api/v1/pods")).status == 200


# Streams


async def test_lines_whatever_the_chunks() -> None:
    data = b"".join(b'{"n":%d}\n' % number for number in range(1000))
    pieces, rng = [], random.Random(3)
    while data:
        size = rng.randint(1, 50)
        pieces.append(chunk(data[:size]))
        data = data[size:]
    async with serving(always(STREAM + b"".join(pieces) + chunk(b"")[:-2] + b"\r\n")) as (server, transport):
        lines = await collect(transport.stream("/api/v1/pods", query={"watch": "true"}, idle=5))
    assert lines == [b'{"n":%d}' % number for number in range(1000)]
    assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_a_huge_line() -> None:
    huge = b"x" * 5_000_000

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        for data in (b"a\n", huge + b"\n", b"b\n"):
            for start in range(0, len(data), 30_000):
                writer.write(chunk(data[start : start + 30_000]))
                await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with serving(behave) as (_, transport):
        began = time.process_time()
        lines = await collect(transport.stream("/", query={}, idle=5))
        assert time.process_time() - began < 2
    assert lines == [b"a", huge, b"b"]


async def test_dropped_in_the_middle_of_a_line() -> None:
    async with serving(then_drop(STREAM + chunk(b'{"a":1}\n{"b'))) as (_, transport):
        heard, why = await until_broken(transport)
    assert heard == [b'{"a":1}']
    assert "watching pods: the connection to" in why


async def test_ended_politely_in_the_middle_of_a_line() -> None:
    async with serving(always(STREAM + chunk(b'{"a":1}\n{"b') + b"0\r\n\r\n")) as (_, transport):
        heard, why = await until_broken(transport)
    assert heard == [b'{"a":1}']
    assert "in the middle of an event" in why


async def test_silence_is_noticed() -> None:
    async with serving(always(STREAM + chunk(b'{"a":1}\n'))) as (_, transport):
        began = time.monotonic()
        heard, why = await until_broken(transport, idle=2)  # on a busy machine the first line takes its time
        assert time.monotonic() - began > 1.9
    assert heard == [b'{"a":1}']
    assert why == "watching pods: nothing received for 2s"


async def test_a_server_that_accepts_and_never_answers() -> None:
    async with serving(always(b"")) as (_, transport):
        heard, why = await until_broken(transport, idle=0.3)
    assert (heard, why) == ([], "watching pods: nothing received for 0.3s")


async def test_talk_resets_the_idle_limit() -> None:
    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        for _turn in range(6):
            writer.write(chunk(b"{}\n"))
            await writer.drain()
            await asyncio.sleep(0.5)  # together longer than the limit; each far shorter, on a busy machine too
        writer.write(b"0\r\n\r\n")

    async with serving(behave) as (_, transport):
        assert len(await collect(transport.stream("/", query={}, idle=2.5))) == 6


GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}


async def test_expired_as_a_status() -> None:
    async with serving(always(reply(410, json.dumps(GONE).encode()))) as (_, transport):
        with pytest.raises(StreamRefused) as caught:
            await collect(transport.stream("/api/v1/pods", query={}, idle=5))
        assert caught.value.reply.status == 410
        with pytest.raises(errors.Gone, match=r"^watching pods: too old"):
            await collect(Kube(transport, Clock()).watch("/api/v1/pods", query={}, idle=5))


async def test_expired_as_an_event() -> None:
    line = json.dumps({"type": "ERROR", "object": GONE}).encode()
    async with serving(always(STREAM + chunk(line + b"\n") + b"0\r\n\r\n")) as (_, transport):
        assert await collect(transport.stream("/api/v1/pods", query={}, idle=5)) == [line]


async def test_an_abandoned_stream_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(b"{}\n"))
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(chunk(b"{}\n"))
                await writer.drain()
                await asyncio.sleep(0.01)
        closed.set()

    async with serving(behave) as (_, transport):
        lines = Kube(transport, Clock()).watch("/", query={}, idle=5)
        async with contextlib.aclosing(lines):
            async for _ in lines:
                break
        await asyncio.wait_for(closed.wait(), PATIENCE_SECONDS)


# Credentials


def knows(*tokens: str) -> Behaviour:
    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.token not in tokens:
            writer.write(reply(401, b'{"kind":"Status","reason":"Unauthorized","message":"Unauthorized","code":401}'))
        elif "watch" in asked.target:
            writer.write(STREAM + chunk(b"{}\n") + b"0\r\n\r\n")
        else:
            writer.write(reply(200, b"{}"))

    return behave


async def test_a_token_file_is_read_again_when_the_server_refuses(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    async with serving(knows("old"), token_file=file) as (server, transport):
        assert (await transport.request("GET", "/")).status == 200
        server.behave = knows("new")
        assert (await transport.request("GET", "/")).status == 401  # nothing newer to try
        file.write_text("new\n")
        assert (await transport.request("POST", "/", body=b"{}")).status == 200
        assert [asked.token for asked in server.asked] == ["old", "old", "old", "new"]
        server.behave = knows("newest")
        file.write_text("newest")
        assert await collect(transport.stream("/", query={"watch": "true"}, idle=5)) == [b"{}"]


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    async with serving(knows("one", "two"), token_file=file) as (server, _):
        clock = Clock()
        transport = HttpTransport(ClientConfig(source="a test", server=server.url, token_file=file), clock)
        for ahead, content in ((0.0, "two"), (0.5, "two"), (2.0, None), (200.0, None)):
            clock.ahead = ahead
            await transport.request("GET", "/")
            file.write_text(content) if content else file.unlink(missing_ok=True)
        await transport.close()
    # The last time it was gone, and the token we had is better than none.
    assert [asked.token for asked in server.asked] == ["one", "one", "two", "two"]


async def test_a_token_file_that_is_missing(tmp_path: Path) -> None:
    async with serving(knows("x"), token_file=tmp_path / "none") as (_, transport):
        with pytest.raises(Misconfigured, match=r"reading the token file .*check tokenFile"):
            await transport.request("GET", "/")


def plugin(folder: Path, script: str, **more: Any) -> ExecPlugin:
    file = folder / "login"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return ExecPlugin("exec plugin login", "client.authentication.k8s.io/v1", str(file), **more)


def printing(**status: str) -> str:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"cat <<EOF\n{json.dumps(credential)}\nEOF"


async def test_a_plugin_is_run_once_and_again_when_refused_or_expired(tmp_path: Path) -> None:
    count = f"echo run >> {tmp_path}/runs; N=$(wc -l < {tmp_path}/runs)\n"
    login = plugin(tmp_path, count + printing(token="t$N", expirationTimestamp="2100-01-01T00:00:00Z"))
    async with serving(knows("t1"), plugin=login) as (server, transport):
        await asyncio.gather(*(transport.request("GET", "/") for _ in range(5)))
        assert {asked.token for asked in server.asked} == {"t1"}
        server.behave = knows("t2")
        answers = await asyncio.gather(*(transport.request("GET", "/") for _ in range(5)))
        assert {answer.status for answer in answers} == {200}
        assert server.asked[-1].token == "t2"
        transport.credentials._login._expires = 1
        assert (await transport.request("GET", "/")).status == 401
        assert (tmp_path / "runs").read_text().count("run") == 4  # expired, then refused


async def test_what_a_plugin_is_told(tmp_path: Path) -> None:
    told = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo "$EXTRA $1" > {tmp_path}/extra\n'
    login = plugin(
        tmp_path, told + printing(token="t"), args=("arg",), env=(("EXTRA", "e"),), provide_cluster_info=True
    )
    async with serving(knows("t"), plugin=login, server_name="kube") as (server, transport):
        await transport.request("GET", "/")
        info = json.loads((tmp_path / "info").read_text())
        assert info["spec"]["cluster"] == {
            "server": server.url,
            "tls-server-name": "kube",
            "insecure-skip-tls-verify": False,
        }
        assert info["spec"]["interactive"] is False
        assert (tmp_path / "extra").read_text() == "e arg\n"


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("echo first >&2; echo sorry >&2; exit 3", Unavailable, "it exited with 3: sorry"),
        ("echo secret", Misconfigured, "printed no ExecCredential"),
        (printing(), Misconfigured, "neither a token nor a certificate"),
        ('echo \'{"apiVersion":"x/v9"}\'', Misconfigured, "it speaks 'x/v9'"),
        (None, Misconfigured, "No such file or directory; get it from the shop"),
    ],
)
async def test_a_plugin_that_fails(tmp_path: Path, script: str | None, kind: type[Exception], words: str) -> None:
    login = plugin(tmp_path, script or "", install_hint="get it from the shop")
    if script is None:
        (tmp_path / "login").unlink()
    async with serving(knows("t"), plugin=login) as (_, transport):
        with pytest.raises(kind) as caught:
            await transport.request("GET", "/")
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_plugin_that_prints_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.client("me", [])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    tls.load_cert_chain(*authority.server("server"))
    tls.verify_mode = ssl.CERT_REQUIRED
    login = plugin(tmp_path, printing(clientCertificateData=certificate.read_text(), clientKeyData=key.read_text()))
    authority_pem = Pem("a test", file=authority.file)
    async with serving(always(reply(200, b"{}")), tls, authority=authority_pem, plugin=login) as (_, transport):
        assert (await transport.request("GET", "/")).status == 200

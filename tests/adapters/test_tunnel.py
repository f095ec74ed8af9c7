"""The tunnel, against a server that speaks the kubelet's protocol: which pod, which bytes, and what is said when it fails.

The same is done with a real API server and the kubelet's own code in tests/integration/test_dashboard_access.py.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import ClientConfig
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.tunnel import PROTOCOL, Tunnel
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.runtime.clock import RealClock
from headroom.web.listening import Servers


def pod(name: str, phase: str = "Running", ready: str = "True", **metadata: Any) -> dict[str, Any]:
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    ports = [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 9443, "name": "https"}]
    return {"metadata": {"name": name} | metadata, "spec": {"containers": [{"ports": ports}]}, "status": status}


class Server:
    """An API server with the operator's pods; its port-forwards shout back what they hear."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = [pod("headroom-0")]
        self.status = {"list": 200, "forward": 101}
        self.asked: list[str] = []
        self.open = 0
        self.complaint = b""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/hs/pods", self._list)
        app.router.add_get("/api/v1/namespaces/hs/pods/{name}/portforward", self._forward)
        return app

    async def _list(self, request: web.Request) -> web.Response:
        assert request.query["labelSelector"] == "app.kubernetes.io/name=headroom"
        assert request.headers["Authorization"] == "Bearer t"
        self.asked.append("list")
        return web.json_response({"items": self.pods}, status=self.status["list"])

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.match_info['name']}:{request.query['ports']}")
        if self.status["forward"] != 101:
            return web.Response(status=self.status["forward"])
        assert request.headers["Authorization"] == "Bearer t"
        assert request.headers["Accept"] == "*/*"
        far = web.WebSocketResponse(protocols=(PROTOCOL,))
        await far.prepare(request)
        assert far.ws_protocol == PROTOCOL
        for channel in (0, 1):
            await far.send_bytes(bytes([channel]) + int(request.query["ports"]).to_bytes(2, "little"))
        if self.complaint:
            await far.send_bytes(b"\1" + self.complaint)
            await far.close()
            return far
        self.open += 1
        async for message in far:
            if message.type is WSMsgType.BINARY and message.data == b"\0bye":
                break
            if message.type is WSMsgType.BINARY:
                assert message.data[0] == 0
                await far.send_bytes(b"\0" + message.data[1:].upper())
        self.open -= 1
        await far.close()
        return far


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def tunnel(server: Server) -> AsyncIterator[Tunnel]:
    servers, clock = Servers(), RealClock()
    port = await servers.listen(server.app(), "127.0.0.1:0", "x")
    config = ClientConfig(source="a test", server=f"http://127.0.0.1:{port}", token="t")
    transport = HttpTransport(config, clock)
    made = Tunnel(transport, Kube(transport, clock), "hs")
    yield made
    await made.close()
    await transport.close()
    await servers.close()


async def talk(near: socket.socket, *words: bytes) -> list[bytes]:
    """What comes back for each word; nothing once the other side has ended."""
    reader, writer = await asyncio.open_connection(sock=near)
    heard = []
    for word in words:
        writer.write(word)
        heard.append(await reader.readexactly(len(word)) if word != b"bye" else await reader.read())
    writer.close()
    return heard


async def until(condition: Any) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


async def test_bytes_pass_both_ways_on_connections_of_their_own(tunnel: Tunnel, server: Server) -> None:
    large = b"x" * 1_000_000
    first, second = await tunnel.open(), await tunnel.open()
    heard = await asyncio.gather(talk(first, b"one", large), talk(second, b"two", b"bye"))
    assert list(heard) == [[b"ONE", large.upper()], [b"TWO", b""]]
    assert server.asked == ["list", "headroom-0:9443", "headroom-0:9443"]
    await until(lambda: server.open == 0)


async def test_closing_cuts_what_is_open(tunnel: Tunnel, server: Server) -> None:
    reader, writer = await asyncio.open_connection(sock=await tunnel.open())
    await until(lambda: server.open == 1)
    await tunnel.close()
    assert await reader.read() == b""
    writer.close()
    await until(lambda: server.open == 0)


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([pod("b"), pod("a")], "a:9443"),
        ([pod("a", ready="False"), pod("b")], "b:9443"),
        ([pod("a", ready="False")], "a:9443"),
        ([pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), pod("b", ready="False")], "b:9443"),
        ([pod("a", phase="Pending"), pod("b")], "b:9443"),
        ([{"metadata": {"name": "plain"}, "status": {"phase": "Running"}}], "plain:8443"),
    ],
)
async def test_the_pod_that_serves_is_chosen(
    tunnel: Tunnel, server: Server, pods: list[dict[str, Any]], chosen: str
) -> None:
    server.pods = pods
    (await tunnel.open()).close()
    assert server.asked[-1] == chosen


@pytest.mark.parametrize(
    ("pods", "status", "error", "sentence"),
    [
        ([], {}, Unavailable, "no pod has the label app.kubernetes.io/name=headroom"),
        ([pod("a", phase="Pending")], {}, Unavailable, "its pod does not run; see `kubectl -n hs get pods -l "),
        ([pod("a")], {"list": 403}, Refused, "you may not list its pods"),
        ([pod("a")], {"forward": 403}, Refused, "you may not get and create pods/portforward in namespace hs"),
        ([pod("a")], {"forward": 404}, Refused, "connecting to pods/portforward hs/a: the server answered 404"),
        ([pod("a")], {"forward": 500}, Unavailable, "connecting to pods/portforward hs/a: the server answered 500"),
        ([pod("a")], {"forward": 401}, Refused, "connecting to pods/portforward hs/a: the server answered 401"),
    ],
)
async def test_every_failure_is_a_sentence(
    tunnel: Tunnel,
    server: Server,
    pods: list[dict[str, Any]],
    status: dict[str, int],
    error: type[HeadroomError],
    sentence: str,
) -> None:
    server.pods = pods
    server.status |= status
    with pytest.raises(error) as failure:
        await tunnel.open()
    assert sentence in str(failure.value)


async def test_what_the_kubelet_complains_of_is_kept_and_the_pod_looked_for_anew(
    tunnel: Tunnel, server: Server
) -> None:
    server.complaint = b"error forwarding port 9443:\n connection refused"
    reader, writer = await asyncio.open_connection(sock=await tunnel.open())
    assert await reader.read() == b""
    writer.close()
    assert tunnel.problem == "error forwarding port 9443: connection refused"
    server.complaint, server.pods = b"", [pod("headroom-1")]
    assert await talk(await tunnel.open(), b"hi") == [b"HI"]
    assert (server.asked[-2:], tunnel.problem) == (["list", "headroom-1:9443"], "")

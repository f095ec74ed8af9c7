"""A way to the operator's pod that needs nothing exposed: connections through the API server, as `kubectl port-forward` makes them.

Each connection is a WebSocket of its own, with the subprotocol v4.channel.k8s.io: every message begins with the number of its
channel, 0 for data and 1 for what went wrong, and the first message of each channel only names the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

import aiohttp
import msgspec

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.http import HttpTransport
from headroom.model.errors import Refused, Unavailable

PROTOCOL: Final = "v4.channel.k8s.io"
LABEL: Final = "app.kubernetes.io/name=headroom"
PORT_NAME: Final = "https"
"""Of the container's port that serves the dashboard."""
PORT: Final = 8443
"""Where it is if the pod names none."""
CHUNK: Final = 32 * 1024
_DATA: Final = 0
_PORT_BYTES: Final = 2


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    deletion_timestamp: str | None = None


class _Port(msgspec.Struct, rename="camel"):
    container_port: int
    name: str = ""


class _Container(msgspec.Struct):
    ports: list[_Port] = []


class _Spec(msgspec.Struct):
    containers: list[_Container] = []


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def runs(self) -> bool:
        return self.status.phase == "Running" and not self.metadata.deletion_timestamp

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def port(self) -> int:
        ports = [port for container in self.spec.containers for port in container.ports]
        return next((port.container_port for port in ports if port.name == PORT_NAME), PORT)


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


class Tunnel:
    """Connections to the operator's pod in a namespace, with the rights of the kubeconfig's user."""

    def __init__(self, transport: HttpTransport, kube: Kube, namespace: str, leader: str = "") -> None:
        """`leader` is whoever holds the operator's lease, where that is known: it may run outside the cluster."""
        self._transport, self._kube, self._namespace, self._leader = transport, kube, namespace, leader
        self._pod: _Pod | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self.problem = ""
        """What the kubelet said last about a connection that it could not make."""

    async def open(self) -> socket.socket:
        """One end of a connection to the operator's port; TLS is up to the caller. Raises a `HeadroomError`."""
        self.problem = ""
        pod = self._pod = self._pod or await self._find()
        path = paths.of("", "v1", "pods", self._namespace, pod.metadata.name, "portforward")
        try:
            far = await self._transport.websocket(path, query={"ports": str(pod.port)}, protocol=PROTOCOL)
        except errors.Forbidden as refusal:
            raise Refused(
                f"reaching the operator's pod {self._namespace}/{pod.metadata.name}: you may not get and create "
                f"pods/portforward in namespace {self._namespace}; have an administrator bind you there to the "
                "ClusterRole headroom-dashboard"
            ) from refusal
        except (Unavailable, Refused):
            self._pod = None  # it may be gone: looked for again next time
            raise
        near, ours = socket.socketpair()
        task = asyncio.create_task(self._carry(far, ours))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        await asyncio.sleep(0)  # it has begun now: whatever happens next, it cleans up behind itself
        return near

    async def close(self) -> None:
        """Cut all connections."""
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _find(self) -> _Pod:
        doing = f"looking for the operator in namespace {self._namespace}"
        try:
            body = await self._kube.get(paths.pods(self._namespace), query={"labelSelector": LABEL})
        except errors.Forbidden as refusal:
            raise Refused(
                f"{doing}: you may not list its pods; have an administrator bind you there to the ClusterRole "
                "headroom-dashboard, or give --address if there is another way to the operator"
            ) from refusal
        found = msgspec.json.decode(body, type=_Pods).items
        if not found and self._leader:
            raise Unavailable(
                f"{doing}: no pod has the label {LABEL}, but {self._leader} holds the lease; if it runs outside the cluster, "
                "run this command on its host, or give --address"
            )
        if not found:
            raise Unavailable(
                f"{doing}: no pod has the label {LABEL}; give the operator's namespace with --operator-namespace, or install it"
            )
        running = sorted((pod for pod in found if pod.runs), key=lambda pod: (not pod.ready, pod.metadata.name))
        if not running:
            raise Unavailable(f"{doing}: its pod does not run; see `kubectl -n {self._namespace} get pods -l {LABEL}`")
        return running[0]

    async def _carry(self, far: aiohttp.ClientWebSocketResponse, near: socket.socket) -> None:
        """Bytes both ways until either side has ended."""
        near.setblocking(False)
        ways = [asyncio.create_task(_up(near, far)), asyncio.create_task(self._down(far, near))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            near.close()
            with contextlib.suppress(aiohttp.ClientError, OSError):  # it is gone already
                await far.close()

    async def _down(self, far: aiohttp.ClientWebSocketResponse, near: socket.socket) -> None:
        heard: set[int] = set()
        async for message in far:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in heard:
                heard.add(channel)
                data = data[_PORT_BYTES:]
            if channel == _DATA:
                await asyncio.get_running_loop().sock_sendall(near, data)
            elif data:
                self._pod = None
                self.problem = " ".join(data.decode("utf-8", "replace").split())


async def _up(near: socket.socket, far: aiohttp.ClientWebSocketResponse) -> None:
    while data := await asyncio.get_running_loop().sock_recv(near, CHUNK):
        await far.send_bytes(bytes([_DATA]) + data)

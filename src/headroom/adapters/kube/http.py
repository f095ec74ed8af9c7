"""The connection to a real API server: aiohttp, one session, credentials that renew themselves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio import sslproto
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

import aiohttp
from yarl import URL

import headroom
from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.config import ClientConfig
from headroom.adapters.kube.credentials import Credentials, RequestCredentials
from headroom.adapters.kube.transport import JSON, Reply, StreamRefused
from headroom.model.errors import Misconfigured, Unavailable
from headroom.model.ports import Clock

CONNECT_SECONDS: Final = 10.0
HEARTBEAT_SECONDS: Final = 30.0
"""A WebSocket whose other end answers no ping for so long is broken."""
GATHER_SECONDS: Final = 0.02
"""Events of a watch are read in bunches this far apart; the loop gathers for longer than that anyway."""
TLS_BUFFER: Final = 32 * 1024
"""What each connection under TLS holds from its first moment on. There are some thirty, and asyncio would take 256 KiB for each."""
PLENTY: Final = 16 * 1024
"""So much at once is bunch enough: then the server is ahead of us, and waiting would only make a first list slower."""
# Large pieces: fewer wake-ups for big lists and busy watches.
_READ_BUFFER: Final = 2**20
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class HttpTransport:
    """Implements `Transport` against the server and with the identity of a `ClientConfig`."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self.credentials: Final = Credentials(config, clock)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Reply:
        """One request, one reply; see `Transport`. Raises `Misconfigured` if the server's certificate is not trusted."""
        headers = {"Content-Type": content_type} if body else {}
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, CONNECT_SECONDS))
        doing = paths.doing(method, path)
        with self._explained(doing, f"no answer within {timeout:g}s"):
            response = await self._send(
                method, path, params=query or {}, data=body or None, headers=headers, timeout=limits
            )
            async with _cut_if_left(response):
                content = await response.read()
        return Reply(response.status, content, _headers(response))

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a watch; see `Transport`."""
        # Compressing small events gains nothing, and would hold them back.
        headers = {"Accept-Encoding": "identity"}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle)
        with self._explained(f"watching {paths.spoken(path)}", f"nothing received for {idle:g}s"):
            response = await self._send("GET", path, params=query, headers=headers, timeout=limits)
            async with _cut_if_left(response):
                if response.status != 200:
                    raise StreamRefused(Reply(response.status, await response.read(), _headers(response)))
                if opened:
                    opened()
                _pause_at_once(response)
                begun: list[bytes] = []
                async for chunk in response.content.iter_any():
                    begun.append(chunk)
                    # A line of megabytes comes in many chunks: they are joined once, when it is complete.
                    if b"\n" not in chunk:
                        continue
                    lines = b"".join(begun).split(b"\n")
                    begun = [lines.pop()]
                    for line in lines:
                        if line:
                            yield line
                    if len(chunk) < PLENTY:
                        await self._gather(response)
                if any(begun):
                    raise Unavailable(f"watching {paths.spoken(path)}: the stream ended in the middle of an event")

    async def websocket(
        self, path: str, *, query: Mapping[str, str], protocol: str, timeout: float = 30.0
    ) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket. Raises an `ApiError` if the server refuses it."""
        doing = f"connecting to {paths.spoken(path)}"
        access: RequestCredentials | None = await self.credentials.current()
        status = 0
        with self._explained(doing, f"no answer within {timeout:g}s"):
            while access is not None:
                try:
                    async with asyncio.timeout(timeout):
                        return await self._upgrade(access, path, query, protocol)
                except aiohttp.WSServerHandshakeError as refusal:
                    # A 401 is answered with renewed credentials, once.
                    again = refusal.status == 401 and not status
                    status = refusal.status
                    access = await self.credentials.renewed(access) if again else None
        raise errors.from_reply(Reply(status, b""), doing)

    async def _gather(self, response: aiohttp.ClientResponse) -> None:
        """Let the next events pile up for a moment: the server sends them one by one, and to be woken for each costs more than to
        read it.
        """
        transport = response.connection.transport if response.connection else None
        if transport is not None:
            transport.pause_reading()
            await self._clock.sleep(GATHER_SECONDS)
            transport.resume_reading()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            for _ in range(3):
                await asyncio.sleep(0)  # the sockets under TLS are closed by callbacks of callbacks

    async def _send(self, method: str, path: str, **more: Any) -> aiohttp.ClientResponse:
        """The response with its body still to be read. A 401 is answered with renewed credentials, once."""
        access = await self.credentials.current()
        response = await self._send_as(access, method, path, **more)
        if response.status == 401:
            await response.read()  # gives its connection back, and keeps the body
            renewed = await self.credentials.renewed(access)
            if renewed is not None:
                response = await self._send_as(renewed, method, path, **more)
            elif self.credentials.problem:
                doing = paths.doing(method, path)
                raise Unavailable(f"{doing}: the server rejected the credentials (401), and {self.credentials.problem}")
        return response

    async def _send_as(
        self, access: RequestCredentials, method: str, path: str, headers: Mapping[str, str], **more: Any
    ) -> aiohttp.ClientResponse:
        return await self._opened().request(
            method,
            URL(self._config.server + path, encoded=True),
            headers={**headers, **_authorization(access)},
            allow_redirects=False,  # a token must not travel to another server
            # True means aiohttp's own default, which plain HTTP never looks at.
            ssl=True if access.tls is None else access.tls,
            server_hostname=self._config.server_name or None,
            **more,
        )

    async def _upgrade(
        self, access: RequestCredentials, path: str, query: Mapping[str, str], protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        return await self._opened().ws_connect(
            URL(self._config.server + path, encoded=True),
            params=query,
            protocols=(protocol,),
            # A kubelet has no JSON at the end of a WebSocket, and refuses whoever accepts nothing else.
            headers={"Accept": "*/*", **_authorization(access)},
            heartbeat=HEARTBEAT_SECONDS,
            timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            max_msg_size=0,
            ssl=True if access.tls is None else access.tls,
            server_hostname=self._config.server_name or None,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = _new_session()
        return self._session

    @contextlib.contextmanager
    def _explained(self, doing: str, too_late: str) -> Iterator[None]:
        """Turns every way in which a connection can fail into one sentence."""
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as problem:
            self.credentials.forget_tls()
            why = getattr(problem.certificate_error, "verify_message", "") or str(problem.certificate_error)
            raise Misconfigured(
                f"{doing}: the certificate of {self._config.server} is not trusted ({why}); "
                f"correct certificate-authority or server in {self._config.source}"
            ) from problem
        except TimeoutError as problem:
            late = f"no connection to {self._config.server} within {CONNECT_SECONDS:g}s"
            why = late if isinstance(problem, aiohttp.ConnectionTimeoutError) else too_late
            raise Unavailable(f"{doing}: {why}") from problem
        except aiohttp.ClientConnectorError as problem:
            raise Unavailable(f"{doing}: cannot reach {self._config.server}: {problem.os_error}") from problem
        except (aiohttp.ClientError, OSError) as problem:
            why = str(problem) or type(problem).__name__
            raise Unavailable(f"{doing}: the connection to {self._config.server} broke: {why}") from problem


def _new_session() -> aiohttp.ClientSession:
    sslproto.SSLProtocol.max_size = TLS_BUFFER
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=_socket),
        headers={"User-Agent": f"headroom/{headroom.__version__}", "Accept": JSON},
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_READ_BUFFER,
        middlewares=(_never_write_twice,),
    )


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    # So that the kernel notices a peer that is gone without a word.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _pause_at_once(response: aiohttp.ClientResponse) -> None:
    """Under TLS, a connection whose reading is paused goes on to take in what comes, up to a limit, and is woken for each piece of it."""
    transport = response.connection.transport if response.connection else None
    limit = getattr(transport, "set_read_buffer_limits", None)
    if limit is not None:
        limit(1)


@contextlib.asynccontextmanager
async def _cut_if_left(response: aiohttp.ClientResponse) -> AsyncIterator[None]:
    """Gives the connection back once all was read, and cuts it otherwise: one under TLS that is closed politely waits for the goodbye of
    a server that may be slow or gone, and outlives the session.
    """
    transport = response.connection.transport if response.connection else None
    try:
        async with response:
            yield
    finally:
        if transport is not None and not response.content.is_eof():
            transport.abort()


async def _never_write_twice(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Hides a broken connection from aiohttp, which would send a PUT or DELETE again although it may have been done."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as problem:
        if request.method == "GET":
            raise
        raise aiohttp.ClientPayloadError(str(problem)) from problem


def _authorization(access: RequestCredentials) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.token}"} if access.token else {}


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}

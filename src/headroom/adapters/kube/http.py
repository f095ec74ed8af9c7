"""The connection to a real API server: aiohttp, one session, credentials that renew themselves."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import msgspec
from yarl import URL

import headroom
from headroom.adapters.kube import paths
from headroom.adapters.kube.config import ClientConfig, ExecPlugin, tls_context
from headroom.adapters.kube.transport import JSON, Reply, StreamRefused
from headroom.model import times
from headroom.model.errors import Misconfigured, Unavailable
from headroom.model.ports import Clock

TOKEN_FILE_SECONDS: Final = 60.0
"""How long a token from a file is used before the file is read again."""
PLUGIN_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 10.0
GATHER_SECONDS: Final = 0.006
"""Events of a watch are read in bunches this far apart; the loop gathers for longer than that anyway."""
PLENTY: Final = 128 * 1024
"""So much at once is bunch enough: then the server is ahead of us, and waiting would only make a first list slower."""
# Large pieces: fewer wake-ups for big lists and busy watches.
_READ_BUFFER: Final = 2**20
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class HttpTransport:
    """Implements `Transport` against the server and with the identity of a `ClientConfig`."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._credentials = _Credentials(config, clock)
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
        with self._explained(doing, f"no answer within {timeout:g} s"):
            response = await self._send(
                method, path, params=query or {}, data=body or None, headers=headers, timeout=limits
            )
            async with response:
                content = await response.read()
        return Reply(response.status, content, _headers(response))

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a watch; see `Transport`."""
        # Compressing small events gains nothing, and would hold them back.
        headers = {"Accept-Encoding": "identity"}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle)
        with self._explained(f"watching {paths.spoken(path)}", f"nothing heard for {idle:g} s"):
            response = await self._send("GET", path, params=query, headers=headers, timeout=limits)
            async with response:
                if response.status != 200:
                    raise StreamRefused(Reply(response.status, await response.read(), _headers(response)))
                if opened:
                    opened()
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
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            for _ in range(3):
                await asyncio.sleep(0)  # the sockets under TLS are closed by callbacks of callbacks

    async def _send(self, method: str, path: str, **more: Any) -> aiohttp.ClientResponse:
        """The response with its body still to be read. A 401 is answered with renewed credentials, once."""
        access = await self._credentials.current()
        response = await self._send_as(access, method, path, **more)
        if response.status == 401:
            await response.read()  # gives its connection back, and keeps the body
            renewed = await self._credentials.renewed(access)
            if renewed is not None:
                response = await self._send_as(renewed, method, path, **more)
        return response

    async def _send_as(
        self, access: _Access, method: str, path: str, headers: Mapping[str, str], **more: Any
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = _new_session()
        authorization = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        return await self._session.request(
            method,
            URL(self._config.server + path, encoded=True),
            headers={**headers, **authorization},
            allow_redirects=False,  # a token must not travel to another server
            # True means aiohttp's own default, which plain HTTP never looks at.
            ssl=True if access.tls is None else access.tls,
            server_hostname=self._config.server_name or None,
            **more,
        )

    @contextlib.contextmanager
    def _explained(self, doing: str, too_late: str) -> Iterator[None]:
        """Turns every way in which a connection can fail into one sentence."""
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as problem:
            self._credentials.forget_tls()
            why = getattr(problem.certificate_error, "verify_message", "") or str(problem.certificate_error)
            raise Misconfigured(
                f"{doing}: the certificate of {self._config.server} is not trusted ({why}); "
                f"correct certificate-authority or server in {self._config.source}"
            ) from problem
        except TimeoutError as problem:
            late = f"no connection to {self._config.server} within {CONNECT_SECONDS:g} s"
            why = late if isinstance(problem, aiohttp.ConnectionTimeoutError) else too_late
            raise Unavailable(f"{doing}: {why}") from problem
        except aiohttp.ClientConnectorError as problem:
            raise Unavailable(f"{doing}: cannot reach {self._config.server}: {problem.os_error}") from problem
        except (aiohttp.ClientError, OSError) as problem:
            why = str(problem) or type(problem).__name__
            raise Unavailable(f"{doing}: the connection to {self._config.server} broke: {why}") from problem


def _new_session() -> aiohttp.ClientSession:
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


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


# --- who we are -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """What one request shows to the server."""

    token: str = field(repr=False)
    tls: ssl.SSLContext | None


class _Issued(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    status: _Issued | None = None


class _Credentials:
    """The token and the TLS context of the moment, read anew when they are due."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = asyncio.Lock()
        self._access: _Access | None = None
        self._read_at = 0.0
        self._expires: int | None = None
        self._tls: ssl.SSLContext | None = None
        self._certificate = (b"", b"")

    async def current(self) -> _Access:
        """What to show now."""
        if self._access is None or self._due():
            async with self._lock:
                if self._access is None or self._due():
                    self._access = await self._read()
        if self._access.tls is not self._tls:
            self._access = _Access(self._access.token, self._context())
        return self._access

    async def renewed(self, refused: _Access) -> _Access | None:
        """What to show instead of what was refused; None if there is nothing new."""
        if self._config.token_file is None and self._config.plugin is None:
            return None
        async with self._lock:
            # Many requests are refused at the same time: only the first reads anew.
            if self._access is None or self._access is refused:
                self._access = await self._read()
        return None if self._access == refused else self._access

    def forget_tls(self) -> None:
        """Reads the certificate authority again before the next request, since it may have been replaced."""
        self._tls = None

    def _due(self) -> bool:
        if self._config.token_file is not None:
            return self._clock.monotonic() - self._read_at >= TOKEN_FILE_SECONDS
        return self._expires is not None and self._clock.now() >= self._expires

    async def _read(self) -> _Access:
        token = self._config.token
        if self._config.token_file is not None:
            token = self._token_from_file() or token
        elif self._config.plugin is not None and not token:
            issued = await _run_plugin(self._config.plugin, self._config)
            token, self._expires = issued.token, times.moment(issued.expiration_timestamp)
            certificate = (issued.client_certificate_data.encode(), issued.client_key_data.encode())
            if certificate != self._certificate:
                self._certificate, self._tls = certificate, None
        return _Access(token, self._context())

    def _token_from_file(self) -> str:
        file = self._config.token_file
        assert file is not None
        self._read_at = self._clock.monotonic()
        try:
            return file.read_text("utf-8").strip()
        except (OSError, ValueError) as problem:
            if self._access is not None:
                return self._access.token  # it may be written this very moment; the next reading will tell
            raise Misconfigured(
                f"reading the token file {file}: {problem}; check tokenFile and its rights"
            ) from problem

    def _context(self) -> ssl.SSLContext | None:
        if self._tls is None:
            self._tls = tls_context(self._config, *self._certificate)
        return self._tls


async def _run_plugin(plugin: ExecPlugin, config: ClientConfig) -> _Issued:
    doing = f"running {plugin.label}"
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(plugin, config)}
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *plugin.args, stdin=nothing, stdout=pipe, stderr=pipe, env=environment
        )
    except OSError as problem:
        remedy = plugin.install_hint or "install it or correct exec.command"
        raise Misconfigured(f"{doing}: {problem.strerror}; {remedy}") from problem
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            printed, complaints = await process.communicate()
    except TimeoutError as problem:
        raise Unavailable(f"{doing}: it did not end within {PLUGIN_SECONDS:g} s") from problem
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise Unavailable(f"{doing}: it ended with {process.returncode}: {last or 'it said nothing'}")
    return _issued(printed, plugin)


def _issued(printed: bytes, plugin: ExecPlugin) -> _Issued:
    # What it printed never goes into a message: it holds the token.
    try:
        credential = msgspec.json.decode(printed, type=_ExecCredential)
    except msgspec.DecodeError as problem:
        raise Misconfigured(f"running {plugin.label}: it printed no ExecCredential; update the plugin") from problem
    issued = credential.status
    if credential.api_version != plugin.api_version:
        raise Misconfigured(
            f"running {plugin.label}: it speaks {credential.api_version!r}; set exec.apiVersion to that, or update the plugin"
        )
    if issued is None or not (issued.token or (issued.client_certificate_data and issued.client_key_data)):
        raise Misconfigured(
            f"running {plugin.label}: it printed neither a token nor a certificate with its key; log in anew"
        )
    return issued


def _exec_info(plugin: ExecPlugin, config: ClientConfig) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {"server": config.server, "insecure-skip-tls-verify": not config.verify}
        if config.server_name:
            cluster["tls-server-name"] = config.server_name
        if config.authority:
            cluster["certificate-authority-data"] = base64.b64encode(config.authority.read()).decode()
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()

"""Requests to the operator's own HTTPS server with the credentials of a kubeconfig: through a tunnel, or at an address."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from headroom.adapters.kube.config import ClientConfig
from headroom.adapters.kube.credentials import Credentials, RequestCredentials
from headroom.adapters.kube.tls import tls_context
from headroom.adapters.kube.tunnel import Tunnel
from headroom.model.errors import Misconfigured, Unavailable

CONNECT_SECONDS: Final = 15.0
SILENCE_SECONDS: Final = 25.0
"""A live page says something every ten seconds; one that is silent for so long is broken."""
_DOING: Final = "reaching the operator"


class OperatorLink:
    """One operator, asked with the credentials of one user. Its answers and errors never hold any of them."""

    def __init__(
        self,
        config: ClientConfig,
        credentials: Credentials,
        tunnel: Tunnel | None = None,
        moved: Callable[[], Awaitable[ClientConfig | None]] | None = None,
    ) -> None:
        """`config` is the way to the operator, not to the API server: its address, how it is verified, and the user's certificate.

        `moved` is asked when that way leads nowhere any more: an operator that was restarted may have another port and certificate.
        """
        self._config, self._credentials, self._tunnel, self._moved = config, credentials, tunnel, moved
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[tuple[bytes, bytes], ssl.SSLContext] | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._tunnel is not None:
            await self._tunnel.close()

    @contextlib.asynccontextmanager
    async def answer(self, method: str, path: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request, its body still to be read and as it came. Raises a `HeadroomError` if there is none."""
        access = await self._credentials.current()
        try:
            response = await self._send(access, method, path, headers)
        except (Misconfigured, Unavailable):
            if not await self._has_moved():
                raise
            response = await self._send(access, method, path, headers)
        try:
            if response.status == 401 and (renewed := await self._credentials.renewed(access)) is not None:
                response.close()
                response = await self._send(renewed, method, path, headers)
            yield response
        finally:
            response.close()

    async def _has_moved(self) -> bool:
        now = await self._moved() if self._moved is not None else None
        if now is None or now == self._config:
            return False
        self._config, self._tls = now, None
        return True

    async def _send(
        self, access: RequestCredentials, method: str, path: str, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = self._new_session()
        authorization = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        with self._explained():
            return await self._session.request(
                method,
                URL(self._config.server + path, encoded=True),
                headers={**headers, **authorization},
                allow_redirects=False,  # a token must not travel to another server
                ssl=self._context(access),
                server_hostname=self._config.server_name or None,
            )

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=_ThroughTunnel(self._tunnel) if self._tunnel else None,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS),
        )

    def _context(self, access: RequestCredentials) -> ssl.SSLContext:
        # One for all connections, or none would be used twice; another one when a plugin has issued another certificate.
        if self._tls is None or self._tls[0] != access.certificate:
            made = tls_context(self._config, *access.certificate)
            assert made is not None  # the operator speaks HTTPS only
            self._tls = (access.certificate, made)
        return self._tls[1]

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns every way in which a connection can fail into one sentence."""
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as problem:
            raise _distrusted(problem.certificate_error) from problem
        except TimeoutError as problem:
            raise Unavailable(f"{_DOING} at {self._config.server}: no answer in time") from problem
        except (aiohttp.ClientError, OSError) as problem:
            why = str(problem) or type(problem).__name__
            raise Unavailable(f"{_DOING} at {self._config.server}: {why}") from problem


class _ThroughTunnel(aiohttp.BaseConnector):
    """Makes TLS connections to the operator out of what a tunnel carries."""

    def __init__(self, tunnel: Tunnel) -> None:
        super().__init__(limit=0)
        self._tunnel = tunnel

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: object,  # noqa: ARG002  aiohttp's connectors are made by overriding this
        timeout: aiohttp.ClientTimeout,
    ) -> ResponseHandler:
        assert isinstance(req.ssl, ssl.SSLContext)
        near = await self._tunnel.open()
        try:
            async with asyncio.timeout(timeout.sock_connect):
                _, protocol = await self._loop.create_connection(
                    self._factory, sock=near, ssl=req.ssl, server_hostname=req.server_hostname
                )
        except ssl.SSLCertVerificationError as problem:
            raise _distrusted(problem) from problem
        except (OSError, TimeoutError) as problem:
            near.close()
            why = self._tunnel.problem or str(problem) or "the connection ended at once"
            raise Unavailable(f"{_DOING} through the API server: {why}") from problem
        return protocol


def _distrusted(problem: Exception) -> Misconfigured:
    why = getattr(problem, "verify_message", "") or str(problem)
    return Misconfigured(
        f"{_DOING}: its certificate is not trusted ({why}); give the authority that signed it with --certificate-authority"
    )

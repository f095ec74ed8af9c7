"""Who we are to an API server: a token, a client certificate, or both, renewed by themselves."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headroom.adapters.kube.config import ClientConfig, ExecPlugin, tls_context
from headroom.model import times
from headroom.model.errors import Misconfigured, Unavailable
from headroom.model.ports import Clock

TOKEN_FILE_SECONDS: Final = 60.0
"""How long a token from a file is used before the file is read again."""
PLUGIN_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Access:
    """What one request shows to the server."""

    token: str = field(repr=False)
    tls: ssl.SSLContext | None
    certificate: tuple[bytes, bytes] = field(default=(b"", b""), repr=False)
    """With its key, where a plugin issued one; it goes before the configured one."""


class _Issued(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    status: _Issued | None = None


class Credentials:
    """The token and the TLS context of the moment, read anew when they are due."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = asyncio.Lock()
        self._access: Access | None = None
        self._read_at = 0.0
        self._expires: int | None = None
        self._tls: ssl.SSLContext | None = None
        self._certificate = (b"", b"")

    async def current(self) -> Access:
        """What to show now."""
        if self._access is None or self._due():
            async with self._lock:
                if self._access is None or self._due():
                    self._access = await self._read()
        if self._access.tls is not self._tls:
            self._access = Access(self._access.token, self._context(), self._certificate)
        return self._access

    async def renewed(self, refused: Access) -> Access | None:
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

    async def _read(self) -> Access:
        token = self._config.token
        if self._config.token_file is not None:
            token = self._token_from_file() or token
        elif self._config.plugin is not None and not token:
            issued = await _run_plugin(self._config.plugin, self._config)
            token, self._expires = issued.token, times.moment(issued.expiration_timestamp)
            certificate = (issued.client_certificate_data.encode(), issued.client_key_data.encode())
            if certificate != self._certificate:
                self._certificate, self._tls = certificate, None
        return Access(token, self._context(), self._certificate)

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

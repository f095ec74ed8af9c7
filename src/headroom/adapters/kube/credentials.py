"""Who we are to an API server: a token, a client certificate, or both, renewed by themselves.

Files are read again when they change, so a certificate, key, authority or token that somebody renews in place is used from the next
request on; so is a kubeconfig that is written anew with the credentials in it. Requests that are under way, watches above all, go on
with what they began with. What cannot be read, or does not fit together since it is being written this very moment, leaves everything
as it was, and is tried again a second later.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from headroom.adapters.kube import exec_plugins
from headroom.adapters.kube.config import ClientConfig, Pem, reread
from headroom.adapters.kube.exec_plugins import Issued, Pair
from headroom.adapters.kube.tls import tls_context
from headroom.model import times
from headroom.model.errors import HeadroomError, Misconfigured
from headroom.model.ports import Clock

LOOK_SECONDS: Final = 1.0
"""How often files are looked at."""
REREAD_SECONDS: Final = 60.0
"""How long files that look unchanged are believed to be: two writes in one tick of a file system's clock look like one."""
RENEW_AHEAD_SECONDS: Final = 60.0
"""So long before a plugin's credentials end it is run again, or in the last fifth of their time if that is short."""
RETRY_SECONDS: Final = 5.0
"""After a plugin that failed."""

Stamp = tuple[int, int, int, int] | None
"""What a file looks like without reading it; None if there is none."""


@dataclass(frozen=True)
class RequestCredentials:
    """What one request shows to the server."""

    token: str = field(repr=False)
    tls: ssl.SSLContext | None
    certificate: Pair = field(default=(b"", b""), repr=False)
    """With its key; empty if there is none."""


class Credentials:
    """The token and the TLS context of the moment, read anew when they are due."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self.problem = ""
        """Why what is there now cannot be used; then we go on with what we had."""
        self._config, self._clock = config, clock
        self._access: RequestCredentials | None = None
        self._stamps: dict[Path, Stamp] = {}
        self._looked_at = self._read_at = -REREAD_SECONDS
        self._pems: tuple[bytes, Pair, Pair] | None = None
        self._tls: ssl.SSLContext | None = None
        self._login = _Login(clock)

    async def current(self) -> RequestCredentials:
        """What to show now."""
        if self._plugs_in:
            await self._login.due(self._config)
        if self._access is None or self._is_due():
            self._access = self._read()
        return self._access

    async def renewed(self, refused: RequestCredentials) -> RequestCredentials | None:
        """What to show instead of what was refused; None if there is nothing new."""
        if not self._plugs_in and not self._paths():
            return None
        # Many requests are refused at the same time: only the first reads anew.
        if self._access is None or self._access is refused:
            if self._plugs_in:
                await self._login.anew(self._config)
            if self._access is None or self._access is refused:
                self._access = self._read()
        return None if self._access == refused else self._access

    def forget_tls(self) -> None:
        """Reads all files again before the next request, since the certificate authority may have been replaced."""
        self._tls = None
        self._looked_at = self._read_at = -REREAD_SECONDS

    @property
    def _plugs_in(self) -> bool:
        config = self._config
        return config.plugin is not None and config.token_file is None and not config.token

    def _paths(self) -> list[Path]:
        config = self._config
        pems = (each.file for each in (config.authority, config.certificate, config.key) if each is not None)
        return [each for each in (*config.kubeconfigs, *pems, config.token_file) if each is not None]

    def _is_due(self) -> bool:
        now = self._clock.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return self._login.is_news
        self._looked_at = now
        # Files that somebody writes again and again are read again and again, but never more than once a second.
        changed = self._stamps != {each: _stamp(each) for each in self._paths()}
        return changed or self._login.is_news or now - self._read_at >= REREAD_SECONDS

    def _read(self) -> RequestCredentials:
        """What is there now, or what we had if that cannot be read."""
        self._looked_at = self._read_at = self._clock.monotonic()
        # Before they are read: what changes meanwhile is read again.
        stamps = {each: _stamp(each) for each in self._paths()}
        try:
            found = self._found()
        except Misconfigured as problem:
            if self._access is None:
                raise
            self.problem, self._stamps = str(problem), {}
            return self._access
        self.problem = ""
        self._stamps = stamps if stamps.keys() == set(self._paths()) else {}
        return found

    def _found(self) -> RequestCredentials:
        if self._access is not None and self._config.kubeconfigs:
            self._take_over(reread(self._config))
        config, issued = self._config, self._login.take() if self._plugs_in else None
        if self._plugs_in and issued is None:
            raise Misconfigured(f"reading {config.source}: its exec plugin has not been run yet")
        token = _token_in(config.token_file) if config.token_file else issued.token if issued else config.token
        # Just what was read, whatever stands in the files by now.
        config = replace(
            config, authority=_read(config.authority), certificate=_read(config.certificate), key=_read(config.key)
        )
        pair = (config.certificate.data, config.key.data) if config.certificate and config.key else (b"", b"")
        printed = issued.pair if issued else (b"", b"")
        pems = (config.authority.data if config.authority else b"", pair, printed)
        if self._tls is None or self._pems != pems:
            self._tls = tls_context(config, *printed)
            self._pems = pems
        return RequestCredentials(token, self._tls, printed if any(printed) else pair)

    def _take_over(self, config: ClientConfig) -> None:
        if config.plugin != self._config.plugin:
            self._login = _Login(self._clock)
        self._config = config


class _Login:
    """What a plugin issued, and when it is due to issue again. Requests that give up waiting do not end it."""

    def __init__(self, clock: Clock) -> None:
        self.is_news = False
        """Whether it has issued something that nobody took yet."""
        self._clock = clock
        self._issued: Issued | None = None
        self._expires: int | None = None
        self._renew_at: int | None = None
        self._running: asyncio.Task[None] | None = None
        self._failure: HeadroomError | None = None
        self._failed_at = -RETRY_SECONDS

    def take(self) -> Issued | None:
        """What it issued last."""
        self.is_news = False
        return self._issued

    async def due(self, config: ClientConfig) -> None:
        """Have new credentials if there are none, and begin to renew those that end soon."""
        now = self._clock.now()
        if self._issued is None or (self._expires is not None and now >= self._expires):
            await self.anew(config)
        elif self._renew_at is not None and now >= self._renew_at and self._may_try:
            self._begun(config)

    async def anew(self, config: ClientConfig) -> None:
        """Have new credentials, whatever there is. Raises what the plugin failed with."""
        if self._running is not None or self._may_try:
            await asyncio.shield(self._begun(config))
        if self._failure is not None:
            raise self._failure

    @property
    def _may_try(self) -> bool:
        return self._clock.monotonic() - self._failed_at >= RETRY_SECONDS

    def _begun(self, config: ClientConfig) -> asyncio.Task[None]:
        if self._running is None:
            self._running = asyncio.create_task(self._run(config), name="exec plugin")
        return self._running

    async def _run(self, config: ClientConfig) -> None:
        assert config.plugin is not None
        began = self._clock.now()
        try:
            self._issued = await exec_plugins.run(config.plugin, config)
        except HeadroomError as problem:
            self._failure, self._failed_at = problem, self._clock.monotonic()
        else:
            self._failure, self.is_news = None, True
            self._expires = times.moment(self._issued.expiration_timestamp)
            self._renew_at = None
            if self._expires is not None:
                lasts = max(0, self._expires - began)
                self._renew_at = self._expires - min(round(RENEW_AHEAD_SECONDS * times.SECOND), lasts // 5)
        finally:
            self._running = None


def _read(pem: Pem | None) -> Pem | None:
    return None if pem is None else Pem(pem.label, data=pem.read())


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


def _token_in(file: Path) -> str:
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, ValueError) as problem:
        raise Misconfigured(f"reading the token file {file}: {problem}; check tokenFile and its rights") from problem
    if not token:
        # A request without a token would be one of nobody, who may do next to nothing.
        raise Misconfigured(f"reading the token file {file}: it is empty; check what writes it")
    return token

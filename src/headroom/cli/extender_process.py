"""The extender as a process: everything wired together, started, and taken down in good order."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import ClientConfig
from headroom.adapters.kube.extender_secret import KeptSecret, touch
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.leases import KubeLeases
from headroom.cli import live, output
from headroom.core.bandwidth import Placement, Touch, Touching
from headroom.model.errors import Misconfigured
from headroom.model.ports import Clock, Leases
from headroom.runtime import logs
from headroom.runtime.bandwidth_settings import rules_of
from headroom.runtime.clock import RealClock
from headroom.runtime.extender_settings import ExtenderSettings
from headroom.runtime.leader_thread import LeaderThread
from headroom.runtime.settings import Settings
from headroom.web import certificate
from headroom.web.doors import HEALTH
from headroom.web.extender import tls
from headroom.web.extender.app import SCHEDULER, extender_app, health_app
from headroom.web.extender.cluster import WatchedCluster
from headroom.web.extender.service import Extender
from headroom.web.listening import Servers

LAST_BINDS_SECONDS: Final = 5.0
"""How long an ending process waits for the binds of its answers."""


async def serve(settings: Settings, flags: ExtenderSettings) -> int:
    """Answer until told to stop."""
    log = logs.make(settings.log_level, settings.log_format)
    async with live.connection(settings) as (kube, config):
        await live.answers(kube, config)
        return await ExtenderProcess(settings, flags, kube, config, log).run()


class ExtenderProcess:
    """One extender with its lease, its watches and its servers."""

    def __init__(
        self, settings: Settings, flags: ExtenderSettings, kube: Kube, config: ClientConfig, log: logs.Log
    ) -> None:
        self._settings, self._flags, self._kube, self._config, self._log = settings, flags, kube, config, log
        self._clock: Clock = RealClock()
        self._ends = asyncio.Event()
        self._failure: BaseException | None = None
        self._leader = self._candidate() if settings.elect_leader else None
        rules, touching = rules_of(settings), Touching(Placement(flags.candidates, flags.hold_seconds * 1000))
        leads = self._leader.may_act if self._leader is not None else lambda: True
        self._extender = Extender(touching, rules, clock=self._clock, log=log, leads=leads)
        self._cluster = WatchedCluster(
            kube, touching, rules, clock=self._clock, rng=random.Random(), now=self._extender.now
        )
        self._extender.watch(self._cluster.unseen, self._cluster.heard, self._cluster.pods.key_of)

    async def run(self) -> int:
        """Start everything, wait for a signal or a failure, stop everything."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ends.set)
        servers, tasks = Servers(), []
        try:
            shown, following = await self._tls()
            tasks += [asyncio.create_task(each) for each in following]
            await self._listen(servers, shown)
            if self._leader is not None:
                self._leader.start()
            self._cluster.start(self._fail)
            own = (self._extender.run(), self._extender.bring_back(self._touch), self._settle())
            tasks += [asyncio.create_task(each) for each in own]
            for task in tasks:
                task.add_done_callback(self._ended)
            self._log.info("starting", address=self._flags.address, candidates=self._flags.candidates)
            if not self._flags.client_authority:
                self._log.warning(
                    "whoever reaches the address can reserve bandwidth; give --client-authority, or fence it"
                )
            await self._ends.wait()
            await self._extender.stop(LAST_BINDS_SECONDS)
        finally:
            await self._stop(servers, tasks)
        if self._failure is not None:
            self._log.error("ended by a bug in Headroom", error=repr(self._failure))
            return output.COULD_NOT_RUN
        self._log.info("stopped")
        return output.OK

    async def _stop(self, servers: Servers, tasks: list[asyncio.Task[None]]) -> None:
        if self._leader is not None:
            await self._leader.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await servers.close()
        await self._cluster.stop()

    async def _listen(self, servers: Servers, shown: certificate.Context | None) -> None:
        metrics, flags = self._extender.metrics, self._flags
        names = frozenset(filter(None, map(str.strip, flags.client_names.split(","))))
        app = extender_app(self._extender, metrics, known_clients=bool(flags.client_authority), names=names)
        await servers.listen(app, flags.address, "extender", shown, SCHEDULER)
        if flags.health_address:
            await servers.listen(health_app(self._extender, metrics), flags.health_address, "health", None, HEALTH)

    async def _settle(self) -> None:
        """Once all pods are known, keep what will live for long out of the cyclic collector's way."""
        while self._cluster.unseen():
            await self._clock.sleep(0.2)
        gc.collect()
        gc.freeze()
        self._log.info("the view is complete", **self._cluster.counted())

    async def _tls(self) -> tuple[certificate.Context | None, list[Any]]:
        """How kube-scheduler's connections are secured, and what keeps that up to date."""
        flags, names = self._flags, names_of(self._settings, self._flags)
        if flags.client_names and not flags.client_authority:
            raise Misconfigured("reading the flags: --client-names needs --client-authority")
        if flags.plain:
            if flags.certificate or flags.client_authority:
                raise Misconfigured("reading the flags: --plain needs neither a certificate nor a client authority")
            return None, []
        if flags.certificate:
            shown = certificate.context(flags.certificate, flags.key, names)
            following = certificate.follow(shown, flags.certificate, flags.key, self._clock)
        else:
            store = SecretStore(KeptSecret(self._kube, self._settings.operator_namespace, flags.kept_in))
            shown = certificate.Context(ssl.PROTOCOL_TLS_SERVER)
            shown.present((await tls.kept(store, names, datetime.now(UTC))).shown)
            following = tls.follow(shown, store, names, self._clock, self._log)
        if flags.client_authority:
            shown.trust(_read(flags.client_authority))
        return shown, [following]

    async def _touch(self, touched: Touch) -> None:
        await touch(self._kube, touched.key, touched.uid, self._clock.now())

    def _candidate(self) -> LeaderThread:
        loop = asyncio.get_running_loop()

        def connect() -> tuple[Leases, Callable[[], Awaitable[None]]]:
            kube = Kube(HttpTransport(self._config, self._clock), self._clock, random.Random())
            return KubeLeases(kube, self._settings.operator_namespace, self._flags.lease_name), kube.close

        def failed(error: BaseException) -> None:
            loop.call_soon_threadsafe(self._fail, error)

        return LeaderThread(connect, self._clock, self._settings.identity, failed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._ends.set()


class SecretStore:
    """The pair of certificates in its Secret."""

    def __init__(self, secret: KeptSecret) -> None:
        self._secret = secret

    async def read(self) -> tls.Pair | None:
        """The pair; None if there is none."""
        found = await self._secret.read()
        return tls.Pair(*found) if found is not None else None

    async def write(self, pair: tls.Pair) -> None:
        """Keep it, unless somebody was faster."""
        await self._secret.write((pair.authority, pair.authority_key, pair.certificate, pair.key))


def names_of(settings: Settings, flags: ExtenderSettings) -> tuple[str, ...]:
    """The names by which kube-scheduler may reach it."""
    return (flags.service, f"{flags.service}.{settings.operator_namespace}.svc", "localhost")


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Misconfigured(f"reading the authority of clients: {error.strerror or error}: {file}") from error

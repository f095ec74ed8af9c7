"""The operator as a process: everything wired together, started, and taken down in good order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import structs

from headroom.adapters.clouds import CloudFleet, Places
from headroom.adapters.egress import Guard, entries
from headroom.adapters.kube.api_server import ApiServerNumbers
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import ClientConfig
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.leases import KubeLeases
from headroom.adapters.kube.looking import RightToDelete
from headroom.adapters.kube.secrets import Secrets
from headroom.adapters.kube.store import KubePort
from headroom.adapters.kube.values import keep
from headroom.adapters.power import Power
from headroom.cli import capabilities, ledgers, live, output, planning, preflight, price_book
from headroom.cli.fronts import Fronts
from headroom.cli.options import Form
from headroom.cli.region_offers import RegionOffers
from headroom.core import PLANS
from headroom.model import times
from headroom.model.changes import Topic
from headroom.model.plans import Plan
from headroom.model.ports import Beside, Leases
from headroom.runtime import logs
from headroom.runtime.bandwidth_settings import rules_of
from headroom.runtime.clock import RealClock
from headroom.runtime.dashboard_settings import presentation_of
from headroom.runtime.leader import Always
from headroom.runtime.leader_thread import LeaderThread
from headroom.runtime.learning import Learning
from headroom.runtime.operator import Operator
from headroom.runtime.recording import Recorder
from headroom.runtime.settings import Settings, pairs_of, pool_namespaces
from headroom.runtime.surroundings import Runtime
from headroom.web.view import OperatorView, Showing

SHUTDOWN_SECONDS: Final = 18.0
"""Kubernetes gives 30 by default; whoever is not done by then is killed."""
WATCH_SECONDS: Final = 1.0
NEWS_SECONDS: Final = 10.0
"""How long a first view may take before the log says what it waits for."""


async def dry_run(settings: Settings, form: Form, *, watch: bool) -> int:
    """Read the cluster, print what would be done, and write nothing."""
    async with live.connection(settings) as (kube, config):
        await preflight.check(kube, config, settings)
        offers = RegionOffers(Secrets(kube, settings.operator_namespace), _places(settings), kube.clock)
        async with live.observed(kube, settings) as port:
            result = planning.planned(await offers.added(await live.world(port, kube, settings)))
            planning.show(result, form)
            ends = _told_to_end() if watch else None
            while ends is not None and not await _set_within(ends, WATCH_SECONDS):
                world = await offers.added(await live.world(port, kube, settings))
                before, result = result, planning.planned(world)
                if before | {"now": ""} != result | {"now": ""}:
                    planning.show(result, form)
        await offers.close()
    return planning.exit_code(result)


def _told_to_end() -> asyncio.Event:
    """Set by SIGTERM and Ctrl-C."""
    ends = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    return ends


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def serve(settings: Settings, plans: Sequence[Plan] = PLANS) -> int:
    """Run the operator until it is told to stop."""
    around = Runtime(clock=RealClock(), log=logs.make(settings.log_level, settings.log_format))
    entries(settings.allow_egress)  # a list that cannot be read is a mistake of today, whoever answers
    async with live.connection(settings) as (kube, config):
        around.log.info("starting", **settings.shown())
        await preflight.check(kube, config, settings)
        if why := await preflight.unfenced(kube):
            around.log.warning("nothing limits what this account may change", why=why)
        process = Process(settings, around, kube, config, plans)
        return await process.run()


def _places(settings: Settings) -> Places:
    """What an administrator says of clouds."""
    return Places(
        endpoints=pairs_of("cloud_endpoints", settings.cloud_endpoints),
        queues=pairs_of("interruption_queues", settings.interruption_queues),
        ambient=frozenset(filter(None, (each.strip() for each in settings.ambient_credentials.split(",")))),
        instance_metadata=settings.instance_metadata,
    )


class Process:
    """One operator with its lease, its view and its servers."""

    def __init__(
        self, settings: Settings, around: Runtime, kube: Kube, config: ClientConfig, plans: Sequence[Plan]
    ) -> None:
        self._settings, self._around, self._config = settings, around, config
        self._kube = kube
        self._ends = _told_to_end()
        self._failure: BaseException | None = None
        if settings.price_book:
            price_book.read(settings.price_book)  # one that is not there at all is a mistake of today
        self._leader = self._candidate() if settings.elect_leader else None
        self._guard = Guard(entries(settings.allow_egress), api_server=config.server)
        self._api_server = ApiServerNumbers(kube, self._guard.protect, self._api_server_unread)
        self._right = RightToDelete(kube, self._may_delete, self._right_unknown)
        self._power = Power(
            self._guard,
            Secrets(kube, settings.operator_namespace),
            around.clock,
            around.rng,
            unread=self._power_unread,
            allow_insecure=settings.allow_insecure_secrets,
        )
        self._clouds = CloudFleet(
            self._guard, Secrets(kube, settings.operator_namespace), around.clock, around.rng, _places(settings)
        )
        self._ledger = ledgers.of(settings)
        told = presentation_of(settings)
        keep(filter(None, [told.user_key]))
        self._presentation = structs.replace(told, cluster=told.cluster or config.current or settings.cluster_id)
        self._recorder = Recorder(
            self._ledger,
            around,
            may_lead=(self._leader or Always()).may_act,
            holder=f"{settings.identity}-{uuid.uuid4().hex[:8]}",
            accept_loss_before=times.moment(settings.accept_history_loss_before) or 0,
            labels=frozenset(filter(None, [told.user_key])),
        )
        self._port = self._seen()
        self._recorder.connect(self._port)
        self._learning = Learning(self._ledger, self._port, around.clock, (self._leader or Always()).may_act)
        for outside in (self._power, self._clouds):
            outside.connect(self._port, (self._leader or Always()).may_act)
        self._operator = Operator(self._port, self._leader or Always(), settings, around, plans)
        self._operator.loop.noted = self._recorder.decided
        self._port.enforced = around.metrics.enforced
        self._fronts = Fronts(settings, self._shown(), around.log)

    def _seen(self) -> KubePort:
        """The cluster, and what is outside, as the loop sees it."""
        settings, around = self._settings, self._around
        port = KubePort(
            self._kube,
            Events(self._kube, around.clock),
            clock=around.clock,
            rng=around.rng,
            namespace=settings.operator_namespace,
            cluster=settings.cluster_id,
            recording=self._recorder,
            caps=live.caps(settings),
            beside=Beside(switches=self._power, clouds=self._clouds),
            pool_namespaces=pool_namespaces(settings),
            end_orphans=settings.orphan_policy == "Terminate",
            # Blind for ever, we must not keep the lease: another replica sees.
            on_failure=self._fail,
        )
        port.regulate(rules_of(settings))
        return port

    async def run(self) -> int:
        """Start everything, wait for a signal or a failure, stop everything."""
        for keeping in self._fronts.start():
            keeping.add_done_callback(self._told)
        if self._leader:
            self._leader.start()
        if self._settings.allow_egress:
            await self._api_server.look()  # before anything is called
        await self._port.start()
        running = [asyncio.create_task(each.run()) for each in (self._operator, self._recorder)]
        for task in running:
            task.add_done_callback(self._ended)
        prices = price_book.follow(self._settings.price_book, self._port, self._around.clock, self._around.log)
        others = [self._settle(), self._follow_leader(), self._power.run(), self._clouds.run(), prices]
        others.append(self._learning.run())
        others.append(self._ask_for_rights())
        if self._settings.allow_egress:
            others.append(self._api_server.follow())
        beside = [asyncio.create_task(each) for each in others]
        for task in beside:
            task.add_done_callback(self._told)
        tasks = [*running, *beside]
        await self._ends.wait()
        self._around.log.info("stopping")
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._stop(tasks)
        except TimeoutError:
            self._around.log.warning("not everything came to its end in time", seconds=SHUTDOWN_SECONDS)
        if self._failure is not None:
            self._around.log.error("ended by a bug in Headroom", error=repr(self._failure))
            return output.COULD_NOT_RUN
        self._around.log.info("stopped")
        return output.OK

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        # The writer first: an effect that has begun ends under our lease, and only then is it given back.
        await self._operator.stop()
        await self._recorder.stop()
        if self._leader:
            await self._leader.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fronts.close()
        self._guard.close()
        await self._port.stop()
        await self._ledger.close()

    def _api_server_unread(self, why: str) -> None:
        self._around.log.warning("some numbers of the API server are not known", why=why)

    async def _ask_for_rights(self) -> None:
        await self._right.look()
        await self._right.follow()

    def _may_delete(self, allowed: bool) -> None:
        if allowed != self._port.caps.deletes:
            self._port.caps = structs.replace(self._port.caps, deletes=allowed)
            self._port.tell(Topic.RIGHTS)

    def _right_unknown(self, why: str) -> None:
        self._around.log.warning("whether pods may be deleted is not known", why=why)

    def _power_unread(self, machine: str, why: str) -> None:
        self._around.log.warning("the power of a machine cannot be read", machine=machine, why=why)

    async def _settle(self) -> None:
        """Once the first view is complete, keep what will live for long out of the cyclic collector's way."""
        while not await self._port.synced(NEWS_SECONDS):
            self._around.log.warning("the view is not complete yet", why=self._port.problems())
        gc.collect()
        gc.freeze()
        world = self._port.world(self._around.clock.now())
        self._around.log.info("the view is complete", pods=len(world.pods), nodes=len(world.nodes))

    async def _follow_leader(self) -> None:
        """Say in the log when we begin or cease to lead, and why the lease cannot be had."""
        led, problem = False, ""
        while self._leader is not None:
            if self._leader.may_act() != led:
                led = not led
                self._around.log.info("leading" if led else "not leading any more", identity=self._settings.identity)
            if self._leader.problem != problem:
                problem = self._leader.problem
                if problem:
                    self._around.log.warning("the lease cannot be held", why=problem)
            await self._around.clock.sleep(1.0)

    def _shown(self) -> Showing:
        view = OperatorView(
            port=self._port,
            loop=self._operator.loop,
            gate=self._leader or Always(),
            clock=self._around.clock,
            journal=self._recorder.journal,
            presentation=self._presentation,
        )
        return Showing(view=view, metrics=capabilities.measured(self._around.metrics), pages=capabilities.pages())

    def _candidate(self) -> LeaderThread:
        loop = asyncio.get_running_loop()

        def connect() -> tuple[Leases, Callable[[], Awaitable[None]]]:
            kube = Kube(HttpTransport(self._config, self._around.clock), self._around.clock, random.Random())
            kube.server_time = self._kube.server_time  # it is asked every other second, so the time is always fresh
            name, published = self._settings.lease_name, self._fronts.published
            return KubeLeases(kube, self._settings.operator_namespace, name, published=published), kube.close

        def failed(error: BaseException) -> None:
            loop.call_soon_threadsafe(self._fail, error)

        return LeaderThread(connect, self._around.clock, self._settings.identity, failed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self._ends.is_set():
            self._fail(task.exception() if not task.cancelled() else None)

    def _told(self, task: asyncio.Task[None]) -> None:
        """We go on without what runs beside the loop, but not without a word."""
        if not task.cancelled() and (error := task.exception()) is not None:
            what = getattr(task.get_coro(), "__qualname__", "")
            self._around.log.error("a part of Headroom has ended by a mistake in it", task=what, error=repr(error))

    def _fail(self, error: BaseException | None) -> None:
        self._failure = self._failure or error or RuntimeError("the loop ended by itself")
        self._ends.set()

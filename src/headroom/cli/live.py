"""A connection to a real cluster for the commands that need one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from headroom.cli import progress
from headroom.model.errors import Refused, Unavailable

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.adapters.kube.config import ClientConfig
    from headroom.adapters.kube.store import KubePort
    from headroom.model.usage import UsageRow
    from headroom.model.world import Caps, World
    from headroom.runtime.settings import Settings

SYNC_SECONDS: Final = 120.0
STUCK_SECONDS: Final = 10.0
FIRST_ANSWER_SECONDS: Final = 10.0
MOST_PROBLEMS: Final = 2

Result = TypeVar("Result")


def with_cluster(settings: Settings, work: Callable[[Kube], Awaitable[Result]]) -> Result:
    """Connect, make sure that somebody answers, do the work, disconnect."""
    from headroom.adapters.kube import errors

    async def connected() -> Result:
        async with connection(settings) as (kube, config):
            await answers(kube, config)
            try:
                return await work(kube)
            except errors.Forbidden as error:
                raise Refused(f"{error}; ask an administrator for that permission") from error

    return asyncio.run(connected())


@asynccontextmanager
async def connection(settings: Settings) -> AsyncIterator[tuple[Kube, ClientConfig]]:
    """A client for the cluster of the settings; nothing is asked yet."""
    import random

    from headroom.adapters.kube.client import Kube
    from headroom.adapters.kube.config import load
    from headroom.adapters.kube.http import HttpTransport
    from headroom.runtime.clock import RealClock

    config = load(settings.kubeconfig, settings.context)
    clock = RealClock()
    kube = Kube(HttpTransport(config, clock), clock, random.Random())
    try:
        yield kube, config
    finally:
        await kube.close()


async def answers(kube: Kube, config: ClientConfig) -> None:
    """Raise, in a sentence that says what to do, unless an API server answers and knows us."""
    from headroom.adapters.kube import errors

    try:
        async with asyncio.timeout(FIRST_ANSWER_SECONDS):
            await kube.get("/version", timeout=FIRST_ANSWER_SECONDS)
    except (Unavailable, TimeoutError) as error:
        why = str(error) or f"asking {config.server}: no answer within {FIRST_ANSWER_SECONDS:g} s"
        raise Unavailable(f"{why}; check that the server runs and that {config.source} has its address") from error
    except errors.Forbidden:
        return  # it knows us; what we may not do is asked for elsewhere
    except errors.Unauthorized as error:
        raise Refused(
            f"asking {config.server}: it does not know these credentials; renew them in {config.source}"
        ) from error


@asynccontextmanager
async def observed(kube: Kube, settings: Settings) -> AsyncIterator[KubePort]:
    """A complete view of the cluster. Raises `Unavailable` with the reasons if there is none in time."""
    import random

    from headroom.adapters.kube.events import Events
    from headroom.adapters.kube.store import KubePort
    from headroom.runtime.bandwidth_settings import rules_of

    clock = kube.clock
    port = KubePort(
        kube,
        Events(kube, clock),
        clock=clock,
        rng=random.Random(),
        namespace=settings.operator_namespace,
        cluster=settings.cluster_id,
        caps=caps(settings),
    )
    port.regulate(rules_of(settings))
    await port.start()
    try:
        with progress.shown("reading the cluster", "objects") as told:
            await _complete(port, told)
        yield port
    finally:
        await port.stop()


def caps(settings: Settings) -> Caps:
    """How much is stopped in a minute at most, whatever single budgets allow."""
    from headroom.model.world import Caps

    return Caps(cluster=settings.evictions_per_minute, namespace=settings.namespace_evictions_per_minute)


async def world(port: KubePort, kube: Kube, settings: Settings) -> World:
    """The view with its usage: with a ledger URL that of the ledger too, else of the pods that are still there."""
    from msgspec import structs

    from headroom.core.usage import table_of
    from headroom.model.world import LedgerState

    known = await rows(settings, kube.clock.now()) if settings.ledger_url else []
    problem = "" if settings.ledger_url else "Only pods that still exist are counted; --ledger-url adds past usage."
    seen = port.world(kube.clock.now())
    return structs.replace(seen, usage=table_of(seen, known), ledger=LedgerState(problem=problem))


async def rows(settings: Settings, now: int) -> list[UsageRow]:
    """All that the ledger of the settings has."""
    from headroom.adapters.ledger import open_ledger
    from headroom.api.budgets import LONGEST_WINDOW_HOURS
    from headroom.model.times import HOUR

    ledger = open_ledger(settings.ledger_url, read_only=True)
    try:
        return [row async for rows in ledger.read(now - LONGEST_WINDOW_HOURS * HOUR) for row in rows]
    finally:
        await ledger.close()


async def _complete(port: KubePort, told: progress.Progress) -> None:
    waited = 0.0
    while not await port.synced(0.25):
        waited += 0.25
        seen = port.world(0)
        told(len(seen.pods) + len(seen.nodes) + len(seen.resources))
        # Without the right to look, waiting longer helps nobody; a large cluster reports no problem while it is read.
        if waited >= (STUCK_SECONDS if port.problems() else SYNC_SECONDS):
            raise Unavailable(f"reading the cluster took more than {waited:g} s: {_few(port.problems())}")


def _few(problems: list[str]) -> str:
    more = len(problems) - MOST_PROBLEMS
    shown = "; ".join(problems[:MOST_PROBLEMS]) or "no reason is known"
    return f"{shown}; and {more} more of the kind" if more > 0 else shown


def namespace_of(settings: Settings) -> str:
    """The namespace that kubectl takes where none is given: that of the context, or of the pod we run in."""
    from headroom.adapters.kube.config import load

    return load(settings.kubeconfig, settings.context).namespace or "default"


def settings_of(
    kubeconfig: str | None, context: str | None, operator_namespace: str | None = None, ledger_url: str | None = None
) -> Settings:
    """Settings from a command's few options and the environment."""
    from headroom.runtime.settings import load

    given = {
        "kubeconfig": kubeconfig,
        "context": context,
        "operator_namespace": operator_namespace,
        "ledger_url": ledger_url,
    }
    return load(given)

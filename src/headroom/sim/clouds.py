"""The clouds beside a simulated cluster, and the port to them that an operator process has.

What goes wrong are faults with the verbs `launch`, `terminate` and `list` and the path `/cloud/NAMESPACE/POOL`, or `offers` and the path
`/cloud/market`, and whatever the simulated clouds themselves do wrong (`Cloud.wrong`, `Cloud.lag`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from headroom.adapters.kube import parse
from headroom.adapters.kube.transport import Transport
from headroom.api.kinds import AnyResource
from headroom.api.spot_pools_status import Claim
from headroom.model.actions import LaunchInstance, OnInstance
from headroom.model.cloud_facts import Gateway, Instance, Launch, Listing, Offer, OfferFeed
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.ports import Clock
from headroom.sim.apiserver import ApiServer
from headroom.sim.cloud import Cloud
from headroom.sim.cloud_view import CloudView, key_of
from headroom.sim.connection import SimTransport
from headroom.sim.faults import Fault
from headroom.sim.market import Feed

KIND: Final = "Spotpool"
POLL_SECONDS: Final = 40.0
POLL_SECONDS_UNDER_WAY: Final = 10.0
MARKET_SECONDS: Final = 10.0
SETTLED: Final = "Running"
"""The state of a slot in which nothing is under way."""


class Regions:
    """All regions of all clouds, each made when somebody first asks for it."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.found: dict[str, Cloud] = {}
        server.beside[Regions] = self

    def __getitem__(self, region: str) -> Cloud:
        if region not in self.found:
            self.found[region] = Cloud(self._server.clock.now, region)
        return self.found[region]

    def pools(self) -> list[AnyResource]:
        """Every Spotpool there is that can be read."""
        every = (parse.resource(body) for body in self._server.objects(KIND))
        return [pool for pool in every if not pool.problems]


class SimClouds:
    """A `model.ports.Clouds`."""

    def __init__(self, regions: Regions, transport: SimTransport, clock: Clock, cluster: str) -> None:
        self._regions, self._transport, self._clock = regions, transport, clock
        self._view = CloudView(regions, cluster, clock.now)
        self._feed = Feed(transport.server)
        self.offered: Callable[[str], None] = lambda _pool: None
        """Told of which LeftoverNodePool something is new."""
        self.changed: Callable[[str], None] = lambda _pool: None
        """Told of which pool something is new."""

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Every machine that was listed last, read by its id, or launched since."""
        return self._view.instances

    @property
    def listings(self) -> Mapping[str, Listing]:
        """When the machines of each pool were last listed in full."""
        return self._view.listings

    @property
    def launches(self) -> Mapping[str, Launch]:
        """What came of launches."""
        return self._view.launches

    @property
    def offers(self) -> Mapping[str, Offer]:
        """What there is to be had."""
        return self._feed.offers(self._view.offers)

    @property
    def offer_feeds(self) -> Mapping[str, OfferFeed]:
        """How well that is known for each LeftoverNodePool."""
        return self._feed.feeds

    @property
    def gateways(self) -> Mapping[str, Gateway]:
        """There are none here."""
        return {}

    async def launch(self, pool: AnyResource, action: LaunchInstance) -> None:
        """Launch one machine."""
        sent = self._clock.now()
        try:
            await self._call("launch", pool, partial(self._view.launch, pool, action))
        except (Unavailable, asyncio.CancelledError):
            self._view.unheard(pool, action, sent)
            raise
        finally:
            self.changed(key_of(pool))

    async def terminate(self, pool: AnyResource, instance: str, claim: Claim = "Slot") -> None:
        """End one machine."""
        await self._call("terminate", pool, partial(self._view.terminate, pool, instance, claim))

    async def add_target(self, pool: AnyResource, target: str) -> None:
        """Nobody has a gateway here."""
        raise Refused(f"adding target {target} of Spotpool {key_of(pool)}: there is no gateway")

    async def remove_target(self, pool: AnyResource, target: str) -> None:
        """Nobody has a gateway here."""
        raise Refused(f"removing target {target} of Spotpool {key_of(pool)}: there is no gateway")

    async def _call(self, verb: str, pool: AnyResource, effect: Callable[[], None]) -> None:
        failed: list[HeadroomError] = []

        def reached(_due: list[Fault]) -> None:
            try:
                effect()
            except HeadroomError as error:
                failed.append(error)

        path, doing = f"/cloud/{key_of(pool)}", f"{verb} for Spotpool {key_of(pool)}"
        status = await self._transport.call(verb, path, reached, OnInstance.timeout_seconds)
        if status is None:
            raise Unavailable(f"{doing}: no answer came")
        if not 200 <= status < 300:
            raise (Unavailable if status == 429 or status >= 500 else Refused)(f"{doing}: it answered {status}")
        if failed:
            raise failed[0]

    async def run(self) -> None:
        """List the machines of every pool, more often while something is under way."""
        while True:
            pools = self._regions.pools()
            for gone in self._view.listings.keys() - {key_of(each) for each in pools}:
                self._view.forget(gone)
            for pool in pools:
                await self._look(pool)
            if self._feed.is_due:
                await self._read_market()
            under_way = any(slot.state != SETTLED for pool in pools for slot in pool.status.slots)
            # As often as the adapter lists real clouds.
            await self._clock.sleep(POLL_SECONDS_UNDER_WAY if under_way else POLL_SECONDS)

    async def _read_market(self) -> None:
        before = self._feed.offers({}), self._feed.feeds
        try:
            status = await self._transport.call(
                "offers", "/cloud/market", lambda _due: self._feed.read(), MARKET_SECONDS
            )
        except Unavailable:
            status = None
        if status is None or not 200 <= status < 300:
            self._feed.unread()
        if before != (self._feed.offers({}), self._feed.feeds):
            self.offered("")

    async def _look(self, pool: AnyResource) -> None:
        before = self._view.instances, self._view.listings.get(key_of(pool))
        try:
            await self._call("list", pool, partial(self._view.look, pool))
        except (Refused, Unavailable):
            self._view.unread(pool)
        if before != (self._view.instances, self._view.listings.get(key_of(pool))):
            self.changed(key_of(pool))


def clouds_of(transport: Transport, clock: Clock) -> SimClouds | None:
    """The clouds that a new operator process gets; None where there are none."""
    assert isinstance(transport, SimTransport)
    regions = transport.server.beside.get(Regions)
    found = transport.server.object("Namespace", "", "kube-system")
    assert found is not None, "every cluster has it"
    return None if regions is None else SimClouds(regions, transport, clock, found["metadata"]["uid"])

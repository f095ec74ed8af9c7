"""What regions offer to LeftoverNodePools, for a look at a cluster without the operator."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from msgspec import structs

from headroom.model.ports import Clock
from headroom.model.world import World

if TYPE_CHECKING:
    from headroom.adapters.clouds import Places
    from headroom.adapters.clouds.credentials import CloudSecrets
    from headroom.adapters.clouds.markets import Markets

KIND: Final = "LeftoverNodePool"
LONGEST_SECONDS: Final = 60.0
STEP_SECONDS: Final = 0.1


class RegionOffers:
    """Reads regions as the operator does, and waits until all were read once."""

    def __init__(self, secrets: CloudSecrets, places: Places, clock: Clock) -> None:
        self._secrets, self._places, self._clock = secrets, places, clock
        self._markets: Markets | None = None

    async def added(self, world: World) -> World:
        """The world with what there is to be had; as it is where nobody looks for offers."""
        if not world.of_kind(KIND):
            return world
        markets = self._markets = self._markets or self._made()
        until = self._clock.monotonic() + LONGEST_SECONDS
        markets.step(world)
        while markets.is_busy and self._clock.monotonic() < until:
            await self._clock.sleep(STEP_SECONDS)
            markets.step(world)
        return structs.replace(world, offers=markets.offers, offer_feeds=markets.feeds)

    def _made(self) -> Markets:
        from headroom.adapters.clouds.aws_sdk import Clients
        from headroom.adapters.clouds.markets import Markets

        clients = Clients(instance_metadata=self._places.instance_metadata)
        self._clients = clients
        return Markets(self._secrets, clients, self._places, self._clock, random.Random(), lambda _topic, _name: None)

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._markets is not None:
            await self._markets.stop()
            await self._clients.close()

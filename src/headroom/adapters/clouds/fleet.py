"""The machines of all Spotpools, in whichever cloud: launched once per token, ended after a last look, and listed all the time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Protocol

from headroom.adapters.clouds.credentials import CloudSecrets
from headroom.adapters.clouds.gateway import Gateways
from headroom.adapters.clouds.polling import KIND, CloudPolling, key_of, slots_of
from headroom.adapters.clouds.providers import NOT_FOUND, NotLaunched, Provider
from headroom.adapters.clouds.sessions import Places, Sessions
from headroom.adapters.egress import Guard
from headroom.adapters.prices import united
from headroom.api.kinds import AnyResource
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, TOKEN_TAG
from headroom.api.spot_pools_status import Claim, SpotpoolStatus
from headroom.model import times
from headroom.model.actions import LaunchInstance
from headroom.model.changes import Topic
from headroom.model.cloud_facts import Gateway, Instance, Launch, Listing, Offer, OfferFeed
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.ports import Clock
from headroom.model.world import World

if TYPE_CHECKING:
    from headroom.adapters.clouds.markets import Markets

STEP_SECONDS: Final = 1.0
LAG_MS: Final = 35 * times.MINUTE
"""No list is further behind."""
REMEMBERED_MS: Final = 2 * times.HOUR
"""What came of launches is kept for so long, and for as long as a status has the token."""
_ENDED: Final = frozenset({"TERMINATING", "SHUTDOWN"})
_STOPPED: Final = frozenset({"STOPPED", "LAUNCH_FAILED"})
"""It does not run, but is still there."""

LaunchOutcome = Literal["Accepted", "SoldOut", "PriceTooLow", "QuotaReached", "Refused", "Unknown"]


class FleetRuntime(Protocol):
    """The port, as far as it is needed here."""

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def tell(self, topic: Topic, name: str = "") -> None:
        """Some facts are new."""
        ...


class CloudFleet:
    """Implements `Clouds` for real clouds."""

    def __init__(self, guard: Guard, secrets: CloudSecrets, clock: Clock, rng: random.Random, places: Places) -> None:
        self._sessions = Sessions(guard, secrets, places)
        self._secrets, self._places, self._rng = secrets, places, rng
        self._markets: Markets | None = None
        self._united: tuple[Mapping[str, Offer], Mapping[str, Offer], Mapping[str, Offer]] = ({}, {}, {})
        self._clock, self._began = clock, clock.now()
        self._port: FleetRuntime | None = None
        self._may_act: Callable[[], bool] = lambda: True
        self._launches: dict[str, Launch] = {}
        self._unresolved: dict[tuple[str, str], int] = {}
        """When a pool's last call with a token was sent that may have launched a machine without telling us."""
        self._polling = CloudPolling(self._sessions, clock, rng, self._tell)
        self._gateways = Gateways(guard, self._sessions, clock, rng, self._tell, self._cluster)
        self.instances: Mapping[str, Instance] = MappingProxyType(self._polling.inventory.known)
        self.listings: Mapping[str, Listing] = MappingProxyType(self._polling.listings)
        self.launches: Mapping[str, Launch] = MappingProxyType(self._launches)
        self.gateways: Mapping[str, Gateway] = MappingProxyType(self._gateways.known)

    @property
    def offers(self) -> Mapping[str, Offer]:
        """What the clouds offer, to the Spotpools and in the regions of LeftoverNodePools; a new mapping whenever that changes."""
        regions, pools = self._markets.offers if self._markets else {}, self._polling.offers
        if self._united[0] is not regions or self._united[1] is not pools:
            self._united = regions, pools, united(regions, pools)
        return self._united[2]

    @property
    def offer_feeds(self) -> Mapping[str, OfferFeed]:
        """How well the offers for each LeftoverNodePool are known."""
        return self._markets.feeds if self._markets else {}

    def connect(self, port: FleetRuntime, may_act: Callable[[], bool]) -> None:
        """Learn which Spotpools there are, whom to tell of news, and whether we lead; before `run`."""
        self._port, self._may_act = port, may_act

    async def run(self) -> None:
        """List everything while we may act."""
        try:
            while True:
                if self._may_act():
                    world = self._world()
                    self._polling.step(world)
                    self._gateways.step(world)
                    self._step_markets(world)
                    self._forget_launches(world)
                else:
                    await self._rest()
                # The pace at which it is asked who is due; nothing waits for it.
                await self._clock.sleep(STEP_SECONDS)
        finally:
            await self._rest()
            await self._sessions.close()

    async def _rest(self) -> None:
        await self._polling.stop()
        await self._gateways.stop()
        if self._markets is not None:
            await self._markets.stop()

    def _step_markets(self, world: World) -> None:
        if self._markets is None and world.of_kind("LeftoverNodePool"):
            from headroom.adapters.clouds.markets import Markets  # noqa: PLC0415  loaded with the first one

            clients = self._sessions.clients
            self._markets = Markets(self._secrets, clients, self._places, self._clock, self._rng, self._tell)
        if self._markets is not None:
            self._markets.step(world)

    # Launching

    async def launch(self, pool: AnyResource, action: LaunchInstance) -> None:
        """Launch one machine, or learn which one its token has launched."""
        began, doing = self._clock.now(), f"launching a machine for Spotpool {key_of(pool)}"
        try:
            found = await self._launched(pool, action)
        except NotLaunched as problem:
            outcome = problem.outcome
            if problem.before_token:
                outcome = outcome if self._is_first(pool, action) else "Unknown"
            elif outcome == "Unknown":
                self._unresolved[pool.uid, action.token] = began
            self._note(pool, action, began, outcome, message=str(problem))
            raise (Unavailable if outcome == "Unknown" else Refused)(f"{doing}: {problem}") from None
        except asyncio.CancelledError:
            self._unresolved[pool.uid, action.token] = began
            self._note(pool, action, began, "Unknown", message="the call was abandoned")
            raise
        self._polling.launched(pool, found)
        self._note(pool, action, began, "Accepted", instance=found.name)

    async def _launched(self, pool: AnyResource, action: LaunchInstance) -> Instance:
        """The machine. Raises `NotLaunched`, nothing else."""
        try:
            cluster = self._cluster()
            request = await self._sessions.request(pool, action, cluster)
            provider = await self._sessions.provider(pool)
        except HeadroomError as problem:
            refused = isinstance(problem, Refused)
            raise NotLaunched("Refused" if refused else "Unknown", str(problem), before_token=True) from None
        try:
            async with provider:
                await _check_account(pool, provider)
                return await provider.launch(request)
        except NotLaunched:
            raise
        except Exception as problem:  # noqa: BLE001 - whatever happened, the call may have been made
            raise NotLaunched("Unknown", f"a bug in Headroom ({type(problem).__name__})") from None

    def _is_first(self, pool: AnyResource, action: LaunchInstance) -> bool:
        """Whether surely no earlier call with this token has launched a machine.

        A wrong key, a missing right or a bad parameter is told before the cloud looks at the token, so it says nothing of earlier
        calls: of one that got no answer, or that another process has made. Those count until a list has begun that would show it.
        """
        slot = next((each for each in slots_of(pool) if each.token == action.token), None)
        intended = times.moment(slot.launched_at) if slot else None
        if intended is None:
            return False
        if intended >= self._began and (pool.uid, action.token) not in self._unresolved:
            return True
        last = max(intended, self._began, self._unresolved.get((pool.uid, action.token), 0))
        listing = self.listings.get(key_of(pool))
        shown = any(
            each.tags.get(OWNER_TAG) == pool.uid and each.tags.get(TOKEN_TAG) == action.token
            for each in self.instances.values()
        )
        return listing is not None and listing.at > last + LAG_MS and not shown

    def _note(
        self,
        pool: AnyResource,
        action: LaunchInstance,
        at: int,
        outcome: LaunchOutcome,
        *,
        instance: str = "",
        message: str = "",
    ) -> None:
        token = action.token
        if outcome == "Unknown":
            before = self._launches.get(token)
            if before is not None and before.outcome == "Accepted":
                return  # its machine is known; a repeated call that fails changes nothing of that
        self._launches[token] = Launch(
            token=token, pool=key_of(pool), at=at, outcome=outcome, instance=instance, message=message
        )
        self._tell(Topic.INSTANCES, key_of(pool))

    def _forget_launches(self, world: World) -> None:
        old = self._clock.now() - REMEMBERED_MS
        if not any(each.at < old for each in self._launches.values()):
            return
        needed = {slot.token for _, pool in world.of_kind(KIND) for slot in slots_of(pool)}
        for token in [each.token for each in self._launches.values() if each.at < old and each.token not in needed]:
            del self._launches[token]
        self._unresolved = {key: at for key, at in self._unresolved.items() if key[1] in self._launches}

    # Ending

    async def terminate(self, pool: AnyResource, instance: str, claim: Claim = "Slot") -> None:
        """End one machine, after a look at its tags: it is this pool's, or, as an orphan, of this cluster and of no pool that exists."""
        try:
            cluster, world = self._cluster(), self._world()
            async with await self._sessions.provider(pool) as provider:
                found = (await provider.describe([instance]))[instance]
                if found.state == NOT_FOUND:
                    raise Unavailable("its cloud does not know it")
                _check_ours(found, pool, cluster, world if claim == "Orphan" else None)
                if claim == "Left" and found.state not in (*_ENDED, *_STOPPED):
                    raise Refused(f"it is now {found.state}")
                if found.state not in _ENDED:
                    await provider.terminate([instance])
        except HeadroomError as problem:
            kind = Unavailable if isinstance(problem, Unavailable) else Refused
            raise kind(f"ending machine {instance}: {problem}") from None
        finally:
            self._polling.hurry(pool)

    # The gateway

    async def add_target(self, pool: AnyResource, target: str) -> None:
        """Add a target to the pool's gateway, with our mark."""
        await self._gateways.add(pool, target)

    async def remove_target(self, pool: AnyResource, target: str) -> None:
        """Remove a target that has our mark."""
        await self._gateways.remove(pool, target)

    def _world(self) -> World:
        assert self._port is not None, "connect comes first"
        return self._port.world(self._clock.now())

    def _cluster(self) -> str:
        cluster = self._world().cluster
        if not cluster:
            raise Unavailable("the cluster's id is not known yet")
        return cluster

    def _tell(self, topic: Topic, name: str) -> None:
        if self._port is not None:
            self._port.tell(topic, name)


async def _check_account(pool: AnyResource, provider: Provider) -> None:
    """Raise `NotLaunched` if the keys are of another account than the pool's machines: nobody would look for this one there."""
    mine = pool.status.account if isinstance(pool.status, SpotpoolStatus) else ""
    try:
        told = await provider.identity() if mine else ""
    except HeadroomError as problem:
        raise NotLaunched("Unknown", str(problem), before_token=True) from None
    if told and told != mine:
        raise NotLaunched(
            "Refused", f"its machines are in account {mine}, but its keys belong to {told}", before_token=True
        )


def _check_ours(found: Instance, pool: AnyResource, cluster: str, world: World | None) -> None:
    """Raise `Refused` unless the machine's tags say that it may be ended; with a world, as one that no pool owns."""
    owner = found.tags.get(OWNER_TAG)
    if found.tags.get(CLUSTER_TAG) != cluster:
        raise Refused("its tags do not name this cluster")
    if world is None:
        if owner != pool.uid:
            raise Refused("its tags name another owner")
        return
    if not world.complete:
        raise Unavailable("not all Spotpools can be read, so a Spotpool may own it")
    if not owner or owner in {each.uid for _, each in world.of_kind(KIND)}:
        raise Refused("its tags do not name a deleted Spotpool")

"""Lists the machines of all Spotpools: each account once for all pools that share it, more often while something is under way.

Looks are tasks of their own, so an account that is slow, throttled or down costs the others nothing. What a cloud tells is believed
only of the pools that are listed with it: whoever runs a service behind a webhook cannot speak of another pool's machines.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal

from msgspec import Struct, structs

from headroom.adapters.clouds.inventory import Inventory
from headroom.adapters.clouds.providers import Provider, trouble_of
from headroom.adapters.clouds.sessions import CloudAccount, Sessions, question_of, spec_of
from headroom.adapters.prices import confirmed
from headroom.api.kinds import AnyResource
from headroom.api.spot_pools import MOST_POOL_MACHINES, SpotpoolSpec
from headroom.api.spot_pools_status import SpotpoolStatus
from headroom.model.changes import Topic
from headroom.model.cloud_facts import Instance, Listing, Offer
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.ports import Clock
from headroom.model.world import World

EVERY_SECONDS: Final = 40.0
SOON_SECONDS: Final = 10.0
"""While something is under way."""
FIRST_SECONDS: Final = 3.0
"""Over so long the first lists are spread."""
LONGEST_SECONDS: Final = 160.0
"""Between two lists of an account that is throttled or does not answer. Nothing is decided on a list of five minutes ago."""
NOTICES_SECONDS: Final = 10.0
PRICES_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 150.0
"""For all that one look takes."""
AT_ONCE: Final = 4
"""Looks for the pools of one namespace at one address,"""
OF_NAMESPACE: Final = 64
"""and at all addresses together: whoever writes a pool behind a webhook may invent any number of them."""
KIND: Final = "Spotpool"
_UNDER_WAY: Final = frozenset({"Launching", "Cancelling", "Ending", "Draining"})
_PENDING: Final = "PENDING"

Tell = Callable[[Topic, str], None]
What = Literal["list", "notices", "prices"]


def key_of(pool: AnyResource) -> str:
    """How a pool is named in facts."""
    return f"{pool.namespace}/{pool.name}"


def slots_of(pool: AnyResource) -> Sequence[Any]:
    """The slots in the pool's status."""
    return pool.status.slots if isinstance(pool.status, SpotpoolStatus) else ()


class _Looks(Struct):
    """When an account was looked at last, and how often that failed."""

    at: dict[What, float]
    stretch: float
    failures: int = 0
    notices: bool = False
    """Whether it tells beforehand that it takes machines back."""


class CloudPolling:
    """Keeps what is known of machines, listings and prices."""

    def __init__(self, sessions: Sessions, clock: Clock, rng: random.Random, tell: Tell) -> None:
        """`tell` hears of which pool, or which offer, something is new."""
        self._sessions, self._clock, self._rng, self._tell = sessions, clock, rng, tell
        self.inventory = Inventory()
        self.listings: dict[str, Listing] = {}
        self.offers: Mapping[str, Offer] = {}
        """A new mapping whenever one is new."""
        self._offers: dict[CloudAccount, dict[str, Offer]] = {}
        self._looks: dict[CloudAccount, _Looks] = {}
        self._tasks: dict[tuple[CloudAccount, What], asyncio.Task[None]] = {}
        self._accounts: dict[str, tuple[object, CloudAccount]] = {}
        self._free: dict[tuple[str, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))
        self._shares: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(OF_NAMESPACE))

    # When

    def step(self, world: World) -> None:
        """Begin all looks whose turn it is."""
        if not world.cluster:
            return
        pools = [pool for _, pool in world.of_kind(KIND)]
        self.inventory.pools = {pool.uid: key_of(pool) for pool in pools}
        accounts = self._shared(pools)
        for gone in self._looks.keys() - accounts.keys():
            self._forget(gone)
        now = self._clock.monotonic()
        for account, members in accounts.items():
            if account not in self._looks:
                first = now - EVERY_SECONDS + self._rng.uniform(0, FIRST_SECONDS)
                never = now - PRICES_SECONDS
                at: dict[What, float] = {"list": first, "notices": never, "prices": never}
                self._looks[account] = _Looks(at, self._rng.uniform(0.9, 1.1))
            looks = self._looks[account]
            if looks.at["list"] + self._pace(looks, members) <= now:
                self._begin(account, "list", self._list(account, looks, members, world.cluster))
            if looks.notices and account.provider == "aws" and looks.at["notices"] + NOTICES_SECONDS <= now:
                self._begin(account, "notices", self._hear(account, looks, members))
            if looks.at["prices"] + PRICES_SECONDS * looks.stretch <= now:
                self._begin(account, "prices", self._price(account, looks, members))

    def _pace(self, looks: _Looks, members: Iterable[AnyResource]) -> float:
        """Seconds from one list to the next."""
        soon = any(
            slot.state in _UNDER_WAY or self.inventory.state(slot.instance_id) == _PENDING
            for pool in members
            for slot in slots_of(pool)
        )
        usual = SOON_SECONDS if soon else EVERY_SECONDS
        return min(usual * looks.stretch * float(1 << min(looks.failures, 5)), LONGEST_SECONDS)

    def _shared(self, pools: Iterable[AnyResource]) -> dict[CloudAccount, list[AnyResource]]:
        """The pools by what they have in common; those that cannot be listed at all are told so."""
        found: dict[CloudAccount, list[AnyResource]] = {}
        named: set[str] = set()
        for pool in pools:
            key = key_of(pool)
            named.add(key)
            known = self._accounts.get(key)
            try:
                if known is None or known[0] is not pool.spec:
                    known = pool.spec, self._sessions.account(pool)
                    self._accounts[key] = known
                found.setdefault(known[1], []).append(pool)
            except HeadroomError as problem:
                self._unlisted([pool], problem)
        for gone in [*(self.listings.keys() - named), *(self._accounts.keys() - named)]:
            self._accounts.pop(gone, None)
            self.listings.pop(gone, None)
        return found

    def _begin(self, account: CloudAccount, what: What, look: Coroutine[Any, Any, None]) -> None:
        if (account, what) in self._tasks:
            look.close()
            return
        task = asyncio.create_task(look, name=f"{what} of {account.provider} {account.region}")
        self._tasks[account, what] = task
        task.add_done_callback(lambda _: self._tasks.pop((account, what), None))

    def hurry(self, pool: AnyResource) -> None:
        """Something was changed: list it soon."""
        # Best effort: what fails here is tried again at the next look.
        with suppress(HeadroomError):
            looks = self._looks.get(self._sessions.account(pool))
            if looks is not None:
                looks.at["list"] = min(looks.at["list"], self._clock.monotonic() - EVERY_SECONDS + SOON_SECONDS / 5)

    # What

    async def _list(self, account: CloudAccount, looks: _Looks, members: list[AnyResource], cluster: str) -> None:
        allowed: list[AnyResource] = []
        try:
            async with self._looking(account):
                provider, allowed = await self._opened(members)
                async with provider:
                    named, began = await provider.identity(), self._clock.now()
                    found = await provider.machines(cluster)
                    if account.provider == "webhook" and len(found) > MOST_POOL_MACHINES * (len(members) + 1):
                        raise Refused("its answer has more machines than its pools may have")
                    missing = self.inventory.missing(allowed, found, began)
                    by_id = await provider.describe(missing) if missing else {}
                    await self._heard(looks, account, provider)
        except HeadroomError as problem:
            looks.failures = looks.failures + 1 if isinstance(problem, Unavailable) else 0
            self._unlisted(allowed or members, problem)
        else:
            looks.failures = 0
            if self._looks.get(account) is looks:  # else nobody has a pool there any more
                self.inventory.keep(account, {pool.uid for pool in allowed}, found, by_id, began)
                for pool in allowed:
                    self._note(Listing(pool=key_of(pool), at=began, account=named, notices=looks.notices))
        finally:
            looks.at["list"] = self._clock.monotonic()

    async def _opened(self, members: list[AnyResource]) -> tuple[Provider, list[AnyResource]]:
        """Whoever speaks to the account, with the keys that each of these pools may use. The others are told why not."""
        secrets = self._sessions.remembering()
        found: Provider | None = None
        allowed: list[AnyResource] = []
        refused: HeadroomError = Refused("there is no pool")
        for pool in members:
            try:
                found = await self._sessions.provider(pool, secrets)
                allowed.append(pool)
            except HeadroomError as problem:
                refused = problem
                self._unlisted([pool], problem)
        if found is None:
            raise refused
        return found, allowed

    async def _hear(self, account: CloudAccount, looks: _Looks, members: list[AnyResource]) -> None:
        """Take warnings of machines that will be taken back."""
        try:
            # Best effort: what fails here is tried again at the next look.
            with suppress(HeadroomError):
                async with self._looking(account):
                    provider, _ = await self._opened(members)
                    async with provider:
                        await self._heard(looks, account, provider)
        finally:
            looks.at["notices"] = self._clock.monotonic()

    async def _heard(self, looks: _Looks, account: CloudAccount, provider: Provider) -> None:
        try:
            found = await provider.notices()
        except HeadroomError:
            found = None  # the list is none the worse for it
        looks.notices = found is not None
        for each in found or ():
            pool = self.inventory.reclaimed(account, each.instance, each.at, self._clock.now())
            if pool is not None:
                self._tell(Topic.INSTANCES, pool)

    async def _price(self, account: CloudAccount, looks: _Looks, members: list[AnyResource]) -> None:
        try:
            # Best effort: what fails here is tried again at the next look.
            with suppress(HeadroomError):
                async with self._looking(account):
                    provider, allowed = await self._opened(members)
                    async with provider:
                        now = self._clock.now()
                        found: dict[str, Offer] = {}
                        for spot in (True, False):
                            specs = [spec for pool in allowed if _is_spot(spec := spec_of(pool)) == spot]
                            for question in questions(specs, now):
                                found |= {each.name: each for each in await provider.offers(question)}
                if self._looks.get(account) is looks:
                    self._priced(account, found)
        finally:
            looks.at["prices"] = self._clock.monotonic()

    @asynccontextmanager
    async def _looking(self, account: CloudAccount) -> AsyncIterator[None]:
        """Within the limits of one look. Whatever goes wrong comes as `HeadroomError`; what nobody expected, without its words."""
        try:
            place = account.namespace, account.url
            async with self._free[place], self._shares[account.namespace], asyncio.timeout(LOOK_SECONDS):
                yield
        except HeadroomError:
            raise
        except TimeoutError:
            raise Unavailable(f"not finished within {LOOK_SECONDS:g}s") from None
        except Exception as problem:  # noqa: BLE001 - an old list must not stand as a good one, whatever happened
            raise Unavailable(f"a bug in Headroom ({type(problem).__name__})") from None

    # What came of it

    def _unlisted(self, pools: Iterable[AnyResource], problem: HeadroomError) -> None:
        for pool in pools:
            before = self.listings.get(key_of(pool)) or Listing(pool=key_of(pool), at=0)
            told = structs.replace(before, problem=trouble_of(problem), message=str(problem))
            if told != before:
                self._note(told)

    def _note(self, listing: Listing) -> None:
        self.listings[listing.pool] = listing
        self._tell(Topic.INSTANCES, listing.pool)

    def _priced(self, account: CloudAccount, found: dict[str, Offer]) -> None:
        """Keep prices; those that say nothing new stay as they are, with their moment until that grows old."""
        before = self._offers.get(account, {})
        self._offers[account] = confirmed(before, found)
        self._merge_offers()

    def _merge_offers(self) -> None:
        merged: dict[str, Offer] = {}
        for account in self._looks:  # of two that tell of the same, the first counts
            merged = {**self._offers.get(account, {}), **merged}
        if merged != self.offers:
            news = {name for name in merged.keys() | self.offers.keys() if merged.get(name) != self.offers.get(name)}
            self.offers = merged
            for name in sorted(news):
                self._tell(Topic.OFFERS, name)

    def launched(self, pool: AnyResource, instance: Instance) -> None:
        """A machine was launched: it is known from now on."""
        self.inventory.launched(self._sessions.account(pool), key_of(pool), instance, self._clock.now())

    def _forget(self, account: CloudAccount) -> None:
        for what in ("list", "notices", "prices"):
            if (task := self._tasks.get((account, what))) is not None:
                task.cancel()
        del self._looks[account]
        self.inventory.forget(account)
        if self._offers.pop(account, None):
            self._merge_offers()

    async def stop(self) -> None:
        """Ask nobody any more, and forget what was known: it grows old."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for account in list(self._looks):
            self._forget(account)
        self.listings.clear()
        self._accounts.clear()


def _is_spot(spec: SpotpoolSpec) -> bool:
    return spec.instance_charge_type == "SPOTPAID"


def questions(specs: Sequence[SpotpoolSpec], now: int) -> list[Any]:
    """One question for all types and zones of these pools; none if there are no pools."""
    if not specs:
        return []
    each = [question_of(spec, now) for spec in specs]
    zones = () if any(not one.zones for one in each) else tuple(sorted({zone for one in each for zone in one.zones}))
    types = tuple(sorted({kind for one in each for kind in one.types}))
    return [structs.replace(each[0], types=types, zones=zones)]

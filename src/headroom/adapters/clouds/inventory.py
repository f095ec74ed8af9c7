"""The machines that are known: of the last list of each account, by id, or launched since. 20,000 of them take 20 MB."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from headroom.adapters.clouds.providers import NOT_FOUND
from headroom.adapters.clouds.sessions import CloudAccount
from headroom.api.kinds import AnyResource
from headroom.api.marks import OWNER_TAG
from headroom.api.spot_pools_status import SpotpoolStatus
from headroom.model import times
from headroom.model.cloud_facts import Instance

LAG_MS: Final = 35 * times.MINUTE
"""For so long a machine that was launched is asked for by its id if no list has it."""


class _Launched(Struct, frozen=True):
    """A machine that was launched, and may not be in a list yet."""

    account: CloudAccount
    pool: str
    at: int


class Inventory:
    """Machines by id. Each belongs to the account that told of it; others cannot change it.

    A cloud gives no id twice, but whoever runs a service behind a webhook may say any. So a cloud's word counts before a webhook's, one
    of nobody's machine gives way to a pool's, and an id that two webhooks claim for their pools is not known at all: what is absent
    proves nothing, so nobody loses a machine by it.
    """

    def __init__(self) -> None:
        self.known: dict[str, Instance] = {}
        self.pools: Mapping[str, str] = {}
        """All Spotpools that there are, namespace/name, by uid."""
        self._home: dict[str, CloudAccount] = {}
        self._ids: dict[CloudAccount, set[str]] = {}
        self._claimed: set[str] = set()
        """Machines that are of a pool of their account, or that one asked for by id."""
        self._disputed: dict[str, set[CloudAccount]] = {}
        self._launched: dict[str, _Launched] = {}
        self._reclaims: dict[str, int] = {}
        """When machines will be taken back, as far as their cloud said so in advance and beside the list."""

    def state(self, machine: str) -> str:
        """The state of a machine; empty if it is not known."""
        found = self.known.get(machine)
        return found.state if found else ""

    def missing(self, pools: Iterable[AnyResource], listed: Iterable[Instance], now: int) -> list[str]:
        """Machines that the pools' statuses name, or that were launched for them, and that a list does not have."""
        there, keys = {each.name for each in listed}, set[str]()
        found: set[str] = set()
        for pool in pools:
            keys.add(f"{pool.namespace}/{pool.name}")
            slots = pool.status.slots if isinstance(pool.status, SpotpoolStatus) else ()
            found |= {slot.instance_id for slot in slots if slot.instance_id}
        found |= {name for name, each in self._launched.items() if each.pool in keys and now - each.at < LAG_MS}
        return sorted(found - there)

    def keep(
        self,
        account: CloudAccount,
        owners: set[str],
        listed: Sequence[Instance],
        by_id: Mapping[str, Instance],
        began: int,
    ) -> None:
        """Believe a full list that was begun then, and what was read by id after it.

        Machines of pools that are not listed with this account are not its to tell of.
        """
        others = self.pools.keys() - owners
        every = {**by_id, **{each.name: each for each in listed}}
        for name in [name for name, those in self._disputed.items() if account in those and name not in every]:
            del self._disputed[name]
        told: dict[str, Instance] = {}
        for name, each in every.items():
            owner = each.tags.get(OWNER_TAG)
            if owner not in others and self._may_tell(account, name, claims=owner in owners or name in by_id):
                told[name] = each
        for each in listed:
            self._launched.pop(each.name, None)
        before = self._ids.get(account, set())
        since = {name for name in before - told.keys() if name in self._launched and self._launched[name].at >= began}
        for gone in before - told.keys() - since:
            self._drop(gone)
        self._ids[account] = {*told, *since}
        for name, each in told.items():
            self._put(account, name, each)
        self._reclaims = {name: at for name, at in self._reclaims.items() if at > began - times.HOUR}

    def _may_tell(self, account: CloudAccount, name: str, *, claims: bool) -> bool:
        """Whether an account's word on a machine counts; if it claims it for a pool, it may be the first to do so."""
        home = self._home.get(name, account)
        if name in self._disputed:
            self._disputed[name].add(account)
            return False
        if home != account:
            weight, other = (each.provider == "webhook" for each in (account, home))
            if weight != other:
                if weight:
                    return False
            elif not claims:
                return False
            elif name in self._claimed:
                self._disputed[name] = {home, account}
                self._drop(name)
                return False
        if claims:
            self._claimed.add(name)
        return True

    def _put(self, account: CloudAccount, name: str, found: Instance) -> None:
        reclaim = self._reclaims.get(name)
        if reclaim is not None and found.reclaim_at is None and found.state != NOT_FOUND:
            found = structs.replace(found, reclaim_at=reclaim)
        # What is as it was stays the same object: the new one is dropped, and its texts with it.
        if self.known.get(name) != found:
            self.known[name] = _interned(found)
        before = self._home.get(name)
        if before is not None and before != account:
            self._ids[before].discard(name)
        self._home[name] = account

    def reclaimed(self, account: CloudAccount, machine: str, at: int, now: int) -> str | None:
        """A machine will be taken back then. The name of its pool, or None if it is not known, has long been told, or is not of now."""
        if not now - times.HOUR <= at <= now + 24 * times.HOUR or self._reclaims.get(machine) == at:
            return None
        self._reclaims[machine] = at
        found = self.known.get(machine)
        if found is None or (found.provider, found.region) != (account.provider, account.region):
            return None
        self.known[machine] = structs.replace(found, reclaim_at=at)
        return self.pools.get(found.tags.get(OWNER_TAG, ""), machine)

    def launched(self, account: CloudAccount, pool: str, instance: Instance, now: int) -> None:
        """A machine was launched for a pool. One that is known already, by a repeated call, stays as it is known."""
        name = instance.name
        if name not in self.known and self._may_tell(account, name, claims=True):
            self._launched[name] = _Launched(account, pool, now)
            self._ids.setdefault(account, set()).add(name)
            self._put(account, name, instance)

    def forget(self, account: CloudAccount) -> None:
        """Nobody has a pool there any more."""
        for name in self._ids.pop(account, set()):
            self._drop(name)
        self._disputed = {name: those for name, those in self._disputed.items() if account not in those}
        self._launched = {name: each for name, each in self._launched.items() if each.account != account}

    def _drop(self, machine: str) -> None:
        self.known.pop(machine, None)
        home = self._home.pop(machine, None)
        if home is not None:
            self._ids.get(home, set()).discard(machine)
        self._claimed.discard(machine)
        self._launched.pop(machine, None)


def _interned(found: Instance) -> Instance:
    """With texts that many machines share kept once."""
    return structs.replace(
        found,
        provider=sys.intern(found.provider),
        region=sys.intern(found.region),
        zone=sys.intern(found.zone),
        instance_type=sys.intern(found.instance_type),
        state=sys.intern(found.state),
    )

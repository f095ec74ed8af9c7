"""Clouds as one operator process knows them: what its last reads told, and what came of its calls. What it knows dies with it.

Nothing waits here, so that a plan can be driven without an event loop; `clouds.SimClouds` is the port on top of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG, TOKEN_TAG
from headroom.api.quantities import nano
from headroom.api.spot_pools_status import Claim
from headroom.model.actions import LaunchInstance
from headroom.model.cloud_facts import Instance, Launch, Listing, Offer
from headroom.model.errors import Refused, Unavailable
from headroom.sim.cloud import ALIVE, CallRefused, Cloud, LaunchOutcome, LaunchRefused, RequestedLaunch, UnknownLaunch

NOT_FOUND: Final = "NOT_FOUND"
"""The state of a machine that a status names and the cloud does not know."""
Problem = Literal["Unavailable", "Throttled", "Forbidden"]


def key_of(pool: AnyResource) -> str:
    """How a pool is named in facts and actions."""
    return f"{pool.namespace}/{pool.name}"


def named(pool: AnyResource) -> dict[str, str]:
    """The machines that a pool's status names, by id, each with the state of its slot."""
    return {slot.instance_id: slot.state for slot in pool.status.slots if slot.instance_id}


class RegionsByName(Protocol):
    """The regions of clouds."""

    def __getitem__(self, region: str) -> Cloud:
        """One of them."""
        ...


class CloudView:
    """What one process knows of the machines of one cluster in some regions."""

    def __init__(self, regions: RegionsByName, cluster: str, now: Callable[[], int]) -> None:
        self._regions, self._cluster, self._now = regions, cluster, now
        self._read: dict[str, dict[str, Instance]] = {}
        """What the last look for each pool told."""
        self._launched: dict[str, tuple[int, Instance]] = {}
        """Machines that were launched, with when, until a later list has them or not."""
        self.listings: dict[str, Listing] = {}
        self.launches: dict[str, Launch] = {}
        self.offers: dict[str, Offer] = {}

    @property
    def instances(self) -> dict[str, Instance]:
        """Every machine that was listed last, read by its id, or launched since."""
        found = {name: each for name, (_, each) in self._launched.items()}
        for read in self._read.values():
            found |= read
        return found

    # --- reading --------------------------------------------------------------------------------------------------------------

    def look(self, pool: AnyResource, notices: bool = True) -> None:
        """List the machines of this cluster to the end, and ask by id for those of the pool's that the list does not have.

        What is known changes only if all of it was read.
        """
        began, key, cloud = self._now(), key_of(pool), self._regions[pool.spec.region]
        try:
            found = self._listed(cloud)
            missing = named(pool).keys() - found.keys()
            asked = cloud.describe(missing) if missing else {}
            offers = {each.name: structs.replace(each, at=began) for each in cloud.offers()}
        except UnknownLaunch:
            self.unread(pool)
            return
        except CallRefused as refused:
            self.unread(pool, refused.problem)
            return
        unknown = {each: self._not_found(each, cloud) for each in missing - asked.keys()}
        self._read[key] = {**found, **asked, **unknown}
        self.offers = self.offers | offers  # a new mapping: whoever has the old one sees what was
        self._launched = {name: each for name, each in self._launched.items() if each[0] >= began}
        self.listings[key] = Listing(pool=key, at=began, notices=notices)

    def unread(self, pool: AnyResource, problem: Problem = "Unavailable") -> None:
        """A list could not be read to its end: all that is known stays as it is, and grows old."""
        before = self.listings.get(key_of(pool)) or Listing(pool=key_of(pool), at=0)
        self.listings[key_of(pool)] = structs.replace(before, problem=problem)

    def _listed(self, cloud: Cloud) -> dict[str, Instance]:
        found: dict[str, Instance] = {}
        place: int | None = 0
        lag = cloud.lag()
        while place is not None:
            page, place = cloud.page({CLUSTER_TAG: self._cluster}, place, lag)
            found |= {each.name: each for each in page}
        return found

    def _not_found(self, machine: str, cloud: Cloud) -> Instance:
        return Instance(name=machine, provider=cloud.provider, region=cloud.region, state=NOT_FOUND)

    def forget(self, pool: str) -> None:
        """The pool is gone."""
        self._read.pop(pool, None)
        self.listings.pop(pool, None)

    # --- calling --------------------------------------------------------------------------------------------------------------

    def order(self, pool: AnyResource, action: LaunchInstance) -> RequestedLaunch:
        """What the cloud is asked for."""
        tags = {CLUSTER_TAG: self._cluster, OWNER_TAG: pool.uid, SLOT_TAG: str(action.slot), TOKEN_TAG: action.token}
        return RequestedLaunch(
            token=action.token,
            instance_type=action.instance_type,
            zone=action.zone,
            tags=tags,
            max_price=_millionths(pool.spec.max_price_per_hour),
        )

    def launch(self, pool: AnyResource, action: LaunchInstance) -> None:
        """Launch a machine and note what came of it. Raises `Unavailable` where that is not known, `Refused` where there is none."""
        sent, doing = self._now(), f"launching a machine for Spotpool {key_of(pool)}"
        try:
            made = self._regions[pool.spec.region].launch(self.order(pool, action))
        except LaunchRefused as none:
            self.note(pool, action, sent, none.outcome)
            raise Refused(f"{doing}: {none}") from None
        except (UnknownLaunch, CallRefused) as unknown:
            self.note(pool, action, sent, "Unknown")
            raise Unavailable(f"{doing}: {unknown or 'no answer came'}") from None
        self.note(pool, action, sent, "Accepted", made)

    def note(
        self, pool: AnyResource, action: LaunchInstance, sent: int, outcome: LaunchOutcome, instance: str = ""
    ) -> None:
        """Remember what came of a launch; a machine that was accepted is known from then on."""
        cloud, key = self._regions[pool.spec.region], key_of(pool)
        self.launches[action.token] = Launch(token=action.token, pool=key, at=sent, outcome=outcome, instance=instance)
        if instance and instance not in self.instances:
            pending = Instance(
                name=instance,
                provider=cloud.provider,
                region=cloud.region,
                zone=action.zone,
                instance_type=action.instance_type,
                state="PENDING",
                tags=dict(self.order(pool, action).tags),
                launched_at=sent,
            )
            self._launched[instance] = sent, pending

    def unheard(self, pool: AnyResource, action: LaunchInstance, sent: int) -> None:
        """No answer to a launch that was sent then was heard, whatever the cloud has said."""
        known = self.launches.get(action.token)
        if known is not None and known.at >= sent:
            self._launched.pop(known.instance, None)
        if known is None or known.at >= sent or known.outcome != "Accepted":
            self.note(pool, action, sent, "Unknown")

    def terminate(self, pool: AnyResource, instance: str, claim: Claim = "Slot") -> None:
        """End a machine, after a look at its tags."""
        cloud, doing = self._regions[pool.spec.region], f"ending machine {instance}"
        try:
            found = cloud.describe([instance]).get(instance)
            if found is None:
                raise Unavailable(f"{doing}: the cloud does not know it now")
            owner = found.tags.get(OWNER_TAG)
            if found.tags.get(CLUSTER_TAG) != self._cluster or (owner == pool.uid) == (claim == "Orphan"):
                raise Refused(f"{doing}: it is not this pool's")
            if claim == "Left" and found.state in ALIVE:
                raise Refused(f"{doing}: it is {found.state} by now")
            cloud.terminate(instance)
        except UnknownLaunch:
            raise Unavailable(f"{doing}: no answer came") from None
        except CallRefused as refused:
            raise Unavailable(f"{doing}: {refused}") from None


def _millionths(dollars: str | int | None) -> int | None:
    amount = None if dollars is None else nano(dollars)
    return amount // 1000 if isinstance(amount, int) else None

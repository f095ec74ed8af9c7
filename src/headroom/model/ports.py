"""The few calls that the loop needs from outside. Real adapters and the simulator both provide them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.api.spot_pools_status import Claim
from headroom.model.actions import Action, LaunchInstance
from headroom.model.changes import Changes, Topic
from headroom.model.cloud_facts import Experience, Gateway, Instance, Launch, Listing, Offer, OfferFeed
from headroom.model.facts import Machine, Pod, SwitchCall
from headroom.model.history import Entry
from headroom.model.machine_records import MachineRecord
from headroom.model.retention import Retention
from headroom.model.usage import Heartbeat, UsageRow
from headroom.model.usage_table import UsageTable
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import LedgerState, World

SETTLE_MS: Final = 3000
"""Kubelets write whole seconds and report a little late; what is older than this has arrived."""


class Clock(Protocol):
    """The time, and waiting. The simulator's runs as fast as it can."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump, for measuring how long something took."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class PodObserver(Protocol):
    """Whoever must not miss what happens to a pod, however short it lives."""

    def pod(self, pod: Pod) -> None:
        """A pod came or changed."""
        ...

    def gone(self, pod: Pod, seen_until: int) -> None:
        """A pod was deleted; this is its last state.

        `seen_until` is the last moment at which it was surely still there: now, if the deletion was heard as it happened, and
        earlier if it happened while nobody listened.
        """
        ...


class Recording(PodObserver, Protocol):
    """Whoever turns what happens to pods into rows of usage."""

    @property
    def table(self) -> UsageTable:
        """All rows that matter."""
        ...

    def state(self) -> LedgerState:
        """How well the ledger serves."""
        ...


class Origin(Struct, frozen=True, kw_only=True):
    """Which server answers for a ledger, so that one that knows less than its predecessor is noticed."""

    server: str = ""
    """Its identity and its timeline; empty where it does not tell."""
    connections: int = 0
    """How often it was connected to."""
    last: int = 0
    """The number of the last write that changed something; it only ever grows."""
    is_empty: bool = False
    """Whether it has not a single row of usage."""


class Ledger(Protocol):
    """Where rows of usage are kept. Everything that fails raises `Unavailable` or `Refused`; nothing else does."""

    async def write(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
        """Merge rows with those there are, all or none; durable once this returns."""
        ...

    def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        """All rows, of all clusters, that may reach beyond `since`, in batches: those not surely ended, or ended after it."""
        ...

    async def changes(self, after: int) -> tuple[list[UsageRow], int]:
        """Some rows that anybody wrote after the cursor, and the new cursor; begin with `cursor`. A row may come twice.

        There are more as long as rows come.
        """
        ...

    async def cursor(self) -> int:
        """The cursor that stands for everything written so far."""
        ...

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is in the ledger: the last word of who leads there, be it an earlier moment."""
        ...

    async def prune(self, cluster: str, before: int) -> int:
        """Forget some of a cluster's rows that ended before that moment, and history from before it; how many there were.

        There may be more until none is left. Nobody else who writes waits for long.
        """
        ...

    async def retentions(self) -> dict[str, Retention]:
        """What is known of each cluster that was ever recorded here, and must be kept of it."""
        ...

    async def retain(self, retention: Retention) -> None:
        """Write what must be kept of a cluster, in place of what was."""
        ...

    async def claim(self, cluster: str, holder: str, now: int) -> dict[str, int]:
        """Say that `holder` leads in a cluster; how often each holder said so, this one included."""
        ...

    async def claimed(self, cluster: str) -> dict[str, int]:
        """When each holder last said so, by its own clock."""
        ...

    async def unclaim(self, cluster: str, holder: str) -> None:
        """Say that it leads no more."""
        ...

    async def publish(self, cluster: str, verdicts: Sequence[HomeVerdict]) -> None:
        """Write all verdicts of a home cluster on budgets that span clusters, in place of those before."""
        ...

    async def verdicts(self) -> tuple[HomeVerdict, ...]:
        """What every home cluster said last."""
        ...

    async def record_machines(self, records: Sequence[MachineRecord]) -> None:
        """Merge what became of machines of one cluster with what is known of them, and forget its old ones."""
        ...

    async def experience(self, since: int, until: int) -> list[Experience]:
        """What all clusters saw between two moments, by offer, whose zone is as it was recorded."""
        ...

    async def origin(self) -> Origin:
        """Which server answers."""
        ...

    async def note(self, entries: Sequence[Entry]) -> None:
        """Add to the history of what was decided; durable once this returns."""
        ...

    async def history(self, since: int, limit: int, cluster: str = "") -> list[Entry]:
        """Entries from that moment on, the newest first: of all clusters, or of one."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


class Switches(Protocol):
    """Whoever switches machines on and off, and knows what their power is. Raises `Refused` or `Unavailable`, nothing else."""

    @property
    def machines(self) -> Mapping[str, Machine]:
        """What is known of the power of machines, by name; only of those that can be asked."""
        ...

    @property
    def calls(self) -> Mapping[str, SwitchCall]:
        """The last call to each machine's switch that this process made, by machine."""
        ...

    async def wake(self, pool: AnyResource, machine: str) -> None:
        """Tell a machine of a PowerPool to switch on; returns once that was accepted."""
        ...

    async def sleep(self, pool: AnyResource, machine: str) -> None:
        """Tell it to switch off; whoever calls has made sure that nothing runs there."""
        ...

    def refused(self, machine: str, command: Literal["Wake", "Sleep"], why: str) -> None:
        """Note that a call was not made at all; in `calls` it stands as one that failed."""
        ...


class Clouds(Protocol):
    """Whoever launches, lists and ends machines of clouds. Raises `Refused` or `Unavailable`, nothing else."""

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Every machine of this cluster that was listed last, read by its id, or launched since, by id."""
        ...

    @property
    def listings(self) -> Mapping[str, Listing]:
        """When the machines of each Spotpool were last listed in full, by namespace/name."""
        ...

    @property
    def launches(self) -> Mapping[str, Launch]:
        """What came of launches by this process, by token."""
        ...

    @property
    def offers(self) -> Mapping[str, Offer]:
        """What the clouds offer, at which price."""
        ...

    @property
    def offer_feeds(self) -> Mapping[str, OfferFeed]:
        """How well the offers for each LeftoverNodePool are known, by its name."""
        ...

    @property
    def gateways(self) -> Mapping[str, Gateway]:
        """The targets of Spotpools' gateways, by namespace/name."""
        ...

    async def launch(self, pool: AnyResource, action: LaunchInstance) -> None:
        """Launch one machine; whoever calls has made sure that its intent still stands in the pool's status."""
        ...

    async def terminate(self, pool: AnyResource, instance: str, claim: Claim = "Slot") -> None:
        """End one machine, after a look at its tags: it is this pool's, or, as an orphan, of this cluster and of no pool that exists.

        One that was left is ended only if it does not run.
        """
        ...

    async def add_target(self, pool: AnyResource, target: str) -> None:
        """Add a target to the pool's gateway, with our mark; its upstream, service and route are made first where they are missing."""
        ...

    async def remove_target(self, pool: AnyResource, target: str) -> None:
        """Remove a target that has our mark."""
        ...


class Beside(Struct, frozen=True, kw_only=True):
    """What an operator calls beside the API server. Without one of them nothing is known of its things, and nothing done."""

    switches: Switches | None = None
    clouds: Clouds | None = None

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """What they know at this instant, by field of the World."""
        found: dict[str, Mapping[str, Any]] = {}
        if (switches := self.switches) is not None:
            found |= {"machines": switches.machines, "calls": switches.calls}
        if (clouds := self.clouds) is not None:
            found |= {"instances": clouds.instances, "offers": clouds.offers, "offer_feeds": clouds.offer_feeds}
            found |= {"listings": clouds.listings, "launches": clouds.launches, "gateways": clouds.gateways}
        return found


class Port(Protocol):
    """A cluster as the loop sees it."""

    def world(self, now: int) -> World:
        """The view at this instant; good until the next `await`."""
        ...

    def subscribe(self, plan: str, parts: frozenset[str]) -> None:
        """Keep note of changes for a plan: of resources of the named kinds, and of topics."""
        ...

    def take_changes(self, plan: str) -> Changes:
        """What is new since this plan last asked."""
        ...

    async def changed(self, besides: Collection[str] = ()) -> None:
        """Returns once something is new that a plan has not been told of; for those `besides`, only once that is urgent."""
        ...

    async def write_status(self, resource: AnyResource, status: Status) -> None:
        """Write a resource's status, if the resource is still the one that was decided on."""
        ...

    async def perform(self, action: Action, resource: AnyResource) -> None:
        """Carry out one action that a decision on `resource` asked for; returns only when it is done."""
        ...


class RecorderPort(Protocol):
    """The port, as far as the recorder needs it."""

    @property
    def complete(self) -> bool:
        """Whether everything is in view."""
        ...

    def world(self, now: int) -> World:
        """The view at this instant."""
        ...

    def heard_until(self, now: int) -> int:
        """The moment up to which everything that happened to pods was surely heard."""
        ...

    def missed_since(self, now: int) -> int:
        """Since when something may have happened that was not heard as it happened: now, if nothing may."""
        ...

    def server_time(self) -> int | None:
        """What time it is by the API server's clock; None if it has not told."""
        ...

    def subscribe(self, plan: str, parts: frozenset[str], *, quiet: bool = False) -> None:
        """Keep note of changes; a quiet subscriber asks by itself and wakes nobody."""
        ...

    def take_changes(self, plan: str) -> Changes:
        """What is new."""
        ...

    def tell(self, topic: Topic, name: str = "") -> None:
        """Some facts are new, for example one of this name."""
        ...


class Lease(Struct, frozen=True, kw_only=True):
    """Who leads, as it stands in the cluster."""

    holder: str
    duration_seconds: int
    renewals: str
    """Changes with every renewal; its clock is the writer's, so it is compared, never subtracted."""
    transitions: int
    version: str
    """The resource version; a write on top of another version is refused."""
    annotations: Mapping[str, str] = {}
    """What its holder, and others, have written beside it."""


class LeaseTaken(Exception):
    """Somebody else wrote the lease first."""


class Leases(Protocol):
    """One Lease object."""

    async def read(self) -> Lease | None:
        """The lease, None if there is none yet."""
        ...

    async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
        """Take, renew or (with an empty holder) release the lease. Raises `LeaseTaken` if it is no longer `before`."""
        ...

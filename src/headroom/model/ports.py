"""The few calls that the loop needs from outside. Real adapters and the simulator both provide them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Literal, Protocol

from msgspec import Struct

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model.actions import Action, LaunchInstance
from headroom.model.changes import Changes, Topic
from headroom.model.cloud_facts import Gateway, Instance, Launch, Listing, Offer
from headroom.model.facts import Call, Machine, Pod
from headroom.model.history import Entry
from headroom.model.retention import Retention
from headroom.model.usage import Heartbeat, Row
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

    async def write(self, rows: Sequence[Row], heartbeat: Heartbeat | None = None) -> None:
        """Merge rows with those there are, all or none; durable once this returns."""
        ...

    def read(self, since: int) -> AsyncIterator[list[Row]]:
        """All rows, of all clusters, that may reach beyond `since`, in batches: those not surely ended, or ended after it."""
        ...

    async def changes(self, after: int) -> tuple[list[Row], int]:
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
        """Let go of files and connections."""
        ...


class Switches(Protocol):
    """Whoever switches machines on and off, and knows what their power is. Raises `Refused` or `Unavailable`, nothing else."""

    @property
    def machines(self) -> Mapping[str, Machine]:
        """What is known of the power of machines, by name; only of those that can be asked."""
        ...

    @property
    def calls(self) -> Mapping[str, Call]:
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
        """What the clouds offer to the Spotpools, at which price."""
        ...

    @property
    def gateways(self) -> Mapping[str, Gateway]:
        """The targets of Spotpools' gateways, by namespace/name."""
        ...

    async def launch(self, pool: AnyResource, action: LaunchInstance) -> None:
        """Launch one machine; whoever calls has made sure that its intent still stands in the pool's status."""
        ...

    async def terminate(self, pool: AnyResource, instance: str, *, orphan: bool = False, stopped: bool = False) -> None:
        """End one machine, after a look at its tags: it is this pool's, or, as an orphan, of this cluster and of no pool that exists.

        With `stopped` only if it does not run: its slot is free already.
        """
        ...

    async def add_target(self, pool: AnyResource, target: str) -> None:
        """Add a target to the pool's gateway, with our mark; its upstream, service and route are made first where they are missing."""
        ...

    async def remove_target(self, pool: AnyResource, target: str) -> None:
        """Remove a target that has our mark."""
        ...


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

    async def changed(self) -> None:
        """Returns once something is new that no plan has been told of."""
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

"""World: every resource and fact known at one instant. Plans read it; nobody writes through it.

It is a view of the tables, not a copy, so it is only good until the next event: a plan runs to its end before one is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Struct, structs

from headroom.api.budget_index import IndexEntry
from headroom.api.kinds import AnyResource
from headroom.model import batch_facts, cloud_facts, device_facts, facts
from headroom.model.bandwidth import BandwidthRules
from headroom.model.bandwidth_facts import KnownBandwidthConfig, NodeOverlay
from headroom.model.changes import EVERYTHING, Changes, Topic
from headroom.model.decisions import Ref
from headroom.model.devices import DeviceTable
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage_table import UsageTable
from headroom.model.verdicts import HomeVerdict

__all__ = [
    "EVERYTHING",
    "FACTS",
    "Caps",
    "Changes",
    "LedgerState",
    "World",
    "by_ref",
    "ref_of",
]


class LedgerState(Struct, frozen=True, kw_only=True):
    """How well the ledger serves."""

    loaded: bool = True
    """What it has was read: without it, history is missing."""
    problem: str = ""
    """Why nothing can be written to it now, as a sentence; empty while all is well."""
    unwritten: Collection[str] = frozenset()
    """Uids of the pods of which something is not durable yet."""
    waiting: int = 0
    """Pods of which something is not durable yet."""
    lag_ms: int = 0
    """How long the oldest of it has waited."""
    complete_until: Mapping[str, int] = {}
    """Up to when each other cluster's view is known."""
    keys: frozenset[str] | None = None
    """The label keys of which rows of usage have the labels; None if of all. A budget that selects by others is not counted yet."""
    lost: bool = False
    """It knows nothing of this cluster, although budgets have usage in their status: what it had is gone."""
    known_since: int = 0
    """From when on everything that happened in this cluster is in it."""
    rival: str = ""
    """Who else leads under this cluster's id, as in a cloned cluster; empty while nobody does."""
    clock_offset_ms: int = 0
    """By how much our clock is ahead of the API server's, or behind if negative; 0 while they agree."""
    clock_step_ms: int = 0
    """By how much our clock was set forward or back of late."""
    verdicts: tuple[HomeVerdict, ...] = ()
    """What other clusters decided on budgets that span clusters."""

    @property
    def trusted(self) -> bool:
        """Whether to act on what it says: else everything stays as it is, and nothing is undone either."""
        return self.loaded and not (self.problem or self.lost or self.rival or self.clock_offset_ms)


class Caps(Struct, frozen=True, kw_only=True):
    """How far enforcement goes, whatever single budgets allow: how many gangs or pods are suspended or evicted in a minute at most."""

    cluster: int = 30
    namespace: int = 20
    deletes: bool = True
    """Whether pods can be deleted that cannot be evicted: a right of its own, which not every operator has."""


class Fact(NamedTuple):
    """Declares a field of the World as facts by name: of which topic they are, and which of their attributes is the name."""

    topic: Topic
    key: str = "name"
    manifest: bool = False
    """It comes from no API server, so people give it as a document of group sim.headroom.dev."""


class World(Struct, frozen=True, kw_only=True):
    """All there is to decide on."""

    now: int
    settled: int | None = None
    """The moment up to which what happened to pods is surely known; None where that is `now`."""
    cluster: str = "default"
    own_namespace: str = "headroom-system"
    """Where the operator runs."""
    stopped: bool = False
    """The cluster-wide kill switch is thrown."""
    complete: bool = True
    """All that every decision needs is seen: each list was read to its end and is being watched. Nothing is done on less."""
    acting_since: int = 0
    """Since when effects are possible without a break: the view is complete, the ledger trusted, the kill switch not thrown."""
    unseen: Mapping[str, str] = {}
    """Kinds that are not seen now, such as `workloads.kueue.x-k8s.io`, each with the cause. What is known of them is not of now."""
    resources: ResourceTable = msgspec.field(default_factory=ResourceTable)
    """Given as any mapping, they are kept by kind."""
    pods: PodTable = msgspec.field(default_factory=PodTable)
    nodes: NodeTable = msgspec.field(default_factory=NodeTable)
    instances: Annotated[Mapping[str, cloud_facts.Instance], Fact(Topic.INSTANCES, manifest=True)] = {}
    offers: Annotated[Mapping[str, cloud_facts.Offer], Fact(Topic.OFFERS, manifest=True)] = {}
    listings: Annotated[Mapping[str, cloud_facts.Listing], Fact(Topic.INSTANCES, key="pool")] = {}
    """When each Spotpool's instances were last listed in full, by namespace/name."""
    instances_given: bool = True
    """The instances are given as the complete view of now, as in documents: no listing is needed."""
    launches: Annotated[Mapping[str, cloud_facts.Launch], Fact(Topic.INSTANCES, key="token")] = {}
    """The calls of this process that launched machines, or tried to, by token."""
    gateways: Annotated[Mapping[str, cloud_facts.Gateway], Fact(Topic.INSTANCES, key="pool")] = {}
    """The targets of Spotpools' gateways, by namespace/name."""
    pool_namespaces: Mapping[str, tuple[str, ...]] = {}
    """Namespaces beside its own whose pods a Spotpool may serve, by namespace/name; `*` for all. An administrator's setting."""
    end_orphans: bool = False
    """Machines of this cluster that no Spotpool owns may be ended; an administrator's setting."""
    machines: Annotated[Mapping[str, facts.Machine], Fact(Topic.MACHINES, manifest=True)] = {}
    calls: Annotated[Mapping[str, facts.SwitchCall], Fact(Topic.MACHINES, key="machine")] = {}
    """The last call to each machine's switch, by machine; only those of this process."""
    node_pools: Annotated[Mapping[str, facts.NodePool], Fact(Topic.KARPENTER)] = {}
    """Karpenter's, by name."""
    node_claims: Annotated[Mapping[str, facts.NodeClaim], Fact(Topic.KARPENTER)] = {}
    node_overlays: Annotated[Mapping[str, NodeOverlay], Fact(Topic.KARPENTER)] = {}
    node_overlays_served: bool = False
    """The cluster has NodeOverlays, whether Karpenter heeds them or not."""
    node_classes: Annotated[Mapping[str, facts.NodeClass], Fact(Topic.KARPENTER, key="key")] = {}
    """By kind/name."""
    launch_failures: Annotated[Mapping[str, cloud_facts.LaunchFailure], Fact(Topic.KARPENTER, key="claim")] = {}
    """Of Karpenter's launches in the last hour, by claim."""
    write_problems: Annotated[Mapping[str, cloud_facts.WriteProblem], Fact(Topic.KARPENTER, key="object")] = {}
    pool_writes: Annotated[Mapping[str, cloud_facts.PoolWrite], Fact(Topic.KARPENTER, key="node_pool")] = {}
    offer_feeds: Annotated[Mapping[str, cloud_facts.OfferFeed], Fact(Topic.OFFERS, key="pool")] = {}
    """How well the offers for each LeftoverNodePool are known, by name."""
    experience: Annotated[Mapping[str, cloud_facts.Experience], Fact(Topic.OFFERS, key="offer")] = {}
    namespaces: Annotated[Mapping[str, facts.Namespace], Fact(Topic.NAMESPACES)] = {}
    claims: Annotated[Mapping[str, device_facts.Claim], Fact(Topic.CLAIMS, key="key")] = {}
    """ResourceClaims, by namespace/name."""
    devices: DeviceTable = msgspec.field(default_factory=DeviceTable)
    """Device classes, claim templates and devices."""
    prices: tuple[facts.Price, ...] = ()
    """The price book."""
    usage: UsageTable = msgspec.field(default_factory=UsageTable)
    ledger: LedgerState = LedgerState()
    index: tuple[IndexEntry, ...] | None = None
    """What the API server's policies know of budgets; None where nobody told them anything."""
    index_problem: str = ""
    """Why that cannot be written, as a sentence; empty if it can."""
    holds: Annotated[Mapping[str, facts.Hold], Fact(Topic.HOLDS)] = {}
    """The BudgetHolds, by name."""
    workloads: Annotated[Mapping[str, facts.Workload], Fact(Topic.WORKLOADS, key="key")] = {}
    """Suspended Jobs and JobSets, and Kueue's Workloads, by Kind/namespace/name."""
    cron_jobs: Annotated[Mapping[str, batch_facts.CronJob], Fact(Topic.BATCH, key="key")] = {}
    """CronJobs whose pods may ask for GPUs, by CronJob/namespace/name."""
    priority_classes: Annotated[Mapping[str, batch_facts.PriorityClass], Fact(Topic.BATCH)] = {}
    flavors: Annotated[Mapping[str, batch_facts.Flavor], Fact(Topic.BATCH)] = {}
    """Kueue's ResourceFlavors, by name."""
    kueue: bool = False
    """The cluster has Kueue."""
    hold_problem: str = ""
    """Why new pods cannot be held here, as a sentence; empty if they can."""
    bandwidth_problem: str = "It is not known whether the policies for bandwidth are installed."
    """Why the API server neither reads nor refuses the bandwidth of new pods, as a sentence; empty if it does."""
    bandwidth_configs: Annotated[Mapping[str, KnownBandwidthConfig], Fact(Topic.POLICIES)] = {}
    """What its policies know of our settings, by name."""
    caps: Caps = Caps()
    bandwidth: BandwidthRules = BandwidthRules()
    """What an administrator says of bandwidth."""

    def __post_init__(self) -> None:
        if not isinstance(self.resources, ResourceTable):
            structs.force_setattr(self, "resources", ResourceTable(self.resources))

    @property
    def as_of(self) -> int:
        """The moment for which usage is told."""
        return self.now if self.settled is None else min(self.now, self.settled)

    def of_kind(self, kind: str) -> list[tuple[Ref, AnyResource]]:
        """Every resource of a kind, by namespace and name."""
        return self.resources.of_kind(kind)


class FactField(NamedTuple):
    """A field of the World that holds facts by name."""

    type: type[Struct]
    topic: Topic
    key: str
    manifest: bool

    def named(self, found: Iterable[Any]) -> dict[str, Any]:
        """Facts by their keys."""
        return {getattr(each, self.key): each for each in found}


def _fact_fields() -> Iterator[tuple[str, FactField]]:
    for name, hint in get_type_hints(World, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Fact):
                yield name, FactField(get_args(get_args(hint)[0])[1], *mark)


FACTS: Final[Mapping[str, FactField]] = dict(_fact_fields())
"""Every field of the World that is declared as a `Fact`: what is listed here is saved, loaded, read from documents and told of by name."""


def ref_of(resource: AnyResource) -> Ref:
    """How a resource is named."""
    return Ref(resource.kind, resource.namespace, resource.name)


def by_ref(resources: Iterable[AnyResource]) -> ResourceTable:
    """Resources under their names."""
    return ResourceTable({ref_of(each): each for each in resources})

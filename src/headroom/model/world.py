"""World: every resource and fact known at one instant. Plans read it; nobody writes through it.

It is a view of the tables, not a copy, so it is only good until the next event: a plan runs to its end before one is read.
`save` and `load` turn it into plain JSON and back, for snapshots and replays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Struct, structs

from headroom.api import kinds
from headroom.api.budget_index import IndexEntry
from headroom.api.kinds import AnyResource
from headroom.api.schema import Problem
from headroom.model import batch_facts, cloud_facts, device_facts, facts, times
from headroom.model.changes import EVERYTHING, Changes, Topic
from headroom.model.decisions import Ref, status_wire
from headroom.model.devices import DeviceTable
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage import Row
from headroom.model.usage_table import UsageTable
from headroom.model.verdicts import HomeVerdict

__all__ = [
    "EVERYTHING",
    "FACTS",
    "FORMAT",
    "Caps",
    "Changes",
    "LedgerState",
    "World",
    "by_ref",
    "load",
    "ref_of",
    "save",
]

FORMAT: Final = "headroom.dev/snapshot/v1"


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
    calls: Annotated[Mapping[str, facts.Call], Fact(Topic.MACHINES, key="machine")] = {}
    """The last call to each machine's switch, by machine; only those of this process."""
    node_pools: Annotated[Mapping[str, facts.NodePool], Fact(Topic.KARPENTER)] = {}
    """Karpenter's, by name."""
    node_claims: Annotated[Mapping[str, facts.NodeClaim], Fact(Topic.KARPENTER)] = {}
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
    caps: Caps = Caps()

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


class _SavedBase(Struct, kw_only=True):
    format: str
    now: str
    cluster: str
    stopped: bool
    complete: bool
    resources: list[dict[str, Any]]
    pods: list[facts.Pod]
    nodes: list[facts.Node]
    settled: str = ""
    acting_since: str = ""
    unseen: dict[str, str] = {}
    own_namespace: str = "headroom-system"
    device_classes: list[device_facts.DeviceClass] = []
    claim_templates: list[device_facts.ClaimTemplate] = []
    device_slices: list[device_facts.DeviceSlice] = []
    prices: list[facts.Price] = []
    usage: list[Row] = []
    kept: list[str] = []
    """Uids of pods that stay only until their end is in the ledger."""
    evicted: dict[str, int] = {}
    """Uids of pods that were evicted and are gone."""
    ledger_loaded: bool = True
    ledger_problem: str = ""
    ledger_keys: list[str] | None = None
    ledger_lost: bool = False
    ledger_known_since: int = 0
    ledger_rival: str = ""
    clock_offset_ms: int = 0
    clock_step_ms: int = 0
    verdicts: list[HomeVerdict] = []
    index: list[IndexEntry] | None = None
    index_problem: str = ""
    kueue: bool = False
    hold_problem: str = ""
    caps: Caps = Caps()
    instances_given: bool = True
    pool_namespaces: dict[str, tuple[str, ...]] = {}
    end_orphans: bool = False


_Saved: Any = msgspec.defstruct(
    "_Saved",
    [(name, GenericAlias(list, each.type), []) for name, each in FACTS.items()],
    bases=(_SavedBase,),
    kw_only=True,
)


def save(world: World) -> bytes:
    """The world as JSON."""
    saved = _Saved(
        format=FORMAT,
        now=times.text(world.now),
        cluster=world.cluster,
        stopped=world.stopped,
        complete=world.complete,
        unseen=dict(world.unseen),
        resources=[_saved_resource(world.resources[ref]) for ref in sorted(world.resources)],
        pods=sorted(world.pods, key=lambda pod: pod.uid),
        nodes=sorted(world.nodes, key=lambda node: node.name),
        settled="" if world.settled is None else times.text(world.settled),
        acting_since=times.text(world.acting_since) if world.acting_since else "",
        own_namespace=world.own_namespace,
        device_classes=sorted(world.devices.classes.values(), key=lambda each: each.name),
        claim_templates=sorted(world.devices.templates.values(), key=lambda each: each.key),
        device_slices=sorted(world.devices.slices.values(), key=lambda each: each.name),
        prices=list(world.prices),
        usage=sorted(world.usage, key=lambda row: row.key),
        kept=sorted(world.usage.kept),
        evicted=world.pods.evicted,
        ledger_loaded=world.ledger.loaded,
        ledger_problem=world.ledger.problem,
        ledger_keys=None if world.ledger.keys is None else sorted(world.ledger.keys),
        ledger_lost=world.ledger.lost,
        ledger_known_since=world.ledger.known_since,
        ledger_rival=world.ledger.rival,
        clock_offset_ms=world.ledger.clock_offset_ms,
        clock_step_ms=world.ledger.clock_step_ms,
        verdicts=list(world.ledger.verdicts),
        index=None if world.index is None else list(world.index),
        index_problem=world.index_problem,
        kueue=world.kueue,
        hold_problem=world.hold_problem,
        caps=world.caps,
        instances_given=world.instances_given,
        pool_namespaces=dict(world.pool_namespaces),
        end_orphans=world.end_orphans,
        **{name: [found for _, found in sorted(getattr(world, name).items())] for name in FACTS},
    )
    return msgspec.json.format(msgspec.json.encode(saved), indent=1)


def _saved_resource(resource: AnyResource) -> dict[str, Any]:
    out: dict[str, Any] = msgspec.to_builtins(resource)
    out["status"] = status_wire(resource.status)
    return out


def load(text: bytes) -> World:
    """The world that `save` wrote. Raises msgspec.ValidationError for anything else."""
    saved: _SavedBase = msgspec.json.decode(text, type=_Saved)
    now = times.moment(saved.now)
    if saved.format != FORMAT or now is None:
        raise msgspec.ValidationError(f"not a snapshot of the form {FORMAT}")
    pods, nodes = PodTable(), NodeTable()
    for pod in saved.pods:
        pods.put(pod)
    for node in saved.nodes:
        nodes.put(node)
    pods.evicted.update(saved.evicted)
    return World(
        now=now,
        cluster=saved.cluster,
        stopped=saved.stopped,
        complete=saved.complete,
        unseen=saved.unseen,
        resources=by_ref(_loaded_resource(each) for each in saved.resources),
        pods=pods,
        nodes=nodes,
        settled=times.moment(saved.settled),
        acting_since=times.moment(saved.acting_since) or 0,
        own_namespace=saved.own_namespace,
        devices=DeviceTable(saved.device_classes, saved.claim_templates, saved.device_slices),
        prices=tuple(saved.prices),
        usage=_loaded_usage(saved, pods),
        ledger=_loaded_ledger(saved),
        index=None if saved.index is None else tuple(saved.index),
        index_problem=saved.index_problem,
        kueue=saved.kueue,
        hold_problem=saved.hold_problem,
        caps=saved.caps,
        instances_given=saved.instances_given,
        pool_namespaces=saved.pool_namespaces,
        end_orphans=saved.end_orphans,
        **{name: each.named(getattr(saved, name)) for name, each in FACTS.items()},
    )


def _loaded_ledger(saved: _SavedBase) -> LedgerState:
    return LedgerState(
        loaded=saved.ledger_loaded,
        problem=saved.ledger_problem,
        keys=None if saved.ledger_keys is None else frozenset(saved.ledger_keys),
        lost=saved.ledger_lost,
        known_since=saved.ledger_known_since,
        rival=saved.ledger_rival,
        clock_offset_ms=saved.clock_offset_ms,
        clock_step_ms=saved.clock_step_ms,
        verdicts=tuple(saved.verdicts),
    )


def _loaded_usage(saved: _SavedBase, pods: PodTable) -> UsageTable:
    table = UsageTable(saved.cluster)
    for row in saved.usage:
        table.put(row)
    for uid in pods.uids():
        table.set_alive(uid, True)
    table.kept.update(saved.kept)
    return table


def by_ref(resources: Iterable[AnyResource]) -> ResourceTable:
    """Resources under their names."""
    return ResourceTable({ref_of(each): each for each in resources})


def _loaded_resource(saved: dict[str, Any]) -> AnyResource:
    kind = saved["kind"]
    found = [msgspec.convert(each, Problem) for each in saved.pop("problems", [])]
    spec = kinds.spec_of(kind, saved.pop("spec")) if not found else None
    status = kinds.status_of(kind, saved.pop("status", {}))
    saved.pop("spec", None)
    return AnyResource(spec=spec, status=status, problems=tuple(found), **_plain(saved))


def _plain(saved: dict[str, Any]) -> dict[str, Any]:
    return saved | {"finalizers": tuple(saved.get("finalizers", ()))}

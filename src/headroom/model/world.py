"""World: every resource and fact known at one instant. Plans read it; nobody writes through it.

It is a view of the tables, not a copy, so it is only good until the next event: a plan runs to its end before one is read.
`save` and `load` turn it into plain JSON and back, for snapshots and replays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.api import kinds
from headroom.api.budget_index import IndexEntry
from headroom.api.kinds import AnyResource
from headroom.api.schema import Problem
from headroom.model import device_facts, facts, times
from headroom.model.decisions import Ref, status_wire
from headroom.model.devices import DeviceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage import Row
from headroom.model.usage_table import UsageTable
from headroom.model.verdicts import HomeVerdict

FORMAT: Final = "headroom.dev/snapshot/v1"


class Changes(Struct, kw_only=True):
    """What is new since a plan last looked. `everything` means: assume nothing."""

    everything: bool = False
    resources: set[Ref] = msgspec.field(default_factory=set)
    pods: set[str] = msgspec.field(default_factory=set)
    """Uids of pods that came, went or changed."""
    nodes: set[str] = msgspec.field(default_factory=set)
    unbound: bool = False
    """The set of pods without a node changed."""
    outside: set[str] = msgspec.field(default_factory=set)
    """Which other facts are new: instances, offers, machines, usage, settings."""

    def __bool__(self) -> bool:
        return bool(self.everything or self.resources or self.pods or self.nodes or self.unbound or self.outside)

    def add(self, other: Changes) -> None:
        """Take in what another set of changes says."""
        self.everything = self.everything or other.everything
        self.unbound = self.unbound or other.unbound
        self.resources |= other.resources
        self.pods |= other.pods
        self.nodes |= other.nodes
        self.outside |= other.outside


EVERYTHING: Final = Changes(everything=True)


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
    """How many gangs or pods are suspended or evicted in a minute at most, whatever single budgets allow."""

    cluster: int = 30
    namespace: int = 20


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
    resources: Mapping[Ref, AnyResource] = {}
    pods: PodTable = msgspec.field(default_factory=PodTable)
    nodes: NodeTable = msgspec.field(default_factory=NodeTable)
    instances: Mapping[str, facts.Instance] = {}
    offers: Mapping[str, facts.Offer] = {}
    machines: Mapping[str, facts.Machine] = {}
    calls: Mapping[str, facts.Call] = {}
    """The last call to each machine's switch, by machine; only those of this process."""
    node_pools: Mapping[str, facts.NodePool] = {}
    """Karpenter's, by name."""
    node_claims: Mapping[str, facts.NodeClaim] = {}
    namespaces: Mapping[str, facts.Namespace] = {}
    claims: Mapping[str, device_facts.Claim] = {}
    """ResourceClaims, by namespace/name."""
    devices: DeviceTable = msgspec.field(default_factory=DeviceTable)
    """Device classes, claim templates and devices."""
    prices: tuple[facts.Price, ...] = ()
    """The price book."""
    usage: UsageTable = msgspec.field(default_factory=UsageTable)
    ledger: LedgerState = LedgerState()
    index: tuple[IndexEntry, ...] | None = None
    """What the API server's policies know of budgets; None where nobody told them anything."""
    holds: Mapping[str, facts.Hold] = {}
    """The BudgetHolds, by name."""
    workloads: Mapping[str, facts.Workload] = {}
    """Suspended Jobs and JobSets, and Kueue's Workloads, by Kind/namespace/name."""
    kueue: bool = False
    """The cluster has Kueue."""
    hold_problem: str = ""
    """Why new pods cannot be held here, as a sentence; empty if they can."""
    caps: Caps = Caps()

    @property
    def as_of(self) -> int:
        """The moment for which usage is told."""
        return self.now if self.settled is None else min(self.now, self.settled)

    def of_kind(self, kind: str) -> list[tuple[Ref, AnyResource]]:
        """Every resource of a kind, by namespace and name."""
        return sorted((ref, each) for ref, each in self.resources.items() if ref.kind == kind)


def ref_of(resource: AnyResource) -> Ref:
    """How a resource is named."""
    return Ref(resource.kind, resource.namespace, resource.name)


class _Saved(Struct, kw_only=True):
    format: str
    now: str
    cluster: str
    stopped: bool
    complete: bool
    resources: list[dict[str, Any]]
    pods: list[facts.Pod]
    nodes: list[facts.Node]
    instances: list[facts.Instance]
    offers: list[facts.Offer]
    machines: list[facts.Machine]
    settled: str = ""
    acting_since: str = ""
    unseen: dict[str, str] = {}
    calls: list[facts.Call] = []
    node_pools: list[facts.NodePool] = []
    node_claims: list[facts.NodeClaim] = []
    own_namespace: str = "headroom-system"
    namespaces: list[facts.Namespace] = []
    claims: list[device_facts.Claim] = []
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
    holds: list[facts.Hold] = []
    workloads: list[facts.Workload] = []
    kueue: bool = False
    hold_problem: str = ""
    caps: Caps = Caps()


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
        instances=list(world.instances.values()),
        offers=list(world.offers.values()),
        machines=list(world.machines.values()),
        calls=list(world.calls.values()),
        node_pools=sorted(world.node_pools.values(), key=lambda each: each.name),
        node_claims=sorted(world.node_claims.values(), key=lambda each: each.name),
        settled="" if world.settled is None else times.text(world.settled),
        acting_since=times.text(world.acting_since) if world.acting_since else "",
        own_namespace=world.own_namespace,
        namespaces=sorted(world.namespaces.values(), key=lambda each: each.name),
        claims=sorted(world.claims.values(), key=lambda each: each.key),
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
        holds=sorted(world.holds.values(), key=lambda each: each.name),
        workloads=sorted(world.workloads.values(), key=lambda each: each.key),
        kueue=world.kueue,
        hold_problem=world.hold_problem,
        caps=world.caps,
    )
    return msgspec.json.format(msgspec.json.encode(saved), indent=1)


def _saved_resource(resource: AnyResource) -> dict[str, Any]:
    out: dict[str, Any] = msgspec.to_builtins(resource)
    out["status"] = status_wire(resource.status)
    return out


def load(text: bytes) -> World:
    """The world that `save` wrote. Raises msgspec.ValidationError for anything else."""
    saved = msgspec.json.decode(text, type=_Saved)
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
        instances={each.name: each for each in saved.instances},
        offers={each.name: each for each in saved.offers},
        machines={each.name: each for each in saved.machines},
        calls={each.machine: each for each in saved.calls},
        node_pools={each.name: each for each in saved.node_pools},
        node_claims={each.name: each for each in saved.node_claims},
        settled=times.moment(saved.settled),
        acting_since=times.moment(saved.acting_since) or 0,
        own_namespace=saved.own_namespace,
        namespaces={each.name: each for each in saved.namespaces},
        claims={each.key: each for each in saved.claims},
        devices=DeviceTable(saved.device_classes, saved.claim_templates, saved.device_slices),
        prices=tuple(saved.prices),
        usage=_loaded_usage(saved, pods),
        ledger=_loaded_ledger(saved),
        index=None if saved.index is None else tuple(saved.index),
        holds={each.name: each for each in saved.holds},
        workloads={each.key: each for each in saved.workloads},
        kueue=saved.kueue,
        hold_problem=saved.hold_problem,
        caps=saved.caps,
    )


def _loaded_ledger(saved: _Saved) -> LedgerState:
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


def _loaded_usage(saved: _Saved, pods: PodTable) -> UsageTable:
    table = UsageTable(saved.cluster)
    for row in saved.usage:
        table.put(row)
    for uid in pods.uids():
        table.set_alive(uid, True)
    table.kept.update(saved.kept)
    return table


def by_ref(resources: Iterable[AnyResource]) -> dict[Ref, AnyResource]:
    """Resources under their names."""
    return {ref_of(each): each for each in resources}


def _loaded_resource(saved: dict[str, Any]) -> AnyResource:
    kind = saved["kind"]
    found = [msgspec.convert(each, Problem) for each in saved.pop("problems", [])]
    spec = kinds.spec_of(kind, saved.pop("spec")) if not found else None
    status = kinds.status_of(kind, saved.pop("status", {}))
    saved.pop("spec", None)
    return AnyResource(spec=spec, status=status, problems=tuple(found), **_plain(saved))


def _plain(saved: dict[str, Any]) -> dict[str, Any]:
    return saved | {"finalizers": tuple(saved.get("finalizers", ()))}

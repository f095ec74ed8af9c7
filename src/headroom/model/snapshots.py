"""A World as plain JSON and back, for snapshots and replays."""

from __future__ import annotations

from types import GenericAlias
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.api import kinds
from headroom.api.budget_index import IndexEntry
from headroom.api.kinds import AnyResource
from headroom.api.schema import Problem
from headroom.model import device_facts, facts, times
from headroom.model.bandwidth import BandwidthRules
from headroom.model.decisions import status_wire
from headroom.model.devices import DeviceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage import UsageRow
from headroom.model.usage_table import UsageTable
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import FACTS, Caps, LedgerState, World, by_ref

FORMAT: Final = "headroom.dev/snapshot/v1"


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
    usage: list[UsageRow] = []
    kept: list[str] = []
    """Uids of pods that stay only until their end is in the ledger."""
    evicted: dict[str, int] = {}
    """Uids of pods that were evicted and are gone."""
    bound_with: dict[str, facts.Pairs] = {}
    """By uid: the annotations with which pods were bound that have others now."""
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
    node_overlays_served: bool = False
    hold_problem: str = ""
    bandwidth_problem: str = ""
    caps: Caps = Caps()
    bandwidth: BandwidthRules = BandwidthRules()
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
        bound_with=world.pods.bound_with,
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
        node_overlays_served=world.node_overlays_served,
        hold_problem=world.hold_problem,
        bandwidth_problem=world.bandwidth_problem,
        caps=world.caps,
        bandwidth=world.bandwidth,
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
    pods.bound_with.update(saved.bound_with)
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
        node_overlays_served=saved.node_overlays_served,
        hold_problem=saved.hold_problem,
        bandwidth_problem=saved.bandwidth_problem,
        caps=saved.caps,
        bandwidth=saved.bandwidth,
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


def _loaded_resource(saved: dict[str, Any]) -> AnyResource:
    kind = saved["kind"]
    found = [msgspec.convert(each, Problem) for each in saved.pop("problems", [])]
    spec = kinds.spec_of(kind, saved.pop("spec")) if not found else None
    status = kinds.status_of(kind, saved.pop("status", {}))
    saved.pop("spec", None)
    return AnyResource(spec=spec, status=status, problems=tuple(found), **_plain(saved))


def _plain(saved: dict[str, Any]) -> dict[str, Any]:
    return saved | {"finalizers": tuple(saved.get("finalizers", ()))}

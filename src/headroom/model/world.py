"""World: every resource and fact known at one instant. Plans read it; nobody writes through it.

It is a view of the tables, not a copy, so it is only good until the next event: a plan runs to its end before one is read.
`save` and `load` turn it into plain JSON and back, for snapshots and replays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.api import kinds
from headroom.api.kinds import AnyResource
from headroom.api.schema import Problem
from headroom.model import facts, times
from headroom.model.decisions import Ref, status_wire
from headroom.model.tables import NodeTable, PodTable

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


class World(Struct, frozen=True, kw_only=True):
    """All there is to decide on."""

    now: int
    cluster: str = "default"
    stopped: bool = False
    """The cluster-wide kill switch is thrown."""
    complete: bool = True
    """Every list was read to its end and is still being watched. No destructive action is taken on less."""
    resources: Mapping[Ref, AnyResource] = {}
    pods: PodTable = msgspec.field(default_factory=PodTable)
    nodes: NodeTable = msgspec.field(default_factory=NodeTable)
    instances: Mapping[str, facts.Instance] = {}
    offers: Mapping[str, facts.Offer] = {}
    machines: Mapping[str, facts.Machine] = {}
    usage: Mapping[str, facts.Usage] = {}

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
    usage: list[facts.Usage]


def save(world: World) -> bytes:
    """The world as JSON."""
    saved = _Saved(
        format=FORMAT,
        now=times.text(world.now),
        cluster=world.cluster,
        stopped=world.stopped,
        complete=world.complete,
        resources=[_saved_resource(world.resources[ref]) for ref in sorted(world.resources)],
        pods=sorted(world.pods, key=lambda pod: pod.uid),
        nodes=sorted(world.nodes, key=lambda node: node.name),
        instances=list(world.instances.values()),
        offers=list(world.offers.values()),
        machines=list(world.machines.values()),
        usage=list(world.usage.values()),
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
    return World(
        now=now,
        cluster=saved.cluster,
        stopped=saved.stopped,
        complete=saved.complete,
        resources=by_ref(_loaded_resource(each) for each in saved.resources),
        pods=pods,
        nodes=nodes,
        instances={each.name: each for each in saved.instances},
        offers={each.name: each for each in saved.offers},
        machines={each.name: each for each in saved.machines},
        usage={each.name: each for each in saved.usage},
    )


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

"""Manifests as a World: our resources, pods, nodes, and facts from outside as documents of group sim.headroom.dev/v1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct, field, structs

from headroom.adapters import prices
from headroom.adapters.kube import devices, karpenter, operator_kinds, parse, paths, raw, values, workloads
from headroom.adapters.kube.config_maps import PRICES, SETTINGS, is_stopped
from headroom.adapters.kube.operator_kinds import Index
from headroom.api import marks
from headroom.api.kinds import KINDS, OPERATOR_KINDS, AnyResource
from headroom.api.resources import API_VERSION, GROUP
from headroom.core.usage import row_of, table_of
from headroom.model.decisions import Ref
from headroom.model.device_facts import Claim, ClaimTemplate, DeviceClass, DeviceSlice
from headroom.model.devices import DeviceTable
from headroom.model.facts import (
    Hold,
    Instance,
    Machine,
    Namespace,
    Node,
    NodeClaim,
    NodePool,
    Offer,
    Pod,
    Price,
    Usage,
    Workload,
)
from headroom.model.tables import NodeTable, PodTable
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import LedgerState, World, by_ref
from headroom.sim import outside, seen
from headroom.sim.texts import Repeated, objects

SIM_GROUP: Final = "sim.headroom.dev/v1"
SCENARIO: Final = "Scenario"
OWN_NAMESPACE: Final = "headroom-system"
"""Where the operator would run."""


class Place(NamedTuple):
    """Where an object stands: in which text, and as which of its objects, counted from 0."""

    source: str
    number: int


class Wrong(NamedTuple):
    """What is wrong with an object: of a resource or of a fact."""

    resource: dict[str, str]
    """Kind, namespace, name."""
    field: str
    message: str
    place: Place
    earlier: Place | None = None
    """The object that this one repeats."""


class Documents(Struct, kw_only=True):
    """All that was read."""

    resources: list[AnyResource] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    claim_templates: list[ClaimTemplate] = field(default_factory=list)
    device_classes: list[DeviceClass] = field(default_factory=list)
    device_slices: list[DeviceSlice] = field(default_factory=list)
    node_pools: list[NodePool] = field(default_factory=list)
    node_claims: list[NodeClaim] = field(default_factory=list)
    prices: list[Price] = field(default_factory=list)
    index: Index | None = None
    holds: list[Hold] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    stopped: bool = False
    usage: list[Usage] = field(default_factory=list)
    verdicts: list[HomeVerdict] = field(default_factory=list)
    problems: list[Wrong] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    ours: dict[Place, dict[str, str]] = field(default_factory=dict)
    """Every object of Headroom's groups or without a kind: kind, namespace, name."""
    places: dict[Ref, Place] = field(default_factory=dict)
    given: dict[Ref, frozenset[str]] = field(default_factory=dict)
    """Which fields of its spec each of our resources gives itself; all others have their default."""
    uids: dict[str, Ref] = field(default_factory=dict)
    """The pods by uid."""
    ignored: dict[str, int] = field(default_factory=dict)
    """Kinds that mean nothing here, and how many of each there were."""

    def world(self, now: int, cluster: str = "default") -> World:
        """The World that these documents are the complete view of."""
        pods, nodes = PodTable(), NodeTable()
        for pod in self.pods:
            pods.put(_seen_by_scheduler(pod, now))
        for node in self.nodes:
            nodes.put(node)
        world = World(
            now=now,
            cluster=cluster,
            stopped=self.stopped,
            resources=by_ref(self.resources),
            pods=pods,
            nodes=nodes,
            instances={each.name: each for each in self.instances},
            offers={each.name: each for each in self.offers},
            machines={each.name: each for each in self.machines},
            node_pools={each.name: each for each in self.node_pools},
            node_claims={each.name: each for each in self.node_claims},
            namespaces={each.name: each for each in self.namespaces},
            claims={each.key: each for each in self.claims},
            devices=DeviceTable(self.device_classes, self.claim_templates, self.device_slices),
            prices=tuple(self.prices),
            index=self.index.budgets if self.index else None,
            holds={each.name: each for each in self.holds},
            workloads={each.key: each for each in self.workloads},
            kueue=any(each.kind == "Workload" for each in self.workloads),
            ledger=LedgerState(verdicts=tuple(self.verdicts)),
        )
        rows = [row for each in self.usage if (row := row_of(each, cluster)) is not None]
        return structs.replace(world, usage=table_of(world, rows))


def _seen_by_scheduler(pod: Pod, now: int) -> Pod:
    """A manifest that people write says nothing of scheduling; in a cluster its scheduler would have looked at it by now."""
    waits = not pod.node and not pod.gates and pod.phase == "Pending" and pod.deleting is None
    if not waits or pod.unschedulable_since is not None:
        return pod
    return structs.replace(pod, unschedulable_since=now, nominated_since=now if pod.nominated_node else None)


def read(texts: Iterable[tuple[str, bytes]]) -> Documents:
    """What stands in these files. Raises `Misconfigured` for one that holds no Kubernetes objects."""
    out = Documents()
    for source, text in texts:
        take(out, source, text)
    return out


def is_usage(document: dict[str, Any]) -> bool:
    """Whether a document is a row of the ledger."""
    return (document.get("apiVersion"), document.get("kind")) == (SIM_GROUP, "Usage")


def take(out: Documents, source: str, text: bytes, *, any_group: bool = False) -> None:
    """Add what stands in one file, all or nothing; with `any_group`, our kinds count as ours in whatever group they are."""
    repeated: list[Repeated] = []
    found = list(objects(source, text, repeated))
    out.repeated += repeated
    for number, each in enumerate(found):
        _take(out, each.value, Place(source, number), any_group=any_group)


def _take(out: Documents, value: dict[str, Any], place: Place, *, any_group: bool) -> None:
    version, kind = str(value.get("apiVersion") or ""), str(value.get("kind") or "")
    group = version.partition("/")[0]
    if not kind:
        _complain(out, value, place, ("kind", "is required"))
    elif kind in KINDS and (group == GROUP or any_group):
        resource = parse.resource(value)
        out.resources.append(resource)
        ref = Ref(resource.kind, resource.namespace, resource.name)
        named = _note(out, ref, place, ours=True)
        spec = value.get("spec")
        out.given[ref] = frozenset(map(str, spec)) if isinstance(spec, dict) else frozenset()
        out.problems += [Wrong(named, each.field, each.message, place) for each in resource.problems]
    elif version == API_VERSION and kind in OPERATOR_KINDS:
        _take_operators(out, value, place)
    elif group == GROUP:
        _complain(out, value, place, ("kind", f"must be one of {', '.join((*KINDS, *OPERATOR_KINDS))}, not {kind!r}"))
    elif _take_known(out, value, place):
        pass
    elif group == SIM_GROUP.partition("/")[0] and kind != SCENARIO:
        _take_fact(out, value, place)
    else:
        name = f"{version}/{kind}" if version else kind
        out.ignored[name] = out.ignored.get(name, 0) + 1


def _take_operators(out: Documents, value: dict[str, Any], place: Place) -> None:
    """Add an object of a kind that only the operator writes."""
    if value["kind"] == "BudgetIndex":
        out.index = operator_kinds.index_of(value)
        name, readable = out.index.name, out.index.budgets is not None
    else:
        out.holds.append(operator_kinds.hold_of(value))
        name, readable = out.holds[-1].name, out.holds[-1].spec is not None
    named = _note(out, Ref(value["kind"], "", name), place, ours=True)
    if not readable:
        out.problems.append(Wrong(named, "spec", "must be what the operator writes", place))


def _take_owner(out: Documents, value: dict[str, Any], place: Place) -> bool:
    """Add an owner of pods: any Workload of Kueue, and what Headroom has suspended; others say nothing that pods do not."""
    kind = str(value.get("kind"))
    group, version, _ = paths.OWNERS.get(kind, ("", "", ""))
    if value.get("apiVersion") != f"{group}/{version}":
        return False
    if kind == "Workload":
        owner = workloads.workload_of(raw.fitted(value, raw.Workload))
    elif marks.SUSPENDED not in _labels(value):
        return False
    elif kind == "Job":
        owner = workloads.job_of(raw.fitted(value, raw.Job))
    else:
        owner = workloads.job_set_of(raw.fitted(value, raw.JobSet))
    out.workloads.append(owner)
    _note(out, Ref(owner.kind, owner.namespace, owner.name), place)
    return True


def _labels(value: dict[str, Any]) -> dict[str, str]:
    meta = raw.fitted(value, raw.Object).metadata
    return dict(values.pairs(meta.labels)) if meta else {}


def _take_known(out: Documents, value: dict[str, Any], place: Place) -> bool:
    """Add an object of Kubernetes itself, if it is of a kind that means something here."""
    match value.get("apiVersion"), value.get("kind"):
        case "v1", "Pod":
            out.pods.append(seen.pod_in(value))
            _note_pod(out, out.pods[-1], place)
        case "v1", "Node":
            out.nodes.append(seen.node_in(value))
            _note(out, Ref("Node", "", out.nodes[-1].name), place)
        case "v1", "Namespace":
            out.namespaces.append(parse.namespace_of(raw.fitted(value, raw.Object)))
            _note(out, Ref("Namespace", "", out.namespaces[-1].name), place)
        case "resource.k8s.io/v1", kind if kind in devices.KINDS:
            _take_device(out, value, place)
        case "karpenter.sh/v1", "NodePool":
            out.node_pools.append(karpenter.node_pool_of(raw.fitted(value, karpenter.NodePoolWire)))
            _note(out, Ref("NodePool", "", out.node_pools[-1].name), place)
        case "karpenter.sh/v1", "NodeClaim":
            out.node_claims.append(karpenter.node_claim_of(raw.fitted(value, karpenter.NodeClaimWire)))
            _note(out, Ref("NodeClaim", "", out.node_claims[-1].name), place)
        case "v1", "ConfigMap":
            return _take_settings(out, parse.settings_of(raw.fitted(value, raw.ConfigMap)), place)
        case _:
            return _take_owner(out, value, place)
    return True


def _take_device(out: Documents, value: dict[str, Any], place: Place) -> None:
    """Add a claim, a template of claims, a device class or a slice of devices."""
    match value["kind"]:
        case "ResourceClaim":
            out.claims.append(claim := devices.claim_of(raw.fitted(value, devices.ClaimWire)))
            ref = Ref("ResourceClaim", claim.namespace, claim.name)
        case "ResourceClaimTemplate":
            out.claim_templates.append(template := devices.template_of(raw.fitted(value, devices.TemplateWire)))
            ref = Ref("ResourceClaimTemplate", template.namespace, template.name)
        case "DeviceClass":
            out.device_classes.append(devices.class_of(raw.fitted(value, devices.ClassWire)))
            ref = Ref("DeviceClass", "", out.device_classes[-1].name)
        case _:
            out.device_slices.append(devices.slice_of(raw.fitted(value, devices.SliceWire)))
            ref = Ref("ResourceSlice", "", out.device_slices[-1].name)
    _note(out, ref, place)


def _take_settings(out: Documents, found: parse.Settings, place: Place) -> bool:
    """Add the price book or the cluster-wide settings, if that is what the ConfigMap is."""
    if found.name not in (PRICES, SETTINGS) or found.namespace not in (OWN_NAMESPACE, "default"):
        return False
    named = _note(out, Ref("ConfigMap", OWN_NAMESPACE, found.name), place)
    if found.name == SETTINGS:
        out.stopped = is_stopped(found.data)
        return True
    for key in sorted(found.data):
        book, problems = prices.parse_book(found.data[key])
        out.prices += book
        out.problems += [Wrong(named, f"data.{key}", each, place) for each in problems]
    return True


def _take_fact(out: Documents, value: dict[str, Any], place: Place) -> None:
    version, kind = value.get("apiVersion"), str(value.get("kind"))
    if kind not in outside.KINDS:
        _complain(out, value, place, ("kind", f"must be one of {', '.join(outside.KINDS)} or {SCENARIO}, not {kind!r}"))
    elif version != SIM_GROUP:
        _complain(out, value, place, ("apiVersion", f"must be {SIM_GROUP}, not {version!r}"))
    else:
        fact, problems = outside.fact(kind, value)
        _place(out, kind, fact)
        named = _note(out, Ref(kind, "", fact.name), place, ours=True)
        out.problems += [Wrong(named, where, message, place) for where, message in problems]


def _note(out: Documents, ref: Ref, place: Place, *, ours: bool = False) -> dict[str, str]:
    """Remember where an object stands. One that stood somewhere before is a problem: either could be meant."""
    named = _named(ref.kind, ref.namespace, ref.name)
    if ours:
        out.ours[place] = named
    if ref.name and out.places.setdefault(ref, place) != place:
        out.problems.append(Wrong(named, "", "is given twice", place, out.places[ref]))
    return named


def _note_pod(out: Documents, pod: Pod, place: Place) -> None:
    """Remember where a pod stands. In a cluster no two have one uid, and only one of them would count."""
    ref = Ref("Pod", pod.namespace, pod.name)
    named = _note(out, ref, place)
    other = out.uids.setdefault(pod.uid, ref)
    if other != ref:
        words = f"{pod.uid} is also that of {other}; give each pod its own, or leave it out"
        out.problems.append(Wrong(named, "metadata.uid", words, place, out.places[other]))


def _complain(out: Documents, value: dict[str, Any], place: Place, problem: tuple[str, str]) -> None:
    metadata = value.get("metadata")
    words = metadata if isinstance(metadata, dict) else {}
    parts = (value.get("kind"), words.get("namespace"), words.get("name"))
    named = out.ours[place] = _named(*(str(part or "") for part in parts))
    out.problems.append(Wrong(named, *problem, place))


def _place(out: Documents, kind: str, fact: Any) -> None:
    places: dict[str, list[Any]] = {
        "Instance": out.instances,
        "Offer": out.offers,
        "Machine": out.machines,
        "Usage": out.usage,
        "HomeVerdict": out.verdicts,
    }
    places[kind].append(fact)


def _named(kind: str, namespace: str, name: str) -> dict[str, str]:
    ref = Ref(kind, namespace, name)
    return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}

"""Manifests as a World: our resources, pods, nodes, and facts from outside as documents of group sim.headroom.dev/v1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct, field, structs

from headroom.adapters import outside, prices
from headroom.adapters.kube import manifests, operator_kinds, parse, raw, sources
from headroom.adapters.kube.config_maps import PRICES, SETTINGS, is_stopped
from headroom.adapters.kube.operator_kinds import RawBudgetIndex
from headroom.adapters.texts import Repeated, objects
from headroom.api.kinds import KINDS, OPERATOR_KINDS, AnyResource
from headroom.api.resources import API_VERSION, GROUP
from headroom.core.usage import row_of, table_of
from headroom.model.decisions import Ref
from headroom.model.devices import DeviceTable
from headroom.model.facts import Node, Pod, Price, Usage
from headroom.model.tables import NodeTable, PodTable
from headroom.model.verdicts import HomeVerdict
from headroom.model.world import FACTS, LedgerState, World, by_ref

SIM_GROUP: Final = "sim.headroom.dev/v1"
SCENARIO: Final = "Scenario"
OWN_NAMESPACE: Final = "headroom-system"
"""Where the operator would run."""


class DocumentPosition(NamedTuple):
    """Where an object stands: in which text, and as which of its objects, counted from 0."""

    source: str
    number: int


class Wrong(NamedTuple):
    """What is wrong with an object: of a resource or of a fact."""

    resource: dict[str, str]
    """Kind, namespace, name."""
    field: str
    message: str
    place: DocumentPosition
    earlier: DocumentPosition | None = None
    """The object that this one repeats."""


class Documents(Struct, kw_only=True):
    """All that was read."""

    resources: list[AnyResource] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    facts: dict[str, list[Any]] = field(default_factory=dict)
    """Facts from outside and of others' kinds, by the field of the World, or of its devices, that they belong to."""
    prices: list[Price] = field(default_factory=list)
    index: RawBudgetIndex | None = None
    stopped: bool = False
    usage: list[Usage] = field(default_factory=list)
    verdicts: list[HomeVerdict] = field(default_factory=list)
    problems: list[Wrong] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    ours: dict[DocumentPosition, dict[str, str]] = field(default_factory=dict)
    """Every object of Headroom's groups or without a kind: kind, namespace, name."""
    places: dict[Ref, DocumentPosition] = field(default_factory=dict)
    given: dict[Ref, frozenset[str]] = field(default_factory=dict)
    """Which fields of its spec each of our resources gives itself; all others have their default."""
    uids: dict[str, Ref] = field(default_factory=dict)
    """The pods by uid."""
    ignored: dict[str, int] = field(default_factory=dict)
    """Kinds that mean nothing here, and how many of each there were."""

    def of(self, name: str) -> list[Any]:
        """The facts of one field."""
        return self.facts.get(name, [])

    def world(self, now: int, cluster: str = "default") -> World:
        """The World that these documents are the complete view of."""
        pods, nodes = PodTable(), NodeTable()
        for pod in self.pods:
            pods.put(_seen_by_scheduler(pod, now))
        for node in self.nodes:
            nodes.put(node)
        named: dict[str, Any] = {name: each.named(self.of(name)) for name, each in FACTS.items()}
        world = World(
            now=now,
            cluster=cluster,
            stopped=self.stopped,
            resources=by_ref(self.resources),
            pods=pods,
            nodes=nodes,
            devices=DeviceTable(*(self.of(each) for each in ("device_classes", "claim_templates", "device_slices"))),
            prices=tuple(self.prices),
            index=self.index.budgets if self.index else None,
            kueue=any(each.kind == "Workload" for each in self.of("workloads")),
            ledger=LedgerState(verdicts=tuple(self.verdicts)),
            **named,
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
        _take(out, each.value, DocumentPosition(source, number), any_group=any_group)


def _take(out: Documents, value: dict[str, Any], place: DocumentPosition, *, any_group: bool) -> None:
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


def _take_operators(out: Documents, value: dict[str, Any], place: DocumentPosition) -> None:
    """Add an object of a kind that only the operator writes."""
    if value["kind"] == "BudgetIndex":
        out.index = operator_kinds.index_of(value)
        name, readable = out.index.name, out.index.budgets is not None
    else:
        source = sources.of(value["kind"])
        found = source.fact(value)
        out.facts.setdefault(source.field, []).append(found)
        name, readable = found.name, found.spec is not None
    named = _note(out, Ref(value["kind"], "", name), place, ours=True)
    if not readable:
        out.problems.append(Wrong(named, "spec", "must be what the operator writes", place))


def _take_known(out: Documents, value: dict[str, Any], place: DocumentPosition) -> bool:
    """Add an object of Kubernetes itself, if it is of a kind that means something here."""
    match value.get("apiVersion"), value.get("kind"):
        case "v1", "Pod":
            out.pods.append(manifests.pod_in(value))
            _note_pod(out, out.pods[-1], place)
        case "v1", "Node":
            out.nodes.append(manifests.node_in(value))
            _note(out, Ref("Node", "", out.nodes[-1].name), place)
        case "v1", "ConfigMap":
            return _take_settings(out, parse.settings_of(raw.fitted(value, raw.ConfigMap)), place)
        case version, kind:
            source = sources.BY_KIND.get((str(version), str(kind)))
            found = source.read(value) if source else None
            if source is None or found is None:
                return False  # an owner that nobody suspended says nothing that its pods do not
            out.facts.setdefault(source.field, []).append(found)
            _note(out, Ref(source.kind, getattr(found, "namespace", ""), found.name), place)
    return True


def _take_settings(out: Documents, found: parse.RawConfigMap, place: DocumentPosition) -> bool:
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


def _take_fact(out: Documents, value: dict[str, Any], place: DocumentPosition) -> None:
    version, kind = value.get("apiVersion"), str(value.get("kind"))
    if kind not in outside.KINDS:
        _complain(out, value, place, ("kind", f"must be one of {', '.join(outside.KINDS)} or {SCENARIO}, not {kind!r}"))
    elif version != SIM_GROUP:
        _complain(out, value, place, ("apiVersion", f"must be {SIM_GROUP}, not {version!r}"))
    else:
        fact, problems = outside.fact(kind, value)
        own: dict[str, list[Any]] = {"Usage": out.usage, "HomeVerdict": out.verdicts}
        (own[kind] if kind in own else out.facts.setdefault(outside.FIELDS[kind], [])).append(fact)
        named = _note(out, Ref(kind, "", fact.name), place, ours=True)
        out.problems += [Wrong(named, where, message, place) for where, message in problems]


def _note(out: Documents, ref: Ref, place: DocumentPosition, *, ours: bool = False) -> dict[str, str]:
    """Remember where an object stands. One that stood somewhere before is a problem: either could be meant."""
    named = _named(ref.kind, ref.namespace, ref.name)
    if ours:
        out.ours[place] = named
    if ref.name and out.places.setdefault(ref, place) != place:
        out.problems.append(Wrong(named, "", "is a duplicate", place, out.places[ref]))
    return named


def _note_pod(out: Documents, pod: Pod, place: DocumentPosition) -> None:
    """Remember where a pod stands. In a cluster no two have one uid, and only one of them would count."""
    ref = Ref("Pod", pod.namespace, pod.name)
    named = _note(out, ref, place)
    other = out.uids.setdefault(pod.uid, ref)
    if other != ref:
        words = f"{pod.uid} is also that of {other}; give each pod its own, or leave it out"
        out.problems.append(Wrong(named, "metadata.uid", words, place, out.places[other]))


def _complain(out: Documents, value: dict[str, Any], place: DocumentPosition, problem: tuple[str, str]) -> None:
    metadata = value.get("metadata")
    words = metadata if isinstance(metadata, dict) else {}
    parts = (value.get("kind"), words.get("namespace"), words.get("name"))
    named = out.ours[place] = _named(*(str(part or "") for part in parts))
    out.problems.append(Wrong(named, *problem, place))


def _named(kind: str, namespace: str, name: str) -> dict[str, str]:
    ref = Ref(kind, namespace, name)
    return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}

"""Manifests as a World: our resources, pods, nodes, and facts from outside as documents of group sim.headroom.dev/v1.

Whatever is handed in, reading it neither hangs nor crashes: a text that is no YAML, too deep or a bomb of aliases is refused in
one sentence, before anything is built from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
import yaml
from msgspec import Struct, field, structs

from headroom.adapters import prices
from headroom.adapters.kube import parse, raw
from headroom.adapters.kube.claims import claim_of
from headroom.adapters.kube.parse import Index
from headroom.adapters.kube.sinks import PRICES, SETTINGS, is_stopped
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import API_VERSION, GROUP
from headroom.core.usage import row_of, table_of
from headroom.model.decisions import Ref
from headroom.model.errors import Misconfigured
from headroom.model.facts import Claim, Instance, Machine, Namespace, Node, Offer, Pod, Price, Usage
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, by_ref
from headroom.sim import outside, seen

LARGEST_BYTES: Final = 64 * 2**20
DEEPEST: Final = 100
MOST_FROM_ALIASES: Final = 100_000
SIM_GROUP: Final = "sim.headroom.dev/v1"
SCENARIO: Final = "Scenario"
INDEX: Final = "BudgetIndex"
OWN_NAMESPACE: Final = "headroom-system"
"""Where the operator would run."""
_WANTED: Final = "give Kubernetes manifests as YAML or JSON"

_NO_YAML: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)
"""What the loader raises: odd tags such as `!!int ""` fail in odd ways."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]  # libyaml's loader has no types
    """Leaves moments as the text they are, as Kubernetes does."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: str(loader.construct_scalar(node)))
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}


class Found(Struct, frozen=True):
    """One object and the file it stands in."""

    source: str
    value: dict[str, Any]


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


class Repeated(NamedTuple):
    """A key that its mapping has already; only the last would count."""

    source: str
    line: int
    key: str
    first_line: int


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
    prices: list[Price] = field(default_factory=list)
    index: Index | None = None
    stopped: bool = False
    usage: list[Usage] = field(default_factory=list)
    problems: list[Wrong] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    ours: dict[Place, dict[str, str]] = field(default_factory=dict)
    """Every object of Headroom's groups or without a kind: kind, namespace, name."""
    places: dict[Ref, Place] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    """Kinds that mean nothing here, and how many of each there were."""

    def world(self, now: int, cluster: str = "default") -> World:
        """The World that these documents are the complete view of."""
        pods, nodes = PodTable(), NodeTable()
        for pod in self.pods:
            pods.put(pod)
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
            namespaces={each.name: each for each in self.namespaces},
            claims={each.key: each for each in self.claims if each.devices},
            prices=tuple(self.prices),
            index=self.index.budgets if self.index else None,
        )
        rows = [row for each in self.usage if (row := row_of(each, cluster)) is not None]
        return structs.replace(world, usage=table_of(world, rows))


def read(texts: Iterable[tuple[str, bytes]]) -> Documents:
    """What stands in these files. Raises `Misconfigured` for one that holds no Kubernetes objects."""
    out = Documents()
    for source, text in texts:
        take(out, source, text)
    return out


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
        named = _note(out, Ref(resource.kind, resource.namespace, resource.name), place, ours=True)
        out.problems += [Wrong(named, each.field, each.message, place) for each in resource.problems]
    elif (version, kind) == (API_VERSION, INDEX):
        out.index = parse.index_of(value)
        named = _note(out, Ref(kind, "", out.index.name), place, ours=True)
        if out.index.budgets is None:
            out.problems.append(Wrong(named, "spec", "must be what the operator writes: a mapping with budgets", place))
    elif group == GROUP:
        _complain(out, value, place, ("kind", f"must be one of {', '.join((*KINDS, INDEX))}, not {kind!r}"))
    elif _take_known(out, value, place):
        pass
    elif group == SIM_GROUP.partition("/")[0] and kind != SCENARIO:
        _take_fact(out, value, place)
    else:
        name = f"{version}/{kind}" if version else kind
        out.ignored[name] = out.ignored.get(name, 0) + 1


def _take_known(out: Documents, value: dict[str, Any], place: Place) -> bool:
    """Add an object of Kubernetes itself, if it is of a kind that means something here."""
    match value.get("apiVersion"), value.get("kind"):
        case "v1", "Pod":
            out.pods.append(seen.pod_in(value))
            _note(out, Ref("Pod", out.pods[-1].namespace, out.pods[-1].name), place)
        case "v1", "Node":
            out.nodes.append(seen.node_in(value))
            _note(out, Ref("Node", "", out.nodes[-1].name), place)
        case "v1", "Namespace":
            out.namespaces.append(parse.namespace_of(raw.fitted(value, raw.Object)))
            _note(out, Ref("Namespace", "", out.namespaces[-1].name), place)
        case "resource.k8s.io/v1", "ResourceClaim":
            out.claims.append(claim_of(raw.fitted(value, raw.ResourceClaim)))
            _note(out, Ref("ResourceClaim", out.claims[-1].namespace, out.claims[-1].name), place)
        case "v1", "ConfigMap":
            return _take_settings(out, parse.settings_of(raw.fitted(value, raw.ConfigMap)), place)
        case _:
            return False
    return True


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
    }
    places[kind].append(fact)


def _named(kind: str, namespace: str, name: str) -> dict[str, str]:
    ref = Ref(kind, namespace, name)
    return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


# --- text to objects ------------------------------------------------------------------------------------------------------


def objects(source: str, text: bytes, repeated: list[Repeated] | None = None) -> Iterator[Found]:
    """Every object of a text; the items of a List one by one. Keys that a YAML text has twice are added to `repeated`."""
    if len(text) > LARGEST_BYTES:
        raise Misconfigured(f"reading {source}: it is larger than {LARGEST_BYTES >> 20} MiB; give it in parts")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misconfigured(f"reading {source}: it is not UTF-8 text (byte {error.start}); {_WANTED}") from None
    for number, value in enumerate(_loaded(source, text, [] if repeated is None else repeated), start=1):
        yield from _flattened(source, number, value)


def _loaded(source: str, text: bytes, repeated: list[Repeated]) -> list[Any]:
    if text.lstrip()[:1] == b"{":
        try:
            return [msgspec.json.decode(text)]  # what kubectl prints, much faster than as YAML
        except (msgspec.DecodeError, RecursionError):
            pass  # several documents, or no JSON after all
    try:
        _refuse_bombs(source, text, _Keys(source, repeated))
        return list(yaml.load_all(text, Loader=_Loader))
    except _NO_YAML as error:
        raise _not_yaml(source, text, error) from None


def _flattened(source: str, number: int, value: Any) -> Iterator[Found]:
    if value is None:
        return
    if not isinstance(value, dict):
        raise Misconfigured(f"reading {source}: document {number} is no Kubernetes object; {_WANTED}")
    items = value.get("items") if str(value.get("kind", "")).endswith("List") else None
    if not isinstance(items, list):
        yield Found(source, plain(value))
        return
    for item in items:
        if isinstance(item, dict) and "kind" not in item and value["kind"] != "List":
            # The API server leaves both out where the list says them.
            item = {"apiVersion": value.get("apiVersion"), "kind": str(value["kind"]).removesuffix("List")} | item  # noqa: PLW2901  the same item, named
        yield from _flattened(source, number, item)


def plain(value: Any) -> Any:
    """The value as JSON has it: keys are text, and so is whatever else JSON does not know."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(each) for each in value]
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _not_yaml(source: str, text: bytes, error: Exception) -> Misconfigured:
    mark = getattr(error, "problem_mark", None)
    if mark is not None and any(
        each.lstrip(b" ")[:1] == b"\t" for each in text.split(b"\n")[mark.line : mark.line + 1]
    ):
        return Misconfigured(
            f"reading {source}: line {mark.line + 1} begins with a tab, which YAML does not allow; indent with spaces"
        )
    line = f" in line {mark.line + 1}" if mark is not None else ""
    why = " ".join(str(getattr(error, "problem", None) or error).split())[:200]
    return Misconfigured(f"reading {source}: it is not YAML{line}: {why}; {_WANTED}")


class _Keys:
    """Follows the events of a text and notes the keys that their mapping has already."""

    def __init__(self, source: str, repeated: list[Repeated]) -> None:
        self._source, self._repeated = source, repeated
        self._open: list[tuple[dict[str, int] | None, int]] = []
        """The lines of the keys so far, None in a list; and how many keys and values there were."""

    def see(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            return
        if not isinstance(event, yaml.NodeEvent):
            return
        if self._open:
            keys, count = self._open[-1]
            self._open[-1] = keys, count + 1
            if keys is not None and count % 2 == 0 and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
                line = event.start_mark.line + 1 if event.start_mark else 0
                if event.value in keys:
                    self._repeated.append(Repeated(self._source, line, event.value, keys[event.value]))
                else:
                    keys[event.value] = line
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append(({} if isinstance(event, yaml.MappingStartEvent) else None, 0))


def _refuse_bombs(source: str, text: bytes, keys: _Keys) -> None:
    """Count what the text stands for, event by event: libyaml recurses without a limit, and aliases multiply."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    size, from_aliases = 0, 0
    for event in yaml.parse(text, Loader=_Loader):
        keys.see(event)
        added = 0
        if isinstance(event, yaml.ScalarEvent):
            added = 1
            sizes |= {event.anchor: 1} if event.anchor else {}
        elif isinstance(event, yaml.AliasEvent):
            added = sizes.get(event.anchor or "", MOST_FROM_ALIASES)  # one that is still open would never end
            from_aliases += added + 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, size))
            added = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            sizes |= {anchor: size - before} if anchor else {}
        size += added
        if len(open_) > DEEPEST:
            line = event.start_mark.line + 1
            raise Misconfigured(f"reading {source}: line {line} is nested more than {DEEPEST} levels deep; {_WANTED}")
        if from_aliases > MOST_FROM_ALIASES:
            line = event.start_mark.line + 1
            raise Misconfigured(
                f"reading {source}: the aliases up to line {line} stand for too many values; write them out"
            )

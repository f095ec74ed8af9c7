"""Manifests as a World: our resources, pods, nodes, and facts from outside as documents of group sim.headroom.dev/v1.

Whatever is handed in, reading it neither hangs nor crashes: a text that is no YAML, too deep or a bomb of aliases is refused in
one sentence, before anything is built from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct, field

from headroom.adapters.kube import parse
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import GROUP
from headroom.model.decisions import Ref
from headroom.model.errors import Misconfigured
from headroom.model.facts import Instance, Machine, Node, Offer, Pod, Usage
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, by_ref
from headroom.sim import outside, seen

LARGEST_BYTES: Final = 64 * 2**20
DEEPEST: Final = 100
MOST_FROM_ALIASES: Final = 100_000
SIM_GROUP: Final = "sim.headroom.dev/v1"
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


class Documents(Struct, kw_only=True):
    """All that was read."""

    resources: list[AnyResource] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    problems: list[tuple[dict[str, str], str, str]] = field(default_factory=list)
    """Which object (kind, namespace, name), which field, what about it: of resources and of facts."""
    ignored: dict[str, int] = field(default_factory=dict)
    """Kinds that mean nothing here, and how many of each there were."""

    def world(self, now: int, cluster: str = "default") -> World:
        """The World that these documents are the complete view of."""
        pods, nodes = PodTable(), NodeTable()
        for pod in self.pods:
            pods.put(pod)
        for node in self.nodes:
            nodes.put(node)
        return World(
            now=now,
            cluster=cluster,
            resources=by_ref(self.resources),
            pods=pods,
            nodes=nodes,
            instances={each.name: each for each in self.instances},
            offers={each.name: each for each in self.offers},
            machines={each.name: each for each in self.machines},
            usage={each.name: each for each in self.usage},
        )


def read(texts: Iterable[tuple[str, bytes]]) -> Documents:
    """What stands in these files. Raises `Misconfigured` for one that holds no Kubernetes objects."""
    out = Documents()
    for source, text in texts:
        for each in objects(source, text):
            _take(out, each.value)
    return out


def _take(out: Documents, value: dict[str, Any]) -> None:
    version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
    if version.startswith(f"{GROUP}/") and kind in KINDS:
        resource = parse.resource(value)
        out.resources.append(resource)
        named = _named(resource.kind, resource.namespace, resource.name)
        out.problems += [(named, each.field, each.message) for each in resource.problems]
    elif (version, kind) == ("v1", "Pod"):
        out.pods.append(seen.pod_in(value))
    elif (version, kind) == ("v1", "Node"):
        out.nodes.append(seen.node_in(value))
    elif version == SIM_GROUP and kind in outside.KINDS:
        fact, problems = outside.fact(kind, value)
        _place(out, kind, fact)
        out.problems += [(_named(kind, "", fact.name), where, message) for where, message in problems]
    else:
        name = f"{version}/{kind}" if version else kind
        out.ignored[name] = out.ignored.get(name, 0) + 1


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


def objects(source: str, text: bytes) -> Iterator[Found]:
    """Every object of a text; the items of a List one by one."""
    if len(text) > LARGEST_BYTES:
        raise Misconfigured(f"reading {source}: it is larger than {LARGEST_BYTES >> 20} MiB; give it in parts")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misconfigured(f"reading {source}: it is not UTF-8 text (byte {error.start}); {_WANTED}") from None
    for number, value in enumerate(_loaded(source, text), start=1):
        yield from _flattened(source, number, value)


def _loaded(source: str, text: bytes) -> list[Any]:
    if text.lstrip()[:1] == b"{":
        try:
            return [msgspec.json.decode(text)]  # what kubectl prints, much faster than as YAML
        except (msgspec.DecodeError, RecursionError):
            pass  # several documents, or no JSON after all
    try:
        _refuse_bombs(source, text)
        return list(yaml.load_all(text, Loader=_Loader))
    except _NO_YAML as error:
        raise _not_yaml(source, error) from None


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
            item = {"apiVersion": value.get("apiVersion"), "kind": str(value["kind"]).removesuffix("List")} | item  # noqa: PLW2901
        yield from _flattened(source, number, item)


def plain(value: Any) -> Any:
    """The value as JSON has it: keys are text, and so is whatever else JSON does not know."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(each) for each in value]
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _not_yaml(source: str, error: Exception) -> Misconfigured:
    mark = getattr(error, "problem_mark", None)
    line = f" in line {mark.line + 1}" if mark is not None else ""
    why = " ".join(str(getattr(error, "problem", None) or error).split())[:200]
    return Misconfigured(f"reading {source}: it is not YAML{line}: {why}; {_WANTED}")


def _refuse_bombs(source: str, text: bytes) -> None:
    """Count what the text stands for, event by event: libyaml recurses without a limit, and aliases multiply."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    size, from_aliases = 0, 0
    for event in yaml.parse(text, Loader=_Loader):
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

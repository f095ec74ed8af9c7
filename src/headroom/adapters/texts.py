"""Texts as plain objects: YAML or JSON, one object after another.

Whatever is handed in, reading it neither hangs nor crashes: a text that is no YAML, too deep or a bomb of aliases is refused in
one sentence, before anything is built from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import yaml
from msgspec import Struct

from headroom.model.errors import Misconfigured

LARGEST_BYTES: Final = 64 * 2**20
DEEPEST: Final = 100
MOST_FROM_ALIASES: Final = 100_000
WANTED: Final = "give Kubernetes manifests as YAML or JSON"
"""What to do about a text that is something else."""

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


class ParsedObject(Struct, frozen=True):
    """One object and the file it stands in."""

    source: str
    value: dict[str, Any]


class Repeated(NamedTuple):
    """A key that its mapping has already; only the last would count."""

    source: str
    line: int
    key: str
    first_line: int


def objects(source: str, text: bytes, repeated: list[Repeated] | None = None) -> Iterator[ParsedObject]:
    """Every object of a text; the items of a List one by one. Keys that a YAML text has twice are added to `repeated`."""
    if len(text) > LARGEST_BYTES:
        raise Misconfigured(f"reading {source}: it is larger than {LARGEST_BYTES >> 20} MiB; split it")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misconfigured(f"reading {source}: it is not UTF-8 text (byte {error.start}); {WANTED}") from None
    for number, value in enumerate(_loaded(source, text, [] if repeated is None else repeated), start=1):
        yield from _flattened(source, number, value)


def _loaded(source: str, text: bytes, repeated: list[Repeated]) -> list[Any]:
    if text.lstrip()[:1] == b"{":
        try:
            return [msgspec.json.decode(text)]  # what kubectl prints, much faster than as YAML
        except (msgspec.DecodeError, RecursionError):
            pass  # several documents, or no JSON after all
    with suppress(_NotSimple, *_NO_YAML):
        return _simple(text)
    try:
        _refuse_bombs(source, text, _Keys(source, repeated))
        return [plain(each) for each in yaml.load_all(text, Loader=_Loader)]
    except _NO_YAML as error:
        raise _not_yaml(source, text, error) from None


class _NotSimple(Exception):
    """A text needs the whole of YAML, or has something wrong with it."""


class _Words(dict[str, Any]):
    """What words without quotes mean, such as `true` or `24`; each is resolved once."""

    def __init__(self) -> None:
        self._loader = _Loader(b"")

    def __missing__(self, word: str) -> Any:
        tag = self._loader.resolve(yaml.ScalarNode, word, (True, False))
        found = self[word] = self._loader.construct_object(yaml.ScalarNode(tag, word))
        return found


_NODES: Final = (yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent, yaml.AliasEvent)


def _simple(text: bytes) -> list[Any]:
    """The documents of a text as nearly everybody writes them, in one pass and thus in a third of the time.

    Raises `_NotSimple`, or what the parser raises, for one with tags, anchors or merges, with keys that are no text or are there
    twice, too deep, or with a mistake: what that means, or what is wrong, the other passes say.
    """
    parser, words = _Loader(text), _Words()
    into: list[Any] = []
    around: list[list[Any]] = []
    while (kind := type(event := parser.get_event())) is not yaml.StreamEndEvent:
        if kind in _NODES and (event.anchor is not None or event.tag is not None):
            raise _NotSimple
        if kind is yaml.ScalarEvent:
            into.append(words[event.value] if event.implicit[0] else event.value)
        elif kind in _NODES:
            around.append(into)
            into = []
            if len(around) > DEEPEST:
                raise _NotSimple
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            found = _mapping(into) if kind is yaml.MappingEndEvent else into
            into = around.pop()
            into.append(found)
    return into


def _mapping(members: list[Any]) -> dict[str, Any]:
    """The mapping of these keys and values in turn."""
    keys = members[::2]
    if not all(type(key) is str and key != "<<" for key in keys):
        raise _NotSimple
    found = dict(zip(keys, members[1::2], strict=True))
    if len(found) < len(keys):
        raise _NotSimple
    return found


def _flattened(source: str, number: int, value: Any) -> Iterator[ParsedObject]:
    if value is None:
        return
    if not isinstance(value, dict):
        raise Misconfigured(f"reading {source}: document {number} is not a Kubernetes object; {WANTED}")
    items = value.get("items") if str(value.get("kind", "")).endswith("List") else None
    if not isinstance(items, list):
        yield ParsedObject(source, value)
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
    return Misconfigured(f"reading {source}: it is not YAML{line}: {why}; {WANTED}")


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
            raise Misconfigured(f"reading {source}: line {line} is nested more than {DEEPEST} levels deep; {WANTED}")
        if from_aliases > MOST_FROM_ALIASES:
            line = event.start_mark.line + 1
            raise Misconfigured(
                f"reading {source}: the aliases up to line {line} stand for too many values; write them out"
            )

"""Manifests from files and standard input, and the line of every field in them."""

from __future__ import annotations

import gc
import glob
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    import yaml

    from headroom.adapters.documents import DocumentPosition, Documents
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.model.decisions import Ref

LARGEST_BYTES: Final = 256 * 2**20

Text = tuple[str, bytes]
"""Where it came from and what stands in it."""


ENDINGS: Final = (".yaml", ".yml", ".json")
"""What is taken of a folder, as kubectl does."""
_PATTERN: Final = re.compile(r"[*?\[]")


def files_of(paths: Sequence[Path], *, recursive: bool = False, endings: Sequence[str] = ENDINGS) -> list[Path]:
    """The files that are meant by files, folders, patterns such as `team-*.yaml`, and `-`.

    Raises `Misconfigured` for a folder without manifests, and for a pattern that no file has.
    """
    return [file for path in paths for file in _meant(path, recursive, endings)]


def _meant(path: Path, recursive: bool, endings: Sequence[str]) -> list[Path]:
    if path.is_dir():
        found = path.rglob("*") if recursive else path.glob("*")
        files = sorted(each for each in found if each.suffix in endings and each.is_file())
        if not files:
            deeper = "" if recursive else ", or give -R to look into its folders too"
            raise Misconfigured(f"reading {path}: the folder has no {', '.join(endings)} file; check the path{deeper}")
        return files
    if _PATTERN.search(str(path)) and not path.exists():
        # The shell has expanded what it could; what comes here was quoted, or fits nothing.
        matches = sorted(Path(each) for each in glob.glob(str(path), recursive=True))  # noqa: PTH207  it may be absolute
        if not matches:
            raise Misconfigured(f"reading {path}: no file matches; check the pattern")
        return [file for each in matches for file in _meant(each, recursive, endings)]
    return [path]


def read(paths: Sequence[Path]) -> list[Text]:
    """The files' contents, `-` being standard input. Raises `Misconfigured` for one that cannot be read."""
    refuse_twice(paths)
    return [_bytes_of(path) for path in paths]


def read_manifests(paths: Sequence[Path], *, recursive: bool = False) -> list[Text]:
    """The same for what must hold manifests, folders and patterns among it.

    An empty file is refused: the output of a command that failed must not pass for one without a mistake.
    """
    hurry()
    texts = read(files_of(paths, recursive=recursive))
    for source, text in texts:
        if not text.strip():
            raise Misconfigured(f"reading {source}: it is empty; check the path, or the command that wrote it")
    return texts


def hurry() -> None:
    """Let the cyclic collector rest: all that is read lives until the command ends, and walking it again and again takes a third of the time."""
    gc.set_threshold(200_000, 50, 100)


def refuse_twice(paths: Sequence[Path]) -> None:
    """Raise `Misconfigured` if standard input is asked for more than once."""
    if [str(path) for path in paths].count("-") > 1:
        raise Misconfigured("reading standard input: it can be read only once; give - once")


def _bytes_of(path: Path) -> Text:
    source = "standard input" if str(path) == "-" else str(path)
    try:
        if source == "standard input":
            text = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with path.open("rb") as file:
                text = file.read(LARGEST_BYTES + 1)
    except IsADirectoryError:
        raise Misconfigured(f"reading {source}: it is a folder; give a file") from None
    except OSError as error:
        raise Misconfigured(f"reading {source}: {error.strerror or error}; check the path and its rights") from error
    if len(text) > LARGEST_BYTES:
        raise Misconfigured(f"reading {source}: it is larger than {LARGEST_BYTES >> 20} MiB; give it in parts")
    return source, text


class Complaint(NamedTuple):
    """Something wrong in a manifest, and where."""

    source: str
    line: int
    resource: dict[str, str]
    """Kind, namespace, name; empty words where they are not known."""
    field: str
    message: str


def spoken(complaint: Complaint, kind: str = "") -> str:
    """A complaint as people read it: FILE:LINE: KIND/NAME: FIELD MESSAGE."""
    named = "/".join(part for part in complaint.resource.values() if part)
    words = [f"{complaint.source}:{complaint.line}:", f"{named}:" if named else "", kind, complaint.field]
    return " ".join(word.strip() for word in (*words, complaint.message) if word)


def complaints(found: Documents, texts: Sequence[Text]) -> list[Complaint]:
    """All that is wrong with what was read from these texts: text by text, from top to bottom."""
    from headroom.api.kinds import KINDS
    from headroom.cli import passing

    if not found.problems and not found.repeated:
        return []
    lines = _LinesOf(texts)
    out = []
    for wrong in found.problems:
        why = wrong.message
        if wrong.field == "apiVersion" and wrong.resource["kind"] in KINDS:
            why = f"{why}; {passing.remedy(lines.word(wrong.place, 'apiVersion'), wrong.resource['kind'])}"
        if wrong.field == "kind" and (near := passing.near(wrong.resource["kind"])):
            why = f"{why}; {near}"
        if wrong.earlier is not None:
            why = f"{why}: it is at {wrong.earlier.source}:{lines.of(wrong.earlier, '')} already"
        out.append(Complaint(wrong.place.source, lines.of(wrong.place, wrong.field), wrong.resource, wrong.field, why))
    for each in found.repeated:
        named = found.ours.get(lines.place(each.source, each.line), {"kind": "", "namespace": "", "name": ""})
        why = f"is a duplicate: line {each.first_line} has it already"
        out.append(Complaint(each.source, each.line, named, each.key, why))
    return ordered(out, texts)


def remarks(
    found: Documents, texts: Sequence[Text], judge: Callable[[AnyResource], Iterable[Problem]]
) -> list[Complaint]:
    """What somebody has to say of the valid resources among what was read."""
    from headroom.model.world import ref_of

    valid = (each for each in found.resources if not each.problems)
    return remarks_on(found, texts, ((ref_of(each), problem) for each in valid for problem in judge(each)))


def remarks_on(found: Documents, texts: Sequence[Text], said: Iterable[tuple[Ref, Problem]]) -> list[Complaint]:
    """What somebody has to say of objects among what was read, with its lines."""
    lines, out = _LinesOf(texts), []
    for ref, each in said:
        if (place := found.places.get(ref)) is not None:
            named = {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}
            out.append(Complaint(place.source, lines.of(place, each.field), named, each.field, each.message))
    return ordered(out, texts)


def ordered(found: Iterable[Complaint], texts: Sequence[Text]) -> list[Complaint]:
    """Text by text, from top to bottom."""
    order = {source: number for number, (source, _) in enumerate(texts)}
    return sorted(found, key=lambda each: (order[each.source], each.line))


class _LinesOf:
    """The lines of several texts, each looked at only if somebody asks."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self._texts = dict(texts)
        self._known: dict[str, LineNumbers] = {}

    def of(self, place: DocumentPosition, field: str) -> int:
        return self._lines(place.source).of(place.number, field)

    def word(self, place: DocumentPosition, key: str) -> str:
        return self._lines(place.source).word(place.number, key)

    def place(self, source: str, line: int) -> DocumentPosition:
        from headroom.adapters.documents import DocumentPosition

        return DocumentPosition(source, self._lines(source).object_at(line))

    def _lines(self, source: str) -> LineNumbers:
        if source not in self._known:
            self._known[source] = LineNumbers(self._texts[source])
        return self._known[source]


class LineNumbers:
    """Where the objects of a text stand that `adapters.texts.objects` has read, in the same order."""

    def __init__(self, text: bytes) -> None:
        import yaml

        self._nodes = [each for node in yaml.compose_all(text, Loader=yaml.CSafeLoader) for each in _flattened(node)]

    def of(self, number: int, field: str) -> int:
        """The line of a field such as `spec.machines[0].name` of an object, or of the nearest thing around it."""
        node = self._nodes[number]
        line: int = node.start_mark.line
        while field:
            child, at, field = _step(node, field)
            if child is None:
                break
            node, line = child, at
        return line + 1

    def word(self, number: int, key: str) -> str:
        """The text that stands at a key of an object itself; empty if none does."""
        members = {str(name.value): child.value for name, child in self._nodes[number].value}
        found = members.get(key)
        return found if isinstance(found, str) else ""

    def object_at(self, line: int) -> int:
        """The number of the object that a line belongs to."""
        return max(0, bisect_left(self._nodes, line, key=lambda node: node.start_mark.line) - 1)


def _flattened(node: yaml.Node) -> Iterator[yaml.Node]:
    """The object, or the items of a List one by one; nothing for an empty document."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return
    members = {str(key.value): child for key, child in node.value}
    kind, items = members.get("kind"), members.get("items")
    if isinstance(items, yaml.SequenceNode) and kind is not None and str(kind.value).endswith("List"):
        for item in items.value:
            yield from _flattened(item)
    else:
        yield node


def _step(node: yaml.Node, field: str) -> tuple[yaml.Node | None, int, str]:
    """The child that a path begins with, its line, and the rest of the path."""
    import yaml

    if isinstance(node, yaml.SequenceNode) and field.startswith("["):
        number, _, rest = field[1:].partition("]")
        if number.isdigit() and int(number) < len(node.value):
            child = node.value[int(number)]
            return child, child.start_mark.line, rest.removeprefix(".")
    if isinstance(node, yaml.MappingNode):
        # A key may hold dots itself, as label keys do: the longest one that fits is meant.
        fitting = [(key, child) for key, child in node.value if _begins(field, str(key.value))]
        if fitting:
            key, child = max(fitting, key=lambda pair: len(str(pair[0].value)))
            return child, key.start_mark.line, field[len(str(key.value)) :].removeprefix(".")
    return None, 0, ""


def _begins(field: str, key: str) -> bool:
    return field == key or field.startswith((f"{key}.", f"{key}["))

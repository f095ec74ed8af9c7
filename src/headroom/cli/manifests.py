"""Manifests from files and standard input, and the line of every field in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    import yaml

LARGEST_BYTES: Final = 256 * 2**20

Text = tuple[str, bytes]
"""Where it came from and what stands in it."""


def read(paths: Sequence[Path]) -> list[Text]:
    """The files' contents, `-` being standard input. Raises `Misconfigured` for one that cannot be read."""
    if [str(path) for path in paths].count("-") > 1:
        raise Misconfigured("reading standard input: it can be read once only; give - once")
    return [_bytes_of(path) for path in paths]


def _bytes_of(path: Path) -> Text:
    source = "standard input" if str(path) == "-" else str(path)
    try:
        if source == "standard input":
            text = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with path.open("rb") as file:
                text = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise Misconfigured(f"reading {source}: {error.strerror or error}; check the path and its rights") from error
    if len(text) > LARGEST_BYTES:
        raise Misconfigured(f"reading {source}: it is larger than {LARGEST_BYTES >> 20} MiB; give it in parts")
    return source, text


class Lines:
    """Where the objects of a text stand that `sim.documents.objects` has read, in the same order."""

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

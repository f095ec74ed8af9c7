"""Makes documents out of the cases: one value put in place of another, every field of a schema, and the text that is sent."""

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

from headroom.api import kinds
from headroom.api.schema import Problem, Schema
from tests.api.cases import LEFT_OUT, number
from tests.api.field_cases import FULL

_STEP = re.compile(r"([^.\[\]]+)|\[(\d*)\]")


def as_json(document: Any) -> str:
    """The text that is sent; what stands in `number(...)` is written as it is."""
    return re.sub(r'"@number:([^"]*)"', r"\1", json.dumps(document))


def problems(document: Any) -> list[Problem]:
    """Our verdict on that text."""
    return kinds.problems(json.loads(as_json(document)))


def put(document: Any, path: str, value: Any) -> Any:
    """A copy of `document` with `value` at `path`; `[]` is the first item of a list."""
    changed = copy.deepcopy(document)
    *before, last = [name or int(index or 0) for name, index in _STEP.findall(path)]
    place = changed
    for step in before:
        if isinstance(place, dict) and place.get(step) is None and isinstance(step, str):
            place[step] = {}  # a part that FULL has not, as it excludes another one
        place = place[step]
    if value == LEFT_OUT:
        if not isinstance(place, dict) or last in place:
            del place[last]
    else:
        place[last] = value
    return changed


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every place below a schema, itself included, with `[]` for the items of a list."""
    yield path, schema
    for name, each in schema.properties.items():
        yield from fields(each, f"{path}.{name}")
    if schema.items and schema.items.properties:
        yield from fields(schema.items, f"{path}[]")


def spec_fields(kind: str) -> dict[str, Schema]:
    return dict(fields(kinds.spec_schema(kind), "spec"))


_WRONG_TYPES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -7,
        3,
        "",
        "text",
        [],
        {},
        [None],
        [3],
        ["text"],
        [{}],
        [{"a": 1}],
        {"a": 1},
        {"a": {"b": 1}},
        [[[{"a": 1}]]],
    ),
    *map(number, ("0.0", "2.0", "-1.5", "1e3", "1e400", "9223372036854775807", "9223372036854775808")),
)


def any_type_anywhere(kind: str) -> Iterator[tuple[str, Any]]:
    """Every JSON type at every place of the spec, every field left out, and an unknown field in every mapping."""
    for path, schema in spec_fields(kind).items():
        for value in _WRONG_TYPES:
            yield f"{path} = {json.dumps(value)}", put(FULL[kind], path, value)
        if not path.endswith("[]"):
            yield f"{path} left out", put(FULL[kind], path, LEFT_OUT)
        if schema.properties:
            yield f"{path}.bogus", put(FULL[kind], f"{path}.bogus", None)


def at_the_limits(kind: str) -> Iterator[tuple[str, Any]]:
    """Values just inside and just outside of every limit."""
    for path, schema in spec_fields(kind).items():
        for limit in (schema.minimum, schema.maximum):
            if limit is not None:
                yield from ((f"{path} = {limit + step}", put(FULL[kind], path, limit + step)) for step in (-1, 0, 1))
        if schema.type in ("string", "quantity") and schema.max_length is not None:
            for letter in ("a", "1", "ä", "𝒜"):
                for size in (0, schema.max_length, schema.max_length + 1):
                    yield f"{path} = {size} x {letter}", put(FULL[kind], path, letter * size)


def several_at_once(kind: str, count: int) -> Iterator[tuple[str, Any]]:
    """Documents with up to six wild values, always the same ones."""
    dice = random.Random(f"headroom {kind}")
    places = list(spec_fields(kind))
    pool = (*_WRONG_TYPES, "a b", "1e309", "-5M", "１", 2**63, "x" * 400, LEFT_OUT, {"a": "b"}, ["a", "a"])
    for index in range(count):
        document = FULL[kind]
        for _ in range(dice.randint(2, 6)):
            try:
                document = put(document, dice.choice(places), dice.choice(pool))
            except (KeyError, IndexError, TypeError):
                continue  # an earlier value took the place away
        yield f"several {index}: {json.dumps(document)}", document

"""The one description of a kind, from which its CRD schema and its `problems` both come.

A kind is written once, as msgspec types. `Meta` carries the limits of a field, `Rule` what a limit cannot say. `of` turns
the type into a `Schema` tree; `crd.py` renders that tree for the API server and `check` walks it over a plain document. The
two must agree, and a test asks a real API server whether they do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Struct, inspect

from headroom.api import quantities

Json = Any
"""A plain JSON value as it came from outside, before anything is known about it."""


class Rule(Struct, frozen=True):
    """A condition on one object that plain limits cannot state: in CEL for the API server, in Python for us."""

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""
    """The field at fault, below the place where the rule stands; empty for that place itself."""
    numbers: tuple[str, ...] = ()
    """The whole numbers that the rule compares. CEL cannot compare one that was sent as 2.0, so `check` refuses it too."""


Fault = Literal["Invalid", "Required", "NotSupported", "TypeInvalid", "Duplicate", "TooLong", "TooMany", "Unknown"]
"""What is wrong with a field: in the API server's words, and `Unknown` where there is no such field."""


class Problem(Struct, frozen=True, order=True):
    """One wrong field and what to do about it."""

    field: str
    message: str
    fault: Fault = "Invalid"


class Schema(Struct, frozen=True, kw_only=True):
    """What may stand at one place of a document."""

    type: str
    description: str = ""
    default: Any = UNSET
    properties: dict[str, Schema] = {}
    required: tuple[str, ...] = ()
    items: Schema | None = None
    values: Schema | None = None
    enum: tuple[str, ...] = ()
    pattern: str = ""
    hint: str = ""
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    format: str = ""
    map_key: str = ""
    rules: tuple[Rule, ...] = ()


def extra(*rules: Rule, hint: str = "", map_key: str = "", of: str = "") -> dict[str, Any]:
    """What `Meta(extra=...)` may carry for us: rules, a hint to print beside a pattern, a list's key, a special type."""
    given = {"rules": rules, "hint": hint, "map_key": map_key, "of": of}
    return {name: each for name, each in given.items() if each}  # what is not given stays as the type itself has it


def quantity(description: str, *rules: Rule) -> Meta:
    """A field that takes a Kubernetes quantity, as a whole number or as text."""
    return Meta(
        description=description, extra=extra(*rules, hint="a quantity such as 100, 500m or 1.5k", of="quantity")
    )


def of(kind: type[Struct]) -> Schema:
    """The schema of a msgspec type."""
    return _schema(inspect.type_info(kind), description=(kind.__doc__ or "").strip())


def _schema(info: inspect.Type, *, description: str = "", default: Any = UNSET) -> Schema:
    meta: dict[str, Any] = {"rules": (), "hint": "", "map_key": "", "of": ""}
    while isinstance(info, inspect.Metadata):
        meta |= info.extra or {}
        description = (info.extra_json_schema or {}).get("description", description)
        info = info.type
    common: dict[str, Any] = {
        "description": description,
        "default": default,
        "hint": meta["hint"],
        "rules": meta["rules"],
    }
    if meta["of"] == "quantity":
        return Schema(type="quantity", pattern=quantities.PATTERN, max_length=quantities.MAX_LENGTH, **common)
    if meta["of"] == "int-or-string":
        return _int_or_string(info, common)
    if isinstance(info, inspect.UnionType):  # `X | None`: the field may be left out
        present = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return _merge(_schema(present[0], description=description), common)
    return _plain(info, common, meta["map_key"])


def _int_or_string(info: inspect.Type, common: dict[str, Any]) -> Schema:
    """A whole number within limits, or one of a few words; `int | str | None` with the limits of both."""
    both = info.types if isinstance(info, inspect.UnionType) else ()
    of_number = next(each for each in both if isinstance(each, inspect.IntType))
    of_text = next(each for each in both if isinstance(each, inspect.StrType))
    return Schema(
        type="int-or-string",
        minimum=of_number.ge,
        maximum=of_number.le,
        max_length=of_text.max_length,
        pattern=of_text.pattern or "",
        **common,
    )


def _merge(schema: Schema, common: dict[str, Any]) -> Schema:
    default = UNSET if common["default"] is None else common["default"]
    return msgspec.structs.replace(
        schema,
        description=common["description"] or schema.description,
        default=default,
        hint=common["hint"] or schema.hint,
        rules=schema.rules + common["rules"],
    )


def _plain(info: inspect.Type, common: dict[str, Any], map_key: str) -> Schema:
    match info:
        case inspect.StructType():
            return _object(info, common)
        case inspect.DictType(value_type=value, max_length=longest):
            return Schema(type="object", values=_schema(value), max_length=longest, **common)
        case inspect.VarTupleType(item_type=item, min_length=shortest, max_length=longest):
            return Schema(
                type="array", items=_schema(item), map_key=map_key, min_length=shortest, max_length=longest, **common
            )
        case inspect.LiteralType(values=values):
            return Schema(type="string", enum=tuple(str(value) for value in values), **common)
        case inspect.BoolType():
            return Schema(type="boolean", **common)
        case inspect.IntType(ge=least, le=most):
            return Schema(type="integer", minimum=least, maximum=most, format="int64", **common)
        case inspect.StrType(min_length=shortest, max_length=longest, pattern=pattern):
            return Schema(type="string", min_length=shortest, max_length=longest, pattern=pattern or "", **common)
    raise TypeError(f"no schema for {info}")


def _object(info: inspect.StructType, common: dict[str, Any]) -> Schema:
    properties: dict[str, Schema] = {}
    for field in info.fields:
        default = field.default
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        if isinstance(default, Struct):
            default = {}  # its own fields have defaults of their own
        elif isinstance(default, tuple):
            default = UNSET  # an empty list and no list mean the same
        elif default is NODEFAULT or default is None or default in ("", {}):
            default = UNSET
        made = _schema(field.type, default=default)
        if default == {} and made.rules:
            # The API server asks the rules about a default as it is written, before the defaults in it.
            made = msgspec.structs.replace(made, default=defaulted(made, {}))
        properties[field.encode_name] = made
    common["description"] = common["description"] or (info.cls.__doc__ or "").strip()
    common["rules"] = (*common["rules"], *getattr(info.cls, "rules", ()))
    required = tuple(field.encode_name for field in info.fields if field.required)
    return Schema(type="object", properties=properties, required=required, **common)


# --- what is wrong with a document --------------------------------------------------------------------------------------------------

NO_FIELD: Final = "is not a field here"
_ALIKE: Final = 0.75
"""From here on two names are taken for one with a slip."""
_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "boolean": (bool,),
    "quantity": (str, int),
    "integer": (),
    "int-or-string": (str,),
}
_TYPE_WORDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "boolean": "true or false",
    "quantity": "a quantity such as 100, 500m or 1.5k; a fraction is written as text, in quotes",
    "int-or-string": "a whole number or text",
}
_AS_THEY_ARE: Final = frozenset({"string", "boolean", "quantity"})
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_SHOWN: Final = 60
_MOST_LOOKED_AT: Final = 4096
_USER_INFO: Final = re.compile(r"://[^/?#\s]*@")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"


def check(schema: Schema, value: Json, path: str) -> Iterator[Problem]:
    """Every problem of `value`, as the API server would see it, each at the path of the wrong field."""
    if not _has_type(schema.type, value):
        hint = f": write {schema.hint}" if schema.hint and schema.type == "string" else ""
        yield Problem(path, f"must be {_TYPE_WORDS[schema.type]}, not {shown(value)}{hint}", "TypeInvalid")
        yield from _strays(value, path)
        return
    yield from _check_limits(schema, value, path)
    if schema.type == "object":
        yield from _check_object(schema, value, path)
    elif schema.items:
        for index, item in enumerate(value):
            yield from check(schema.items, item, f"{path}[{index}]")
        yield from _check_unique(schema, value, path)
    if schema.rules:
        yield from _check_numbers(schema.rules, value, path)
        yield from check_rules(schema.rules, defaulted(schema, value), path)


def check_rules(rules: tuple[Rule, ...], value: Json, path: str) -> Iterator[Problem]:
    """The rules that do not hold. One that cannot be asked is silent: the field it needs is wrong and already named."""
    for rule in rules:
        try:
            holds = rule.holds(value)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError):
            continue
        if not holds:
            yield Problem(f"{path}.{rule.field}".strip("."), rule.message)


def defaulted(schema: Schema, value: Json) -> Json:
    """`value` as the API server stores it: without nulls, with the schema's defaults, and with 24 where 24.0 was sent."""
    if schema.type == "object" and isinstance(value, dict):
        filled = {name: each for name, each in value.items() if each is not None}
        for name, field in schema.properties.items():
            if name not in filled and field.default is not UNSET:
                filled[name] = field.default
            if name in filled and field.type not in _AS_THEY_ARE:
                filled[name] = defaulted(field, filled[name])
        return filled
    if schema.items and isinstance(value, (list, tuple)):
        return [defaulted(schema.items, item) for item in value]
    if schema.type in ("integer", "int-or-string") and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def shown(value: Json) -> str:
    """A value as it may stand in a message: short, and in the words of the document rather than of Python."""
    if isinstance(value, str):
        # A password in an address must not reach a terminal or a log.
        safe = _USER_INFO.sub("://(not shown)@", value[:_MOST_LOOKED_AT])
        text = safe[:_SHOWN]
        more = "" if len(value) <= _SHOWN else f" ({len(value)} characters)"
        return json.dumps(text) + more
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        # Python refuses to print an integer of thousands of digits.
        return str(value) if abs(value) <= _LARGEST else "a number beyond 64 bits"
    if isinstance(value, float):
        return repr(value)
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__


def _has_type(name: str, value: Json) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name in ("integer", "int-or-string") and isinstance(value, (int, float)):
        return isinstance(value, int) or value.is_integer()
    return isinstance(value, _JSON_TYPES[name])


def _check_limits(schema: Schema, value: Json, path: str) -> Iterator[Problem]:
    if schema.enum and value not in schema.enum:
        yield Problem(path, f"must be one of {', '.join(schema.enum)}, not {shown(value)}", "NotSupported")
    if schema.type in ("integer", "int-or-string") and isinstance(value, (int, float)):
        least = _SMALLEST if schema.minimum is None else schema.minimum
        most = _LARGEST if schema.maximum is None else schema.maximum
        if not least <= value <= most:
            yield Problem(path, f"must be from {least} to {most}, not {shown(value)}")
    if isinstance(value, (int, float)):
        return
    if schema.min_length is None and schema.max_length is None and not schema.pattern:
        return
    unit = {"array": "items", "object": "entries"}.get(schema.type, "characters")
    size = len(value) if schema.type != "object" else sum(each is not None for each in value.values())
    if schema.min_length is not None and size < schema.min_length:
        yield Problem(
            path, "must not be empty" if schema.min_length == 1 else f"must have at least {schema.min_length} {unit}"
        )
    if schema.max_length is not None and size > schema.max_length:
        fault: Fault = "TooLong" if unit == "characters" else "TooMany"
        yield Problem(path, f"must have at most {schema.max_length} {unit}, not {size}", fault)
    elif schema.pattern and not matches(schema.pattern, value):
        yield Problem(path, f"must be {schema.hint or 'like ' + schema.pattern}, not {shown(value)}")


def matches(pattern: str, text: str) -> bool:
    """Whether Go finds `pattern` in `text`: there `$` is the end of the text, in Python also a place before a last newline."""
    return _compiled(pattern).search(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _check_object(schema: Schema, value: dict[str, Json], path: str) -> Iterator[Problem]:
    for name in schema.required:
        if value.get(name) is None:
            yield Problem(_below(path, name), "is required", "Required")
    for name, each in value.items():
        field = schema.values or schema.properties.get(name)
        if not isinstance(name, str):
            yield Problem(_below(path, shown(name)), "must have text as its key: put the key in quotes")
        elif field is None:
            yield Problem(_below(path, name), no_field(name, sorted(schema.properties)), "Unknown")
        elif each is not None:  # the API server drops a null and fills in the default
            yield from check(field, each, _below(path, name))


def _strays(value: Json, path: str) -> Iterator[Problem]:
    """The fields inside something that should have none: the API server names each of them, so we do too."""
    todo = [(path, value)]
    while todo:
        where, each = todo.pop()
        if isinstance(each, dict):
            yield from (
                Problem(_below(where, name if isinstance(name, str) else shown(name)), NO_FIELD, "Unknown")
                for name in each
            )
        elif isinstance(each, list):
            todo += [(f"{where}[{index}]", item) for index, item in enumerate(each)]


def _check_unique(schema: Schema, value: list[Json], path: str) -> Iterator[Problem]:
    if not schema.map_key:
        return
    seen: set[tuple[type, Json]] = set()
    for index, item in enumerate(value):
        key = item.get(schema.map_key) if isinstance(item, dict) else item
        if isinstance(key, (dict, list)) or (key is item and item is not None):
            continue  # named already for its type
        if (type(key), key) in seen:
            yield Problem(f"{path}[{index}]", f"has the same {schema.map_key} as one above: {shown(key)}", "Duplicate")
        seen.add((type(key), key))


def _check_numbers(rules: tuple[Rule, ...], value: Json, path: str) -> Iterator[Problem]:
    for rule in rules:
        if not rule.numbers:
            continue
        sent = {name: _at(value, name) for name in rule.numbers}
        pointed = {name: each for name, each in sent.items() if isinstance(each, float)}
        for name, each in pointed.items():
            yield Problem(
                _below(path, name), f"must be a whole number without a decimal point or exponent, not {each!r}"
            )
        if pointed:  # the API server names the place of the rule
            yield Problem(path, f"cannot be checked before {' and '.join(pointed)} is written without a decimal point")


def _at(value: Json, path: str) -> Json:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def no_field(name: str, fields: Sequence[str]) -> str:
    """What is wrong with an unknown field, with the known one that is most like it."""
    import difflib  # noqa: PLC0415  only for a slip

    spelled = {each.lower(): each for each in fields}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=_ALIKE)
    meant = f"; did you mean {spelled[near[0]]}?" if near else ""
    return f"{NO_FIELD}{meant}{' T' if meant else '; t'}he fields are {', '.join(fields)}"


def _below(path: str, name: str) -> str:
    """The path of an entry; half of a surrogate pair is shown as the sign that the API server puts in its place."""
    return f"{path}.{name if name.isascii() else _LONE_SURROGATE.sub(_REPLACEMENT, name)}"

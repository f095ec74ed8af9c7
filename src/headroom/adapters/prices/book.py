"""The price book: what machines cost an hour, as a list in YAML that an administrator writes.

    - {instanceType: p5.48xlarge, capacityType: spot, pricePerHour: "31.464"}
    - {node: metal-7, pricePerHour: "2.10"}

An entry that cannot be understood is left out, with a sentence that says why; it never costs the other entries anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from headroom.api.quantities import InvalidQuantity, nano
from headroom.model.facts import Pairs, Price

LARGEST: Final = 2**20
"""Characters; a ConfigMap holds no more."""
DEEPEST: Final = 10
_HIGHEST: Final = 10**9
"""Dollars an hour."""
_WORDS: Final = {
    "node": "node",
    "instanceType": "instance_type",
    "zone": "zone",
    "capacityType": "capacity_type",
}
CAPACITY_TYPES: Final = ("spot", "on-demand", "reserved")
_FIELDS: Final = ("pricePerHour", *_WORDS, "labels")
_NO_YAML: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)
"""What the loader raises: odd tags such as `!!int ""` fail in odd ways."""
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Book = tuple[tuple[Price, ...], list[str]]
"""The prices, and why others are left out, one sentence for each."""


def parse_book(text: str) -> Book:
    """The prices in a text. The sentences begin with the number of the entry, counted from 1."""
    try:
        entries = _loaded(text)
    except _NO_YAML as error:
        why = " ".join(str(getattr(error, "problem", None) or error).split())[:200]
        return (), [f"it is not YAML: {why}; write a list of entries with pricePerHour"]
    if entries is None:
        return (), []
    if not isinstance(entries, list):
        return (), ["it is not a list; write a list of entries with pricePerHour"]
    prices, problems = [], []
    for number, entry in enumerate(entries, start=1):
        found = _price(entry)
        if isinstance(found, Price):
            prices.append(found)
        else:
            problems.append(f"entry {number} is left out: {found}")
    return tuple(prices), problems


def of_config_map(data: Mapping[str, str]) -> Book:
    """The prices in a ConfigMap: every key is a book, taken in the order of the keys."""
    prices: tuple[Price, ...] = ()
    problems: list[str] = []
    for key in sorted(data):
        found, wrong = parse_book(data[key])
        prices += found
        problems += [f"reading the price book, key {key}: {each}" for each in wrong]
    return prices, problems


def _loaded(text: str) -> Any:
    if len(text) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} characters")
    depth = 0
    # libyaml builds values by recursion without a limit, so the depth is looked at first.
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return yaml.load(text, Loader=_Loader)  # noqa: S506  the loader is one of the safe ones


def _price(entry: object) -> Price | str:
    """The price, or what is wrong with the entry."""
    if not isinstance(entry, dict):
        return "it is not a mapping"
    for name in entry:
        if name not in _FIELDS:
            return f"{str(name)[:64]} is not a field here; the fields are {', '.join(_FIELDS)}"
    dollars = _millionths(entry.get("pricePerHour"))
    if isinstance(dollars, str):
        return f"pricePerHour {dollars}"
    words: dict[str, str] = {}
    for name, field in _WORDS.items():
        value = entry.get(name)
        if value is not None and not isinstance(value, str):
            return f"{name} must be text; put it in quotes"
        words[field] = value or ""
    if words["capacity_type"].lower().replace("_", "-") not in ("", *CAPACITY_TYPES):
        return f"capacityType must be one of {', '.join(CAPACITY_TYPES)}, not {words['capacity_type'][:64]!r}"
    labels = _labels(entry.get("labels"))
    return Price(price_per_hour=dollars, labels=labels, **words) if isinstance(labels, tuple) else labels


def _labels(value: object) -> Pairs | str:
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        return "labels must be a mapping of text to text; put numbers and words such as yes in quotes"
    return tuple(sorted(value.items()))


def _millionths(value: object) -> int | str:
    """Millionths of a dollar, exactly, or what is wrong; a finer price is refused, since it could not be kept."""
    if value is None:
        return "is required"
    text = repr(value) if isinstance(value, float) else value  # the shortest text of a float is what was written
    if isinstance(text, bool) or not isinstance(text, str | int):
        return "must be a number of dollars such as 2.50"
    found = nano(text, largest=_HIGHEST)
    if isinstance(found, InvalidQuantity):
        return found.reason
    if found < 0:
        return "must not be negative"
    return "must have at most 6 decimals" if found % 1000 else found // 1000

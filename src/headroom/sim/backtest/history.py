"""What a history of prices says: which machine types there are, and what each cost in which zone from when on."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from headroom.model.errors import Misconfigured
from headroom.model.times import SECOND
from headroom.sim.backtest.tables import Told, TraceTable

MICRO: Final = 1_000_000
GONE: Final = 0
"""The price of what is not offered."""
LAST_S: Final = 253_402_300_799
DEAREST: Final = 10**6
"""Dollars an hour."""
LEAST_GPUS, MOST_GPUS = 0.001, 1024
PRICES: Final = ("unix_time", "instance_type", "zone_id", "spot_price")
ON_DEMAND: Final = ("unix_time", "instance_type", "region", "price")
TYPES: Final = ("instance_type", "accelerator", "count")
_OPTIONAL: Final = ("architecture", "vendor")

_ARM: Final = re.compile(r"[a-z]+\d+[a-z]*g[a-z]*")
"""A family whose name says after its generation that its processors are AWS's own: g5g is one, g5 is not."""
_VENDORS: Final = (
    ("radeon", "amd"),
    ("instinct", "amd"),
    ("gaudi", "habana"),
    ("inferentia", "aws"),
    ("trainium", "aws"),
    ("virtex", "xilinx"),
    ("qualcomm", "qualcomm"),
)
_DIRECTIONS: Final = {
    "north": "n",
    "northeast": "ne",
    "northwest": "nw",
    "east": "e",
    "southeast": "se",
    "south": "s",
    "southwest": "sw",
    "west": "w",
    "central": "c",
    "gov": "g",
}


class TracedMachineType(Struct, frozen=True, kw_only=True):
    """A machine type with GPUs."""

    name: str
    gpus: int
    """Millionths."""
    arch: str
    vendor: str


class PriceChanges(Struct, frozen=True, kw_only=True):
    """The moments at which prices changed, as columns in their order."""

    keys: tuple[tuple[str, str], ...]
    """Machine type and zone id, or region, of each thing that has a price."""
    at: NDArray[np.int64]
    """Milliseconds."""
    what: NDArray[np.int64]
    """Its number in `keys`."""
    price: NDArray[np.int64]
    """Millionths of a dollar per hour; 0 where it is not offered any more."""
    until: int
    """When the history ends: with its last row, whatever that is about."""
    rows: int
    bad: int
    examples: tuple[str, ...]


def machine_types(path: Path) -> tuple[dict[str, TracedMachineType], list[str]]:
    """The types by name, and what to know about rows that were left out."""
    table = TraceTable(path, TYPES, _OPTIONAL)
    found: dict[str, TracedMachineType] = {}
    for name, accelerator, count, arch, vendor in table.read():
        gpus = _number(count)
        if not name or gpus is None or not LEAST_GPUS <= gpus <= MOST_GPUS:
            table.pass_over(f"{name or 'a type without a name'} has {count or 'no'} GPUs and is left out")
            continue
        found[name] = TracedMachineType(
            name=name, gpus=round(gpus * MICRO), arch=arch or _arch_of(name), vendor=vendor or _vendor_of(accelerator)
        )
    if not found:
        raise Misconfigured(f"reading {path}: it names no machine type with GPUs; give a table of machine types")
    return found, table.examples


def _arch_of(name: str) -> str:
    return "arm64" if _ARM.fullmatch(name.partition(".")[0]) else "amd64"


def _vendor_of(accelerator: str) -> str:
    said = accelerator.lower()
    return next((vendor for word, vendor in _VENDORS if word in said), "nvidia")


def zone_prefix(region: str) -> str:
    """How the ids of a region's zones begin: `use1-` for us-east-1."""
    first, *others = region.split("-")
    return first + "".join(_DIRECTIONS.get(word, word) for word in others) + "-"


def prices(path: Path, wanted: Callable[[str, str], bool], told: Told = lambda _: None) -> PriceChanges:
    """The spot prices of those machine types and zones that are wanted."""
    return _changes(TraceTable(path, PRICES), wanted, told)


def on_demand_prices(path: Path, wanted: Callable[[str, str], bool]) -> PriceChanges:
    """The same of on-demand machines, by region."""
    return _changes(TraceTable(path, ON_DEMAND), wanted, lambda _: None)


def _changes(table: TraceTable, wanted: Callable[[str, str], bool], told: Told) -> PriceChanges:
    numbers: dict[tuple[str, str], int] = {}
    unwanted: set[tuple[str, str]] = set()
    at, what, price = array("q"), array("q"), array("q")
    read: str | None = None
    moment: int | None = None
    until = 0
    for when, kind, place, dollars in table.read(told):
        if when != read:  # many rows have the same time
            read, moment = when, _moment(when)
            until = max(until, moment or 0)
        key = (kind, place)
        if key in unwanted:
            continue
        number = numbers.get(key)
        if number is None:
            if not wanted(kind, place):
                unwanted.add(key)
                continue
            number = numbers[key] = len(numbers)
        cost = _price(dollars)
        if moment is None or cost is None:
            table.pass_over(f"{when or 'nothing'} is no time" if moment is None else f"{dollars} is no price")
            continue
        at.append(moment)
        what.append(number)
        price.append(cost)
    return _in_order(table, tuple(numbers), (at, what, price), until)


def _in_order(
    table: TraceTable, keys: tuple[tuple[str, str], ...], columns: tuple[array[int], ...], until: int
) -> PriceChanges:
    """By time; what stands later in the file counts later."""
    at, what, price = (np.array(each, dtype=np.int64) for each in columns)
    order = np.argsort(at, kind="stable")
    return PriceChanges(
        keys=keys,
        at=at[order],
        what=what[order],
        price=price[order],
        until=until,
        rows=table.rows,
        bad=table.bad,
        examples=tuple(table.examples),
    )


def _moment(text: str) -> int | None:
    seconds = _number(text)
    return round(seconds * SECOND) if seconds is not None and 0 <= seconds <= LAST_S else None


def _price(text: str) -> int | None:
    """Millionths of a dollar; nothing means that it is not offered."""
    if not text:
        return GONE
    dollars = _number(text)
    return round(dollars * MICRO) if dollars is not None and 0 <= dollars <= DEAREST else None


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None

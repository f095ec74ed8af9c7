"""Scripts: everything that happens in one run, as plain data, made from a seed by somebody who means harm.

An event is a tuple whose first item says what happens; `playing.py` carries them out. The same script always comes to the same end, so
that a failing one can be shortened and kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct

from bench.pools.processes import REGION
from bench.pools.stage import TYPE, ZONES

Event = tuple[Any, ...]
WAITS: Final = (1, 5, 10, 10, 10, 40, 40, 60, 130, 310, 900, 2200)
"""Seconds between rounds: as operators look, and as long as an outage."""
FAULTS: Final = ("Lost", "Unreached", "CrashBefore", "CrashAfter", "Throttled", "Denied")
MOST_LAG: Final = 1800
OTHERS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"headroom.dev/cluster": "other", "headroom.dev/owner-uid": "uid-1", "headroom.dev/slot": "0"},
    {"headroom.dev/cluster": "c", "headroom.dev/owner-uid": "uid-other", "headroom.dev/slot": "0"},
    {"headroom.dev/cluster": "c", "headroom.dev/slot": "1"},
)
"""Tags of machines that are not the pool's, some of them much like its own."""


class Script(Struct, frozen=True, kw_only=True):
    """One run."""

    spec: dict[str, Any]
    events: list[Event]
    seed: int = 0
    skews: tuple[int, ...] = (0,)
    """By how many milliseconds the clock of each process is off."""
    cloud_clock_ms: int = 0
    wire: bool = False
    joins: bool = False
    """Machines become nodes a while after they run."""


class Menace(Struct, frozen=True, kw_only=True):
    """How bad a run is."""

    faults: float
    """Of effects."""
    lag: int
    """Seconds at most."""
    late: bool
    """Launches may reach the cloud up to half a minute after anybody waited for them."""
    sight: float
    """How often a process sees the pool as it stands, and lists its machines, before it decides."""
    env: float
    """How often something happens to the cloud or the pool in a round."""


def script(seed: int) -> Script:
    """The script of a seed."""
    rng = random.Random(seed)
    processes = 2 if rng.random() < 0.35 else 1
    menace = Menace(
        faults=rng.choice((0.0, 0.1, 0.3, 0.5)),
        lag=rng.choice((0, 60, 900, MOST_LAG)),
        late=rng.random() < 0.3,
        sight=rng.choice((0.95, 0.85, 0.5)),
        env=rng.choice((0.3, 0.6, 0.9)),
    )
    joins = rng.random() < 0.2
    return Script(
        seed=seed,
        spec=_spec(rng, joins),
        events=list(_events(rng, processes, menace)),
        skews=tuple(rng.choice((0, 0, -15_000, 15_000)) for _ in range(processes)),
        cloud_clock_ms=rng.choice((0, 0, 0, -3_600_000, 3_600_000)),
        wire=rng.random() < 0.125,
        joins=joins,
    )


def _spec(rng: random.Random, joins: bool) -> dict[str, Any]:
    maximum = rng.choice((1, 1, 2, 2, 3, 4))
    spec: dict[str, Any] = {
        "region": REGION,
        "instanceType": TYPE,
        "zones": list(ZONES[: rng.choice((1, 2, 3))]),
        "minimum": rng.randint(0, maximum) if rng.random() < 0.3 else maximum,
        "maximum": maximum,
        "join": joins,
    }
    for name, values in _MORE.items():
        if rng.random() < 0.25:
            spec[name] = rng.choice(values)
    if joins and rng.random() < 0.5:
        spec |= {"desired": "Demand", "template": {"gpuCount": 1}, "minimum": min(1, spec["minimum"])}
    return spec


_MORE: Final[dict[str, tuple[Any, ...]]] = {
    "maxSurge": (0, 2),
    "maxPurchasesPerHour": (3, 5, 8),
    "maxPricePerHour": ("0.5",),
    "deletionPolicy": ("Retain",),
    "allocation": ("LowestPrice",),
    "desired": (0, 1, 2, 3),
}


def _events(rng: random.Random, processes: int, menace: Menace) -> Iterator[Event]:
    for tags in rng.sample(OTHERS, rng.randint(0, 3)):
        yield "foreign", tags
    if rng.random() < 0.5:
        yield from (("price", zone, rng.choice((100_000, 400_000))) for zone in ZONES)
    for _ in range(rng.randint(5, 18)):
        yield "wait", rng.choice(WAITS)
        if rng.random() < menace.env:
            yield _RANDOM[rng.choices(_NAMES, _WEIGHTS)[0]](rng)
        turns = [list(_turn(rng, process, processes, menace)) for process in range(processes)]
        yield from _merged(rng, turns)


def _turn(rng: random.Random, process: int, processes: int, menace: Menace) -> Iterator[Event]:
    """What one process does in a round."""
    if rng.random() < 0.8:
        yield "start", process
    if rng.random() < menace.sight:
        yield "see", process
    if rng.random() < menace.sight:
        wrong = rng.choice(("list", "describe")) if rng.random() < menace.faults / 3 else ""
        yield "look", process, rng.randint(0, menace.lag), rng.randint(0, menace.lag), wrong
    yield "decide", process
    if processes == 1:
        yield "work", process, tuple(_fault(rng, menace) for _ in range(8))
    else:
        for _ in range(rng.randint(1, 5)):
            yield "act", process, _fault(rng, menace)


def _fault(rng: random.Random, menace: Menace) -> str:
    if rng.random() >= menace.faults:
        return ""
    if menace.late and rng.random() < 0.3:
        return f"Late{rng.randint(1, 29)}"
    return rng.choice(FAULTS)


def _merged(rng: random.Random, turns: list[list[Event]]) -> Iterator[Event]:
    """The turns of all processes side by side, each in its own order."""
    left = [turn for turn in turns if turn]
    while left:
        turn = rng.choice(left)
        yield turn.pop(0)
        if len(turns) > 1 and rng.random() < 0.15:
            yield "wait", rng.randint(1, 20)
        left = [each for each in left if each]


_Happening = Callable[[random.Random], Event]
_EDITS: Final = (
    lambda rng: {"maximum": rng.randint(0, 4)},
    lambda rng: {"minimum": rng.randint(0, 4)},
    lambda rng: {"minimum": (count := rng.randint(0, 4)), "maximum": count},
    lambda rng: {"desired": rng.choice((None, 0, 1, 2, 3))},
    lambda rng: {"zones": list(ZONES[rng.randint(0, 1) :])},
    lambda rng: {"paused": rng.random() < 0.5},
    lambda rng: {"maxSurge": rng.randint(0, 2)},
    lambda rng: {"deletionPolicy": rng.choice(("Terminate", "Retain"))},
)
_HAPPENINGS: Final[dict[str, tuple[int, _Happening]]] = {
    "reclaim": (8, lambda rng: ("reclaim", rng.randint(0, 5), rng.choice((0, 0, 30, 120)))),
    "fail": (2, lambda rng: ("fail", rng.randint(0, 5))),
    "halt": (2, lambda rng: ("halt", rng.randint(0, 5))),
    "stock": (5, lambda rng: ("stock", rng.choice(ZONES), rng.choice((0, 0, 1, None)))),
    "flicker": (4, lambda _: ("flicker",)),
    "price": (2, lambda rng: ("price", rng.choice(ZONES), rng.choice((0, 300_000, 700_000, 10**15)))),
    "quota": (2, lambda rng: ("quota", rng.choice((0, 2, 4, None)))),
    "sabotage": (2, lambda rng: ("sabotage", rng.random() < 0.5)),
    "edit": (8, lambda rng: ("edit", rng.choice(_EDITS)(rng))),
    "delete": (3, lambda _: ("delete",)),
    "create": (3, lambda _: ("create",)),
    "force": (0.3, lambda _: ("force",)),  # type: ignore[dict-item]  # weights may be parts
    "stopped": (1, lambda rng: ("stopped", rng.random() < 0.5)),
    "foreign": (2, lambda rng: ("foreign", rng.choice(OTHERS))),
    "crash": (3, lambda rng: ("crash", rng.randint(0, 1))),
    "join": (2, lambda rng: ("join", rng.randint(0, 5), rng.random() < 0.7)),
    "busy": (4, lambda rng: ("busy", rng.randint(0, 5), rng.random() < 0.3)),
    "pending": (4, lambda rng: ("pending", rng.randint(1, 4))),
    "done": (2, lambda _: ("done",)),
    "clone": (1, lambda _: ("clone",)),
    "forget": (1, lambda rng: ("forget", rng.choice((0, 60, 3600)))),
}
_NAMES: Final = list(_HAPPENINGS)
_WEIGHTS: Final = [weight for weight, _ in _HAPPENINGS.values()]
_RANDOM: Final = {name: make for name, (_, make) in _HAPPENINGS.items()}

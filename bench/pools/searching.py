"""The search: seeds become scripts, scripts are played, and what fails is shortened to the few events that matter."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from bench.pools import playing
from bench.pools.playing import Finding
from bench.pools.scripts import Event, Script, script
from bench.pools.seed_loop import SeedPlayer

CHUNK: Final = 200
TOLD_EVERY: Final = 5000
_OPTIONAL: Final = ("maxSurge", "maxPurchasesPerHour", "maxPricePerHour", "deletionPolicy", "allocation", "desired")

Play = Callable[[Script], Finding | None]


class Searched(Struct):
    """What came of many runs."""

    runs: int = 0
    cpu: float = 0.0
    """Seconds."""
    rules: Counter[str] = msgspec.field(default_factory=Counter)
    failed: list[tuple[int, Finding]] = []

    def add(self, other: Searched) -> None:
        """Add what came of more runs."""
        self.runs += other.runs
        self.cpu += other.cpu
        self.rules += other.rules
        self.failed += other.failed


def play_seed(found: Script) -> Finding | None:
    """Play a script with the seed's loop."""
    return playing.run(SeedPlayer(found), found)


def chunk(first: int, count: int, play: Play) -> Searched:
    """Play the scripts of some seeds."""
    began, found = time.process_time(), Searched()
    for seed in range(first, first + count):
        finding = play(script(seed))
        found.runs += 1
        if finding is not None:
            found.rules[finding.rule] += 1
            if len(found.failed) < 3:
                found.failed.append((seed, finding))
    found.cpu = time.process_time() - began
    return found


def search(first: int, runs: int, play: Play = playing.play, workers: int = 2) -> Searched:
    """Play so many scripts, some side by side."""
    found = Searched()
    starts = range(first, first + runs, CHUNK)
    with ProcessPoolExecutor(workers) as pool:
        for each in pool.map(
            chunk, starts, (min(CHUNK, first + runs - start) for start in starts), [play] * len(starts)
        ):
            before = found.runs
            found.add(each)
            if before // TOLD_EVERY != found.runs // TOLD_EVERY:
                print(
                    f"spotpools: {found.runs:,} runs: {dict(found.rules) or 'nothing found'}",
                    file=sys.stderr,
                    flush=True,
                )
    return found


# --- shortening ---------------------------------------------------------------------------------------------------------------------


def shortened(failing: Script, play: Play = playing.play) -> Script:
    """A small script that fails by the same rule."""
    finding = play(failing)
    assert finding is not None, "it fails"
    rule = finding.rule

    def fails(tried: Script) -> bool:
        try:
            found = play(tried)
        except Exception:  # noqa: BLE001  # a script that makes no sense is none that fails
            return False
        return found is not None and found.rule == rule

    failing = structs.replace(failing, events=_split(failing.events[: finding.at + 1]))
    for simpler in _simpler(failing):
        merged = structs.replace(failing, **simpler(failing))
        if fails(merged):
            failing = merged
    return structs.replace(
        failing, events=_fewer(failing.events, lambda some: fails(structs.replace(failing, events=some)))
    )


def _split(events: Sequence[Event]) -> list[Event]:
    """All effects of a decision as events of their own, so that each can be left out."""
    out: list[Event] = []
    for event in events:
        if event[0] == "work":
            out += [("act", event[1], wrong) for wrong in event[2]]
        else:
            out.append(event)
    return out


def _simpler(failing: Script) -> Iterable[Callable[[Script], dict[str, Any]]]:
    yield lambda it: {"skews": (0,) * len(it.skews)}
    yield lambda _: {"cloud_clock_ms": 0}
    yield lambda _: {"wire": False}
    for name in _OPTIONAL:
        if name in failing.spec:
            # mypy cannot tell the type of a lambda with a default.
            yield lambda it, name=name: {"spec": {key: value for key, value in it.spec.items() if key != name}}  # type: ignore[misc]


def _fewer(events: list[Event], fails: Callable[[list[Event]], bool]) -> list[Event]:
    size = max(1, len(events) // 2)
    while True:
        place, before = 0, len(events)
        while place < len(events):
            tried = events[:place] + events[place + size :]
            if fails(tried):
                events = tried
            else:
                place += size
        if size == 1 and len(events) == before:
            return events
        size = max(1, size // 2)


def told(found: Script) -> str:
    """A script as the text of a test."""
    lines = [f"        {event!r}," for event in found.events]
    more = {
        name: getattr(found, name)
        for name in ("seed", "skews", "cloud_clock_ms", "wire", "joins")
        if getattr(found, name) != getattr(Script(spec={}, events=[]), name)
    }
    heads = [f"    {name}={value!r}," for name, value in {"spec": found.spec, **more}.items()]
    return "\n".join(["Script(", *heads, "    events=[", *lines, "    ],", ")"])

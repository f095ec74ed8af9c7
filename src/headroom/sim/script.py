"""A scenario as a YAML file: objects that are there at the start, what happens when, and what must be true at which moment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from headroom.adapters import documents, texts
from headroom.model import times
from headroom.model.errors import Misconfigured
from headroom.sim import faults, hardware
from headroom.sim.answers import Body
from headroom.sim.faults import Fault
from headroom.sim.trace import Trace

_START: Final = "2026-01-01T00:00:00Z"
_STEP: Final = re.compile(r'\["(?P<quoted>[^"]*)"\]|\[(?P<item>[^\]]*)\]|\.?(?P<name>[^.\[\]]+)')
_NAMES: Final = ("type", "name", "podUid", "instanceId", "key", "uid")
"""Fields that name an item of a list."""


class Patch(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A merge patch by the people of the cluster."""

    resource: str
    merge: dict[str, Any]
    status: bool = False


class ScenarioStep(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One thing that happens; exactly one field besides `at` is given."""

    at: str = "0s"
    apply: dict[str, Any] | None = None
    patch: Patch | None = None
    delete: str = ""
    fault: dict[str, Any] | None = None
    heal: bool = False
    """All faults end."""
    start_operator: str = ""
    stop_operator: str = ""
    """It is told to stop and ends in good order."""
    kill_operator: str = ""
    """It is gone from one moment to the next, and comes back after `restartAfter`."""


class Writes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which write requests are counted; patterns are those of file names."""

    actor: str = "*"
    method: str = "*"
    path: str = "*"
    status: int | None = None

    def count(self, trace: Trace) -> int:
        """How many there were."""
        return sum(
            1
            for each in trace.writes
            if fnmatchcase(each.actor, self.actor)
            and fnmatchcase(each.method, self.method)
            and fnmatchcase(each.path, self.path)
            and self.status in (None, each.status)
        )


class Expectation(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What must be true: of a field of an object, of its existence, or of the number of writes so far."""

    at: str = "end"
    resource: str = ""
    path: str = ""
    exists: bool | None = None
    equals: Any = msgspec.UNSET
    contains: str = ""
    at_least: float | None = None
    at_most: float | None = None
    writes: Writes | None = None


class _Spec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    start: str = _START
    duration: str
    seed: int = 0
    operators: int = 1
    restart_after: str = "5s"
    pull_seconds: float = 2.0
    boot_seconds: float = hardware.BOOT_SECONDS
    shutdown_seconds: float = hardware.SHUTDOWN_SECONDS
    timeline: list[ScenarioStep] = []
    expect: list[Expectation] = []


class Scenario(Struct, frozen=True, kw_only=True):
    """A scenario, read and checked."""

    name: str
    start: int
    duration: int
    """Milliseconds."""
    seed: int
    operators: int
    restart_after: int
    pull_seconds: float
    boot_seconds: float = hardware.BOOT_SECONDS
    """How long a machine takes from being switched on to being a ready node."""
    shutdown_seconds: float = hardware.SHUTDOWN_SECONDS
    documents: list[Body]
    """The objects that are there at the start."""
    timeline: list[tuple[int, ScenarioStep]] = field(default_factory=list)
    """Milliseconds after the start, in order."""
    expect: list[tuple[int, Expectation]] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Scenario:
        """The scenario in a file. Raises Misconfigured with a sentence for anything else."""
        try:
            text = path.read_bytes()
        except OSError as error:
            why = error.strerror or error
            raise Misconfigured(f"reading {path}: {why}; check the path and its rights") from None
        return cls.of([each.value for each in texts.objects(str(path), text)], str(path))

    @classmethod
    def of(cls, values: Iterable[Body], source: str = "the scenario") -> Scenario:
        """The scenario that these documents describe."""
        values = list(values)
        ours = [
            each for each in values if (each.get("apiVersion"), each.get("kind")) == (documents.SIM_GROUP, "Scenario")
        ]
        if len(ours) != 1:
            raise Misconfigured(
                f"reading {source}: it must hold exactly one document of kind Scenario, not {len(ours)}"
            )
        try:
            spec = msgspec.convert(ours[0].get("spec"), _Spec)
        except msgspec.ValidationError as error:
            raise Misconfigured(f"reading {source}: the Scenario's spec: {error}") from None
        start = times.moment(spec.start)
        if start is None:
            raise Misconfigured(f"reading {source}: start must be a moment such as {_START}, not {spec.start!r}")
        duration = _duration(source, "duration", spec.duration)
        for step in spec.timeline:
            _check_step(source, step)
        return cls(
            name=str((ours[0].get("metadata") or {}).get("name") or source),
            start=start,
            duration=duration,
            seed=spec.seed,
            operators=spec.operators,
            restart_after=_duration(source, "restartAfter", spec.restart_after),
            pull_seconds=spec.pull_seconds,
            boot_seconds=spec.boot_seconds,
            shutdown_seconds=spec.shutdown_seconds,
            documents=[each for each in values if each is not ours[0]],
            timeline=sorted(
                ((_duration(source, "at", each.at), each) for each in spec.timeline), key=lambda pair: pair[0]
            ),
            expect=[(duration if each.at == "end" else _duration(source, "at", each.at), each) for each in spec.expect],
        )


def _duration(source: str, word: str, text: str) -> int:
    found = times.duration(text)
    if found is None:
        raise Misconfigured(f"reading {source}: {word} must be a duration such as 90s, 5m or 1h30m, not {text!r}")
    return found


def _check_step(source: str, step: ScenarioStep) -> None:
    given = [name for name in step.__struct_fields__ if name != "at" and getattr(step, name) not in (None, "", False)]
    if len(given) != 1:
        raise Misconfigured(
            f"reading {source}: the step at {step.at} must do exactly one thing, not {given or 'nothing'}"
        )
    if step.fault is not None:
        fault_of(step)


def fault_of(step: ScenarioStep) -> Fault:
    """The fault of a step."""
    return faults.fault(step.fault)


# --- what must be true ----------------------------------------------------------------------------------------------------


def place(resource: str) -> tuple[str, str, str]:
    """Kind, namespace and name of `Kind/namespace/name` or `Kind/name`."""
    parts = resource.split("/")
    if len(parts) == 2:
        return parts[0], "", parts[1]
    if len(parts) == 3:
        return parts[0], parts[1], parts[2]
    raise Misconfigured(f"naming an object: it is written Kind/namespace/name or Kind/name, not {resource!r}")


def lookup(body: Any, path: str) -> Any:
    """The value at a path such as `status.conditions[Ready].status` or `metadata.labels["a.b/c"]`; None where none is."""
    for match in _STEP.finditer(path):
        if match["item"] is not None and isinstance(body, list):
            body = _item(body, match["item"])
        else:
            name = match["quoted"] if match["quoted"] is not None else match["name"] or match["item"]
            body = body.get(name) if isinstance(body, dict) else None
    return body


def _item(items: list[Any], word: str) -> Any:
    if word.isdigit():
        return items[int(word)] if int(word) < len(items) else None
    for each in items:
        if isinstance(each, dict) and any(each.get(name) == word for name in _NAMES):
            return each
    return None


def failure(expected: Expectation, body: Body | None, trace: Trace) -> str:
    """Why an expectation does not hold; empty if it does."""
    if expected.writes is not None:
        return _judge(expected, expected.writes.count(trace), "the number of such writes")
    if expected.exists is not None and not expected.path:
        there = body is not None
        return "" if there == expected.exists else f"it {'is' if there else 'is not'} there"
    if body is None:
        return "it is not there"
    value = lookup(body, expected.path)
    if expected.exists is not None:
        there = value is not None
        return "" if there == expected.exists else f"{expected.path} {'is' if there else 'is not'} there"
    return _judge(expected, value, expected.path)


def _judge(expected: Expectation, value: Any, what: str) -> str:
    if expected.equals is not msgspec.UNSET and value != expected.equals:
        return f"{what} is {value!r}, not {expected.equals!r}"
    if expected.contains and expected.contains not in str(value):
        return f"{what} is {value!r}, without {expected.contains!r}"
    if expected.at_least is None and expected.at_most is None:
        return ""
    number = _number(value)
    if number is None:
        return f"{what} is {value!r}, no number"
    if expected.at_least is not None and number < expected.at_least:
        return f"{what} is {value!r}, less than {expected.at_least:g}"
    if expected.at_most is not None and number > expected.at_most:
        return f"{what} is {value!r}, more than {expected.at_most:g}"
    return ""


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None

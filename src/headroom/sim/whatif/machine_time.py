"""How long machines were on in a replay, and the energy that took, by the watts that their pools say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from headroom.api.kinds import AnyResource
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.sim import hardware
from headroom.sim.hardware import Watts
from headroom.sim.whatif.lives import ReplayLog
from headroom.sim.whatif.steps import Steps
from headroom.sim.whatif.work import Case

WATT_MS_IN_KWH: Final = 1000 * times.HOUR
Span = tuple[int, int]


class MachineTime(NamedTuple):
    """What the machines of a replay took."""

    on: Steps
    """How many were on."""
    hours: float | None
    """Hours that they were on, all added up; None where there are none."""
    kwh: float | None
    """What those with known watts drew; None where nobody said any."""
    saved_kwh: float | None
    """What they would have drawn idle in the hours in which they were off."""


def machine_time(case: Case, resources: Mapping[Ref, AnyResource], log: ReplayLog) -> MachineTime:
    """All machines: those of pools while they were on, all others whenever they were ready."""
    owned = {each.machine.name: each for each in hardware.machines(resources.values())}
    always = sum(1 for node in case.nodes if node.ready and node.name not in owned)
    length = case.end - case.begin
    on: dict[str, list[Span]] = {name: [] for name in owned}
    for shift in log.shifts:
        on[shift.machine].append((shift.begin, case.end if shift.end is None else shift.end))
    spans = [span for each in on.values() for span in each]
    begins, ends = ([float(span[place]) for span in spans] for place in (0, 1))
    steps = Steps([case.begin, *begins], [case.end, *ends], [always, *(1.0 for _ in spans)])
    hours = (always * length + _length(spans)) / times.HOUR
    draws = {name: found for name, (pool, machine) in owned.items() if (found := hardware.watts(pool.spec, machine))}
    busy = _busy(case, log, draws)
    used = sum(_drawn(on[name], busy[name], draw) for name, draw in draws.items())
    saved = sum(draw.idle * (length - _length(on[name])) for name, draw in draws.items())
    if not draws:
        return MachineTime(steps, hours if case.nodes or owned else None, None, None)
    return MachineTime(steps, hours, used / WATT_MS_IN_KWH, saved / WATT_MS_IN_KWH)


def _busy(case: Case, log: ReplayLog, wanted: Iterable[str]) -> dict[str, list[Span]]:
    """When pods with GPUs ran on each of these machines, without overlaps."""
    spans: dict[str, list[Span]] = {name: [] for name in wanted}
    for life in log.lives:
        if life.node in spans and life.gpus and life.started is not None:
            spans[life.node].append((max(life.started, case.begin), case.end if life.ended is None else life.ended))
    return {name: merged(found) for name, found in spans.items()}


def merged(spans: list[Span]) -> list[Span]:
    """The same without overlaps, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _drawn(on: list[Span], busy: list[Span], draw: Watts) -> int:
    """Watts times milliseconds: no machine is busy while it is off."""
    return draw.idle * _length(on) + (draw.busy - draw.idle) * _length(busy)


def _length(spans: Iterable[Span]) -> int:
    return sum(end - begin for begin, end in spans)

"""The optimum computed offline: who knows all that will come switches each machine so that nobody waits and it is on for the fewest hours.

Machines take as long to boot and to shut down as for everybody else, and are on meanwhile. Where every pod fills a machine, machines are
interchangeable, and the best is to use again the one that was freed last: all others then rest for as long as they can, and each rest is
slept through if it is longer than a shutdown and a boot. That is exact, but for the first three minutes, in which nobody could have booted in time:
what is needed then counts as booting from the begin on. Where pods share machines, nobody can compute the best places;
there the places are those of a scheduler that takes the first node by name with room, and only the switching is the best possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from bench.powering.demand import BUSY_WATTS, IDLE_WATTS, Demand, gpus_of
from bench.powering.measures import changes, fills_machines
from headroom.model import times
from headroom.sim.whatif.lives import ReplayLog
from headroom.sim.whatif.machine_time import WATT_MS_IN_KWH, Span, merged
from headroom.sim.whatif.work import Case


class Offline(NamedTuple):
    """What the plan comes to; nobody waits."""

    is_optimum: bool
    """Whether nobody could do better."""
    machine_hours: float
    kwh: float
    starts_a_day: float


def offline(demand: Demand, all_on: ReplayLog | None) -> Offline:
    """The best switching; `all_on` says where pods go when everything is on, and counts only where they share machines."""
    case, exact = demand.case, fills_machines(demand.case)
    hours = kwh = starts = 0
    assert exact or all_on is not None, "places are needed where pods share machines"
    for gpus, spans in _levels(case) if all_on is None or exact else _machines(case, all_on):
        busy, (rest, booted) = sum(end - begin for begin, end in spans), _resting(case, spans)
        hours, starts = hours + busy + rest, starts + booted
        kwh += (busy * BUSY_WATTS + rest * IDLE_WATTS) * gpus // 8
    return Offline(exact, hours / times.HOUR, kwh / WATT_MS_IN_KWH, starts / demand.days)


def _resting(case: Case, spans: list[Span]) -> tuple[int, int]:
    """How long a machine is on without being used, and how often it is started, if it is used then."""
    switch = case.shutdown_ms + case.boot_ms
    idle, starts = min(case.end - spans[-1][1], case.shutdown_ms), 0
    if spans[0][0] > case.begin:
        idle, starts = idle + min(spans[0][0] - case.begin, case.boot_ms), 1
    for (_, free), (begin, _) in pairwise(spans):
        idle += min(begin - free, switch)
        starts += begin - free > switch
    return idle, starts


def _levels(case: Case) -> Iterator[tuple[int, list[Span]]]:
    """The GPUs of each machine, and when it is used if what was freed last is used first."""
    in_use: list[list[Span]] = []
    free: list[list[Span]] = []
    every: list[list[Span]] = []
    for at, count in changes(case):
        while len(in_use) > count:
            free.append(in_use.pop())
            free[-1][-1] = free[-1][-1][0], at
        while len(in_use) < count:
            if not free:
                free.append([])
                every.append(free[-1])
            in_use.append(free.pop())
            in_use[-1].append((at, case.end))
    yield from ((gpus_of(case.nodes[0]), spans) for spans in every)


def _machines(case: Case, log: ReplayLog) -> Iterator[tuple[int, list[Span]]]:
    """The GPUs of each machine, and when it is used where everything is on."""
    spans: dict[str, list[Span]] = {node.name: [] for node in case.nodes}
    for life in log.lives:
        if life.bound is not None:
            spans[life.node].append((max(life.bound, case.begin), case.end if life.ended is None else life.ended))
    for node in case.nodes:
        if found := merged(spans[node.name]):
            yield gpus_of(node), found

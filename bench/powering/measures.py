"""What came of a demand under a policy, and the least that anybody could have needed who knew it all in advance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.powering.demand import BUSY_WATTS, Demand, gpus_of
from bench.powering.rivals import LOST
from headroom.model import times
from headroom.sim.whatif.lives import ReplayLog
from headroom.sim.whatif.machine_time import WATT_MS_IN_KWH, machine_time
from headroom.sim.whatif.placing import WHOLE
from headroom.sim.whatif.work import GPU, Case, RequestedPod

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
A_HAIR_LESS: Final = 1 - 1e-9
"""So that rounding never asks for one machine more."""


class Came(NamedTuple):
    """What came of a demand under a policy."""

    machine_hours: float
    kwh: float
    starts_a_day: float
    waits: tuple[float, ...]
    """Seconds that each pod waited for a machine, sorted; all tries of one are added up, and who never got one waited until the end."""
    unplaced: int
    """Pods that wait at the end."""
    lost: int
    """Pods whose machine was switched off under them."""

    @property
    def mean_wait(self) -> float:
        """Of all pods."""
        return sum(self.waits) / len(self.waits)

    @property
    def waiting(self) -> float:
        """Pods that waited at all, in percent."""
        return 100 * sum(wait > 0 for wait in self.waits) / len(self.waits)

    def wait(self, percent: float) -> float:
        """So many of a hundred pods waited no longer."""
        return float(np.percentile(self.waits, percent, method="higher"))


def came(demand: Demand, log: ReplayLog) -> Came:
    """What the log of a replay says. Pods that are there at the begin have a machine and are not asked about."""
    case = demand.case
    taken = machine_time(case, demand.pools, log)
    assert taken.hours is not None, "the pools have machines"
    assert taken.kwh is not None, "and watts"
    waits: defaultdict[int, int] = defaultdict(int)
    for life in log.lives:
        if life.work.began is None and life.work.arrives > case.begin:
            waits[id(life.work)] += (case.end if life.bound is None else life.bound) - life.made
    on_before = sum(machine.power == "On" for machine in case.machines.values())
    return Came(
        machine_hours=taken.hours,
        kwh=taken.kwh,
        starts_a_day=(len(log.shifts) - on_before) / demand.days,
        waits=tuple(sorted(each / times.SECOND for each in waits.values())),
        unplaced=sum(1 for life in log.lives if life.bound is None),
        lost=sum(1 for life in log.lives if life.end == LOST),
    )


class Least(NamedTuple):
    """The least that keeps nobody waiting, with perfect knowledge and no time or energy spent on booting.

    It is a bound, not a plan: at each moment as many of the largest machines are on as together have the GPUs, CPU and memory asked for,
    whatever fits where. Where pods fill machines, as in Philly, it is exact: the machines in use, minute by minute.
    """

    machine_hours: float
    kwh: float


def least(demand: Demand) -> Least:
    """The bound for a demand."""
    case = demand.case
    moments, asked = _asked(case)
    lengths = np.diff(np.append(moments, case.end))
    machines = np.zeros(len(moments), np.int64)
    for name, amounts in asked.items():
        room = sorted((dict(node.allocatable).get(name, 0) for node in case.nodes), reverse=True)
        if room[0]:  # what no machine names is no limit
            # Bytes of a whole fleet in millionths are more than 64 bits hold.
            together = np.cumsum([0, *room], dtype=np.float64)
            machines = np.maximum(machines, np.searchsorted(together, amounts * A_HAIR_LESS))
    busy_watts = asked[GPU] / WHOLE * BUSY_WATTS / 8
    return Least(
        machine_hours=float((machines * lengths).sum()) / times.HOUR,
        kwh=float((busy_watts * lengths).sum()) / WATT_MS_IN_KWH,
    )


def _asked(case: Case) -> tuple[Ints, dict[str, Floats]]:
    """The moments at which what is asked for changes, and how much of each resource it is from then on."""
    steps = sorted(chain.from_iterable(_steps(case, work) for work in case.works), key=lambda step: step[0])
    moments = np.array([at for at, _, _ in steps], np.int64)
    names = {name for work in case.works for name, _ in work.shape.requests}
    asked = {
        name: np.cumsum([sign * dict(work.shape.requests).get(name, 0) for _, sign, work in steps], dtype=np.float64)
        for name in sorted(names)
    }
    return moments, asked


def _steps(case: Case, work: RequestedPod) -> Iterator[tuple[int, int, RequestedPod]]:
    """A pod comes, and goes when it has run for its length without having waited; what ran before ran on."""
    begun = work.arrives if work.began is None else work.began
    yield max(begun, case.begin), 1, work
    if work.length is not None and begun + work.length < case.end:
        yield begun + work.length, -1, work


def fills_machines(case: Case) -> bool:
    """Whether every pod takes all GPUs of a machine, whichever it gets."""
    return len({*(gpus_of(node) * WHOLE for node in case.nodes), *(_gpus(work) for work in case.works)}) == 1


def changes(case: Case) -> Iterator[tuple[int, int]]:
    """The moments at which pods come and go, and how many are there from then on if nobody waits; only where all ask for as much."""
    moments, asked = _asked(case)
    last = np.append(moments[1:] != moments[:-1], True)  # of those at the same moment
    counts = np.rint(asked[GPU][last] / _gpus(case.works[0])).astype(np.int64)
    yield from zip(moments[last].tolist(), counts.tolist(), strict=True)


def _gpus(work: RequestedPod) -> int:
    return dict(work.shape.requests).get(GPU, 0)


def in_use(case: Case) -> Ints:
    """How many pods are there in each minute if nobody waits: machines, where each pod fills one."""
    moments, counts = (np.array(each, np.int64) for each in zip(*changes(case), strict=True))
    minutes = np.arange(case.begin, case.end, times.MINUTE) + times.MINUTE // 2
    return counts[np.searchsorted(moments, minutes, side="right") - 1]


class Followed(NamedTuple):
    """Power that follows demand from minute to minute and is there in time, as if machines took no time to boot."""

    machine_hours: float
    starts_a_day: float


def followed(demand: Demand, log: ReplayLog) -> Followed:
    """How many machines hold pods in each minute while all are on, and how often that number rises by one."""
    case = demand.case
    minutes = -(-(case.end - case.begin) // times.MINUTE)
    number = {name: row for row, name in enumerate(case.machines)}
    is_used = np.zeros((len(number), minutes), np.bool_)
    for life in log.lives:
        if life.bound is not None:
            end = case.end if life.ended is None else life.ended
            is_used[number[life.node], _minute(life.bound - case.begin) : _minute(end - case.begin)] = True
    in_use = is_used.sum(axis=0)
    rises = np.diff(in_use).clip(min=0).sum()
    return Followed(machine_hours=float(in_use.sum()) / 60, starts_a_day=float(rises) / demand.days)


def _minute(after: int) -> int:
    """The first minute whose middle is not before this: by then all that a record moves at the full minute has happened."""
    return max(0, -(-(after - times.MINUTE // 2) // times.MINUTE))


def short(value: float) -> float:
    """As many digits as say something."""
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)

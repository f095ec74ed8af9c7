"""A recorded production trace of recommendation models: instances with GPUs and a part of an RDMA NIC, as steps that can be replayed.

Pure: what is replayed, on which machines, and what became of it.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path("dlrm-v2025") / "disaggregated_DLRM_trace.csv"
END: Final = 31 * 24 * 3600.0
"""Seconds of the trace."""
STEP: Final = 3 * 3600.0
"""The most time between the first and the last event that are replayed as one step."""
FULL: Final = 0.9
"""How full the scarcest resource of the machines is at its peak."""
NIC: Final = 100
"""Percent."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a service, and how long it was there."""

    name: str
    app: str
    role: str
    needs: Mapping[str, int]
    """cpu, memory (GiB), gpu, and rdma in percent of a NIC."""
    since: float
    until: float


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of node. It has one NIC."""

    role: str
    has: Mapping[str, int]


MACHINES: Final = (
    Machine(role="CN", has={"cpu": 192, "memory": 1024, "gpu": 0, "rdma": NIC}),
    Machine(role="HN", has={"cpu": 64, "memory": 512, "gpu": 4, "rdma": NIC}),
)
"""Nodes with CPUs alone, and with GPUs. The trace names none: these hold its largest instances, and use CPUs, GPUs and NICs about evenly."""


class Step(msgspec.Struct):
    """What goes and then what comes, and how long it stays like that."""

    goes: list[Instance]
    comes: list[Instance]
    begins: float
    seconds: float = 0.0


def read(folder: Path, one_in: int) -> list[Instance]:
    """Every n-th service with all its instances."""
    with (folder / FILE).open() as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["app_name"].removeprefix("app_")) % one_in == 0]
    found = map(_instance, rows)
    return [each for each in found if each.until > each.since]


def _instance(row: Mapping[str, str]) -> Instance:
    amounts = {"cpu": "cpu_request", "memory": "memory_request", "gpu": "gpu_request", "rdma": "rdma_request"}
    return Instance(
        name=row["instance_sn"].replace("_", "-"),
        app=row["app_name"].replace("_", "-"),
        role=row["role"],
        needs={name: math.ceil(float(row[column])) for name, column in amounts.items()},
        since=float(row["creation_time"] or 0),
        until=float(row["deletion_time"] or END),
    )


def steps(instances: Iterable[Instance]) -> list[Step]:
    """The trace in order. Within a step nothing goes that came in it, so a step may free room early, by at most its length."""
    events = [(each.since, 1, each.name, each) for each in instances]
    events += [(each.until, 0, each.name, each) for _, _, _, each in events if each.until < END]
    found = [Step(goes=[], comes=[], begins=0.0)]
    came: set[str] = set()
    for at, is_coming, name, each in sorted(events, key=lambda event: event[:3]):
        if at - found[-1].begins > STEP or name in came:
            found.append(Step(goes=[], comes=[], begins=at))
            came = set()
        if is_coming:
            came.add(name)
            found[-1].comes.append(each)
        else:
            found[-1].goes.append(each)
    for step, end in zip(found, [*(each.begins for each in found[1:]), END], strict=True):
        step.seconds = end - step.begins
    return found


def peaks(plan: Iterable[Step]) -> Counter[tuple[str, str]]:
    """The most that was wanted at once, by role and resource."""
    now: Counter[tuple[str, str]] = Counter()
    most: Counter[tuple[str, str]] = Counter()
    for step in plan:
        for sign, some in ((-1, step.goes), (1, step.comes)):
            for each in some:
                now.update({(each.role, what): sign * amount for what, amount in each.needs.items()})
        most |= now
    return most


def machines(plan: Sequence[Step]) -> Iterator[tuple[str, Machine]]:
    """The nodes: as many of each kind as the scarcest resource needs at its peak."""
    most = peaks(plan)
    for kind in MACHINES:
        needs = [most[kind.role, what] / (amount * FULL) for what, amount in kind.has.items() if amount]
        for number in range(math.ceil(max(needs))):
            yield f"{kind.role.lower()}-{number:04d}", kind


class Books:
    """What became of a replay: who was placed, and how much more than their NICs nodes have promised."""

    def __init__(self, plan: Sequence[Step]) -> None:
        self._total = sum(step.seconds for step in plan)
        self._wanted = self._excess = 0.0
        self._nics = 0.0
        self.placed: set[str] = set()
        self.crowded: set[str] = set()
        """Who was ever on a node whose NIC was oversubscribed."""
        self.most_nics = self.most_percent = 0

    def note(self, step: Step, where: Mapping[str, tuple[str, int]]) -> None:
        """The state that lasts for this step: of each instance that is placed, its node and its part of a NIC."""
        used: Counter[str] = Counter()
        for node, rdma in where.values():
            used[node] += rdma
        excess = {node: amount - NIC for node, amount in used.items() if amount > NIC}
        self.placed |= where.keys()
        self.crowded |= {name for name, (node, _) in where.items() if node in excess}
        self.most_nics = max(self.most_nics, len(excess))
        self.most_percent = max([self.most_percent, *excess.values()])
        self._nics += len(excess) * step.seconds
        self._excess += sum(excess.values()) * step.seconds
        self._wanted += sum(used.values()) * step.seconds

    @property
    def mean_nics(self) -> float:
        """How many NICs are oversubscribed, weighted by time."""
        return self._nics / self._total

    @property
    def beyond(self) -> float:
        """What is promised beyond the NICs, in percent of all that is promised, weighted by time."""
        return self._excess / self._wanted * 100 if self._wanted else 0.0

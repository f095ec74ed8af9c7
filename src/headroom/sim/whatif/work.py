"""Work: one requested pod; and the case: all work of a period, with its machines and history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

from msgspec import Struct, field, structs

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.model import times
from headroom.model.bandwidth import BandwidthRules
from headroom.model.decisions import Ref
from headroom.model.facts import Amounts, Machine, Namespace, Node, Owner, Pairs, Price, Shape
from headroom.model.gangs import SUSPENDABLE
from headroom.model.usage import DAY, Evidence, UsageRow
from headroom.model.world import Caps
from headroom.sim import hardware

GPU: Final = "nvidia.com/gpu"
LATE_MS: Final = 60 * times.SECOND
"""How much later a stopped run may end than its successor was created."""
LONGEST_DAYS: Final = 3650
"""No replay is longer."""
JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
SERVICES: Final = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet")
"""Owners whose pods run until a time, not for an amount of work."""


class RequestedPod(Struct, frozen=True, gc=False, kw_only=True):
    """One requested pod. It is recreated until it has run for its whole length."""

    name: str
    namespace: str
    owner: Owner
    arrives: int
    length: int | None
    """How long it runs; None until the end of the record."""
    labels: Pairs = ()
    annotations: Pairs = ()
    shape: Shape = Shape()
    priority: int = 0
    deadline: int | None = None
    grace_seconds: int = 30
    price: int | None = None
    """Its recorded price per hour, in millionths of a dollar; None for the price book."""
    began: int | None = None
    """When it started, if it was running already at the start of the record."""
    instance_type: str = ""
    """Of its node in the record; empty if unknown."""

    @property
    def is_service(self) -> bool:
        """Whether it runs until a time, so that stopping it loses no work."""
        return self.owner.kind in SERVICES

    @property
    def until(self) -> int | None:
        """When a service ends."""
        start = self.arrives if self.began is None else self.began
        return None if self.length is None else start + self.length

    @property
    def owner_key(self) -> str:
        """The owner that recreates it and can be suspended, as Kind/namespace/name."""
        name = dict(self.labels).get(JOBSET)
        if name and self.owner.kind == "Job" and self.owner.name.startswith(f"{name}-"):
            return f"JobSet/{self.namespace}/{name}"
        return f"{self.owner.kind}/{self.namespace}/{self.owner.name}"


class Recorded(Struct, frozen=True, gc=False, kw_only=True):
    """Work with its course in the record."""

    work: RequestedPod
    start: int | None
    """None if it never began."""
    end: int | None
    """None if it was running at the end of the record."""
    rows: tuple[UsageRow, ...] = ()
    """Its rows in the ledger, if the record has one."""
    was_stopped: bool = False
    """Whether it was stopped before it was done: a later run of its owner is the same work."""


class Span(NamedTuple):
    """What the record says of something that ran."""

    row: UsageRow
    end: int


class Case(Struct, kw_only=True):
    """The input of a replay, the same for both policies."""

    title: str
    begin: int
    end: int
    works: list[RequestedPod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    """None: capacity is unlimited."""
    machines: Mapping[str, Machine] = {}
    """The power of machines at the start."""
    boot_ms: int = round(hardware.BOOT_SECONDS * times.SECOND)
    """How long a machine takes from the command to being ready."""
    shutdown_ms: int = round(hardware.SHUTDOWN_SECONDS * times.SECOND)
    boundless: frozenset[str] = frozenset()
    """Resources with unlimited capacity, whatever the nodes offer."""
    history: list[UsageRow] = field(default_factory=list)
    """Usage before the start that still counts."""
    cluster: str = "default"
    own_namespace: str = "headroom-system"
    namespaces: Mapping[str, Namespace] = {}
    prices: tuple[Price, ...] = ()
    facts: Mapping[str, Any] = {}
    """Other facts of the record, constant in a replay: fields of the World, by name."""
    caps: Caps = Caps()
    bandwidth: BandwidthRules = BandwidthRules()
    """By which it is known what pods ask of machines, and what is only a mark."""
    hold_problem: str = ""
    resources: dict[Ref, AnyResource] = field(default_factory=dict)
    """The policies as they were."""
    team_label: str = ""
    """The label that names a team; if empty, namespaces are teams."""
    record: list[Span] = field(default_factory=list)
    """The runs in this period, from the record."""
    notes: list[str] = field(default_factory=list)
    """Notes for the reader of the result."""

    @property
    def recorded_gpu_ms(self) -> int:
        """The recorded usage in this period, in millionths x milliseconds."""
        parts = ((each, min(each.end, self.end) - max(each.row.start, self.begin)) for each in self.record)
        return sum(usage.gpus_in(named(each.row.amounts)) * max(0, length) for each, length in parts)

    def team(self, work: RequestedPod) -> str:
        """The team of the work."""
        if not self.team_label:
            return work.namespace
        return dict(work.labels).get(self.team_label, "(none)")


def named(amounts: Amounts) -> Amounts:
    """What rows hold; GPUs of no particular kind are taken for the usual ones."""
    return tuple(sorted((name or GPU, amount) for name, amount in usage.plain_amounts(amounts)))


def namespace_of(name: str, labels: Pairs = ()) -> Namespace:
    """A namespace as the API server has it: its name is one of its labels."""
    return Namespace(name=name, uid=name, labels=tuple(sorted((dict(labels) | {usage.NAMESPACE_NAME: name}).items())))


def owner_of(kind: str, namespace: str, name: str) -> Owner:
    """An owner; its uid is derived from its name."""
    return Owner(kind, name, f"{kind}/{namespace}/{name}", SUSPENDABLE.get(kind, ""))


def cut(case: Case, records: Iterable[Recorded], days: float | None) -> Case:
    """Only the last days of a record: what was over before is history, what ran then runs on."""
    found = sorted(records, key=lambda each: (each.work.arrives, each.work.namespace, each.work.name))
    first = min((each.work.arrives for each in found), default=case.end)
    case.begin = max(first, case.end - round(days * DAY)) if days is not None else first
    if not found:
        case.notes.append(
            f"The record has no work up to {times.text(case.end)}, so there is nothing to play; "
            "a snapshot taken with --ledger-url has what the ledger keeps."
        )
    elif days is not None and case.end - first < days * DAY:
        case.notes.append(
            f"The record is shorter than {days:g} days; all of its {(case.end - first) / DAY:.1f} days are played."
        )
    number, played = count(1), list[Recorded]()
    for each in found:
        end = case.end if each.end is None else each.end
        rows = (
            () if each.start is None else each.rows or (_row(case.cluster, each.work, (each.start, end), next(number)),)
        )
        if each.start is not None and end <= case.begin:
            case.history += rows
            continue
        played.append(each)
        case.record += (Span(row, end if row is rows[-1] else _over(row)) for row in rows)
    for each in joined(played):
        work, end = each.work, case.end if each.end is None else each.end
        if each.start is not None and each.start < case.begin:
            case.works.append(_replaced(work, began=each.start))
        elif work.arrives < case.end and end > case.begin:
            case.works.append(_replaced(work, arrives=max(work.arrives, case.begin)))
    return case


def joined(records: Iterable[Recorded]) -> list[Recorded]:
    """Records in which a run that was stopped and the run that its owner made instead are one work, as long as the last of them."""
    found, of_owner = list(records), dict[str, list[Recorded]]()
    for each in found:
        if not each.work.is_service:
            of_owner.setdefault(each.work.owner.uid, []).append(each)
    after: dict[int, Recorded] = {}
    taken = set[int]()
    for owned in of_owner.values():
        owned.sort(key=lambda each: each.work.arrives)
        for each in sorted((each for each in owned if each.was_stopped), key=lambda each: each.end or 0):
            since = max(each.work.arrives + 1, (each.end or 0) - each.work.grace_seconds * times.SECOND - LATE_MS)
            free = (other for other in owned if other.work.arrives >= since and id(other) not in taken)
            if (successor := next(free, None)) is not None:
                after[id(each)] = successor
                taken.add(id(successor))
    return [_whole(each, after) for each in found if id(each) not in taken]


def _whole(each: Recorded, after: Mapping[int, Recorded]) -> Recorded:
    last = each
    while id(last) in after:
        last = after[id(last)]
    if last is each:
        return each
    work = structs.replace(each.work, length=last.work.length, annotations=last.work.annotations)
    return structs.replace(each, work=work, end=last.end)


def _over(row: UsageRow) -> int:
    return row.seen_until if row.closed is None else row.closed


def _replaced(work: RequestedPod, *, began: int | None = None, arrives: int | None = None) -> RequestedPod:
    return structs.replace(work, began=began, arrives=work.arrives if arrives is None else arrives)


def _row(cluster: str, work: RequestedPod, span: tuple[int, int], number: int) -> UsageRow:
    start, end = span
    return UsageRow(
        cluster=cluster,
        uid=f"{work.namespace}/{work.name}@{number}",
        start=start,
        earliest=start,
        seen_until=end,
        ended=end,
        evidence=Evidence.CONTAINER_FINISH,
        namespace=work.namespace,
        pod=work.name,
        created=min(work.arrives, start),
        observed=start,
        amounts=work.shape.requests,
        labels=work.labels,
        price=work.price,
    )

"""Work: one pod that somebody asked for, and the case: all work of a stretch of time, with the machines and the history around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Final

from msgspec import Struct, field, structs

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Machine, Namespace, Node, Owner, Pairs, Price, Shape
from headroom.model.gangs import SUSPENDABLE
from headroom.model.usage import DAY, Evidence, Row
from headroom.model.world import Caps
from headroom.sim import hardware

GPU: Final = "nvidia.com/gpu"
LONGEST_DAYS: Final = 3650
"""No replay is longer."""
JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
SERVICES: Final = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet")
"""Owners whose pods are wanted until a moment, not for an amount of work."""


class Work(Struct, frozen=True, gc=False, kw_only=True):
    """One pod that somebody asked for. It is tried until it has run for its whole length."""

    name: str
    namespace: str
    owner: Owner
    arrives: int
    length: int | None
    """How long it runs; None for to the end of the record."""
    labels: Pairs = ()
    annotations: Pairs = ()
    shape: Shape = Shape()
    priority: int = 0
    deadline: int | None = None
    grace_seconds: int = 30
    price: int | None = None
    """What it cost an hour as recorded, in millionths of a dollar; None to go by the price book."""
    began: int | None = None
    """Since when it has run already where the record begins."""

    @property
    def is_service(self) -> bool:
        """Whether it is wanted until a moment, so that nothing is lost when it is stopped."""
        return self.owner.kind in SERVICES

    @property
    def until(self) -> int | None:
        """When a service is not wanted any more."""
        start = self.arrives if self.began is None else self.began
        return None if self.length is None else start + self.length

    @property
    def owner_key(self) -> str:
        """Who makes it anew and can be suspended, as Kind/namespace/name."""
        name = dict(self.labels).get(JOBSET)
        if name and self.owner.kind == "Job" and self.owner.name.startswith(f"{name}-"):
            return f"JobSet/{self.namespace}/{name}"
        return f"{self.owner.kind}/{self.namespace}/{self.owner.name}"


class Recorded(Struct, frozen=True, gc=False, kw_only=True):
    """Work as it went in the record."""

    work: Work
    start: int | None
    """None if it never began."""
    end: int | None
    """None if it still ran where the record ends."""
    rows: tuple[Row, ...] = ()
    """What the ledger has of it, where the record is one."""


class Case(Struct, kw_only=True):
    """What is played: the same for both policies."""

    title: str
    begin: int
    end: int
    works: list[Work] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    """None: there is always room."""
    machines: Mapping[str, Machine] = {}
    """What is known of the power of machines at the begin."""
    boot_ms: int = round(hardware.BOOT_SECONDS * times.SECOND)
    """How long a machine takes from the command to being ready."""
    shutdown_ms: int = round(hardware.SHUTDOWN_SECONDS * times.SECOND)
    boundless: frozenset[str] = frozenset()
    """Resources of which there is always enough, whatever the nodes say."""
    history: list[Row] = field(default_factory=list)
    """What ran before the begin and still counts."""
    cluster: str = "default"
    own_namespace: str = "headroom-system"
    namespaces: Mapping[str, Namespace] = {}
    prices: tuple[Price, ...] = ()
    facts: Mapping[str, Any] = {}
    """What else the record knows and a replay does not play: fields of the World, by name."""
    caps: Caps = Caps()
    hold_problem: str = ""
    resources: dict[Ref, AnyResource] = field(default_factory=dict)
    """The policies as they were."""
    team_label: str = ""
    """The label that names a team; namespaces do where it is empty."""
    recorded_gpu_ms: int | None = None
    """What the record itself comes to in this time, in millionths x milliseconds; None where it does not say."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the result should know."""

    def team(self, work: Work) -> str:
        """Whose work it is."""
        if not self.team_label:
            return work.namespace
        return dict(work.labels).get(self.team_label, "(none)")


def namespace_of(name: str, labels: Pairs = ()) -> Namespace:
    """A namespace as the API server has it: its name is one of its labels."""
    return Namespace(name=name, uid=name, labels=tuple(sorted((dict(labels) | {usage.NAMESPACE_NAME: name}).items())))


def owner_of(kind: str, namespace: str, name: str) -> Owner:
    """An owner; its uid follows from its name."""
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
    held, number = 0, count(1)
    for each in found:
        work, end = each.work, case.end if each.end is None else each.end
        if each.start is not None:
            held += usage.gpus_in(work.shape.requests) * max(0, min(end, case.end) - max(each.start, case.begin))
        if each.start is not None and end <= case.begin:
            case.history += each.rows or [_row(case.cluster, work, (each.start, end), next(number))]
        elif each.start is not None and each.start < case.begin:
            case.works.append(_replaced(work, began=each.start))
        elif work.arrives < case.end and end > case.begin:
            case.works.append(_replaced(work, arrives=max(work.arrives, case.begin)))
    case.recorded_gpu_ms = held
    return case


def _replaced(work: Work, *, began: int | None = None, arrives: int | None = None) -> Work:
    return structs.replace(work, began=began, arrives=work.arrives if arrives is None else arrives)


def _row(cluster: str, work: Work, span: tuple[int, int], number: int) -> Row:
    start, end = span
    return Row(
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

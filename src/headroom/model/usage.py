"""Rows of usage: which pod held how much, from when to when, under which labels and at which price.

Usage is a set of rows, not a counter. Rows with the same key are merged by rules that are commutative, associative and idempotent,
so two writers, a replay or a late write change nothing. What is not known for sure stands in a row as two bounds, never as a guess.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

from headroom.model.facts import Amounts, Pairs

DAY: Final = 86_400_000
LATE_MS: Final = 60_000
"""By how much a second writer may be behind the first."""
UNSEEN: Final = "@unseen"
"""Stands among the labels of a row when nobody saw which labels the pod had then: a name that no label can have."""


class Evidence(IntEnum):
    """How an end is known; the stronger counts."""

    NONE = 0
    DELETION_SEEN = 1
    """The pod was deleted before our eyes, and had said nothing of an end."""
    FAILURE_KNOWN = 2
    """It failed, and this is when that was first known."""
    CONTAINER_FINISH = 3
    """Its last container finished."""


class Ending(IntEnum):
    """Why a pod ended; of two that disagree, the larger one counts."""

    UNKNOWN = 0
    FINISHED = 1
    FAILED = 2
    DELETED = 3
    """Somebody deleted it before it had ended: its owner was suspended or removed, or something preempted it."""
    EVICTED = 4
    """The API server granted an eviction."""


EVIDENCE: Final = {
    "ContainerFinish": Evidence.CONTAINER_FINISH,
    "FailureKnown": Evidence.FAILURE_KNOWN,
    "DeletionSeen": Evidence.DELETION_SEEN,
}
"""By the names that facts use."""


class UsageRow(Struct, frozen=True, gc=False, kw_only=True):
    """One segment of a pod's life. Its key is cluster, day, uid and start; moments are milliseconds."""

    cluster: str
    uid: str
    start: int
    """When it surely held them already."""
    namespace: str = ""
    pod: str = ""
    created: int = 0
    """When the pod was created; its day is part of the key."""
    observed: int = 0
    """When this row was first written down. Of two that disagree on what was held, the earlier one saw it better."""
    version: int = 0
    """The resource version of the pod that it was seen in, 0 if not known: a later begin in an earlier version is out of date."""
    earliest: int
    """The earliest moment at which it can have begun: `start`, unless the begin was not seen."""
    seen_until: int
    """The last moment at which it was surely still held. Counts only while `ended` is not known."""
    ended: int | None = None
    """When the pod ended."""
    evidence: int = Evidence.NONE
    gone_by: int | None = None
    """At this moment it was not held any more: the pod was gone, or went on under other labels, amounts or another price, in a
    row of its own. It may have been so since `seen_until`."""
    amounts: Amounts = ()
    """What it held, in millionths, by resource name; the name is empty for GPUs that every budget counts as such."""
    labels: Pairs = ()
    """Those in force when it begins: in the ledger all of them, in memory only those that some budget selects by."""
    price: int | None = None
    """What it cost, in millionths of a dollar an hour; None where nobody knows."""
    ending: int = Ending.UNKNOWN
    """Why the pod ended; unknown while it runs, and in rows from before this was kept."""
    details: Pairs = ()
    """What a what-if needs to play the pod again, by the names in `PodDetails`; empty in rows from before this was kept."""

    @property
    def closed(self) -> int | None:
        """When it surely ended, or went on in another row; None where that is open, or known within bounds only."""
        if self.ended is None and self.gone_by is not None and self.seen_until >= self.gone_by:
            return self.gone_by
        return self.ended

    @property
    def is_change(self) -> bool:
        """Whether it tells of a change that was seen: it begins when it was first written down."""
        return self.observed <= self.start

    @property
    def day(self) -> int:
        """The day of the pod's creation, counted from 1970."""
        return self.created // DAY

    @property
    def key(self) -> tuple[str, int, str, int]:
        """What tells it from all other rows."""
        return self.cluster, self.day, self.uid, self.start


class PodDetails(NamedTuple):
    """What decides where a pod may run, for how long, and who makes it anew."""

    owner_kind: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    declared: int | None = None
    """The length that it declared, in milliseconds."""
    instance_type: str = ""
    """Of the node that it ran on."""
    node_selector: Pairs = ()

    def pairs(self) -> Pairs:
        """As a row keeps them: what is not known is left out."""
        named = {
            _DECLARED: "" if self.declared is None else str(self.declared),
            _OWNER: f"{self.owner_kind}/{self.owner_name}/{self.owner_uid}" if self.owner_uid else "",
            _TYPE: self.instance_type,
        }
        found = [(name, value) for name, value in named.items() if value]
        return tuple(sorted((*found, *((_SELECTOR + key, value) for key, value in self.node_selector))))

    @classmethod
    def of(cls, row: UsageRow) -> PodDetails:
        """What a row says."""
        has = dict(row.details)
        kind, name, uid = ([*has.get(_OWNER, "").split("/"), "", ""])[:3]
        declared = has.get(_DECLARED, "")
        selector = tuple((key[len(_SELECTOR) :], value) for key, value in row.details if key.startswith(_SELECTOR))
        return cls(kind, name, uid, int(declared) if declared.isdecimal() else None, has.get(_TYPE, ""), selector)


# The larger of two details counts, so what may be lacking sorts last: who knows more says more.
_DECLARED: Final = "declared"
_OWNER: Final = "owner"
_SELECTOR: Final = "selector/"
_TYPE: Final = "type"


class Heartbeat(Struct, frozen=True, kw_only=True):
    """A cluster's whole view, with every end in it, is in the ledger up to this moment."""

    cluster: str
    complete_until: int


def merged(one: UsageRow, other: UsageRow) -> UsageRow:
    """What two rows of the same key say together."""
    if one == other:
        return one
    source = min(one, other, key=_precedence)
    ended, evidence = max((one, other), key=_end_strength).ended, max(one.evidence, other.evidence)
    gone = [each.gone_by for each in (one, other) if each.gone_by is not None]
    return UsageRow(
        cluster=one.cluster,
        uid=one.uid,
        start=one.start,
        namespace=source.namespace,
        pod=source.pod,
        created=source.created,
        observed=source.observed,
        version=source.version,
        earliest=max(one.earliest, other.earliest),
        seen_until=max(one.seen_until, other.seen_until),
        ended=ended,
        evidence=evidence,
        gone_by=min(gone, default=None),
        amounts=source.amounts,
        labels=source.labels,
        price=source.price,
        ending=max(one.ending, other.ending),
        details=max(one.details, other.details),
    )


def _precedence(row: UsageRow) -> tuple[object, ...]:
    """The smallest one says what was held: who saw it best, and among equals any, but always the same.

    Labels that somebody saw count before those that nobody saw. A row that begins when it was observed saw just what began then,
    and the latest version there was by then is the truth. One that was observed later tells of what was before, and the earliest
    version comes closest to that. Of two that saw the same, one may have kept only some of the labels; the other counts.
    """
    price = -1 if row.price is None else row.price
    version = -row.version if row.is_change else row.version
    seen = is_unseen(row.labels), not row.is_change, version, row.observed, -len(row.labels), row.labels
    return *seen, row.amounts, price, row.namespace, row.pod, row.created


def is_unseen(labels: Pairs) -> bool:
    """Whether nobody saw which labels a pod had then."""
    return any(key == UNSEEN for key, _ in labels)


def _end_strength(row: UsageRow) -> tuple[int, int]:
    """The strongest evidence wins, then the earliest end."""
    return (row.evidence, -row.ended) if row.ended is not None else (-1, 0)

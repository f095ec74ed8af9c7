"""Pods that are found before the ledger was read: what they were up to then, only the ledger knows.

Such a pod gets a *blank* row: it held this much since its start, under labels that nobody saw. Whatever the ledger says of the same
row counts instead. If the pod changes or ends before the ledger could be read, what it was when it was found becomes a row of its
own, which may have begun at any moment since the start. Once the ledger was read, the rows are joined with what it says, and the
result is the same as if it had been read at once. Every row is right by itself, so it does no harm if that never happens.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from headroom.core.usage import observing
from headroom.core.usage.devices import ENDED_PHASES
from headroom.core.usage.observing import Look, PodAllocation
from headroom.model.facts import Pod
from headroom.model.usage import Evidence, UsageRow, is_unseen


class FoundPod(NamedTuple):
    """A pod as it was when it was found."""

    pod: Pod
    held: PodAllocation
    look: Look

    def is_still(self, pod: Pod, held: PodAllocation) -> bool:
        """Whether it is what it was, as far as rows tell."""
        return pod.phase not in ENDED_PHASES and held == self.held


def first_rows(found: FoundPod) -> list[UsageRow]:
    """The blank row of a pod that is found and, if that has ended, the row of what it was at its end."""
    rows = observing.observed((), found.pod, found.held, found.look._replace(since=0))
    if not rows or rows[0].ended == rows[0].start:
        return rows  # it has no length that labels could be told of
    first, end = rows[0], rows[0].ended
    blank = structs.replace(first, labels=observing.unseen(first.labels), ended=None, evidence=Evidence.NONE)
    if end is None:
        return [blank]
    return [structs.replace(blank, gone_by=end), structs.replace(first, start=end, seen_until=end)]


def split_found(blank: UsageRow, found: FoundPod) -> list[UsageRow]:
    """What a pod was when it was found, as a row of its own: it may have been that since its start."""
    at = max(found.look.at, blank.start + 1)
    own = observing.row_of(found.pod, found.held, found.look._replace(at=at, since=0), at, blank.start)
    return [structs.replace(blank, gone_by=at), own]


def is_blank(row: UsageRow) -> bool:
    """Whether nobody saw its labels, and nobody who had read the ledger wrote it."""
    return is_unseen(row.labels) and row.ended is None and row.closed is None


def joined(before: UsageRow, own: UsageRow, since: int, *, is_same: bool) -> list[UsageRow]:
    """The row before a found pod's own, and that one, now that the first is known, and that nothing was missed up to `since`."""
    at = own.start
    if before.ended is not None or before.closed is not None:
        return []  # where it ends is known, and from there on it is the pod's own
    if is_same and own.ended == at:
        return [structs.replace(before, ended=at, evidence=own.evidence), structs.replace(own, earliest=at)]
    sure = at if is_same else max(before.seen_until, min(since, at))
    # What lies between belongs to either.
    return [
        structs.replace(before, seen_until=sure, gone_by=at),
        structs.replace(own, earliest=max(own.earliest, before.start, sure)),
    ]

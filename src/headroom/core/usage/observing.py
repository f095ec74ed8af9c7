"""From what is seen of a pod to rows of usage.

The contract is holding time: from the earliest start of any container to the end of the pod, whatever happens between. The labels,
amounts and price in force decide, so a change of one begins a new row, and what was used before it never moves. What happened while
nobody looked stands as bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api import durations, marks
from headroom.core.usage import devices, prices
from headroom.core.usage.devices import ENDED_PHASES, DeviceView
from headroom.model import times
from headroom.model.census import cut
from headroom.model.facts import Amounts, Namespace, Node, Pairs, Pod
from headroom.model.usage import EVIDENCE, LATE_MS, UNSEEN, Ending, Evidence, PodDetails, UsageRow, is_unseen

OF_NAMESPACE: Final = "@namespace/"
"""Begins the names under which a row keeps the labels of the pod's namespace."""
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""A label that every namespace has."""
_NEVER: Final = ("headroom.dev/", "hugepages-", "kubernetes.io/")


class PodAllocation(NamedTuple):
    """What a pod holds while it runs, and under which labels."""

    amounts: Amounts
    price: int | None
    labels: Pairs

    def is_in(self, row: UsageRow) -> bool:
        """Whether a row says just this."""
        return (row.amounts, row.price, row.labels) == self


class Look(NamedTuple):
    """One look at a cluster: when, and up to when the looks before it surely missed nothing."""

    cluster: str
    at: int
    since: int

    @property
    def is_gapless(self) -> bool:
        """Whether what is new now happened now."""
        return self.since >= self.at


def amounts_of(pod: Pod, view: DeviceView, counted: Collection[str] = ()) -> Amounts:
    """What is accounted of a pod: extended resources, devices of claims, and what else some budget counts.

    A pod that has none of them is nobody's business. One that has some is kept with its CPU, so that a budget for CPU may come later.
    """
    found, claimed = devices.held_by(pod, view)
    node = view.nodes.get(pod.node) if pod.node else None
    for name, amount in pod.shape.requests:
        # What a claim gives instead of a request is not counted twice.
        if (is_accounted(name) or name in counted) and name not in claimed:
            known = devices.requested(name, view.devices, node)
            found[known] = found.get(known, 0) + amount
    if found:
        found |= {name: amount for name, amount in pod.shape.requests if name == "cpu"}
    return tuple(sorted(found.items()))


def is_accounted(name: str) -> bool:
    """Whether a resource is recorded although no budget counts it yet: all extended resources are."""
    return "/" in name and not name.startswith(_NEVER)


def observed(
    known: Sequence[UsageRow], pod: Pod, held: PodAllocation, look: Look, *, is_unread: bool = False
) -> list[UsageRow]:
    """What is new in the rows of a pod that is in view, or was until now; `known` are its rows by start.

    Where not all labels of the last row are known, what the pod is now is a row of its own.
    """
    end, evidence = _end(pod, look)
    if not known or (len(known) == 1 and _is_blank(known[0])):
        return _first(pod, held, look, end, evidence)
    rows = _before(known, pod)
    # What is known of later than this look was seen by somebody who is ahead of us.
    last = next((row for row in reversed(known) if row.start <= look.at), known[0])
    held = _completed(held, last)
    if end is not None:
        return rows + _cut(known, last, end, evidence) + _ended(last, pod, held, look, (end, evidence))
    closed = last.closed
    if closed is not None:
        if closed >= look.at:
            return rows
        # The pod goes on although this row is closed: this is the part that the ledger has not told of.
        begin = max(closed, last.start)
        return [*rows, row_of(pod, held, look, begin, begin)] if held.amounts and pod.started is not None else rows
    if (held.is_in(last) and not is_unread) or _is_behind(pod, last, look):
        return rows
    # A price is in force from when it is known, so a new one alone is no doubt about what was held before.
    if look.is_gapless or held._replace(price=last.price).is_in(last):
        before = structs.replace(last, seen_until=look.at, gone_by=look.at)
        return [*rows, before, row_of(pod, held, look, look.at, look.at)]
    sure = max(last.seen_until, min(look.since, look.at))
    before = structs.replace(last, seen_until=sure, gone_by=look.at)
    return [*rows, before, row_of(pod, held, look, look.at, max(last.start, sure))]


def is_too_soon(known: Sequence[UsageRow], held: PodAllocation, look: Look, shortest: int) -> bool:
    """Whether what changed has to wait, since a row that tells of a change lasts so long. Until then, that row counts."""
    last = known[-1] if known else None
    if last is None or not last.is_change or last.ended is not None or last.gone_by is not None:
        return False
    return 0 <= look.at - last.start < shortest and not _completed(held, last).is_in(last)


def gone(known: Sequence[UsageRow], pod: Pod, held: PodAllocation, look: Look) -> list[UsageRow]:
    """What is new in the rows of a pod that was deleted; `pod` is its last state, `look.since` the last moment it was there."""
    rows = observed(known, pod, held, look)
    if pod.phase in ENDED_PHASES:
        return rows
    every = {row.start: row for row in (*known[-1:], *rows)}
    if not every:
        return rows
    last = every[max(every)]
    if not known and len(rows) > 1:
        # It started and went while nobody looked: it need not have been there up to now.
        return [structs.replace(rows[0], seen_until=rows[0].start)]
    if last.ended is not None:
        return rows
    if look.is_gapless:
        closed = structs.replace(last, ended=max(look.at, last.start), evidence=Evidence.DELETION_SEEN)
    else:
        closed = structs.replace(last, seen_until=max(last.seen_until, look.since), gone_by=look.at)
    return [*(row for row in rows if row.start != last.start), closed]


def missed(last: UsageRow, seen_until: int, at: int) -> UsageRow:
    """The last row of a pod that is not there any more, and nobody saw it go."""
    return structs.replace(last, seen_until=max(last.seen_until, min(seen_until, at)), gone_by=at)


def labels_of(pod: Pod, namespaces: Mapping[str, Namespace], keys: frozenset[str] | None = None) -> Pairs:
    """The labels in force: the pod's own, and those of its namespace under names that no label can have.

    Only those with one of the keys, where these are given.
    """
    own, namespace = pod.labels if keys is None else cut(pod.labels, keys), namespaces.get(pod.namespace)
    if namespace is None:
        return own
    named = dict(namespace.labels) | {NAMESPACE_NAME: namespace.name}
    theirs = [(OF_NAMESPACE + key, value) for key, value in named.items() if keys is None or OF_NAMESPACE + key in keys]
    return tuple(sorted((*own, *theirs))) if theirs else own


def details_of(pod: Pod, node: Node | None) -> Pairs:
    """What a what-if needs to play a pod again."""
    owner, told = pod.owner, durations.milliseconds(dict(pod.annotations).get(marks.EXPECTED_DURATION, ""))
    return PodDetails(
        owner_kind=owner.kind if owner is not None else "",
        owner_name=owner.name if owner is not None else "",
        owner_uid=owner.uid if owner is not None else "",
        declared=min((each for each in (told, pod.deadline) if each is not None), default=None),
        instance_type="" if node is None else prices.type_of(node),
        node_selector=pod.shape.node_selector,
    ).pairs()


def ending_of(pod: Pod) -> Ending:
    """Why a pod ended, as it tells itself; what was deleted after it had ended did end by itself."""
    if pod.evicted is not None:
        return Ending.EVICTED
    asked = None if pod.deleting is None else pod.deleting - pod.grace_seconds * times.SECOND
    if pod.phase not in ENDED_PHASES or (asked is not None and (pod.ended is None or pod.ended >= asked)):
        return Ending.DELETED
    return Ending.FINISHED if pod.phase == "Succeeded" else Ending.FAILED


def filled(row: UsageRow, labels: Pairs, keys: frozenset[str]) -> UsageRow:
    """A new row as the ledger keeps it: also with the labels that nobody selects by."""
    is_blank = is_unseen(row.labels)
    more = [each for each in labels if each[0] not in keys and (not is_blank or each[0].startswith(OF_NAMESPACE))]
    return structs.replace(row, labels=tuple(sorted((*row.labels, *more)))) if more else row


def _completed(held: PodAllocation, last: UsageRow) -> PodAllocation:
    """What is not known now and was known before: a node or a namespace that is gone changes nothing about a pod."""
    price, labels = held.price, held.labels
    if price is None and held.amounts == last.amounts:
        price = last.price
    if not any(key.startswith(OF_NAMESPACE) for key, _ in labels):
        theirs = [pair for pair in last.labels if pair[0].startswith(OF_NAMESPACE)]
        labels = tuple(sorted((*labels, *theirs))) if theirs else labels
    return PodAllocation(held.amounts, price, labels)


def _end(pod: Pod, look: Look) -> tuple[int | None, Evidence]:
    if pod.phase not in ENDED_PHASES:
        return None, Evidence.NONE
    if pod.ended is None:
        return look.at, Evidence.FAILURE_KNOWN
    return pod.ended, EVIDENCE.get(pod.ended_by, Evidence.FAILURE_KNOWN)


def _first(pod: Pod, held: PodAllocation, look: Look, end: int | None, evidence: Evidence) -> list[UsageRow]:
    """The first row of a pod: none before a container of it has started."""
    if not held.amounts:
        return []
    if pod.started is None:
        if end is None or pod.started_after is None:
            return []
        # It failed, and nothing tells whether a container of it ever ran.
        earliest = min(end, max(pod.started_after, pod.created))
        return [structs.replace(row_of(pod, held, look, end, earliest), ended=end, evidence=evidence)]
    # A kubelet whose clock is behind may tell of a start before the pod was created.
    start = max(pod.started, pod.created)
    after = start if pod.started_after is None else max(pod.started_after, pod.created)
    row = row_of(pod, held, look, start, min(start, pod.started, after))
    if pod.created <= look.since < start < look.at and look.since:
        # It was there before the gap, and nobody saw the labels that it had when it started: they may have been others.
        before = structs.replace(row, labels=unseen(held.labels), seen_until=look.at, gone_by=look.at)
        if end is None:
            return [before, row_of(pod, held, look, look.at, look.at)]
        return [structs.replace(before, ended=max(end, start), evidence=evidence)]
    return [row if end is None else structs.replace(row, ended=max(end, start), evidence=evidence)]


def _is_blank(row: UsageRow) -> bool:
    """Whether it was written by somebody who could not read the ledger, and nothing has happened to the pod since."""
    return is_unseen(row.labels) and row.ended is None and row.gone_by is None


def unseen(labels: Pairs) -> Pairs:
    """Labels that nobody saw; those of the namespace are known all the same."""
    return tuple(sorted(((UNSEEN, ""), *(pair for pair in labels if pair[0].startswith(OF_NAMESPACE)))))


def _before(known: Sequence[UsageRow], pod: Pod) -> list[UsageRow]:
    """What the ledger lacks of the begin, where the pod itself still tells of it."""
    first = known[0]
    if pod.started is None or max(pod.started, pod.created) >= first.earliest:
        return []
    start = max(pod.started, pod.created)
    return [
        structs.replace(
            first,
            start=start,
            earliest=start,
            ended=None,
            evidence=Evidence.NONE,
            seen_until=first.start,
            gone_by=first.start,
        )
    ]


def _ended(last: UsageRow, pod: Pod, held: PodAllocation, look: Look, end: tuple[int, Evidence]) -> list[UsageRow]:
    """The end of a pod. Labels that changed after it mean nothing any more."""
    at, evidence = max(end[0], last.start), end[1]
    if last.ended is not None and last.evidence >= evidence:
        return []
    if last.ended is None and last.closed is not None and last.closed < at and held.amounts:
        # It went on after this row was closed, which the ledger has not told of.
        return [structs.replace(row_of(pod, held, look, last.closed, last.closed), ended=at, evidence=evidence)]
    sure = max(last.seen_until, min(look.since, look.at))
    same = held._replace(price=last.price).is_in(last)
    if same or look.is_gapless or sure >= at or not held.amounts:
        return [structs.replace(last, ended=at, evidence=evidence)]
    # It changed and ended while nobody looked: what lies between belongs to either.
    tail = structs.replace(row_of(pod, held, look, at, max(last.start, sure)), ended=at, evidence=evidence)
    return [structs.replace(last, seen_until=sure, gone_by=at), tail]


def _cut(known: Sequence[UsageRow], last: UsageRow, end: int, evidence: Evidence) -> list[UsageRow]:
    """Rows before the last that reach beyond the end: a kubelet tells of a finish later, and a change was seen between the two."""
    if evidence < Evidence.CONTAINER_FINISH:
        return []  # a better word may come, and what was cut cannot be mended
    found = []
    for row in reversed(known):
        if row.start < last.start and end < row.seen_until:
            found.append(structs.replace(row, ended=max(end, row.start), evidence=evidence))
        elif row.start < last.start and row.gone_by is not None and end < row.gone_by:
            found.append(structs.replace(row, gone_by=end))
        if row.start <= end and row.start < last.start:
            break  # those before it are over where it begins
    return found


def _is_behind(pod: Pod, last: UsageRow, look: Look) -> bool:
    """Whether this look is older than the row. Not for long: after a restore from a backup all versions are lower."""
    return 0 < _version(pod) < last.version and look.at - last.start < LATE_MS


def _version(pod: Pod) -> int:
    return int(pod.resource_version) if pod.resource_version.isdecimal() and len(pod.resource_version) < 19 else 0


def row_of(pod: Pod, held: PodAllocation, look: Look, start: int, earliest: int) -> UsageRow:
    """A row of what a pod holds that begins at `start`, or may have begun at `earliest`."""
    return UsageRow(
        cluster=look.cluster,
        uid=pod.uid,
        start=start,
        namespace=pod.namespace,
        pod=pod.name,
        created=pod.created,
        observed=look.at,
        version=_version(pod),
        earliest=earliest,
        seen_until=max(start, min(look.since, look.at)) if pod.phase not in ENDED_PHASES else start,
        amounts=held.amounts,
        labels=held.labels,
        price=held.price,
    )

"""All usage rows that can still matter, as columns: those of the live view united with those of the ledger.

A row says what it knows; the columns `low_end` and `high_end`, `start` and `high_start` say what follows from all rows of its pod
together: segments of a pod are disjoint, so each ends at the latest where the next begins. Rows are told apart by the little that
budgets look at (`Group`), so a budget judges each group once and each of its rows only by adding it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headroom.model.facts import Pairs
from headroom.model.ordering import Group, Order, Terms
from headroom.model.postings import Postings
from headroom.model.tables import ABSENT, Ints, Numbering
from headroom.model.usage import LATE_MS, UNSEEN, Row, merged

Bools = NDArray[np.bool_]

OPEN: Final = 2**62
"""The end of a row that is still held."""


_COLUMNS: Final = (
    "start",
    "earliest",
    "seen_until",
    "ended",
    "evidence",
    "gone_by",
    "created",
    "observed",
    "version",
    "labels",
    "terms",
    "group",
    "first",
    "low_end",
    "high_end",
    "high_start",
    "current",
)


class UsageTable:
    """Rows by key, with what follows from them."""

    def __init__(self, cluster: str = "default") -> None:
        self.cluster = cluster
        self.complete_since = 0
        """From when on all that was held is here; what ended before may be missing."""
        self.groups: list[Group] = []
        """Every group by its number; none is ever forgotten until the keys change."""
        self.postings = Postings()
        """Groups by namespace and labels."""
        self.regrouped = 0
        """Grows when groups get other numbers."""
        self.memory: dict[Any, Any] = {}
        """What readers worked out from the groups and need not work out again."""
        self.uncertain: set[int] = set()
        """The rows whose begin or end is known only within bounds."""
        self.kept: set[str] = set()
        """Uids of the pods in view that have our finalizer."""
        self._keys = frozenset({UNSEEN})
        self._group_of: dict[tuple[int, Pairs], int] = {}
        self._labels: Numbering[Pairs] = Numbering()
        self._terms: Numbering[Terms] = Numbering()
        self._rows: dict[str, int | tuple[int, ...]] = {}
        self._alive: set[str] = set()
        self._pods: list[str] = []
        self._uids: list[str] = []
        self._columns: dict[str, Ints] = {name: np.full(64, ABSENT, np.int64) for name in _COLUMNS}
        self._order = Order()

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Row]:
        return (self.row(number) for number in range(len(self._pods)))

    # Reading

    def column(self, name: str) -> Ints:
        """One number per row; read it, do not keep it."""
        return self._columns[name][: len(self._pods)]

    def pod(self, number: int) -> str:
        """The pod of a row, as people name it."""
        terms = self._terms[int(self._columns["terms"][number])]
        return f"{terms.namespace}/{self._pods[number]}"

    def uid(self, number: int) -> str:
        """The uid of a row's pod."""
        return self._uids[number]

    def of_pod(self, uid: str, cluster: str = "") -> list[Row]:
        """The rows of a pod, in the order of their start; of this cluster unless another is named."""
        return [self.row(number) for number in self._numbers(self._key(cluster or self.cluster, uid))]

    def last_of(self, uid: str) -> int | None:
        """The number of the last row of a pod of this cluster; None if it has none."""
        numbers = self._numbers(uid)
        return numbers[-1] if numbers else None

    def row(self, number: int) -> Row:
        """One row as it was put together."""
        at = {name: int(self._columns[name][number]) for name in _COLUMNS[:11]}
        terms = self._terms[at["terms"]]
        return Row(
            cluster=terms.cluster,
            uid=self._uids[number],
            start=at["start"],
            namespace=terms.namespace,
            pod=self._pods[number],
            created=at["created"],
            observed=at["observed"],
            version=at["version"],
            earliest=at["earliest"],
            seen_until=at["seen_until"],
            ended=None if at["ended"] == ABSENT else at["ended"],
            evidence=at["evidence"],
            gone_by=None if at["gone_by"] == ABSENT else at["gone_by"],
            amounts=terms.amounts,
            labels=self._labels[at["labels"]],
            price=terms.price,
        )

    def is_alive(self, uid: str) -> bool:
        """Whether a pod of this cluster is in view."""
        return uid in self._alive

    def unresolved(self) -> list[str]:
        """Pods of this cluster whose end is open although they are not in view."""
        last = self.column("low_end") != self.column("high_end")
        found = {self._uids[number] for number in np.flatnonzero(last) if self._is_own(int(number))}
        return sorted(uid for uid in found if uid not in self._alive and self._is_open(uid))

    # Groups

    def group_by(self, keys: frozenset[str]) -> None:
        """Tell labels apart by these keys, and by those that were asked for before."""
        if keys <= self._keys:
            return
        self._keys |= keys
        self._regroup()

    def _regroup(self) -> None:
        """Number all groups anew."""
        self._begin_groups()
        labels, terms = self.column("labels"), self.column("terms")
        many = len(self._terms) + 1
        pairs, where = np.unique(labels * many + terms, return_inverse=True)
        numbers = [self._group(*divmod(int(pair), many)) for pair in pairs]
        self.column("group")[:] = np.array(numbers, np.int64)[where] if numbers else ABSENT

    def rows_of(self, groups: Iterable[int]) -> Ints:
        """The numbers of all rows of these groups."""
        return self._order.rows_of(groups, self.column("group"), len(self.groups))

    def _begin_groups(self) -> None:
        self.regrouped += 1
        self.groups, self.postings = [], Postings()
        self._group_of = {}
        self._order.forget()

    def _group(self, labels: int, terms: int) -> int:
        cut = tuple(pair for pair in self._labels[labels] if pair[0] in self._keys)
        number = self._group_of.get((terms, cut))
        if number is None:
            group = Group(self._terms[terms], cut)
            number = self._group_of[terms, cut] = self.postings.add(group.terms.namespace, cut)
            self.groups.append(group)
        return number

    # Writing

    def put(self, row: Row) -> Row | None:
        """Merge a row with what is known; the merged one, or None if it says nothing new."""
        key = self._key(row.cluster, row.uid)
        numbers = self._numbers(key)
        starts = self._columns["start"]
        number = next((each for each in numbers if starts[each] == row.start), None)
        if number is None:
            number = len(self._pods)
            self._uids.append(row.uid)
            self._pods.append(row.pod)
            self._grow(len(self._pods))
            self._store(number, row, is_new=True)
            starts = self._columns["start"]  # growing may have moved it
            numbers = sorted((*numbers, number), key=lambda each: int(starts[each]))
            self._rows[key] = number if len(numbers) == 1 else tuple(numbers)
            result = row
        else:
            known = self.row(number)
            result = merged(known, row)
            if result == known:
                return None
            self._store(number, result, is_new=False)
        self._settle(key, numbers)
        return result

    def extend(self, rows: Sequence[Row]) -> int:
        """Merge many rows; how many said something new. Those of pods not known yet go in together, which is much quicker."""
        keys = [self._key(row.cluster, row.uid) for row in rows]
        times = Counter(keys)
        fresh = [(key, row) for key, row in zip(keys, rows, strict=True) if times[key] == 1 and key not in self._rows]
        self._append(fresh)
        added = {key for key, _ in fresh}
        rest = [row for key, row in zip(keys, rows, strict=True) if key not in added]
        return len(fresh) + sum(self.put(row) is not None for row in rest)

    def _append(self, fresh: list[tuple[str, Row]]) -> None:
        """Put in rows of pods that have none yet."""
        if not fresh:
            return
        begin, rows = len(self._pods), [row for _, row in fresh]
        numbers = range(begin, begin + len(rows))
        self._rows.update(zip((key for key, _ in fresh), numbers, strict=True))
        self._uids += [row.uid for row in rows]
        self._pods += [row.pod for row in rows]
        self._grow(len(self._pods))
        labels = [self._labels.take(row.labels) for row in rows]
        terms = [self._terms.take(Terms(row.cluster, row.namespace, row.amounts, row.price)) for row in rows]
        pairs = {pair: self._group(*pair) for pair in set(zip(labels, terms, strict=True))}
        values = {name: [getattr(row, name) for row in rows] for name in _COLUMNS[:9]}
        values |= {"labels": labels, "terms": terms}
        values["group"] = [pairs[pair] for pair in zip(labels, terms, strict=True)]
        for name, found in values.items():
            self._columns[name][begin : begin + len(rows)] = [ABSENT if each is None else each for each in found]
        alive = np.array([key in self._alive for key, _ in fresh])
        self._settle_single(begin, alive, np.array([row.cluster == self.cluster for row in rows]))

    def set_alive(self, uid: str, alive: bool) -> None:
        """Say whether a pod of this cluster is in view: then the last of its rows is held on."""
        if alive == (uid in self._alive):
            return
        (self._alive.add if alive else self._alive.discard)(uid)
        numbers = self._numbers(uid)
        if numbers:
            self._settle(uid, numbers)

    def prune(self, before: int) -> int:
        """Forget the rows that surely ended before a moment, once they are worth the work; how many."""
        kept = np.flatnonzero(self.column("high_end") >= before)
        dropped = len(self._pods) - len(kept)
        if dropped <= len(self._pods) // 10:
            return 0
        place = np.full(len(self._pods) + 1, ABSENT, np.int64)
        place[kept] = np.arange(len(kept))
        self._columns = {name: column[: len(self._pods)][kept] for name, column in self._columns.items()}
        self._pods, self._uids = ([each[number] for number in kept] for each in (self._pods, self._uids))
        moved = {
            key: tuple(int(place[each]) for each in self._numbers(key) if place[each] != ABSENT) for key in self._rows
        }
        self._rows = {key: each[0] if len(each) == 1 else each for key, each in moved.items() if each}
        self.uncertain = {int(place[each]) for each in self.uncertain if place[each] != ABSENT}
        for key in [key for key, each in moved.items() if len(each) > 1]:
            self._columns["first"][list(moved[key])] = moved[key][0]
        single = np.array([each[0] for each in moved.values() if len(each) == 1], np.int64)
        self._columns["first"][single] = single
        self._renumber()
        return dropped

    def _renumber(self) -> None:
        """Forget labels and terms that no row has any more."""
        for name, old in (("labels", self._labels), ("terms", self._terms)):
            used, where = np.unique(self.column(name), return_inverse=True)
            fresh: Numbering[Any] = Numbering()
            numbers = np.array([fresh.take(old[int(each)]) for each in used], np.int64)
            self._columns[name][: len(self._pods)] = numbers[where] if len(numbers) else ABSENT
            setattr(self, f"_{name}", fresh)
        self._regroup()

    def _grow(self, size: int) -> None:
        has = len(self._columns["start"])
        if size > has:
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column, np.full(max(has, size - has), ABSENT, np.int64)])

    def _store(self, number: int, row: Row, *, is_new: bool) -> None:
        columns = self._columns
        labels = self._labels.take(row.labels)
        terms = self._terms.take(Terms(row.cluster, row.namespace, row.amounts, row.price))
        if not is_new:
            # The old labels and terms keep their numbers: groups know them by these.
            self._pods[number] = row.pod
        columns["start"][number], columns["earliest"][number] = row.start, row.earliest
        columns["seen_until"][number], columns["evidence"][number] = row.seen_until, row.evidence
        columns["ended"][number] = ABSENT if row.ended is None else row.ended
        columns["gone_by"][number] = ABSENT if row.gone_by is None else row.gone_by
        columns["created"][number], columns["observed"][number] = row.created, row.observed
        columns["version"][number] = row.version
        columns["labels"][number], columns["terms"][number] = labels, terms
        group = self._group(labels, terms)
        if not is_new and group != columns["group"][number]:
            self._order.forget()  # a merge that changed what was held: rare enough to sort anew
        columns["group"][number] = group

    def _settle(self, key: str, numbers: Sequence[int]) -> None:
        """Work out what follows for each row of a pod: the last is held on while the pod is in view, the others end at the next."""
        columns = self._columns
        own = self._is_own(numbers[-1])
        before, over = ABSENT, self._pod_end(numbers)
        numbers = self._without_outdated(numbers)
        for place, number in enumerate(numbers):
            following = numbers[place + 1] if place + 1 < len(numbers) else None
            low, high = self._ends(number, following, key, own=own)
            start = int(columns["start"][number])
            low, high = max(start, min(low, over)), max(start, min(high, over))
            columns["first"][number] = numbers[0]
            columns["current"][number] = own and following is None and key in self._alive
            columns["low_end"][number], columns["high_end"][number] = low, max(low, high)
            columns["high_start"][number] = high_start = min(start, max(int(columns["earliest"][number]), before))
            is_sure = low == high and start == high_start
            (self.uncertain.discard if is_sure else self.uncertain.add)(number)
            before = low

    def _without_outdated(self, numbers: Sequence[int]) -> Sequence[int]:
        """The rows without those of somebody who was late: what began before them was seen in a later version already."""
        if len(numbers) == 1:
            return numbers
        kept, newest, since, columns = [], 0, 0, self._columns
        for number in numbers:
            version, start = int(columns["version"][number]), int(columns["start"][number])
            if version and version < newest and start - since < LATE_MS:
                for name in ("low_end", "high_end", "high_start"):
                    columns[name][number] = columns["start"][number]
                columns["first"][number], columns["current"][number] = numbers[0], False
                self.uncertain.discard(number)
            else:
                kept.append(number)
                newest, since = (version, start) if version >= newest else (newest, since)
        return kept

    def _pod_end(self, numbers: Sequence[int]) -> int:
        """The end of the pod by the strongest evidence, then the earliest, whichever of its rows has it."""
        evidence, ended = self._columns["evidence"], self._columns["ended"]
        ends = [(-int(evidence[each]), int(ended[each])) for each in numbers if evidence[each]]
        return min(ends)[1] if ends else OPEN

    def _settle_single(self, begin: int, alive: Bools, own: Bools) -> None:
        """The same for the last rows of the table, each of which is the only one of its pod."""
        part = {name: column[begin : len(self._pods)] for name, column in self._columns.items()}
        is_open, is_found_gone = part["ended"] == ABSENT, part["gone_by"] != ABSENT
        holds_on = is_open & np.where(own, alive, ~is_found_gone)
        gone = np.where(is_found_gone, np.maximum(part["gone_by"], part["seen_until"]), OPEN)
        low = np.where(is_open, np.where(holds_on, OPEN, part["seen_until"]), part["ended"])
        high = np.where(is_open, np.where(holds_on, OPEN, gone), part["ended"])
        part["low_end"][:] = np.maximum(low, part["start"])
        part["high_end"][:] = np.maximum(high, part["low_end"])
        part["high_start"][:] = np.minimum(part["start"], part["earliest"])
        part["first"][:] = np.arange(begin, len(self._pods))
        part["current"][:] = own & alive
        unsure = (part["low_end"] != part["high_end"]) | (part["high_start"] != part["start"])
        self.uncertain.update((np.flatnonzero(unsure) + begin).tolist())

    def _ends(self, number: int, following: int | None, key: str, *, own: bool) -> tuple[int, int]:
        """The earliest and the latest end of a row."""
        columns = self._columns
        ended = int(columns["ended"][number])
        seen, gone = int(columns["seen_until"][number]), int(columns["gone_by"][number])
        if ended != ABSENT:
            low = high = ended
        elif following is not None:
            begins, earliest = int(columns["start"][following]), int(columns["earliest"][following])
            low = begins if earliest >= begins else max(seen, earliest)
            high = begins
            if gone != ABSENT and seen >= gone:
                low = high = gone
        elif (own and key in self._alive) or (not own and gone == ABSENT):
            low = high = OPEN
        else:
            low, high = seen, OPEN if gone == ABSENT else max(gone, seen)
        if following is not None:
            begins = int(columns["start"][following])
            low, high = min(low, begins), min(high, begins)
        return low, high

    # Small things

    def _key(self, cluster: str, uid: str) -> str:
        # A pod without a uid of its own goes by its name, which may be the same in another cluster.
        return uid if cluster == self.cluster else f"{cluster}\n{uid}"

    def _numbers(self, key: str) -> Sequence[int]:
        found = self._rows.get(key, ())
        return (found,) if isinstance(found, int) else found

    def _is_own(self, number: int) -> bool:
        return self._terms[int(self._columns["terms"][number])].cluster == self.cluster

    def _is_open(self, uid: str) -> bool:
        numbers = self._numbers(uid)
        last = numbers[-1]
        return bool(self._columns["ended"][last] == ABSENT and self._columns["gone_by"][last] == ABSENT)

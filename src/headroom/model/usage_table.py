"""All usage rows that can still matter, as columns: those of the live view united with those of the ledger.

A row says what it knows; `low_end` and `high_end`, `start` and `high_start` say what follows from all rows of its pod: segments of a
pod are disjoint, so each ends where the next begins. A `Group` has the rows that budgets cannot tell apart: each is judged once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec import structs

from headroom.model.census import cut
from headroom.model.facts import Pairs
from headroom.model.numbering import ABSENT, Ints, Numbering
from headroom.model.ordering import Group, RowOrder, RowTerms
from headroom.model.postings import Postings
from headroom.model.segments import NO_END, OPEN, Bounds, PodRows, Segments
from headroom.model.usage import UNSEEN, UsageRow, merged

__all__ = ["OPEN", "PodRows", "UsageTable"]

_OF_ROWS: Final = ("start", "earliest", "seen_until", "ended", "evidence", "gone_by", "created", "observed", "version")
_COLUMNS: Final = (
    *_OF_ROWS,
    "ending",
    "labels",
    "terms",
    "details",
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
        self.kept: set[str] = set()
        """Uids of the pods in view that have our finalizer."""
        self.keys: frozenset[str] | None = None
        """The label keys of which rows keep the labels; None if they keep all."""
        self.unread = frozenset[str]()
        """Those of them that older rows may lack: they were not kept from the start, and the ledger was not read for them yet."""
        self._unread_rows = 0
        """How many of the first rows may."""
        self._keys = frozenset({UNSEEN})
        self._group_of: dict[tuple[int, Pairs], int] = {}
        self._labels: Numbering[Pairs] = Numbering()
        self._terms: Numbering[RowTerms] = Numbering()
        self._details: Numbering[Pairs] = Numbering()
        self._rows: dict[str, int | Segments] = {}
        """By pod: the number of its only row, or all of them."""
        self._alive: set[str] = set()
        self._pods: list[str] = []
        self._uids: list[str] = []
        self._columns: dict[str, Ints] = {name: np.full(64, ABSENT, np.int64) for name in _COLUMNS}
        self._bounds = Bounds(self._columns)
        self._order = RowOrder()

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[UsageRow]:
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

    @property
    def uncertain(self) -> set[int]:
        """The rows whose begin or end is known only within bounds."""
        return self._bounds.uncertain

    def of_pod(self, uid: str, cluster: str = "") -> PodRows:
        """The rows of a pod, in the order of their start; of this cluster unless another is named."""
        return PodRows(self.row, self._numbers(self._key(cluster or self.cluster, uid)))

    def has_end(self, uid: str) -> bool:
        """Whether the end of a pod of this cluster is known."""
        found = self._rows.get(uid)
        if found is None:
            return False
        return (self._bounds.end(found) if isinstance(found, int) else found.over) != NO_END

    def last_of(self, uid: str) -> int | None:
        """The number of the last row of a pod of this cluster; None if it has none."""
        numbers = self._numbers(uid)
        return numbers[-1] if numbers else None

    def row(self, number: int) -> UsageRow:
        """One row as it was put together."""
        at = {name: self._columns[name].item(number) for name in _COLUMNS[:13]}
        terms = self._terms[at["terms"]]
        return UsageRow(
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
            ending=at["ending"],
            details=self._details[at["details"]],
        )

    def is_alive(self, uid: str) -> bool:
        """Whether a pod of this cluster is in view."""
        return uid in self._alive

    def unresolved(self) -> list[str]:
        """Pods of this cluster whose end is open although they are not in view."""
        last = self.column("low_end") != self.column("high_end")
        found = {self._uids[number] for number in np.flatnonzero(last) if self._is_own(int(number))}
        return sorted(uid for uid in found if uid not in self._alive and self._is_open(uid))

    # Labels

    @property
    def known_keys(self) -> frozenset[str] | None:
        """The label keys of which every row says what the ledger says; None if all."""
        return None if self.keys is None else self.keys - self.unread

    def keep(self, keys: frozenset[str]) -> None:
        """Keep only labels with these keys from now on. Of keys that were not kept, rows must be read from the ledger again."""
        keys |= {UNSEEN}
        if keys == self.keys:
            return
        if self.keys is not None:
            self.unread = (self.unread & keys) | (keys - self.keys if self._pods else frozenset())
            self._unread_rows = self._unread_rows if keys < self.keys else len(self._pods)
        self.keys = self._keys = keys
        self._renumber()

    def cut(self, labels: Pairs) -> Pairs:
        """Those of some labels that rows keep."""
        return labels if self.keys is None else cut(labels, self.keys)

    def is_unread(self, uid: str) -> bool:
        """Whether the last row of a pod of this cluster may lack labels that are kept now."""
        last = self.last_of(uid) if self.unread else None
        return last is not None and last < self._unread_rows

    def has(self, row: UsageRow) -> bool:
        """Whether there is a row with the key of this one."""
        numbers, starts = self._numbers(self._key(row.cluster, row.uid)), self._columns["start"]
        place = bisect_left(numbers, row.start, key=starts.item)
        return place < len(numbers) and starts.item(numbers[place]) == row.start

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
        told = cut(self._labels[labels], self._keys)
        number = self._group_of.get((terms, told))
        if number is None:
            group = Group(self._terms[terms], told)
            number = self._group_of[terms, told] = self.postings.add(group.terms.namespace, told)
            self.groups.append(group)
        return number

    # Writing

    def put(self, row: UsageRow) -> UsageRow | None:
        """Merge a row with what is known; the merged one, or None if it says nothing new."""
        key = self._key(row.cluster, row.uid)
        found, starts = self._rows.get(key), self._columns["start"]
        if isinstance(found, int):
            if starts.item(found) == row.start:
                return self._merge(key, found, row)
            found = Segments((found,), self._bounds.end(found))
        if found is None:
            number = self._rows[key] = self._add(row)
            self._bounds.settle_only(number, own=row.cluster == self.cluster, alive=key in self._alive)
            return row
        place = found.place(row.start, starts)
        if place < len(found.numbers) and starts.item(found.numbers[place]) == row.start:
            return self._merge(key, found.numbers[place], row, found, place)
        number = self._add(row)
        found.numbers.insert(place, number)
        self._rows[key] = found
        self._settle(key, number, found, place)
        return row

    def _add(self, row: UsageRow) -> int:
        number = len(self._pods)
        self._uids.append(row.uid)
        self._pods.append(row.pod)
        self._grow(len(self._pods))
        self._store(number, row, is_new=True)
        return number

    def _merge(
        self, key: str, number: int, row: UsageRow, segments: Segments | None = None, place: int = 0
    ) -> UsageRow | None:
        """Merge a row with the one of the same key."""
        # Of labels that nobody selects by, more or others must not make a difference to which of the two counts.
        known, lean = self.row(number), structs.replace(row, labels=self.cut(row.labels))
        if (result := merged(known, lean)) == known:
            return None
        self._store(number, result, is_new=False)
        self._settle(key, number, segments, place)
        is_from_row = (result.version, result.observed, result.labels) == (lean.version, lean.observed, lean.labels)
        return structs.replace(result, labels=row.labels) if is_from_row else result

    def _settle(self, key: str, number: int, segments: Segments | None, place: int) -> None:
        """Work out what follows from a row that is new, for it and its neighbours."""
        own, alive = self._is_own(number), key in self._alive
        if segments is None:
            self._bounds.settle_only(number, own=own, alive=alive)
            return
        end = self._bounds.end(number)
        if end < segments.over:
            segments.over, place = end, 0  # it ends the others too
        self._bounds.settle(segments, place, own=own, alive=alive)

    def extend(self, rows: Sequence[UsageRow]) -> int:
        """Merge many rows; how many said something new. Those of pods not known yet go in together, which is much quicker."""
        keys = [self._key(row.cluster, row.uid) for row in rows]
        times = Counter(keys)
        fresh = [(key, row) for key, row in zip(keys, rows, strict=True) if times[key] == 1 and key not in self._rows]
        self._append(fresh)
        added = {key for key, _ in fresh}
        rest = [row for key, row in zip(keys, rows, strict=True) if key not in added]
        return len(fresh) + sum(self.put(row) is not None for row in rest)

    def _append(self, fresh: list[tuple[str, UsageRow]]) -> None:
        """Put in rows of pods that have none yet."""
        if not fresh:
            return
        begin, rows = len(self._pods), [row for _, row in fresh]
        numbers = range(begin, begin + len(rows))
        self._rows.update(zip((key for key, _ in fresh), numbers, strict=True))
        self._uids += [row.uid for row in rows]
        self._pods += [row.pod for row in rows]
        self._grow(len(self._pods))
        labels = [self._labels.take(self.cut(row.labels)) for row in rows]
        terms = [self._terms.take(RowTerms(row.cluster, row.namespace, row.amounts, row.price)) for row in rows]
        pairs = {pair: self._group(*pair) for pair in set(zip(labels, terms, strict=True))}
        values = {name: [getattr(row, name) for row in rows] for name in _COLUMNS[:10]}
        values |= {"labels": labels, "terms": terms, "details": [self._details.take(row.details) for row in rows]}
        values["group"] = [pairs[pair] for pair in zip(labels, terms, strict=True)]
        for name, found in values.items():
            self._columns[name][begin : begin + len(rows)] = [ABSENT if each is None else each for each in found]
        alive = np.array([key in self._alive for key, _ in fresh])
        own = np.array([row.cluster == self.cluster for row in rows])
        self._bounds.settle_single(begin, len(self._pods), alive, own)

    def set_alive(self, uid: str, alive: bool) -> None:
        """Say whether a pod of this cluster is in view: then the last of its rows is held on."""
        if alive == (uid in self._alive):
            return
        (self._alive.add if alive else self._alive.discard)(uid)
        found = self._rows.get(uid)
        if isinstance(found, int):
            self._settle(uid, found, None, 0)
        elif found is not None:
            self._settle(uid, found.numbers[-1], found, len(found.numbers) - 1)

    def prune(self, before: int) -> int:
        """Forget the rows that surely ended before a moment, once they are worth the work; how many."""
        kept = np.flatnonzero(self.column("high_end") >= before)
        dropped = len(self._pods) - len(kept)
        if dropped <= len(self._pods) // 10:
            return 0
        self._unread_rows = int(np.count_nonzero(kept < self._unread_rows))
        place = np.full(len(self._pods) + 1, ABSENT, np.int64)
        place[kept] = np.arange(len(kept))
        self._columns.update({name: column[: len(self._pods)][kept] for name, column in self._columns.items()})
        self._pods, self._uids = ([each[number] for number in kept] for each in (self._pods, self._uids))
        moved = {key: [int(place[each]) for each in self._numbers(key) if place[each] != ABSENT] for key in self._rows}
        self._rows = {key: each[0] if len(each) == 1 else self._moved(each) for key, each in moved.items() if each}
        self._bounds.uncertain = {int(place[each]) for each in self.uncertain if place[each] != ABSENT}
        single = np.array([each[0] for each in moved.values() if len(each) == 1], np.int64)
        self._columns["first"][single] = single
        self._renumber()
        return dropped

    def _moved(self, numbers: list[int]) -> Segments:
        self._columns["first"][numbers] = numbers[0]
        return Segments(numbers, min(map(self._bounds.end, numbers)))

    def _renumber(self) -> None:
        """Forget labels and terms that no row has any more, and labels that are not kept."""
        for name in ("labels", "terms", "details"):
            old: Numbering[Any] = getattr(self, f"_{name}")
            used, where = np.unique(self.column(name), return_inverse=True)
            fresh: Numbering[Any] = Numbering()
            values = (self.cut(old[int(each)]) if name == "labels" else old[int(each)] for each in used)
            numbers = np.array([fresh.take(each) for each in values], np.int64)
            self._columns[name][: len(self._pods)] = numbers[where] if len(numbers) else ABSENT
            setattr(self, f"_{name}", fresh)
        self._regroup()

    def _grow(self, size: int) -> None:
        has = len(self._columns["start"])
        if size > has:
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column, np.full(max(has, size - has), ABSENT, np.int64)])

    def _store(self, number: int, row: UsageRow, *, is_new: bool) -> None:
        columns = self._columns
        labels = self._labels.take(self.cut(row.labels))
        terms = self._terms.take(RowTerms(row.cluster, row.namespace, row.amounts, row.price))
        if not is_new:
            # The old labels and terms keep their numbers: groups know them by these.
            self._pods[number] = row.pod
        columns["start"][number], columns["earliest"][number] = row.start, row.earliest
        columns["seen_until"][number], columns["evidence"][number] = row.seen_until, row.evidence
        columns["ended"][number] = ABSENT if row.ended is None else row.ended
        columns["gone_by"][number] = ABSENT if row.gone_by is None else row.gone_by
        columns["created"][number], columns["observed"][number] = row.created, row.observed
        columns["version"][number], columns["ending"][number] = row.version, row.ending
        columns["details"][number] = self._details.take(row.details)
        columns["labels"][number], columns["terms"][number] = labels, terms
        group = self._group(labels, terms)
        if not is_new and group != columns["group"][number]:
            self._order.forget()  # a merge that changed what was held: rare enough to sort anew
        columns["group"][number] = group

    def _key(self, cluster: str, uid: str) -> str:
        # A pod without a uid of its own goes by its name, which may be the same in another cluster.
        return uid if cluster == self.cluster else f"{cluster}\n{uid}"

    def _numbers(self, key: str) -> Sequence[int]:
        found = self._rows.get(key, ())
        return (found,) if isinstance(found, int) else found.numbers if isinstance(found, Segments) else found

    def _is_own(self, number: int) -> bool:
        return self._terms[int(self._columns["terms"][number])].cluster == self.cluster

    def _is_open(self, uid: str) -> bool:
        last = self._numbers(uid)[-1]
        return bool(self._columns["ended"][last] == ABSENT and self._columns["gone_by"][last] == ABSENT)

"""Groups of rows that no budget can tell apart, and how the rows of a group are found without looking at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from headroom.model.facts import Amounts, Pairs
from headroom.model.numbering import Ints

_SHORTEST_TAIL: Final = 4096


class RowTerms(NamedTuple):
    """What rows of like pods share, apart from their labels."""

    cluster: str
    namespace: str
    amounts: Amounts
    price: int | None


class Group(NamedTuple):
    """Rows that no budget can tell apart: their labels are cut down to the keys that some budget looks at."""

    terms: RowTerms
    labels: Pairs


class RowOrder:
    """The first rows of a table sorted by group, so that the rows of a group are one slice; newer rows are an unsorted tail."""

    def __init__(self) -> None:
        self._rows: Ints = np.empty(0, np.int64)
        self._begins: Ints = np.zeros(1, np.int64)
        """Where each group's slice begins, and at the end where the last one ends."""

    def forget(self) -> None:
        """Rows have other groups now."""
        self.__init__()  # type: ignore[misc]  # as if nothing had been sorted yet

    def rows_of(self, groups: Iterable[int], group: Ints, count: int) -> Ints:
        """The numbers of all rows of these groups; `group` has the group of each row, of which there are `count`."""
        wanted = sorted(set(groups))
        done = self._sort(group, count)
        known = len(self._begins) - 1
        slices = [self._rows[self._begins[each] : self._begins[each + 1]] for each in wanted if each < known]
        tail = group[done:]
        if len(tail) and wanted:
            mask = np.zeros(count, np.bool_)
            mask[wanted] = True
            slices.append(np.flatnonzero(mask[tail]) + done)
        return np.concatenate(slices) if slices else np.empty(0, np.int64)

    def _sort(self, group: Ints, count: int) -> int:
        """Sort the whole again when the tail has grown long; how many rows are sorted."""
        done = len(self._rows)
        if not done or len(group) - done > max(_SHORTEST_TAIL, done // 8):
            self._rows = np.argsort(group, kind="stable").astype(np.int64)
            self._begins = np.searchsorted(group[self._rows], np.arange(count + 1)).astype(np.int64)
        return len(self._rows)

"""The rows of one pod together: segments of a pod are disjoint, so each ends at the latest where the next begins.

A pod may be split any number of times, and what is new concerns its last rows nearly always. So what follows from the rows is worked
out from shortly before the one that changed, never from the first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from headroom.model.numbering import ABSENT, Ints
from headroom.model.usage import LATE_MS, UsageRow

Bools = NDArray[np.bool_]

OPEN: Final = 2**62
"""The end of a row that is still held."""
NO_END: Final = (0, OPEN)
_EVERY: Final = 4
"""So many rows lie between two marks."""


class _Mark(NamedTuple):
    """What is known of all rows before one."""

    newest: int
    """The highest version."""
    since: int
    """Where it begins."""
    before: int
    """The number of the last row that counts."""


_START: Final = _Mark(0, 0, ABSENT)


class Segments:
    """The numbers of a pod's rows by start, with marks from which on they can be looked at again."""

    __slots__ = ("_marks", "numbers", "over")

    def __init__(self, numbers: Sequence[int], over: tuple[int, int] = NO_END) -> None:
        self.numbers = list(numbers)
        self.over = over
        """The end of the pod, by the strongest evidence, which counts negative here, then the earliest."""
        self._marks: list[_Mark] | tuple[()] = ()

    def place(self, start: int, starts: Ints) -> int:
        """Where a row with that start is, or belongs."""
        if self.numbers and starts.item(self.numbers[-1]) < start:
            return len(self.numbers)
        return bisect_left(self.numbers, start, key=starts.item)

    def mark(self, place: int) -> tuple[int, _Mark]:
        """The last mark before a row that changed: where it is, and what it says. Those behind it say nothing any more."""
        if self._marks:
            del self._marks[place // _EVERY :]
        return len(self._marks) * _EVERY, self._marks[-1] if self._marks else _START

    def note(self, place: int, mark: _Mark) -> None:
        """Set a mark, where one belongs."""
        if place and place % _EVERY == 0 and place // _EVERY > len(self._marks):
            self._marks = self._marks or []
            self._marks.append(mark)


class PodRows(Sequence[UsageRow]):
    """The rows of a pod by start, each made only when it is looked at."""

    def __init__(self, make: Callable[[int], UsageRow], numbers: Sequence[int]) -> None:
        self._make, self._numbers = make, numbers
        self._made: dict[int, UsageRow] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # a view of what changes

    @overload
    def __getitem__(self, place: int) -> UsageRow: ...
    @overload
    def __getitem__(self, place: slice) -> list[UsageRow]: ...
    def __getitem__(self, place: int | slice) -> UsageRow | list[UsageRow]:
        if isinstance(place, slice):
            return [self._make(number) for number in self._numbers[place]]
        number = self._numbers[place]
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]


class Bounds:
    """Works out the columns `low_end`, `high_end`, `high_start`, `first` and `current` from what the rows say."""

    def __init__(self, columns: dict[str, Ints]) -> None:
        self._columns = columns
        self.uncertain: set[int] = set()
        """The rows whose begin or end is known only within bounds."""

    def end(self, number: int) -> tuple[int, int]:
        """What a row says of the end of its pod."""
        evidence = self._columns["evidence"].item(number)
        return (-evidence, self._columns["ended"].item(number)) if evidence else NO_END

    def settle_only(self, number: int, *, own: bool, alive: bool) -> None:
        """The only row of its pod."""
        self._columns["first"][number] = number
        self._settle(number, None, self.end(number)[1], ABSENT, own=own, alive=alive)

    def settle(self, segments: Segments, place: int, *, own: bool, alive: bool) -> None:
        """The last row is held on while the pod is in view, the others end at the next. `place` is the first that changed."""
        numbers, columns = segments.numbers, self._columns
        begin, mark = segments.mark(place)
        kept = [] if mark.before == ABSENT else [mark.before]
        for at in range(begin, len(numbers)):
            segments.note(at, mark)
            number = numbers[at]
            version, start = columns["version"].item(number), columns["start"].item(number)
            columns["first"][number] = numbers[0]
            if version and version < mark.newest and start - mark.since < LATE_MS:
                self._forget(number, start)
                continue
            kept.append(number)
            newer = (version, start) if version >= mark.newest else (mark.newest, mark.since)
            mark = _Mark(*newer, number)
        low = ABSENT
        for at, number in enumerate(kept):
            following = kept[at + 1] if at + 1 < len(kept) else None
            low = self._settle(number, following, segments.over[1], low, own=own, alive=alive)

    def _forget(self, number: int, start: int) -> None:
        """A row of somebody who was late: what began before it was seen in a later version already."""
        columns = self._columns
        columns["low_end"][number] = columns["high_end"][number] = columns["high_start"][number] = start
        columns["current"][number] = False
        self.uncertain.discard(number)

    def _settle(self, number: int, following: int | None, over: int, before: int, *, own: bool, alive: bool) -> int:
        """The bounds of one row; its earliest end. `before` is that of the row before, ABSENT where the begin stays as it is."""
        columns = self._columns
        low, high = self._ends(number, following, own=own, alive=alive)
        start = columns["start"].item(number)
        low, high = max(start, min(low, over)), max(start, min(high, over))
        columns["current"][number] = own and following is None and alive
        columns["low_end"][number], columns["high_end"][number] = low, max(low, high)
        if before != ABSENT or number == columns["first"].item(number):
            columns["high_start"][number] = min(start, max(columns["earliest"].item(number), before))
        is_sure = low == high and start == columns["high_start"].item(number)
        (self.uncertain.discard if is_sure else self.uncertain.add)(number)
        return low

    def _ends(self, number: int, following: int | None, *, own: bool, alive: bool) -> tuple[int, int]:
        """The earliest and the latest end of a row."""
        columns = self._columns
        ended = columns["ended"].item(number)
        seen, gone = columns["seen_until"].item(number), columns["gone_by"].item(number)
        if ended != ABSENT:
            low = high = ended
        elif following is not None:
            begins, earliest = columns["start"].item(following), columns["earliest"].item(following)
            low = begins if earliest >= begins else max(seen, earliest)
            high = begins
            if gone != ABSENT and seen >= gone:
                low = high = gone
        elif (own and alive) or (not own and gone == ABSENT):
            low = high = OPEN
        else:
            low, high = seen, OPEN if gone == ABSENT else max(gone, seen)
        if following is not None:
            begins = columns["start"].item(following)
            low, high = min(low, begins), min(high, begins)
        return low, high

    def settle_single(self, begin: int, end: int, alive: Bools, own: Bools) -> None:
        """The same for the rows from `begin` to `end`, each of which is the only one of its pod."""
        part = {name: column[begin:end] for name, column in self._columns.items()}
        is_open, is_found_gone = part["ended"] == ABSENT, part["gone_by"] != ABSENT
        holds_on = is_open & np.where(own, alive, ~is_found_gone)
        gone = np.where(is_found_gone, np.maximum(part["gone_by"], part["seen_until"]), OPEN)
        low = np.where(is_open, np.where(holds_on, OPEN, part["seen_until"]), part["ended"])
        high = np.where(is_open, np.where(holds_on, OPEN, gone), part["ended"])
        part["low_end"][:] = np.maximum(low, part["start"])
        part["high_end"][:] = np.maximum(high, part["low_end"])
        part["high_start"][:] = np.minimum(part["start"], part["earliest"])
        part["first"][:] = np.arange(begin, end)
        part["current"][:] = own & alive
        unsure = (part["low_end"] != part["high_end"]) | (part["high_start"] != part["start"])
        self.uncertain.update((np.flatnonzero(unsure) + begin).tolist())

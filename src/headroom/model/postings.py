"""Numbered things found by their namespace and labels: a selector looks only at what can match."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

from headroom.model.facts import Pairs

Pair = tuple[str, str]


class Postings:
    """The numbers of things, which only ever grow, by namespace and by each of their labels."""

    def __init__(self) -> None:
        self._count = 0
        self._by_namespace: dict[str, list[int]] = {}
        self._by_label: dict[Pair, list[int]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, namespace: str, labels: Pairs) -> int:
        """The number of one more thing."""
        number, self._count = self._count, self._count + 1
        self._by_namespace.setdefault(namespace, []).append(number)
        for pair in labels:
            self._by_label.setdefault(pair, []).append(number)
        return number

    def candidates(
        self, since: int, namespaces: Collection[str] | None, labels: Sequence[Collection[Pair]]
    ) -> Iterator[int]:
        """Numbers from `since` on, among them all that are in one of the namespaces (None: in any) and have, of each of the
        given sets of labels, at least one. What narrows it down most decides.
        """
        ways = [[self._by_label.get(pair, ()) for pair in each] for each in labels]
        if namespaces is not None:
            ways.append([self._by_namespace.get(name, ()) for name in namespaces])
        shortest = min(ways, key=lambda way: sum(map(len, way)), default=[range(self._count)])
        return (number for each in shortest for number in each[bisect_left(each, since) :])

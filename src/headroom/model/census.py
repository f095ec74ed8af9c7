"""How many pods of each kind there are, where a kind is all that selectors can tell: namespace, selected labels and shape."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headroom.model.facts import Pairs, Pod
from headroom.model.postings import Postings

_FEWEST: Final = 1024


class PodKind(NamedTuple):
    """Pods that no budget can tell apart, by what they are seen with."""

    namespace: str
    labels: Pairs
    """Cut down to the keys that somebody selects by."""
    shape: int
    """The number of their shape."""


class Census:
    """Pods counted by kind. Kinds keep their numbers until the census is begun anew."""

    def __init__(self, keys: frozenset[str] = frozenset()) -> None:
        self.keys = keys
        self.kinds: list[PodKind] = []
        self.counts: list[int] = []
        self.postings = Postings()
        self.memory: dict[Any, Any] = {}
        """What readers worked out from the kinds and need not work out again."""
        self._numbers: dict[PodKind, int] = {}
        self._pods = 0

    @property
    def is_outworn(self) -> bool:
        """Whether most kinds have no pods any more."""
        return len(self.kinds) > max(_FEWEST, 2 * self._pods)

    def add(self, pod: Pod, shape: int) -> int:
        """One pod more; the number of its kind."""
        kind = PodKind(pod.namespace, cut(pod.labels, self.keys), shape)
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = self.postings.add(kind.namespace, kind.labels)
            self.kinds.append(kind)
            self.counts.append(0)
        self.counts[number] += 1
        self._pods += 1
        return number

    def relabel(self, number: int, pod: Pod) -> int:
        """A pod of a kind has other labels; the number of its kind now."""
        before = self.kinds[number]
        if cut(pod.labels, self.keys) == before.labels:
            return number
        self.remove(number)
        return self.add(pod, before.shape)

    def remove(self, number: int) -> None:
        """One pod of a kind less."""
        self.counts[number] -= 1
        self._pods -= 1


def cut(labels: Pairs, keys: frozenset[str]) -> Pairs:
    """Labels without those that nobody selects by."""
    return tuple([pair for pair in labels if pair[0] in keys])

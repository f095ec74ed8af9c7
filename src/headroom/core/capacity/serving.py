"""Who serves whom: what a supply declines whatever it has, and those who are left by all that this depends on.

There may be thousands of shapes and hundreds of supplies, so nothing here looks at each unit for each supply.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from headroom.core.capacity import trials
from headroom.core.capacity.supplies import Supply, SupplyTerms
from headroom.core.demand import Unit
from headroom.model.decisions import Ref

if TYPE_CHECKING:
    from headroom.core.capacity.rounds import CapacityRound


BELOW_ALL: Final = -(2**63)
NOT_DUE_MS: Final = 2**62
"""More than any lead time."""
NONE_OF_ITS: Final = ("OtherGpus", "OtherNamespace")
"""Why a supply has nothing to do with pods at all."""


class UnitTraits(NamedTuple):
    """All of a unit that decides who declines it."""

    gpus: frozenset[str]
    """GPU resources that each of its pods asks for, of those by which supplies have GPUs."""
    namespaces: frozenset[str]
    over_quota: bool
    is_own_word: bool
    """Nobody but their namespace says that they will come."""
    due_at: int
    """As late as makes no difference to any supply's lead time."""
    priority: int
    """The highest floor of a supply that it reaches."""
    is_karpenters: bool
    """A ready NodePool could serve it."""
    beyond: frozenset[Ref]
    """Who serves no more pods of its namespace."""


class Pending:
    """Those without a room so far, by their sort."""

    def __init__(self, round_: CapacityRound) -> None:
        self._round = round_
        self._numbers: dict[UnitTraits, int] = {}
        self._sorts: list[UnitTraits] = []
        self._of_namespace: dict[str, list[int]] = {}
        """Sorts by the first of their namespaces: most supplies serve few, and there may be thousands."""
        self._known: dict[str, int] = {}
        """The sort of a unit by its first pod: whoever declines a unit declines what is left of it."""
        self._words: dict[Ref, dict[int, str]] = {}
        self._units: dict[int, list[Unit]] = {}
        self._all: list[Unit] | None = []
        self.pods = 0
        """How many pods they are."""
        terms = [each.terms for each in round_.supplies]
        self._floors = sorted({each.priority_floor for each in terms})
        self._leads = sorted({each.lead_ms for each in terms})

    def all(self) -> list[Unit]:
        """In the order of their turns."""
        if self._all is None:
            self._all = sorted(
                (unit for units in self._units.values() for unit in units), key=lambda unit: unit.queue_position
            )
        return self._all

    def put(self, units: Iterable[Unit]) -> None:
        """These are left, and nobody else."""
        self._all = list(units)
        self.pods = sum(unit.count for unit in self._all)
        self._units = {}
        for unit in self._all:
            self._units.setdefault(self._sort_of(unit), []).append(unit)

    def of(self, supply: Supply) -> list[Unit]:
        """For whom a supply would open something, in the order of their turns."""
        lists = [units for _, units in self._of(supply)]
        found = lists[0] if len(lists) == 1 else sorted((unit for units in lists for unit in units), key=_turn)
        return [unit for unit in found if not is_judged(self._round, unit)] if _may_judge(self._round) else list(found)

    def has(self, supply: Supply) -> bool:
        """Whether there may be any of those."""
        return any(True for _ in self._of(supply))

    def serve(self, supply: Supply, rest: Iterable[Unit]) -> None:
        """What is left of those that a supply was asked for."""
        before = [unit for _, units in self._of(supply) for unit in units]
        judged = [unit for unit in before if is_judged(self._round, unit)] if _may_judge(self._round) else []
        left = [*judged, *rest]
        self.pods += sum(unit.count for unit in left) - sum(unit.count for unit in before)
        for sort in [sort for sort, _ in self._of(supply)]:
            del self._units[sort]
        for unit in sorted(left, key=_turn):
            self._units.setdefault(self._sort_of(unit), []).append(unit)
        self._all = None

    def _of(self, supply: Supply) -> Iterator[tuple[int, list[Unit]]]:
        return ((sort, units) for sort, units in self._near(supply) if not self._word(supply, sort))

    def _near(self, supply: Supply) -> list[tuple[int, list[Unit]]]:
        """Those who are left and may be of a namespace that a supply serves."""
        named = supply.terms.namespaces
        sorts = self._units if named is None else (each for name in named for each in self._of_namespace.get(name, ()))
        return [(each, units) for each in sorts if (units := self._units.get(each))]

    def reasons(self, supply: Supply) -> Iterator[tuple[list[Unit], str]]:
        """They, each list with the word for why a supply declines them."""
        return ((units, self._word(supply, sort)) for sort, units in self._near(supply))

    def declined(self, supply: Supply, unit: Unit) -> str:
        """Why a supply does not serve a unit whatever it has, as one word; empty if it may."""
        return self._word(supply, self._sort_of(unit))

    def _word(self, supply: Supply, sort: int) -> str:
        known = self._words.setdefault(supply.ref, {})
        if sort not in known:
            known[sort] = _declined(supply.terms, supply.ref, self._sorts[sort], self._round.world.now)
        return known[sort]

    def _sort_of(self, unit: Unit) -> int:
        known = self._known.get(unit.first)
        if known is None:
            sort = self._told(_sort_of(self._round, unit))
            known = self._known[unit.first] = self._numbers.setdefault(sort, len(self._numbers))
            if known == len(self._sorts):
                self._sorts.append(sort)
                self._of_namespace.setdefault(min(sort.namespaces), []).append(known)
        return known

    def _told(self, sort: UnitTraits) -> UnitTraits:
        """A sort by what supplies tell apart: pods may have as many priorities and starts as there are pods."""
        now = self._round.world.now
        reached = bisect_right(self._floors, sort.priority)
        soon = bisect_left(self._leads, sort.due_at - now)
        late = self._leads[soon] if soon < len(self._leads) else NOT_DUE_MS
        return sort._replace(
            priority=self._floors[reached - 1] if reached else BELOW_ALL, due_at=now + late if sort.due_at else 0
        )


def _turn(unit: Unit) -> tuple[int, int, int, str]:
    return unit.queue_position


def namespace_of(name: str) -> str:
    """The namespace in a pod's name."""
    return name.partition("/")[0]


def _sort_of(round_: CapacityRound, unit: Unit) -> UnitTraits:
    asked = ((name for name, _ in part.shape.requests) for part in unit.parts)
    uids = [uid for part in unit.parts for uid in part.pods] if round_.beyond else []
    return UnitTraits(
        gpus=round_.gpus.intersection(*asked),
        namespaces=frozenset(namespace_of(name) for part in unit.parts for name in part.names),
        over_quota=unit.parts[0].pods[0] in round_.over_quota,
        is_own_word=bool(unit.due_at) and _is_own_word(round_, unit),
        due_at=unit.due_at,
        priority=unit.priority,
        is_karpenters=bool(round_.node_pool_for(unit)),
        beyond=frozenset(ref for ref, those in round_.beyond.items() if any(uid in those for uid in uids)),
    )


def _is_own_word(round_: CapacityRound, unit: Unit) -> bool:
    by = round_.wanted.announcers.get(unit.parts[0].pods[0])
    return by is not None and by.is_own_word


def _declined(terms: SupplyTerms, ref: Ref, sort: UnitTraits, now: int) -> str:
    if terms.gpu_resource not in sort.gpus:
        return "OtherGpus"
    if terms.namespaces is not None and not sort.namespaces <= terms.namespaces:
        return "OtherNamespace"
    if ref in sort.beyond:
        return "FruitlessWakes"
    if sort.over_quota and not terms.over_quota:
        return "BudgetExhausted"
    if sort.is_own_word and sort.namespaces & terms.unheeded:
        return "RunsMissed"
    if sort.due_at - terms.lead_ms > now:
        return "NotDueYet"
    if sort.priority < terms.priority_floor:
        return "BelowPriorityFloor"
    if not terms.beside_karpenter and sort.is_karpenters:
        return "SharedWithKarpenter"
    return ""


def _may_judge(round_: CapacityRound) -> bool:
    return bool(round_.verdicts or round_.tried)


def is_judged(round_: CapacityRound, unit: Unit) -> bool:
    """Whether kube-scheduler does not place such pods where we would, or did not when it was last tried."""
    if not _may_judge(round_):
        return False
    return any(trials.judges(round_.world, part, round_.tried, round_.verdicts) for part in unit.parts)


def declined(round_: CapacityRound, supply: Supply, unit: Unit) -> str:
    """Why a supply does not serve a unit whatever it has, as one word; empty if it may."""
    return round_.pending.declined(supply, unit)


def reason(round_: CapacityRound, supply: Supply, unit: Unit) -> str:
    """Why a supply opens nothing for a unit, as one word; empty if only for want of room."""
    return declined(round_, supply, unit) or supply.terms.halted or ("Unmodelled" if is_judged(round_, unit) else "")


def reasons(round_: CapacityRound, supply: Supply) -> list[tuple[Unit, str]]:
    """Those who are pending and left and could be a supply's, in the order of their turns, each with that reason."""
    found = [
        (unit, word or supply.terms.halted or ("Unmodelled" if is_judged(round_, unit) else ""))
        for units, word in round_.pending.reasons(supply)
        if word not in NONE_OF_ITS
        for unit in units
        if not unit.due_at
    ]
    return sorted(found, key=lambda pair: pair[0].queue_position)

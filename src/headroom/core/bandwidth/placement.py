"""Extender mode: which nodes a pod may go to, and what is reserved for it until its bind is seen.

kube-scheduler starts the next pod before it binds the last one, and never says which node of an answer it took. So what a pod was
answered for counts on every node of its answer until one of these is seen: the bind, the pod's end, another question about the same pod,
or the end of the hold. With one node per answer, which is the default, nothing is reserved twice.

A pod that talks only to siblings may go where the card is full if all its siblings are there. The first of them has none yet: it goes only
where the card has room, since the others may find none beside it. To put a pod elsewhere makes them all talk over their cards, so then
that of their node must have room for them too. The moment is an argument; nothing here looks at a clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from headroom.core.bandwidth.holds import UNKNOWN_ROW, FourRates, GroupOnNode, LinkTable, PodAsk, is_local
from headroom.core.bandwidth.refusals import NodeRefusal

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]
Scores = npt.NDArray[np.float64]

HOLD_MS: Final = 60_000
"""How long a bind may take. What ends a hold earlier is nearly always seen, so this is for what nobody says."""
UNSEEN_MS: Final = 5_000
"""A pod that a watch does not show by then is gone, or never was."""
LATE_KEPT: Final = 10_000
LOCALITY: Final = 0.7
FREE: Final = 0.3
TOP_SCORE: Final = 10
"""kube-scheduler's highest from an extender."""


class FilterAnswer(Struct, frozen=True):
    """The answer for one pod: the nodes it may go to, and why not the others, each node once."""

    passed: list[str]
    names: Sequence[str]
    codes: Codes
    """For each name a `NodeRefusal`; PASSED for those it may go to."""

    def refused(self) -> Mapping[str, NodeRefusal]:
        """Why not, by node."""
        return {
            name: NodeRefusal(int(code))
            for name, code in zip(self.names, self.codes, strict=True)
            if code != NodeRefusal.PASSED
        }


class BindCounts(Struct):
    """What happened, since the process began."""

    binds: int = 0
    """Bound to a node of the answer while the hold stood."""
    late: int = 0
    """Bound after the hold had ended by time."""
    elsewhere: int = 0
    """Bound to a node that was not answered."""
    unasked: int = 0
    """Bound without a question: by another scheduler, by name, or while nobody answered."""
    expired: int = 0
    """Holds that ended by time."""


class _Member(Struct):
    """One pod that counts."""

    ask: PodAsk
    nodes: tuple[str, ...]
    until: int | None = None
    """The end of the hold; None: it is bound."""
    unseen_until: int | None = None
    """No watch has shown the pod yet; it must by then."""
    is_nominated: bool = False
    """kube-scheduler has written into its status that it goes there."""


class Placement:
    """The state of all links and all pods that count, and the answers."""

    def __init__(self, candidates: int = 1, hold_ms: int = HOLD_MS) -> None:
        """`candidates` is how many nodes an answer has at most."""
        self.links, self.counts = LinkTable(), BindCounts()
        self.is_settled = False
        """Whether the first list is over: what is bound from then on should have been asked about."""
        self._candidates, self.hold_ms = max(1, candidates), hold_ms
        self._members: dict[str, _Member] = {}
        self._held: OrderedDict[str, None] = OrderedDict()
        """In the order in which they end."""
        self.waiting: dict[str, PodAsk] = {}
        """Pods that ask for bandwidth and are not bound, as a watch shows them."""
        self._unseen: deque[tuple[int, str]] = deque()
        self._late: OrderedDict[str, None] = OrderedDict()

    # Questions

    def filter(self, ask: PodAsk, names: Sequence[str], now: int) -> FilterAnswer:
        """Where the pod may go; the answer is reserved for it, in place of an earlier one. One that asks for nothing may go anywhere."""
        member = self._members.get(ask.uid)
        if member is not None and member.until is None:
            return _only(member.nodes[0], names)
        self._release(ask.uid)
        if not (ask.up or ask.down):
            return FilterAnswer(list(names), names, np.zeros(len(names), np.int8))
        rows = self.links.rows(names)
        left = self.links.left(rows)
        codes = self._judged(ask, rows, left)
        fits = np.flatnonzero(codes == NodeRefusal.PASSED)
        if not len(fits):
            return FilterAnswer([], names, codes)
        if len(fits) < len(rows):
            rows, left = rows[fits], left[:, fits]
        chosen = fits[self._choose(ask, rows, left)].tolist()
        passed = [names[each] for each in chosen]
        codes[fits] = NodeRefusal.NOT_CHOSEN
        codes[chosen] = NodeRefusal.PASSED
        self._hold(ask, tuple(passed), now)
        return FilterAnswer(passed, names, codes)

    def at_least(self, ask: PodAsk) -> PodAsk:
        """What a question says of a pod, or more if the watch shows more: either may be the older, and not everybody who asks is honest."""
        known = self.waiting.get(ask.uid)
        if known is None:
            return ask
        up, down = max(known.up, ask.up), max(known.down, ask.down)
        return known._replace(up=up, down=down, siblings_only=known.siblings_only and ask.siblings_only)

    def judge(self, ask: PodAsk, rows: Rows) -> Codes:
        """Whether the pod fits on each of these nodes, and if not, why."""
        return self._judged(ask, rows, self.links.left(rows))

    def _judged(self, ask: PodAsk, rows: Rows, left: Rows) -> Codes:
        codes = np.zeros(len(rows), np.int8)
        group = self.links.groups.get(ask.group, {}) if ask.group else {}
        home = next(iter(group)) if is_local(group) else None
        is_apart_refused = home is not None and not self._card_takes(home, group[home])
        if not is_apart_refused and (left >= _needed(ask)).all():
            return codes  # the usual case, with the fewest looks at thousands of nodes
        away = rows != (self.links.rows([home])[0] if home is not None else -1)
        needs_card = away if ask.may_be_local else np.ones(len(rows), np.bool_)
        _refuse(codes, (left[2] < ask.up) & needs_card, NodeRefusal.NETWORK_UP)
        _refuse(codes, (left[3] < ask.down) & needs_card, NodeRefusal.NETWORK_DOWN)
        if is_apart_refused:
            _refuse(codes, away, NodeRefusal.SIBLINGS)
        _refuse(codes, left[0] < ask.up, NodeRefusal.LOCAL_UP)
        _refuse(codes, left[1] < ask.down, NodeRefusal.LOCAL_DOWN)
        _refuse(codes, rows == UNKNOWN_ROW, NodeRefusal.UNKNOWN)
        return codes

    def score(self, ask: PodAsk, names: Sequence[str]) -> list[int]:
        """How well the pod would stand on each, from 0 to 10, without what is held for it itself."""
        if not names:
            return []
        rows = self.links.rows(names)
        with self._without(self._held_for(ask)):
            found = self._scores(ask, rows, self.links.left(rows))
        scores: list[int] = np.rint(found * TOP_SCORE).astype(np.int64).tolist()
        return scores

    def fits_without(self, ask: PodAsk, victims: Mapping[str, Sequence[str]]) -> list[str]:
        """The nodes where the pod would fit without these pods, by their uids: on others an eviction would not help."""
        if self.ask_of_bound(ask.uid) is not None:
            return []
        names = [name for name, uids in victims.items() if uids]
        with self._without(self._held_for(ask)):
            codes = self.judge(ask, self.links.rows(names)).tolist()
            return [
                name
                for name, code in zip(names, codes, strict=True)
                if code == NodeRefusal.PASSED
                or (code != NodeRefusal.UNKNOWN and self._fits_without(ask, name, victims[name]))
            ]

    def _fits_without(self, ask: PodAsk, name: str, uids: Sequence[str]) -> bool:
        victims = {*uids} - {ask.uid}
        there = [each for uid in victims if (each := self._members.get(uid)) is not None and each.nodes == (name,)]
        with self._without(there):
            (code,) = self.judge(ask, self.links.rows([name]))
        return bool(code == NodeRefusal.PASSED)

    def _held_for(self, ask: PodAsk) -> list[_Member]:
        """What the pod itself keeps from others."""
        member = self._members.get(ask.uid)
        return [member] if member is not None and member.until is not None else []

    @contextmanager
    def _without(self, members: Sequence[_Member]) -> Iterator[None]:
        """The links as if these did not count: nothing is freed by that."""
        counted, freed = [(each.ask, name) for each in members for name in each.nodes], self.links.freed
        for ask, name in counted:
            self.links.remove(ask, name)
        yield
        for ask, name in counted:
            self.links.add(ask, name)
        self.links.freed = freed

    def _card_takes(self, name: str, there: GroupOnNode) -> bool:
        """Whether siblings could talk over the card of their node."""
        _, _, up, down = self.links.left_of(name)
        return (there.up <= up or not there.up) and (there.down <= down or not there.down)

    def _choose(self, ask: PodAsk, rows: Rows, left: Rows) -> Rows:
        """The places of the best of these nodes; of equal ones the first by name."""
        scores = self._scores(ask, rows, left)
        wanted = 1 if self._is_answered_one(ask) else self._candidates
        if wanted == 1:
            best = np.flatnonzero(scores == scores.max())
            first = int(self.links.ranks(rows[best]).argmin()) if len(best) > 1 else 0
            return best[first : first + 1]
        return np.lexsort((self.links.ranks(rows), -scores))[:wanted]

    def _is_answered_one(self, ask: PodAsk) -> bool:
        """Whether a second node in the answer would make somebody talk over the card."""
        group = self.links.groups.get(ask.group, {})
        return ask.may_be_local or any(each.up or each.down for each in group.values())

    def _scores(self, ask: PodAsk, rows: Rows, left: Rows) -> Scores:
        """70% by how many siblings are there, 30% by the share of the scarcest link that stays free; each is 1 at its best."""
        free = ((left - _needed(ask)) / self.links.sizes(rows)).min(axis=0).clip(0.0, 1.0)
        found = FREE * _of_best(free)
        near = self.links.near(ask.group, rows)
        return found if near is None else found + LOCALITY * _of_best(near)

    # What the watches show

    def set_node(self, name: str, capacity: FourRates) -> None:
        """A node is there, with links of this size."""
        self.links.set_node(name, capacity)

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        self.links.remove_node(name)

    def bound(self, ask: PodAsk, node: str) -> None:
        """A pod is bound to a node. What it asked for then stays, whatever it says later; its controller may release it."""
        member = self._members.get(ask.uid)
        self.waiting.pop(ask.uid, None)
        if member is not None and member.until is None and member.nodes == (node,):
            if member.ask.group != ask.group:
                self.was_bound_with(member.ask._replace(group=ask.group))
            return
        if self.is_settled and (ask.up or ask.down):
            self._count_bind(member, ask.uid, node)
        self._release(ask.uid)
        self._late.pop(ask.uid, None)
        self._members[ask.uid] = _Member(ask, (node,))
        self.links.add(ask, node)

    def was_bound_with(self, ask: PodAsk) -> None:
        """A pod asked for this when it was bound, before we saw it; it says something else by now."""
        member = self._members.get(ask.uid)
        if member is not None and member.until is None:
            self.links.remove(member.ask, member.nodes[0])
            member.ask = ask
            self.links.add(member.ask, member.nodes[0])

    def unbound(self, ask: PodAsk, now: int, nominated: str = "") -> None:
        """A pod is there without a node. kube-scheduler says in its status to which it goes, where that takes long."""
        self.waiting[ask.uid] = ask
        member = self._members.get(ask.uid)
        if member is not None and member.until is None:
            self._release(ask.uid)  # another pod than before
        elif member is not None:
            member.unseen_until, member.is_nominated = None, nominated in member.nodes
        elif nominated and (not self.is_settled or self._fits_without(ask, nominated, ())):
            # Whoever was here before us has answered for it, or pods are being evicted for it.
            self._hold(ask, (nominated,), now)
            self._members[ask.uid].is_nominated = True

    def gone(self, uid: str) -> None:
        """A pod has ended, or is deleted."""
        self.waiting.pop(uid, None)
        self._late.pop(uid, None)
        self._release(uid)

    def expire(self, now: int) -> None:
        """End the holds whose time is over, and those of pods that no watch has shown. `now` is no later than what the watch shows."""
        while self._held and (uid := next(iter(self._held))) and (self._members[uid].until or 0) <= now:
            if self._members[uid].is_nominated:
                self._members[uid].until = now + self.hold_ms
                self._held.move_to_end(uid)
            else:
                self._end_late(uid)
        while self._unseen and self._unseen[0][0] <= now:
            until, uid = self._unseen.popleft()
            member = self._members.get(uid)
            if member is not None and member.unseen_until == until:
                self._release(uid)

    def _end_late(self, uid: str) -> None:
        self.counts.expired += 1
        self._release(uid)
        self._late[uid] = None
        if len(self._late) > LATE_KEPT:
            self._late.popitem(last=False)

    @property
    def holds(self) -> int:
        """How many pods are held for."""
        return len(self._held)

    def nodes_of(self, uid: str) -> tuple[str, ...]:
        """Where a pod counts."""
        member = self._members.get(uid)
        return member.nodes if member is not None else ()

    def ask_of_bound(self, uid: str) -> PodAsk | None:
        """What a bound pod counts as; None if no such pod is bound."""
        member = self._members.get(uid)
        return member.ask if member is not None and member.until is None else None

    def asks(self) -> Iterable[tuple[PodAsk, tuple[str, ...], bool]]:
        """All pods that count, with their nodes, and whether they are bound."""
        return ((each.ask, each.nodes, each.until is None) for each in self._members.values())

    def _count_bind(self, member: _Member | None, uid: str, node: str) -> None:
        counts = self.counts
        if member is not None:
            if node in member.nodes:
                counts.binds += 1
            else:
                counts.elsewhere += 1
        elif uid in self._late:
            counts.late += 1
        else:
            counts.unasked += 1

    def _hold(self, ask: PodAsk, nodes: tuple[str, ...], now: int) -> None:
        unseen_until = None if ask.uid in self.waiting else now + UNSEEN_MS
        self._members[ask.uid] = _Member(ask, nodes, now + self.hold_ms, unseen_until)
        self._held[ask.uid] = None
        self._late.pop(ask.uid, None)
        if unseen_until is not None:
            self._unseen.append((unseen_until, ask.uid))
        for name in nodes:
            self.links.add(ask, name)

    def _release(self, uid: str) -> None:
        member = self._members.pop(uid, None)
        if member is not None:
            self._held.pop(uid, None)
            for name in member.nodes:
                self.links.remove(member.ask, name)


def _only(node: str, names: Sequence[str]) -> FilterAnswer:
    """The pod is bound already: it can go nowhere else."""
    codes = np.array([NodeRefusal.PASSED if name == node else NodeRefusal.BOUND for name in names], np.int8)
    return FilterAnswer([node] if node in names else [], names, codes)


def _needed(ask: PodAsk) -> Rows:
    """Of the four links, if it uses the card."""
    return np.array([[ask.up], [ask.down], [ask.up], [ask.down]], np.int64)


def _refuse(codes: Codes, where: Flags, why: NodeRefusal) -> None:
    codes[where] = why


def _of_best(values: Scores) -> Scores:
    best = values.max()
    return values / best if best > 0 else values

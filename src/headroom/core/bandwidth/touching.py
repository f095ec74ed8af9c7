"""Pods that the extender refused, and which of them to tell to kube-scheduler again once there is room.

kube-scheduler looks at a refused pod again only after an event that it takes for a reason, or after minutes; that a hold has ended, or a
capacity was raised, is none to it. Namespaces take turns, so that nobody's crowd keeps the others waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from headroom.core.bandwidth.holds import FourRates, PodAsk
from headroom.core.bandwidth.placement import UNSEEN_MS, Placement
from headroom.core.bandwidth.refusals import NodeRefusal

MOST_KEPT: Final = 10_000
TOUCHED_AT_ONCE: Final = 20
"""Pods that are touched in one look; there is one look a second."""
LOOKED_AT: Final = 300
"""Pods for which room is looked for in one look."""
SETTLE_MS: Final = 500
"""A pod that was refused just now: kube-scheduler has not put it aside yet."""
FIRST_MS: Final = 2_000
FAR_MS: Final = 10_000
"""Room on a node that kube-scheduler did not find for the pod may be none: it looks at a part of the nodes only, or others forbid it."""
NEVER: Final = 2**62
LONGEST_MS: Final = 300_000
"""kube-scheduler itself looks at every refused pod again after five minutes."""


class Touch(Struct, frozen=True):
    """A pod that may find room now."""

    key: str
    uid: str


class _Refusal(Struct):
    ask: PodAsk
    key: str
    nodes: npt.NDArray[np.uint8]
    """One bit for each row: the nodes that kube-scheduler had found for it."""
    since: int
    near_at: int
    """Before this moment it is left alone."""
    near_pause_ms: int = FIRST_MS
    far_at: int = 0
    """The same for room on other nodes."""
    far_pause_ms: int = FAR_MS


class Touching:
    """The refused pods, by namespace the longest refused first."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._refused: dict[str, _Refusal] = {}
        self._queues: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """Their uids by namespace; the first has the next turn."""
        self._look_at = NEVER
        """When to look again although nothing was freed."""

    def __len__(self) -> int:
        return len(self._refused)

    def refused(self, ask: PodAsk, key: str, names: Iterable[str], now: int) -> None:
        """No node was left for a pod."""
        self._put_aside(ask, key, np.packbits(self.placement.links.mask(names)), now)

    def adopt(self, asks: Iterable[tuple[str, PodAsk]], now: int) -> None:
        """Pods, by their keys, that somebody else may have refused: nobody knows for which nodes."""
        links = self.placement.links
        everywhere = np.packbits(links.mask(links.names()))
        for key, ask in asks:
            self._put_aside(ask, key, everywhere, now)

    def _put_aside(self, ask: PodAsk, key: str, nodes: npt.NDArray[np.uint8], now: int) -> None:
        again = now + SETTLE_MS
        before = self._refused.get(ask.uid)
        if before is not None:
            # It came back, so to touch it is of use; somebody else was faster.
            before.ask, before.nodes, before.near_at, before.near_pause_ms = ask, nodes, again, FIRST_MS
        else:
            self._refused[ask.uid] = _Refusal(ask, key, nodes, now, again)
            self._queues.setdefault(_namespace(key), OrderedDict())[ask.uid] = None
            if len(self._refused) > MOST_KEPT:
                largest = max(self._queues.values(), key=len)
                self.forget(next(reversed(largest)))
        self._look_at = min(self._look_at, again)

    def forget(self, uid: str) -> None:
        """It has a node, or is gone."""
        refusal = self._refused.pop(uid, None)
        if refusal is not None:
            queue = self._queues[_namespace(refusal.key)]
            del queue[uid]
            if not queue:
                del self._queues[_namespace(refusal.key)]

    def due(self, now: int) -> list[Touch]:
        """Pods that fit now, each into room of its own; one that was touched is left alone for a while, twice as long each time."""
        links = self.placement.links
        if not (links.freed or now >= self._look_at):
            return []
        self._look_at = NEVER
        found: list[Touch] = []
        taken: list[tuple[PodAsk, str]] = []
        for refusal in self._next(now):
            if node := self._near(refusal, now) or self._far(refusal, now):
                found.append(Touch(refusal.key, refusal.ask.uid))
                links.add(refusal.ask, node)
                taken.append((refusal.ask, node))
            if len(found) >= TOUCHED_AT_ONCE:
                self._look_at = now
                break
        for ask, node in taken:
            links.remove(ask, node)
        links.freed = False
        return found

    def _next(self, now: int) -> Iterator[_Refusal]:
        """Those for which room may be looked for now, one of each namespace in turn; where there are very many, each has its turn."""
        looked_at, is_long, most = 0, len(self._refused) > LOOKED_AT, self._most_left()
        for uid in _in_turn([iter(list(each)) for each in self._queues.values()]):
            refusal = self._refused[uid]
            if uid not in self.placement.waiting and refusal.since + UNSEEN_MS <= now:
                self.forget(uid)  # no watch shows it: it was gone before it was refused, or never was
                continue
            if refusal.near_at > now:
                self._look_at = min(self._look_at, refusal.near_at)
                continue
            if not _may_fit(refusal.ask, most):
                continue
            if looked_at >= LOOKED_AT:
                self._look_at = now
                return
            looked_at += 1
            if is_long:
                namespace = _namespace(refusal.key)
                self._queues[namespace].move_to_end(uid)
                self._queues.move_to_end(namespace)
            yield refusal

    def _most_left(self) -> FourRates:
        """The most that any node has left of each link: whoever asks for more fits nowhere, and is not looked for on thousands."""
        left = self.placement.links.left(self.placement.links.all_rows())
        a, b, c, d = left.max(axis=1, initial=0).tolist()
        return (a, b, c, d)

    def _near(self, refusal: _Refusal, now: int) -> str:
        """A node with room, of those that kube-scheduler had found for the pod."""
        node = self._room(refusal.ask, np.flatnonzero(np.unpackbits(refusal.nodes)))
        if node:
            refusal.near_at = now + refusal.near_pause_ms
            refusal.near_pause_ms = min(2 * refusal.near_pause_ms, LONGEST_MS)
            self._look_at = min(self._look_at, refusal.near_at)
        return node

    def _far(self, refusal: _Refusal, now: int) -> str:
        """Any node with room, now and then."""
        if refusal.far_at > now:
            self._look_at = min(self._look_at, refusal.far_at)
            return ""
        node = self._room(refusal.ask, self.placement.links.all_rows())
        if node:
            refusal.far_at = now + refusal.far_pause_ms
            refusal.far_pause_ms = min(2 * refusal.far_pause_ms, LONGEST_MS)
            self._look_at = min(self._look_at, refusal.far_at)
        return node

    def _room(self, ask: PodAsk, rows: npt.NDArray[np.int64]) -> str:
        links = self.placement.links
        fits = rows[self.placement.judge(ask, rows) == NodeRefusal.PASSED]
        return links.name_of(int(fits[links.left(fits)[2].argmax()])) if len(fits) else ""


def _may_fit(ask: PodAsk, most: FourRates) -> bool:
    fits_inside = ask.up <= most[0] and ask.down <= most[1]
    return fits_inside and (ask.may_be_local or (ask.up <= most[2] and ask.down <= most[3]))


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _in_turn(queues: Iterable[Iterator[str]]) -> Iterator[str]:
    """The first of each, then the second of each, and so on."""
    while queues:
        left = []
        for each in queues:
            if (uid := next(each, None)) is not None:
                left.append(each)
                yield uid
        queues = left

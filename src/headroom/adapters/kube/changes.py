"""Which plan hears of what: each plan names the parts it looks at, and collects what is new in them until it asks.

A change costs a few set operations, however many come at once; nothing is scheduled for any single one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

from headroom.api.kinds import KINDS
from headroom.model.changes import URGENT, Changes, Topic
from headroom.model.decisions import Ref

PARTS: Final = frozenset({*KINDS, *Topic})
MOST: Final = 50_000
"""Pods, or facts of one topic, that a plan may be behind before it is told to look at everything."""


class _Subscription(Struct):
    parts: frozenset[str]
    pending: Changes
    quiet: bool = False
    wakes: bool = True
    """News for this plan wake whoever waits for them."""


class Subscriptions:
    """The plans and what each has not been told yet."""

    def __init__(self) -> None:
        self._plans: dict[str, _Subscription] = {}
        self._readers: dict[str, list[_Subscription]] = {}
        """Those who look at each part."""
        self._news = asyncio.Event()

    def subscribe(self, plan: str, parts: frozenset[str], *, quiet: bool = False) -> None:
        """Tell `plan` of changes in these parts; it begins with everything. For a quiet one nobody needs to be woken."""
        if unknown := parts - PARTS:
            raise ValueError(f"plan {plan} asks for {', '.join(sorted(unknown))}; there are {', '.join(sorted(PARTS))}")
        self._plans[plan] = _Subscription(parts, Changes(everything=True), quiet, not quiet)
        every = self._plans.values()
        # The kill switch is among the settings, and it concerns everyone.
        self._readers = {
            part: [each for each in every if part in each.parts or part == Topic.SETTINGS] for part in PARTS
        }
        self._news.set()

    def take(self, plan: str) -> Changes:
        """What is new for `plan`; one that never subscribed hears of all parts."""
        if plan not in self._plans:
            self.subscribe(plan, PARTS)
        found = self._plans[plan]
        if not found.pending:
            return Changes()
        taken, found.pending = found.pending, Changes()
        if not self._is_due():
            self._news.clear()
        return taken

    async def changed(self, besides: Collection[str] = ()) -> None:
        """Returns once some plan has not been told of something; those `besides` know enough for now, unless it is urgent."""
        for name, each in self._plans.items():
            each.wakes = not each.quiet and name not in besides
        if not self._is_due():
            self._news.clear()
            await self._news.wait()

    def _is_due(self) -> bool:
        return any(
            each.pending and not each.quiet and (each.wakes or each.pending.is_urgent) for each in self._plans.values()
        )

    # What the sinks report

    def pod(self, uid: str, *, unbound: bool, nodes: Iterable[str], asking: bool = False) -> None:
        """A pod came, went or changed; `nodes` are where it was and is, `asking` whether it needed or needs a machine, as far as it says.

        A plan that looks at pods and nodes hears of the nodes too: of a pod that is gone, nobody else could name its node.
        """
        for pending in self._listening(Topic.PODS):
            pending.pods.add(uid)
            if len(pending.pods) > MOST:
                _forget_all(pending)
        if nodes:
            self._nodes_of_pods(nodes)
        for pending in self._listening(Topic.UNBOUND) if unbound else ():
            pending.unbound = True
            pending.asking = pending.asking or asking

    def _nodes_of_pods(self, nodes: Iterable[str]) -> None:
        for each in self._readers.get(Topic.NODES, ()):
            if Topic.PODS in each.parts and not each.pending.everything:
                each.pending.nodes.update(nodes)

    def node(self, name: str) -> None:
        """A node came, went or changed."""
        for pending in self._listening(Topic.NODES):
            pending.nodes.add(name)

    def resource(self, ref: Ref) -> None:
        """A resource came, went or changed."""
        for pending in self._listening(ref.kind):
            pending.resources.add(ref)
            self._news.set()

    def fact(self, topic: Topic, name: str = "") -> None:
        """Another fact came, went or changed; one that has no name is reported all the same."""
        for pending in self._listening(topic):
            names = pending.facts.setdefault(topic, set())
            if name:
                names.add(name)
            if len(names) > MOST:
                _forget_all(pending)
        if topic in URGENT:
            self._news.set()

    def listed(self, *parts: str) -> None:
        """A complete list was taken in: whoever looks at these parts assumes nothing."""
        for plan in self._plans.values():
            if not plan.parts.isdisjoint(parts):
                _forget_all(plan.pending)
                self._news.set()

    def _listening(self, part: str) -> list[Changes]:
        """What is new for those who look at a part, but for those to whom a single change is no news: they look at everything anyhow."""
        found = []
        for each in self._readers.get(part, ()):
            if not each.pending.everything:
                found.append(each.pending)
                if each.wakes:
                    self._news.set()
        return found


def _forget_all(pending: Changes) -> None:
    """Everything says it all: the single changes need no memory."""
    pending.everything = True
    pending.resources.clear()
    pending.pods.clear()
    pending.nodes.clear()
    pending.facts.clear()
    pending.unbound = pending.asking = False

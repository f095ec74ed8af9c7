"""Who is told of what: each plan names the parts it looks at, and collects what is new in them until it asks.

A change costs a few set operations, however many come at once; nothing is scheduled for any single one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from headroom.api.kinds import KINDS
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Ref

PARTS: Final = frozenset({*KINDS, *Topic})
MOST: Final = 50_000
"""Pods, or facts of one topic, that a plan may be behind before it is told to look at everything."""


class _Subscription(Struct):
    parts: frozenset[str]
    pending: Changes
    quiet: bool = False


class Subscriptions:
    """The plans and what each has not been told yet."""

    def __init__(self) -> None:
        self._plans: dict[str, _Subscription] = {}
        self._news = asyncio.Event()

    def subscribe(self, plan: str, parts: frozenset[str], *, quiet: bool = False) -> None:
        """Tell `plan` of changes in these parts; it begins with everything. For a quiet one nobody needs to be woken."""
        if unknown := parts - PARTS:
            raise ValueError(f"plan {plan} asks for {', '.join(sorted(unknown))}; there are {', '.join(sorted(PARTS))}")
        self._plans[plan] = _Subscription(parts, Changes(everything=True), quiet)
        self._news.set()

    def take(self, plan: str) -> Changes:
        """What is new for `plan`; one that never subscribed is told of all parts."""
        if plan not in self._plans:
            self.subscribe(plan, PARTS)
        found = self._plans[plan]
        taken, found.pending = found.pending, Changes()
        if not any(each.pending for each in self._plans.values() if not each.quiet):
            self._news.clear()
        return taken

    async def changed(self) -> None:
        """Returns once some plan has not been told of something."""
        await self._news.wait()

    # What the sinks report

    def pod(self, uid: str, *, unbound: bool, nodes: Iterable[str], asking: bool = False) -> None:
        """A pod came, went or changed; `nodes` are where it was and is, `asking` whether it needed or needs a machine, as far as it says.

        A plan that looks at pods and nodes is told of the nodes too: of a pod that is gone, nobody else could name its node.
        """
        for parts, pending in self._listening():
            if Topic.PODS in parts:
                pending.pods.add(uid)
                if Topic.NODES in parts:
                    pending.nodes.update(nodes)
                if len(pending.pods) > MOST:
                    _forget_all(pending)
                self._news.set()
            if unbound and Topic.UNBOUND in parts:
                pending.unbound = True
                pending.asking = pending.asking or asking
                self._news.set()

    def node(self, name: str) -> None:
        """A node came, went or changed."""
        for parts, pending in self._listening():
            if Topic.NODES in parts:
                pending.nodes.add(name)
                self._news.set()

    def resource(self, ref: Ref) -> None:
        """A resource came, went or changed."""
        for parts, pending in self._listening():
            if ref.kind in parts:
                pending.resources.add(ref)
                self._news.set()

    def fact(self, topic: Topic, name: str = "") -> None:
        """Another fact came, went or changed; one that has no name is told of all the same."""
        for parts, pending in self._listening():
            # The kill switch is among the settings, and it concerns everyone.
            if topic in parts or topic is Topic.SETTINGS:
                names = pending.facts.setdefault(topic, set())
                if name:
                    names.add(name)
                if len(names) > MOST:
                    _forget_all(pending)
                self._news.set()

    def listed(self, *parts: str) -> None:
        """A complete list was taken in: whoever looks at these parts assumes nothing."""
        for plan in self._plans.values():
            if not plan.parts.isdisjoint(parts):
                _forget_all(plan.pending)
                self._news.set()

    def _listening(self) -> list[tuple[frozenset[str], Changes]]:
        """Those for whom a single change is news; the others look at everything anyhow."""
        return [(plan.parts, plan.pending) for plan in self._plans.values() if not plan.pending.everything]


def _forget_all(pending: Changes) -> None:
    """Everything says it all: the single changes need no memory."""
    pending.everything = True
    pending.resources.clear()
    pending.pods.clear()
    pending.nodes.clear()
    pending.facts.clear()
    pending.unbound = pending.asking = False

"""A port and a clock that a test drives by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model.actions import Action
from headroom.model.changes import Changes
from headroom.model.errors import HeadroomError
from headroom.model.world import World, by_ref, ref_of
from tests.builders import NOON


class HandClock:
    """Time that moves only when a test moves it, or when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> int:
        return NOON + round((self.seconds - 1000) * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += max(0.0, seconds)
        await asyncio.sleep(0)


class FakePort:
    """A port over plain dictionaries that records every effect."""

    def __init__(self, *resources: AnyResource) -> None:
        self.resources = by_ref(resources)
        self.done: list[tuple[str, Any]] = []
        self.fails: list[HeadroomError] = []
        self.fields: dict[str, Any] = {}
        self.after_status: Callable[[], None] = lambda: None
        self._changes: dict[str, Changes] = {}

    def world(self, now: int) -> World:
        return World(now=now, resources=self.resources, **self.fields)

    def subscribe(self, plan: str, parts: frozenset[str]) -> None:
        self._changes[plan] = Changes(everything=True)

    def take_changes(self, plan: str) -> Changes:
        taken, self._changes[plan] = self._changes.get(plan, Changes()), Changes()
        return taken

    async def changed(self, besides: Collection[str] = ()) -> None:
        await asyncio.Event().wait()

    def put(self, resource: AnyResource) -> None:
        self.resources.put(ref_of(resource), resource)
        for changes in self._changes.values():
            changes.resources.add(ref_of(resource))

    def change(self, changes: Changes) -> None:
        for each in self._changes.values():
            each.add(changes)

    async def write_status(self, resource: AnyResource, status: Status) -> None:
        self._maybe_fail()
        self.done.append(("status", ref_of(resource)))
        self.put(structs.replace(self.resources[ref_of(resource)], status=status))
        self.after_status()

    async def perform(self, action: Action, resource: AnyResource) -> None:
        self._maybe_fail()
        self.done.append(("action", action))

    def _maybe_fail(self) -> None:
        if self.fails:
            raise self.fails.pop(0)


class Switch:
    """A gate that a test opens and closes."""

    def __init__(self, is_open: bool = True) -> None:
        self.is_open = is_open

    def may_act(self) -> bool:
        return self.is_open

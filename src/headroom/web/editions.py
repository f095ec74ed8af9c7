"""Pages for programs: those that are asked for together are made together, of one moment, and none is shown for long.

An edition holds the pages of one moment for one scope. The first request after it has become old has the next one made, with every
page that was asked for lately: so who polls several pages compares numbers of one moment. Making one costs the operator what its pages
cost, and it is left alone for nine times as long afterwards, as after every page.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from typing import Final

from msgspec import Struct, field

from headroom.model.errors import Unavailable
from headroom.web.rates import Turns
from headroom.web.scope import Scope
from headroom.web.source import BROKEN, Address, PageSource, Sheet

GATHER_SECONDS: Final = 0.02
"""Requests that come so soon after the first one are for the same edition."""
SHOWN_SECONDS: Final = 1.5
"""For so long an edition is the newest one."""
OLDEST_SECONDS: Final = 2.0
"""No page that is older is ever sent."""
REMEMBERED_SECONDS: Final = 30.0
"""A page that was asked for so lately is made again with the others of its scope."""
MOST_ADDRESSES: Final = 64
MOST_SCOPES: Final = 64
MOST_TRIES: Final = 8


class Edition(Struct, kw_only=True):
    """The pages of one scope."""

    sheets: dict[Address, Sheet] = {}
    asked: OrderedDict[Address, float] = field(default_factory=OrderedDict)
    """When each page was asked for last; the latest stands last."""
    waiting: Counter[Address] = field(default_factory=Counter)
    """By page: how many requests wait for it; the one that is asked for longest stands first."""
    coming: asyncio.Task[None] | None = None
    """The next edition, while it is made."""

    def sheet(self, address: Address, epoch: int, oldest: float) -> Sheet | None:
        """A page that is not too old; None if it has to be made anew."""
        found = self.sheets.get(address)
        if found is None or found.epoch != epoch or time.monotonic() - found.made_at >= oldest:
            return None
        return found

    def wanted(self) -> list[Address]:
        """The pages to make: those that somebody waits for, then those that were asked for lately."""
        since = time.monotonic() - REMEMBERED_SECONDS
        while self.asked and (len(self.asked) > MOST_ADDRESSES or next(iter(self.asked.values())) < since):
            self.asked.popitem(last=False)
        return list(dict.fromkeys((*self.waiting, *reversed(self.asked))))


class Editions:
    """The editions of all scopes, which take their turns among the pages of streams."""

    def __init__(self, source: PageSource, turns: Turns) -> None:
        self._source, self._turns = source, turns
        self._editions: OrderedDict[Scope, Edition] = OrderedDict()

    async def page(self, address: Address, scope: Scope, tenant: str) -> Sheet:
        """A page as it was a moment ago at most. Raises `Unavailable` if the operator cannot make it in time."""
        edition = self._of(scope)
        edition.asked[address] = time.monotonic()
        edition.asked.move_to_end(address)
        found = edition.sheet(address, self._source.pulse().epoch, SHOWN_SECONDS)
        if found is None:
            edition.waiting[address] += 1
            try:
                found = await self._next(edition, address, scope, tenant)
            finally:
                edition.waiting[address] -= 1
                edition.waiting += Counter()  # without those that nobody waits for
        if found.is_broken:
            raise Unavailable(BROKEN)
        return found

    async def _next(self, edition: Edition, address: Address, scope: Scope, tenant: str) -> Sheet:
        """A page of the next edition that has room for it."""
        for _ in range(MOST_TRIES):
            if edition.coming is None:
                edition.coming = asyncio.create_task(self._make(edition, scope, tenant))
            # Others may ask for the same page, so it goes on when one of them leaves.
            await asyncio.shield(edition.coming)
            found = edition.sheet(address, self._source.pulse().epoch, OLDEST_SECONDS)
            if found is not None:
                return found
        raise Unavailable("making this page: the operator is too busy; try again")

    def _of(self, scope: Scope) -> Edition:
        found = self._editions.setdefault(scope, Edition())
        self._editions.move_to_end(scope)
        while len(self._editions) > MOST_SCOPES:
            self._editions.popitem(last=False)
        return found

    async def _make(self, edition: Edition, scope: Scope, tenant: str) -> None:
        try:
            async with self._turns.turn(tenant) as rest:
                await asyncio.sleep(GATHER_SECONDS)
                made = await self._source.make_together(edition.wanted(), scope)
                rest.append(sum(each.rest for each in made.values()))
                edition.sheets = {name: edition.sheets[name] for name in edition.sheets.keys() & edition.asked.keys()}
                edition.sheets |= made
        finally:
            edition.coming = None

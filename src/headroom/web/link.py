"""The link between the operator and a process that serves its pages: short questions one way, answers and a pulse the other.

The operator trusts nothing that grows: questions are short, one page is made at a time, and who does not read gets no more pulses.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, structs

from headroom.model.errors import Unavailable
from headroom.runtime.journal import EntryIndex, Noted
from headroom.runtime.settings import Settings
from headroom.web.page import Page
from headroom.web.pages import decisions
from headroom.web.scope import Scope
from headroom.web.source import BROKEN, REST, Address, Local, Pulse, Sheet
from headroom.web.wire import Link

BEAT_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05
"""Between two pulses, however often there is news."""
ANSWER_SECONDS: Final = 20.0
METRICS_SECONDS: Final = 1.0
"""Metrics are not measured more often than this, whoever asks."""
LONGEST_QUESTION: Final = 16 * 1024 * 1024
"""A scope may name every namespace of a large cluster."""
MOST_UNREAD: Final = 1024 * 1024
MOST_UNPAID: Final = 0.1
"""Seconds: so that nobody waits long for the first page after a while without one."""


class Begin(Struct, frozen=True, tag=True):
    """The first word: what to serve."""

    settings: Settings


class Beat(Struct, frozen=True, tag=True):
    """The operator's pulse."""

    pulse: Pulse
    namespaces: list[str] | None = None
    """None: as before."""


class LinkAnswer(Struct, frozen=True, tag=True):
    """The answer to one question; of these only what was asked for."""

    number: int
    sheet: Sheet | None = None
    together: list[tuple[tuple[str, ...], Sheet]] | None = None
    rest: float = 0.0
    """Seconds for which the operator should be left alone, beside those of the sheets."""
    metrics: bytes | None = None
    journal: tuple[int, int, list[Noted]] | None = None
    """The moment it was read at, then what it says."""


class LinkQuestion(Struct, frozen=True):
    """What the other process needs: a page for a scope, the metrics, or what the journal has taken down since. Or what it has to say."""

    number: int
    address: tuple[str, ...] = ()
    together: list[tuple[str, ...]] = []
    """Several pages of one moment, as many as are quickly made."""
    scope: Scope = Scope()
    after: int | None = None
    certificate: str = ""
    """Asks for nothing: the certificate (PEM) that it has made for itself."""


class LinkServer:
    """The operator's end: answers questions on the operator's own loop, one after the other."""

    def __init__(self, local: Local, failed: Callable[[Exception], None]) -> None:
        """`failed` hears of a page that cannot be made, which is a bug."""
        self._local, self._failed = local, failed
        self.certificate = ""
        """The one that the other end has made for itself (PEM), if it has."""
        self._unpaid = 0.0
        """Seconds that were taken beside the making of pages, for which the next page lets the operator rest too."""

    async def serve(self, link: Link[LinkQuestion]) -> None:
        """Until the other end is gone."""
        beating = asyncio.create_task(self._beat(link))
        try:
            while (question := await link.heard()) is not None:
                began = time.thread_time()
                answer = self._safely(question)
                link.say(answer)
                sheets = [answer.sheet, *(sheet for _, sheet in answer.together or ())]
                paid = sum(each.took for each in sheets if each is not None)
                self._unpaid = min(MOST_UNPAID, self._unpaid + time.thread_time() - began - paid)
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # by us, just now
                await beating

    def _safely(self, question: LinkQuestion) -> LinkAnswer:
        try:
            return self._answer(question)
        except Exception as error:  # noqa: BLE001 - a bug in one page must not take the others away
            self._failed(error)
            return LinkAnswer(question.number)

    def _answer(self, question: LinkQuestion) -> LinkAnswer:
        if question.certificate:
            self.certificate = question.certificate
            return LinkAnswer(question.number)
        if question.after is not None:
            return LinkAnswer(question.number, journal=self._local.journal(question.after))
        if question.address:
            sheet = self._local.made(question.address, question.scope)
            unpaid, self._unpaid = self._unpaid, 0.0
            return LinkAnswer(question.number, sheet=structs.replace(sheet, rest=sheet.rest + unpaid * REST))
        if question.together:
            found = self._local.made_together(question.together, question.scope, self._failed)
            unpaid, self._unpaid = self._unpaid, 0.0
            return LinkAnswer(question.number, together=list(found.items()), rest=unpaid * REST)
        return LinkAnswer(question.number, metrics=self._local.measured())

    async def _beat(self, link: Link[LinkQuestion]) -> None:
        named: set[str] | None = None
        named_at = 0.0
        while True:
            pulse = self._local.pulse()
            if link.unread < MOST_UNREAD:
                namespaces: list[str] | None = None
                if time.monotonic() - named_at >= BEAT_SECONDS:
                    named_at = time.monotonic()
                    found = self._local.namespaces()
                    if found != named:
                        named, namespaces = found, sorted(found)
                link.say(Beat(pulse, namespaces))
            await self._local.news(pulse.rings, BEAT_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)


class Remote:
    """The operator in another process: a `Source`."""

    def __init__(self, link: Link[Begin | Beat | LinkAnswer], pages: Sequence[Page]) -> None:
        self._link, self.pages = link, pages
        self._pulse = Pulse()
        self._namespaces: set[str] = set()
        self._news = asyncio.Event()
        self._numbers = 0
        self._asked: dict[int, asyncio.Future[LinkAnswer]] = {}
        self._journal, self._taken = EntryIndex(), 0
        self._metrics: tuple[float, bytes] = (-1e9, b"")
        self._measuring = asyncio.Lock()

    def certified(self, pem: str) -> None:
        """Tell the operator which certificate was made here; it need not answer."""
        self._link.say(LinkQuestion(self._number(), certificate=pem))

    async def run(self) -> None:
        """Listen to the operator until it is gone."""
        while (message := await self._link.heard()) is not None:
            if isinstance(message, Beat):
                self._beat(message)
            elif isinstance(message, LinkAnswer):
                waiting = self._asked.pop(message.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)

    def _beat(self, beat: Beat) -> None:
        if beat.namespaces is not None:
            self._namespaces = set(beat.namespaces)
        is_news = (beat.pulse.rings, beat.pulse.epoch) != (self._pulse.rings, self._pulse.epoch)
        self._pulse = beat.pulse
        if is_news:
            self._news.set()
            self._news = asyncio.Event()

    def pulse(self) -> Pulse:
        """What the operator said last."""
        return self._pulse

    def namespaces(self) -> set[str]:
        """Those in which there is something to see."""
        return self._namespaces

    async def make(self, address: Address, scope: Scope) -> Sheet:
        """Ask for a page; a search is made here, so that it takes nothing from the operator."""
        if address[0] == "decisions":
            return await self._searched(address[1], scope)
        answer = await self._ask(LinkQuestion(self._number(), address=address, scope=scope))
        if answer.sheet is None:
            raise Unavailable(BROKEN)
        return answer.sheet

    async def make_together(self, addresses: Sequence[Address], scope: Scope) -> dict[Address, Sheet]:
        """Ask for several pages of one moment."""
        answer = await self._ask(LinkQuestion(self._number(), together=list(addresses), scope=scope))
        if answer.together is None:
            raise Unavailable(BROKEN)
        found: dict[Address, Sheet] = dict(answer.together)
        first = next(iter(found))
        found[first] = structs.replace(found[first], rest=found[first].rest + answer.rest)
        return found

    async def metrics(self) -> bytes:
        """All metrics, as they were within the last second."""
        async with self._measuring:
            at, known = self._metrics
            if time.monotonic() - at >= METRICS_SECONDS:
                known = (await self._ask(LinkQuestion(self._number()))).metrics or b""
                self._metrics = (time.monotonic(), known)
        return known

    async def news(self, heard: int, seconds: float) -> None:
        """Until the operator has decided something."""
        if self._pulse.rings == heard:
            with contextlib.suppress(TimeoutError):  # no news is an answer
                await asyncio.wait_for(self._news.wait(), seconds)

    async def _searched(self, wanted: decisions.Search, scope: Scope) -> Sheet:
        asked_at, answer = time.monotonic(), await self._ask(LinkQuestion(self._number(), after=self._taken))
        if answer.journal is None:
            raise Unavailable(BROKEN)
        now, self._taken, new = answer.journal
        self._journal.take(new)
        began, pulse = time.thread_time(), self._pulse
        body = decisions.model(self._journal, now, scope, wanted)
        took = time.thread_time() - began
        return Sheet(
            body=body,
            rings=pulse.rings,
            told_at=pulse.told_at,
            epoch=pulse.epoch,
            took=took,
            at=now,
            made_at=asked_at,
        )

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def _ask(self, question: LinkQuestion) -> LinkAnswer:
        waiting: asyncio.Future[LinkAnswer] = asyncio.get_running_loop().create_future()
        self._asked[question.number] = waiting
        self._link.say(question)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await waiting
        except TimeoutError:
            raise Unavailable("asking the operator for a page: no answer in time; try again") from None
        finally:
            self._asked.pop(question.number, None)

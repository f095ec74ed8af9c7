"""The link: another process shows the same as the operator itself would, and takes little from it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from types import SimpleNamespace

import pytest
from msgspec import structs

from headroom.cli import capabilities
from headroom.model.errors import Unavailable
from headroom.model.times import MINUTE
from headroom.web import link as links
from headroom.web.link import Beat, Begin, LinkAnswer, LinkQuestion, LinkServer, Remote
from headroom.web.pages import search
from headroom.web.scope import EVERYTHING, Scope
from headroom.web.server import main_app
from headroom.web.source import Address, Local, Sheet
from headroom.web.view import OperatorView
from headroom.web.wire import Link
from tests.builders import NOON
from tests.web.showing import Made, served
from tests.web.test_live import a_world, events, merged


class Counted(Local):
    """The operator, which counts the pages that it had to make."""

    asked = 0

    def made(self, address: Address, scope: Scope) -> Sheet:
        self.asked += 1
        if address == ("nodes",) and scope == Scope():
            raise ZeroDivisionError
        return super().made(address, scope)


@contextlib.asynccontextmanager
async def linked(local: Local, failures: list[Exception] | None = None) -> AsyncIterator[Remote]:
    """The other process's end, once it has heard of the operator."""
    ours, theirs = socket.socketpair()
    here: Link[LinkQuestion] = await Link.over(ours, LinkQuestion)
    there: Link[Begin | Beat | LinkAnswer] = await Link.over(theirs, Begin | Beat | LinkAnswer)
    remote = Remote(there, capabilities.pages())
    answering = LinkServer(local, (failures if failures is not None else []).append)
    tasks = [asyncio.create_task(answering.serve(here)), asyncio.create_task(remote.run())]
    try:
        async with asyncio.timeout(120):
            while not remote.pulse().frame:  # noqa: ASYNC110  nothing tells a test when
                await asyncio.sleep(0.001)
            yield remote
    finally:
        here.close()
        there.close()
        await asyncio.gather(*tasks)


ADDRESSES: list[Address] = [
    ("overview",),
    ("nodes",),
    ("power",),
    ("budgets", "team-a", "one"),
    ("budgets", "team-a", "none"),
    ("power", "none"),
    ("decisions", search({"q": "one"})),
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("scope", [EVERYTHING, Scope(namespaces=frozenset({"elsewhere"}))])
async def test_pages_are_the_same_over_the_link(address: Address, scope: Scope) -> None:
    local = Local(Made(a_world(1)).showing())
    async with linked(local) as remote:
        found, known = await remote.make(address, scope), local.made(address, scope)
        assert json.loads(json.dumps(found.body)) == json.loads(json.dumps(known.body))
        assert (found.rings, found.epoch) == (known.rings, known.epoch)
        assert remote.namespaces() == local.namespaces()
        assert (remote.pulse().ticks, remote.pulse().frame) == (local.pulse().ticks, local.pulse().frame)


async def test_pages_of_one_moment_are_the_same_over_the_link() -> None:
    local = Local(Made(a_world(1)).showing())
    addresses = [each for each in ADDRESSES if each[0] != "decisions"]
    async with linked(local) as remote:
        found = await remote.make_together(addresses, EVERYTHING)
    assert list(found) == addresses
    for address, sheet in found.items():
        assert json.loads(json.dumps(sheet.body)) == json.loads(json.dumps(local.made(address, EVERYTHING).body))
    assert len({each.at for each in found.values()}) == 1


async def test_a_search_takes_nothing_from_the_operator_and_sees_what_is_new() -> None:
    made = Made(a_world(1))
    local = Counted(made.showing())
    async with linked(local) as remote:
        address = ("decisions", search({"q": "team-a"}))
        before = (await remote.make(address, EVERYTHING)).body
        assert before is not None
        for number in range(20):
            await remote.make(("decisions", search({"q": f"x{number}"})), EVERYTHING)
        made.become(a_world(12, NOON + MINUTE))
        while remote.pulse().now == NOON:  # noqa: ASYNC110  nothing tells a test when
            await asyncio.sleep(0.001)
        after = (await remote.make(address, EVERYTHING)).body
        assert after is not None
        assert len(after["entries"]) > len(before["entries"])
        assert local.asked == 0


async def test_metrics_are_measured_once_a_second_whoever_asks() -> None:
    local = Local(Made(a_world(1)).showing())
    measured, real = [0], local.measured

    def counted(view: OperatorView | None = None) -> bytes:
        measured[0] += 1
        return real(view)

    local.measured = counted  # type: ignore[method-assign]  # to count how often it is asked
    async with linked(local) as remote:
        found = await asyncio.gather(*(remote.metrics() for _ in range(50)))
    assert b"headroom_" in found[0]
    assert measured[0] < 5


async def test_a_page_with_a_bug_takes_only_itself_away() -> None:
    failures = list[Exception]()
    async with linked(Counted(Made(a_world(1)).showing()), failures) as remote:
        with pytest.raises(Unavailable, match="a bug in Headroom"):
            await remote.make(("nodes",), Scope())
        assert (await remote.make(("overview",), EVERYTHING)).body
    assert [type(each) for each in failures] == [ZeroDivisionError]


async def test_an_operator_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "ANSWER_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    remote = Remote(await Link.over(theirs, Begin | Beat | LinkAnswer), ())
    with ours, pytest.raises(Unavailable, match="no answer in time"):
        await remote.make(("overview",), EVERYTHING)
    assert not remote._asked
    remote._link.close()


async def test_who_does_not_read_is_told_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "BEAT_SECONDS", 0.0)
    monkeypatch.setattr(links, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(links, "MOST_UNREAD", 10_000)
    ours, theirs = socket.socketpair()
    here: Link[LinkQuestion] = await Link.over(ours, LinkQuestion)
    serving = asyncio.create_task(LinkServer(Local(Made(a_world(1)).showing()), lambda _: None).serve(here))
    async with asyncio.timeout(120):
        while here.unread < 10_000:  # noqa: ASYNC110  nothing tells a test when
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
    assert here.unread < 20_000
    theirs.close()
    await serving
    here.close()


@pytest.mark.parametrize("said", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00"])
async def test_a_message_that_is_none_ends_the_link(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    here: Link[LinkQuestion] = await Link.over(ours, LinkQuestion, longest=1000)
    theirs.sendall(said)
    theirs.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(120):
        assert await here.heard() is None
    here.close()
    theirs.close()


async def test_live_pages_are_live_over_the_link() -> None:
    made = Made(a_world(1))
    async with (
        linked(Local(made.showing())) as remote,
        served(main_app(remote, None)) as client,
        aclosing(events(client, "/api/live/overview")) as stream,
    ):
        _, page = await anext(stream)
        made.become(a_world(2))
        while page["budgets"]["team-a/one"]["consumedGpuHours"] != "2":
            page = merged(page, (await anext(stream))[1])
        second = Made(a_world(3))
        assert page["viewer"] == {"everything": True}
        made.become(second._world)
        while page["budgets"]["team-a/one"]["consumedGpuHours"] != "3":
            page = merged(page, (await anext(stream))[1])


class Slow:
    """A link on which every answer takes a while to be said."""

    unread = 0

    def __init__(self, seconds: float, *questions: LinkQuestion) -> None:
        self._seconds, self._questions = seconds, list(questions)
        self.now, self.said = 0.0, list[LinkAnswer]()

    async def heard(self) -> LinkQuestion | None:
        return self._questions.pop(0) if self._questions else None

    def say(self, message: LinkAnswer | Beat) -> None:
        if isinstance(message, LinkAnswer):
            self.now += self._seconds
            self.said.append(message)


class Free(Local):
    """The operator, to whom the making of a page is nothing."""

    def made(self, address: Address, scope: Scope) -> Sheet:
        return structs.replace(super().made(address, scope), took=0.0, rest=0.0)


@pytest.mark.parametrize(("seconds", "rest"), [(1 / 128, 9 / 128), (1000.0, 9 * links.MOST_UNPAID)])
async def test_the_operator_rests_for_all_that_an_answer_takes(
    monkeypatch: pytest.MonkeyPatch, seconds: float, rest: float
) -> None:
    page = ("overview",)
    link = Slow(seconds, LinkQuestion(1), *(LinkQuestion(number, page, scope=EVERYTHING) for number in (2, 3)))
    monkeypatch.setattr(links, "time", SimpleNamespace(thread_time=lambda: link.now))
    await LinkServer(Free(Made(a_world(1)).showing()), lambda _: None).serve(link)  # type: ignore[arg-type]  # a link
    assert [each.sheet.rest for each in link.said if each.sheet] == [rest, rest]

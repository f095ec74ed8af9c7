"""Pages for programs: those asked for together are of one moment, each says which, and none is old."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from headroom.model import times
from headroom.model.decisions import status_wire
from headroom.model.errors import Unavailable
from headroom.model.times import HOUR
from headroom.web import editions, server, source
from headroom.web.editions import Editions
from headroom.web.rates import Turns
from headroom.web.scope import EVERYTHING
from headroom.web.server import STREAMS, main_app
from headroom.web.source import METRICS, Address, Local
from tests.builders import NOON, a_node, a_used_world
from tests.core.stage import a_budget, gated, running
from tests.web.showing import Made, served
from tests.web.test_live import a_world

OVERVIEW: Address = ("overview",)
BUDGET: Address = ("budgets", "team-a", "one")


class Moving(Made):
    """An operator whose world is another one each time that somebody looks."""

    looks = 0

    def world(self, now: int) -> Any:
        self.looks += 1
        return structs.replace(super().world(now), now=NOON + self.looks * HOUR)


async def test_pages_that_are_asked_for_together_are_of_one_moment() -> None:
    pages = Editions(Local(Moving(a_world(1)).showing()), Turns())
    async with asyncio.timeout(120):
        found = await asyncio.gather(*(pages.page(each, EVERYTHING, "ann") for each in (OVERVIEW, BUDGET, METRICS)))
    assert len({each.at for each in found}) == 1


async def test_what_was_asked_for_lately_is_of_the_next_moment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editions, "SHOWN_SECONDS", 0.0)
    pages = Editions(Local(Moving(a_world(1)).showing()), Turns())
    async with asyncio.timeout(120):
        before = [await pages.page(each, EVERYTHING, "ann") for each in (OVERVIEW, BUDGET)]
        after = [await pages.page(OVERVIEW, EVERYTHING, "ann")]
        monkeypatch.setattr(editions, "SHOWN_SECONDS", 60.0)
        after.append(await pages.page(BUDGET, EVERYTHING, "ann"))
    assert len({each.at for each in before}) == 2
    assert len({each.at for each in after}) == 1
    assert after[0].at > before[1].at


async def test_no_page_is_sent_that_is_older_than_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the operator is left alone: an old page is made anew, or refused."""

    class Late(Local):
        late = 0.0

        async def make_together(self, *given: Any) -> Any:
            found = await super().make_together(*given)
            return {name: structs.replace(each, made_at=each.made_at - self.late) for name, each in found.items()}

    late = Late(Made(a_world(1)).showing())
    pages = Editions(late, Turns())
    monkeypatch.setattr(source, "REST", 0)
    monkeypatch.setattr(editions, "GATHER_SECONDS", 0.0)
    async with asyncio.timeout(120):
        await pages.page(OVERVIEW, EVERYTHING, "ann")
        late.late = editions.OLDEST_SECONDS
        with pytest.raises(Unavailable, match="too busy"):
            await pages.page(BUDGET, EVERYTHING, "ann")


async def test_a_page_says_for_which_moment_it_is_true() -> None:
    made = Made(a_world(1))
    async with served(main_app(Local(made.showing()), None)) as client, asyncio.timeout(120):
        async with client.get("/api/overview") as reply:
            assert (await reply.json())["at"] == times.text(NOON)
        made._world = structs.replace(made._world, now=NOON + HOUR)
        async with client.get("/api/overview") as reply:  # as it was a moment ago: it must not say that it is of now
            assert (await reply.json())["at"] == times.text(NOON)


async def test_only_so_much_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "TOGETHER_SECONDS", 0.0)
    local = Local(Made(a_world(1)).showing())
    found = await local.make_together([OVERVIEW, BUDGET], EVERYTHING)
    assert list(found) == [OVERVIEW]
    monkeypatch.setattr(source, "REST", 0)
    pages = Editions(local, Turns())
    async with asyncio.timeout(120):
        await asyncio.gather(*(pages.page(each, EVERYTHING, "ann") for each in (OVERVIEW, BUDGET)))


async def test_pages_for_programs_are_followed_by_nine_times_as_long_without_one() -> None:
    turns = Turns()
    local = Local(Made(a_world(1)).showing())
    sheets = await local.make_together([OVERVIEW, BUDGET], EVERYTHING)
    assert all(each.rest == 9 * each.took for each in sheets.values())
    pages = Editions(local, turns)
    async with asyncio.timeout(120):
        await pages.page(OVERVIEW, EVERYTHING, "ann")
    assert turns._is_taken


async def test_metrics_do_not_wait_for_long_for_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "METRICS_SECONDS", 0.01)
    local = Local(Made(a_world(1)).showing())
    app = main_app(local, None)
    async with (
        served(app) as client,
        asyncio.timeout(120),
        app[STREAMS].turns.turn("somebody"),
        client.get("/metrics") as reply,
    ):
        assert (reply.status, "headroom_" in await reply.text()) == (200, True)


async def test_a_page_with_a_bug_takes_no_other_away() -> None:
    failed = list[Exception]()

    class Broken(Local):
        async def make_together(self, addresses: Any, scope: Any) -> Any:
            return self.made_together(addresses, scope, failed.append)

    local = Broken(Made(a_world(1)).showing())
    pages = Editions(local, Turns())
    broken: Address = ("power", "a", "b", "c")
    local._exact._makers["power", 3] = lambda *_: 1 / 0  # type: ignore[assignment]  # a page with a bug
    async with asyncio.timeout(120):
        found = await asyncio.gather(
            *(pages.page(each, EVERYTHING, "ann") for each in (OVERVIEW, broken)), return_exceptions=True
        )
    assert not isinstance(found[0], BaseException)
    assert isinstance(found[1], Unavailable)
    assert [type(each) for each in failed] == [ZeroDivisionError]


async def test_pages_of_one_moment_show_what_the_loop_has_not_decided_on_yet() -> None:
    made = Made(a_world(1))
    last = dict(made.decisions)
    pods = [running("p", HOUR), running("new", 0), gated("next")]
    made._world = a_used_world(a_budget(hours="10"), nodes=[a_node("n")], pods=pods, now=NOON)
    found = await Local(made.showing()).make_together([OVERVIEW, BUDGET, METRICS], EVERYTHING)
    overview, page, metrics = (found[each].body or {} for each in (OVERVIEW, BUDGET, METRICS))
    assert (overview["fleet"]["held"], overview["fleet"]["heldPods"]) == ("2", 1)
    for row in (overview["budgets"]["team-a/one"], page["budget"]):
        assert (row["burnRateGpus"], row["heldPods"]) == ("2", 1)
    assert 'headroom_budget_held_pods{name="one",namespace="team-a"} 1.0' in metrics["text"]
    assert made.decisions == last, "looking decides nothing"


async def test_a_budget_that_cannot_be_decided_on_takes_no_page_away(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = list[Exception]()
    monkeypatch.setattr(source, "at_one_moment", lambda _: 1 / 0)
    made = Made(a_world(1))
    found = Local(made.showing()).made_together([OVERVIEW, BUDGET], EVERYTHING, failed.append)
    assert [each.body is not None for each in found.values()] == [True, True]
    assert [type(each) for each in failed] == [ZeroDivisionError]


async def test_usage_that_does_not_move_is_of_the_moment_all_the_same() -> None:
    made = Made(a_used_world(a_budget(hours="10"), pods=[], now=NOON))
    [(ref, decision)] = made.decisions.items()
    written = structs.replace(made._world.resources[ref], status=decision.status)
    made.become(structs.replace(made._world, resources={ref: written}, now=NOON + HOUR))
    assert status_wire(made.decisions[ref].status)["asOf"] == times.text(NOON), "nothing is to be written"
    [sheet] = (await Local(made.showing()).make_together([BUDGET], EVERYTHING)).values()
    assert (sheet.body or {})["budget"]["asOf"] == times.text(NOON + HOUR)

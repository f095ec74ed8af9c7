"""Lines to draw: each point is what a reckoning of that moment says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.core import budgets, usage
from headroom.core.usage import curves
from headroom.model.facts import Pod, Price
from headroom.model.times import HOUR, MINUTE
from headroom.model.world import World
from tests.builders import NOON, a_node, a_pod, a_used_world
from tests.core.stage import TEAM, a_budget


def a_run(name: str, ago: int, length: int | None, gpus: int = 1) -> Pod:
    """A pod that began so many minutes before noon, and ended after so many."""
    began = NOON - ago * MINUTE
    ended: dict[str, Any] = {}
    if length is not None and length < ago:
        ended = {"ended": began + length * MINUTE, "phase": "Succeeded", "ended_by": "ContainerFinish"}
    base: dict[str, Any] = {"labels": TEAM, "node": "n", "phase": "Running", "started": began, "created": began}
    return a_pod(name, gpus=gpus, **base | ended)


def at(world: World, moment: int) -> int:
    """What the first budget had used at a moment, counted pod by pod."""
    [budget] = usage.budgets_of(world)
    begin = moment - budget.spec.quota.window_hours * HOUR
    total = 0
    for row in world.usage:
        end = row.ended if row.ended is not None else moment
        total += max(0, min(end, moment) - max(row.start, begin)) * row.amounts[0][1]
    return total


runs = st.lists(st.tuples(st.integers(1, 300), st.none() | st.integers(1, 200), st.integers(1, 8)), max_size=8)


@given(runs, st.integers(1, 3))
def test_every_point_is_what_the_window_held_then(given_runs: list[tuple[int, int | None, int]], window: int) -> None:
    pods = [a_run(f"p{number}", *each) for number, each in enumerate(given_runs)]
    world = a_used_world(a_budget(hours="10", window=window), pods=pods)
    [budget] = usage.budgets_of(world)
    [(_, now)] = usage.reckonings(world)
    drawn = budgets.drawing(world, budget)
    assert drawn.gpus.past.moments[0] == NOON - window * HOUR
    assert drawn.gpus.past.sums == [at(world, moment) for moment in drawn.gpus.past.moments]
    assert drawn.gpus.past.sums[-1] == drawn.gpus.ahead.sums[0] == now.gpu_ms
    assert drawn.gpus.ahead.sums == [at(world, moment) for moment in drawn.gpus.ahead.moments]
    assert drawn.gpus.quota == 10 * usage.GPU_HOUR


def test_it_looks_a_little_beyond_the_moment_at_which_the_quota_is_reached() -> None:
    world = a_used_world(a_budget(hours="10", window=24), pods=[a_run("p", 60, None, gpus=4)])
    [budget] = usage.budgets_of(world)
    drawn = budgets.drawing(world, budget).gpus
    reached = NOON + 90 * MINUTE
    assert drawn.ahead.moments[-1] > reached
    assert drawn.ahead.moments[-1] <= NOON + 24 * HOUR
    before = [total for moment, total in zip(*drawn.ahead, strict=True) if moment < reached]
    assert max(before) < drawn.quota  # type: ignore[operator]  # there is one
    assert drawn.ahead.sums[-1] > drawn.quota  # type: ignore[operator]  # as above


def test_the_past_begins_where_everything_is_known() -> None:
    world = a_used_world(a_budget(hours="10", window=2), pods=[a_run("p", 60, None)])
    [budget] = usage.budgets_of(world)
    world.usage.complete_since = NOON - 3 * HOUR
    assert budgets.drawing(world, budget).gpus.past.moments[0] == NOON - HOUR
    world.usage.complete_since = NOON
    assert budgets.drawing(world, budget).gpus.past.moments == [NOON]


def test_gpus_in_use_are_counted_at_every_moment() -> None:
    pods = [a_run("a", 60, 20, gpus=4), a_run("b", 45, None, gpus=2), a_run("c", 10, 5, gpus=1)]
    world = a_used_world(a_budget(), pods=pods)
    line = usage.held(world, NOON - HOUR, points=12)
    assert line.moments[:3] == [NOON - HOUR, NOON - 55 * MINUTE, NOON - 50 * MINUTE]
    assert [each // usage.MICRO for each in line.sums] == [4, 4, 4, 6, 2, 2, 2, 2, 2, 2, 3, 2, 2]


def test_what_another_cluster_uses_is_not_held_here() -> None:
    world = a_used_world(a_budget(), pods=[a_run("a", 60, None, gpus=4)])
    elsewhere = structs.replace(next(iter(world.usage)), cluster="elsewhere", uid="other")
    world.usage.put(elsewhere)
    assert usage.held(world, NOON - HOUR).sums[-1] == 4 * usage.MICRO


@pytest.mark.parametrize(("begin", "end", "points"), [(0, 0, 10), (5, 4, 10), (0, 500, 10), (1_700, 9_900, 3)])
def test_moments_are_in_order_and_reach_both_ends(begin: int, end: int, points: int) -> None:
    moments = curves.evenly(begin, end, points)
    assert moments == sorted(set(moments))
    assert moments[0] == begin
    assert moments[-1] == max(begin, end)
    assert len(moments) <= points + 3


def test_dollars_have_a_line_of_their_own() -> None:
    nodes, book = [a_node("n", gpus=1)], (Price(node="n", price_per_hour=3_000_000),)
    world = a_used_world(a_budget(quota={"usd": "12"}), pods=[a_run("p", 120, None)], nodes=nodes, prices=book)
    [budget] = usage.budgets_of(world)
    drawn = budgets.drawing(world, budget)
    assert drawn.usd.quota == 12 * usage.DOLLAR
    assert drawn.usd.past.sums[-1] == 6 * usage.DOLLAR

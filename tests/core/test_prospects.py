"""What comes of a budget, held against the reckoning of the moment and against letting time pass."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.budgets import Forecast
from headroom.api.kinds import AnyResource
from headroom.cli import capabilities
from headroom.core import budgets, usage
from headroom.core.budgets import More, prospect
from headroom.model import times
from headroom.model.changes import EVERYTHING
from headroom.model.facts import Pod, Price
from headroom.model.times import HOUR, MINUTE
from headroom.model.world import World
from headroom.runtime.metrics import Metrics
from tests.builders import NOON, a_node, a_used_world
from tests.core.stage import a_budget, running

GPU = 1_000_000


def a_world(budget: AnyResource, *pods: Pod, **more: Any) -> tuple[World, AnyResource]:
    world = a_used_world(budget, pods=pods, **more)
    return world, usage.budgets_of(world)[0]


def test_without_more_it_is_what_the_reckoning_says() -> None:
    world, budget = a_world(a_budget(hours="50"), running("a", 10 * HOUR, gpus=4))
    found = prospect(world, budget)
    assert found.now.if_nothing_ends.exhausted_at == found.exhausted_at == NOON + 150 * MINUTE
    assert (found.recovers_at, found.starts_at) == (None, None)


def test_one_that_is_used_up_holds_again() -> None:
    over = running("a", 20 * HOUR, gpus=2, phase="Succeeded", ended=NOON - HOUR, ended_by="ContainerFinish")
    world, budget = a_world(a_budget(hours="30"), over)
    found = prospect(world, budget)
    assert found.exhausted_at is None
    assert found.recovers_at == found.now.if_nothing_ends.recovers_at
    assert found.recovers_at is not None


def test_what_declares_its_end_is_taken_at_its_word() -> None:
    endless, budget = a_world(a_budget(hours="50"), running("a", 10 * HOUR, gpus=4))
    assert prospect(endless, budget).exhausted_at == NOON + 150 * MINUTE
    ends, budget = a_world(a_budget(hours="50"), running("a", 10 * HOUR, gpus=4, deadline=12 * HOUR))
    assert prospect(ends, budget).exhausted_at is None
    assert prospect(ends, budget).now.if_nothing_ends.exhausted_at == NOON + 150 * MINUTE


def test_status_page_event_and_metrics_tell_the_same_forecast() -> None:
    """Four GPUs end after half an hour, and one more runs on: over quota later than if nothing ended."""
    ends = running("a", 10 * HOUR, gpus=4, deadline=10 * HOUR + 30 * MINUTE)
    world, budget = a_world(a_budget(hours="46", window=48), ends, running("b", HOUR))
    found = prospect(world, budget)
    # By hand: 41 hours are used, 2.5 more until half past, and the last 2.5 by the one that runs on.
    assert found.exhausted_at == NOON + 3 * HOUR
    [decision] = budgets.PLAN.decide(world, EVERYTHING)
    told = decision.status.forecast  # type: ignore[attr-defined]  # a budget has one
    assert told is not None
    assert times.moment(told.exhausted_at) == found.exhausted_at
    assert times.moment(told.exhausted_at_if_nothing_ends) == found.now.if_nothing_ends.exhausted_at
    assert found.now.if_nothing_ends.exhausted_at == NOON + HOUR
    assert told.exhausted_at in decision.message
    drawing = budgets.drawing(world, budget)
    assert drawing.turns.exhausted_at == found.exhausted_at
    metrics = capabilities.measured(Metrics())
    for each in metrics.measures:
        each.measure(world, {decision.resource: decision})
    line = next(each for each in metrics.render().decode().splitlines() if "exhausted_timestamp_seconds{" in each)
    assert float(line.split()[-1]) == found.exhausted_at / 1000


def test_where_nothing_declares_its_end_there_is_one_line() -> None:
    world, _ = a_world(a_budget(hours="50"), running("a", 10 * HOUR, gpus=4))
    [decision] = budgets.PLAN.decide(world, EVERYTHING)
    assert decision.status.forecast == Forecast(  # type: ignore[attr-defined]  # as above
        exhausted_at=times.text(NOON + 150 * MINUTE)
    )


@pytest.mark.parametrize(
    ("gpus", "hours", "fits", "exhausted"),
    [
        (4, 2, True, None),
        (8, 4, False, NOON + 150 * MINUTE),
        (1, 24, True, None),
        (100, 1, False, NOON + 12 * MINUTE),
    ],
)
def test_more_is_added_to_what_runs(gpus: int, hours: int, fits: bool, exhausted: int | None) -> None:
    """Something has used 30 of 50 hours, all of them within the last ten."""
    over = running("a", 10 * HOUR, gpus=3, phase="Succeeded", ended=NOON, ended_by="ContainerFinish")
    world, budget = a_world(a_budget(hours="50"), over)
    found = prospect(world, budget, More(gpus * GPU, hours * HOUR))
    assert (found.fits, found.exhausted_at) == (fits, exhausted)
    assert (found.starts_at == NOON) == fits


def test_when_it_could_start_is_the_first_moment_at_which_it_would_fit() -> None:
    over = running("a", 10 * HOUR, gpus=3, phase="Succeeded", ended=NOON, ended_by="ContainerFinish")
    world, budget = a_world(a_budget(hours="50"), over)
    more = More(8 * GPU, 4 * HOUR)
    starts = prospect(world, budget, more).starts_at
    assert starts is not None
    for moment, fits in ((starts - 1, False), (starts, True)):
        later = structs.replace(world, now=moment)
        assert prospect(later, budget, more).fits is fits


def test_what_would_be_stopped_again_does_not_fit() -> None:
    world, budget = a_world(a_budget(hours="100", enforce=["50% Evict"]), running("a", 10 * HOUR, gpus=4))
    assert not prospect(world, budget, More(4 * GPU, 2 * HOUR)).fits
    harmless, budget = a_world(a_budget(hours="100", enforce="AlertOnly"), running("a", 10 * HOUR, gpus=4))
    assert prospect(harmless, budget, More(4 * GPU, 2 * HOUR)).fits


def test_nothing_ever_fits_that_is_more_than_the_quota() -> None:
    world, budget = a_world(a_budget(hours="10"))
    found = prospect(world, budget, More(11 * GPU, HOUR))
    assert (found.fits, found.starts_at) == (False, None)


def test_dollars_count_by_the_dearest_that_is_paid() -> None:
    node = a_node("n", gpus=4)
    budget = a_budget(hours="1000", quota={"usd": "30"})
    world, budget = a_world(
        budget, running("a", 2 * HOUR, gpus=4), nodes=[node], prices=(Price(price_per_hour=4_000_000, node="n"),)
    )
    assert prospect(world, budget).now.usd_ms == 8 * usage.DOLLAR
    found = prospect(world, budget, More(4 * GPU, 10 * HOUR))
    assert not found.fits
    assert found.exhausted_at == NOON + 165 * MINUTE, "22 dollars at 8 an hour"

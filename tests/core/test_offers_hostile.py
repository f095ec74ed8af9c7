"""Attacks on cheapest capacity: prices that lie, an API server that changes things, statuses by hand or by a clock that was ahead."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.offers_status import MOST_RUNGS, Savings
from headroom.model import times
from tests.core.offer_stage import Stage, a_leftover, an_offer, on_demand

YEAR = 365 * 24 * times.HOUR
TWO = (an_offer("g5.xlarge", "us-east-1a", 0.4), an_offer("g6.xlarge", "us-east-1b", 0.6))


def remember(stage: Stage, **fields: Any) -> None:
    """The status says something else."""
    stage.resources = {
        ref: structs.replace(each, status=structs.replace(each.status, **fields))
        for ref, each in stage.resources.items()
    }


def remember_of_rung(stage: Stage, name: str, **fields: Any) -> None:
    """The status says something else of a rung."""
    every = stage.status().rungs
    remember(stage, rungs=tuple(structs.replace(each, **fields) if each.name == name else each for each in every))


# --- numbers that nobody should count with ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dollars", [1e7, 1e18, 1e40])
@pytest.mark.parametrize("strategy", ["CostAndRisk", "CheapestAboveScore"])
def test_a_price_beyond_all_reason_is_none(dollars: float, strategy: str) -> None:
    """Nobody can write it down, or divide by it."""
    absurd = (an_offer("p5.48xlarge", "us-east-1a", dollars), on_demand("g6.xlarge", dollars))
    stage = Stage(a_leftover(strategy=strategy, minSpotScore=0), offers=(*TWO, *absurd))
    decision = stage.settle()
    assert decision.status.conditions[0].reason == "Reconciled"
    assert set(stage.status().selected_instance_types) == {"g5.xlarge", "g6.xlarge"}
    assert stage.status().passed_over == {"Unpriced": 2}


@pytest.mark.parametrize("usd", ["NaN", "-Infinity", "1e400", "1e999999999", "ten"])
def test_savings_that_cannot_be_are_forgotten(usd: str) -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    remember(stage, savings=Savings(usd=usd, usd_per_hour=usd, as_of=times.text(stage.now)))
    stage.tick(5)
    found = stage.status().savings
    assert found is not None
    assert (found.usd, found.usd_per_hour) == ("0", "0")


# --- an API server that changes what is written ------------------------------------------------------------------------------------


def test_a_template_that_the_api_server_adds_to_is_that_of_our_own_rung() -> None:
    """A default of a later Karpenter, or a webhook of an administrator."""
    stage = Stage(offers=TWO)
    stage.keeps = with_a_grace
    ready = stage.settle().status.conditions[0]
    assert (ready.status, ready.reason) == ("True", "Reconciled")
    before = len(stage.performed)
    stage.writes.clear()
    stage.settle()
    assert len(stage.performed) - before == len(stage.pools), "another process writes each once"
    assert {each.state for each in stage.status().rungs} == {"Active"}


def with_a_grace(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec with one more field in its template."""
    inner = {**spec["template"]["spec"], "terminationGracePeriod": "48h"}
    return {**spec, "template": {**spec["template"], "spec": inner}}


def test_of_more_rungs_than_a_status_holds_the_first_are_kept() -> None:
    """The API server would refuse the whole status, and nothing would be remembered any more."""
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.pools[stage.by_weight()[0]]
    for number in range(MOST_RUNGS):
        template = f"{number:08x}"
        name = f"leftover-cheap-{template}"
        stage.pools[name] = structs.replace(first, name=name, uid=name, template=template)
        stage.specs[name] = stage.specs[first.name]
    stage.decide()
    assert len(stage.status().rungs) == MOST_RUNGS
    assert len(stage.rungs("Active")) == 3


# --- clocks that were turned back, and statuses written by hand ------------------------------------------------------------------


@pytest.mark.parametrize("what", ["since", "challenger_since", "as_of", "switches"])
def test_what_a_clock_wrote_that_was_a_year_ahead_holds_a_switch_up_for_a_day_at_most(what: str) -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first, ahead = stage.by_weight()[0], times.text(stage.now + YEAR)
    chosen = stage.status().chosen
    assert chosen is not None
    written: Any = (ahead,) * 1000 if what == "switches" else ahead
    remember(stage, chosen=structs.replace(chosen, **{what: written}))
    stage.price("g5.xlarge-us-east-1a-spot", 0.9)
    for _ in range(100):
        stage.tick(15)
    assert stage.by_weight()[0] != first


def test_a_rung_rests_no_longer_than_an_hour_whatever_is_written() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    remember_of_rung(stage, first, until=times.text(stage.now + YEAR))
    for _ in range(5):
        stage.tick(15)
    assert stage.rungs("Resting") == []


def test_a_failure_is_noticed_although_a_later_one_is_written() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    remember_of_rung(stage, first, failed_at=times.text(stage.now + YEAR))
    stage.tick(1)
    stage.fail(first)
    stage.tick(0.1)
    assert [each.name for each in stage.rungs("Resting")] == [first]


def test_a_failure_by_a_clock_that_is_ahead_is_counted_once() -> None:
    """Karpenter writes the moment, on another machine."""
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.launch(first, launched=False, registered=False, failure="LaunchFailed", failed_at=stage.now + times.MINUTE)
    stage.tick(0.1)
    before = stage.rungs("Resting")
    stage.tick(0.1)
    assert stage.rungs("Resting") == before
    assert [each.failures for each in before] == [1]


def test_an_empty_rung_that_leaves_goes_whatever_is_written() -> None:
    stage = Stage(a_leftover(families=["g5", "g6"]), offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    del stage.offers["g5.xlarge-us-east-1a-spot"]
    stage.tick(1)
    remember_of_rung(stage, first, since=times.text(stage.now + YEAR))
    for _ in range(3):
        stage.tick(15)
    assert first not in stage.pools


def test_fewer_weights_while_no_price_is_known_leave_out_rungs_and_share_no_weight() -> None:
    kinds = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge")
    stage = Stage(offers=[an_offer(kind, "us-east-1a", 0.4 + place / 10) for place, kind in enumerate(kinds)])
    stage.settle()
    order = stage.by_weight()
    assert len(order) == 4
    ref = next(iter(stage.resources))
    narrow = a_leftover(weights={"min": 7, "max": 9})
    stage.resources[ref] = structs.replace(narrow, status=stage.resources[ref].status)
    stage.offers = {}
    stage.settle()
    assert stage.by_weight() == [*order[:2], order[3]], "the last one is of on-demand machines"
    assert [stage.pools[name].weight for name in stage.by_weight()] == [9, 8, 7]

"""Why the first offer is first, and what would take its place, as sentences."""

from __future__ import annotations

from headroom.api.offers_status import Challenger, ChosenOffer, LeftoverNodePoolStatus
from headroom.core.offers import reasons
from headroom.model import times
from tests.core.offer_stage import Stage, a_leftover, an_offer
from tests.sentences import Says

PAIR = (an_offer("g5.xlarge", "us-east-1a", 0.5), an_offer("g6.xlarge", "us-east-1b", 0.6))


def said(stage: Stage) -> list[str]:
    [resource] = stage.resources.values()
    return list(reasons(resource.spec, stage.status()))


def test_without_an_offer_nothing_is_first(says: Says) -> None:
    stage = Stage()
    stage.tick()
    says(*said(stage))


def test_alone_it_stays(says: Says) -> None:
    stage = Stage(offers=PAIR[:1])
    stage.settle()
    says(*said(stage))


def test_what_would_save_is_told_with_what_it_waits_for(says: Says) -> None:
    stage = Stage(offers=PAIR)
    stage.settle()
    says(*said(stage)[1:])
    stage.price("g6.xlarge-us-east-1b-spot", 0.4)
    stage.tick(7)
    says(*said(stage)[1:])


def test_a_saving_must_last_and_switches_are_limited(says: Says) -> None:
    stage = Stage(a_leftover(minDwell="1m", maxSwitchesPerDay=1), offers=PAIR)
    stage.settle()
    stage.tick(60)
    stage.price("g6.xlarge-us-east-1b-spot", 0.4)
    stage.tick(7)
    says(said(stage)[2])
    stage.tick(31)
    assert said(stage)[0].startswith("g6.xlarge")
    stage.price("g5.xlarge-us-east-1a-spot", 0.3)
    stage.tick(60)
    stage.tick(60)
    says(*said(stage)[2:])


def test_what_is_passed_over_is_counted(says: Says) -> None:
    stage = Stage(a_leftover(strategy="CheapestAboveScore", families=["g5"]), offers=PAIR)
    stage.settle()
    says(said(stage)[-1])


def test_the_last_moment_of_all_can_be_told() -> None:
    """Somebody may write it into the status."""
    chosen = ChosenOffer(offer="g5.xlarge/use1-az6/spot", since=times.text(times.LAST))
    other = Challenger(offer="g6.xlarge/use1-az1/spot", saving="10%", saving_needed="5%")
    found = list(reasons(a_leftover().spec, LeftoverNodePoolStatus(chosen=chosen, runner_up=other)))
    assert found[-1].startswith("No switch before 9999-12-31T23:59:59")

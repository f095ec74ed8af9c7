"""The story of spot pools: every turn once, in words."""

from __future__ import annotations

from msgspec import structs

from headroom.api.spot_pools_status import Slot, SoldOut, SpotpoolStatus
from headroom.cli.story_spot import SpotStory
from headroom.model.decisions import Decision, Ref
from headroom.model.times import MINUTE, text
from tests.builders import NOON, a_resource

REF = Ref("Spotpool", "team-a", "inference")
FIRST = Slot(slot=0, state="Launching", token="t0", instance_type="g5.12xlarge", zone="us-east-1a")


def told(story: SpotStory, *slots: Slot, sold_out: tuple[SoldOut, ...] = ()) -> list[str]:
    status = SpotpoolStatus(slots=slots, sold_out=sold_out)
    decision = Decision(resource=REF, status=status, reason="x", message="x")
    return [said.removeprefix("spot: ") for _, said in story.decided(decision, NOON)]


def test_the_life_of_a_machine_is_told_turn_by_turn() -> None:
    story = SpotStory()
    assert told(story, FIRST) == ["team-a/inference launches g5.12xlarge in us-east-1a"]
    assert told(story, FIRST) == []
    running = structs.replace(FIRST, state="Running", instance_id="i-1")
    assert told(story, running) == []
    joined = structs.replace(running, node="spot-0", joined_at=text(NOON))
    assert told(story, joined) == ["team-a/inference has a new node, spot-0"]
    reclaimed = structs.replace(joined, state="Draining", reclaim_at=text(NOON + MINUTE), cause="Reclaimed")
    assert told(story, reclaimed) == [
        "team-a/inference gets notice that the cloud reclaims i-1 at 12:01",
    ]
    assert told(story, structs.replace(reclaimed, state="Ending")) == []
    assert told(story) == []
    again = structs.replace(FIRST, token="t1", zone="us-east-1b")
    assert told(story, again) == ["team-a/inference launches g5.12xlarge in us-east-1b"]


def test_why_a_machine_ends_is_told() -> None:
    story = SpotStory()
    running = structs.replace(FIRST, state="Running", instance_id="i-1")
    told(story, running)
    draining = structs.replace(running, state="Draining", cause="Idle")
    assert told(story, draining) == []
    assert told(story, structs.replace(draining, state="Ending")) == ["team-a/inference ends i-1: idle"]


def test_what_only_moves_in_a_status_is_news_and_told_once() -> None:
    story = SpotStory()
    running = structs.replace(FIRST, state="Running", instance_id="i-1")
    told(story, running)
    status = SpotpoolStatus(slots=(structs.replace(running, node="spot-0", joined_at=text(NOON)),))
    decision = Decision(resource=REF, status=status, reason="x", message="x")
    pool = a_resource("Spotpool", "inference")
    assert [said for _, said in story.news(REF, decision, pool, NOON)] == [
        "spot: team-a/inference has a new node, spot-0"
    ]
    assert list(story.news(REF, decision, pool, NOON)) == []
    assert list(story.decided(decision, NOON)) == []


def test_what_is_sold_out_is_told_each_time() -> None:
    story = SpotStory()
    gone = SoldOut(instance_type="g5.12xlarge", zone="us-east-1a", failures=1, until=text(NOON + 5 * MINUTE))
    said = "g5.12xlarge is not available in us-east-1a, so it is not tried before 12:05"
    assert told(story, sold_out=(gone,)) == [said]
    assert told(story, sold_out=(gone,)) == []
    assert len(told(story, sold_out=(structs.replace(gone, failures=2),))) == 1

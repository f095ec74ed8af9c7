"""The story of cheapest capacity: every turn once, in words."""

from __future__ import annotations

from headroom.cli.story_offers import OffersStory
from tests.web import cheap


def test_what_is_first_what_fails_and_what_leaves_is_told_once() -> None:
    story, stage = OffersStory(), cheap.a_stage()
    said = [each for _, each in story.decided(cheap.left_by(stage).decision, stage.now)]
    assert said == [
        "offers: cheap puts g5.xlarge in us-east-1a first at $0.4000 an hour",
        "offers: cheap has 2 new nodes, g5.xlarge",
        "offers: cheap has 1 new node, g6.xlarge",
        "offers: cheap does not try g4dn.xlarge before 12:05: a launch failed",
    ]
    left = cheap.left_by(stage)
    assert list(story.decided(left.decision, stage.now)) == []
    stage = cheap.moved()
    left = cheap.left_by(stage)
    said = [each for _, each in story.news(left.decision.resource, left.decision, left.resource, stage.now)]
    assert said == [
        "offers: cheap puts g6.xlarge in us-east-1a first at $0.2500 an hour, instead of g5.xlarge in us-east-1a",
        "offers: cheap adds no more g5.xlarge; its 2 nodes stay until they are empty",
        "offers: cheap adds no more g5.xlarge; its 0 nodes stay until they are empty",
    ]
    assert list(story.news(left.decision.resource, left.decision, left.resource, stage.now)) == []

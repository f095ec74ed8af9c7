"""Cheapest capacity as an operator has left it: a ladder with nodes, a rung whose launch failed, one that leaves, and a feed."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.model.cloud_facts import OfferFeed
from headroom.model.decisions import Decision
from headroom.model.times import SECOND
from headroom.model.world import World
from tests.builders import a_used_world
from tests.core.offer_stage import Stage, a_class, a_leftover, an_offer, on_demand
from tests.web.pools import Left

SPEC: dict[str, Any] = {
    "families": ["g5", "g6", "g4dn"],
    "nodeClassName": "gpu",
    "taints": ["nvidia.com/gpu:NoSchedule"],
    "limits": {"nvidia.com/gpu": "16"},
}
OFFERS = (
    an_offer("g5.xlarge", "us-east-1a", 0.40, score=8),
    an_offer("g5.xlarge", "us-east-1b", 0.55, score=8),
    an_offer("g6.xlarge", "us-east-1a", 0.50, score=7),
    an_offer("g4dn.xlarge", "us-east-1b", 0.45, score=4),
    an_offer("p5.48xlarge", "us-east-1a", 20.0, gpus=8, score=3),
    an_offer("g6.2xlarge", "us-east-1b", 0.9, available=False),
    on_demand("g5.xlarge", 1.006),
    on_demand("g6.xlarge", 0.805),
)


def a_stage(name: str = "cheap", **spec: Any) -> Stage:
    """One whose first two rungs have nodes; of the third a launch failed."""
    stage = Stage(a_leftover(name, **SPEC | spec), offers=OFFERS, classes=(a_class(),))
    stage.settle()
    first, second, third, *_ = stage.by_weight()
    stage.launch(first, "node-1")
    stage.launch(first, "node-2")
    stage.launch(second, "node-3")
    stage.fail(third)
    stage.settle()
    return stage


def left_by(stage: Stage) -> Left:
    """The resource with its status, and the last decision on it."""
    [decision] = stage.tick(1)
    [resource] = stage.resources.values()
    return Left(resource, decision)


def moved() -> Stage:
    """Prices moved since: another offer is first, and one that is not to be had any more leaves."""
    stage = a_stage()
    stage.price("g6.xlarge-us-east-1a-spot", 0.25)
    for _ in range(20):
        stage.tick(15)
    stage.price("g5.xlarge-us-east-1a-spot", None)
    stage.price("g5.xlarge-us-east-1b-spot", None)
    stage.tick(7)
    return stage


def world_of(stage: Stage, *others: AnyResource, **more: Any) -> World:
    """All that is known."""
    feed = OfferFeed(pool="cheap", at=stage.now - 42 * SECOND)
    facts: dict[str, Any] = {
        "offers": stage.offers,
        "node_pools": stage.pools,
        "node_claims": stage.claims,
        "node_classes": stage.classes,
        "launch_failures": stage.failures,
        "offer_feeds": {"cheap": feed},
        "instances_given": False,
    }
    return a_used_world(*stage.resources.values(), *others, now=stage.now, **facts | more)


def failing(world: World) -> World:
    """The same while prices cannot be read."""
    feed = OfferFeed(pool="cheap", at=world.now - 900 * SECOND, problem="Prices", message="Throttled by EC2.")
    return structs.replace(world, offer_feeds={"cheap": feed})


def decided(left: Left) -> dict[Any, Decision]:
    """As the loop remembers it."""
    return {left.decision.resource: left.decision}

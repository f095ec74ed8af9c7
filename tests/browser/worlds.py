"""Clusters to look at: one with a bit of everything, an empty one, and one with 500 budgets and 10,000 pods."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.model.times import HOUR, MINUTE
from headroom.model.world import World
from tests.builders import NOON, a_node, a_pod, a_resource, a_used_world
from tests.core.stage import a_budget, gated, running

HOSTILE = "<img src=x onerror=alert(1)>"
BUDGETS, PODS, NODES = 500, 10_000, 1_000


def elsewhere(resource: AnyResource) -> AnyResource:
    return structs.replace(resource, namespace="elsewhere")


def a_fleet(*, train_hours: int = 3, now: int = NOON, without: str = "", **more: Any) -> World:
    """Budgets of several states, nodes of several kinds, pods that run and wait. `without` leaves a budget out."""
    pods = [
        running("train", train_hours * HOUR, gpus=4),
        running("secret", 2 * HOUR, gpus=2, namespace="elsewhere"),
        running("loose", HOUR, labels=()),
        gated("waits", gpus=8),
        a_pod("late", gpus=1, unschedulable_since=NOON - MINUTE, unschedulable_message="0/2 nodes have room"),
        a_pod("web", gpus=0, node="n", phase="Running"),
    ]
    nodes = [a_node("n"), a_node("m", ready=False, unschedulable=True, labels=(("topology.kubernetes.io/zone", "z1"),))]
    budgets = [
        a_budget(hours="20", enforce=["50% AlertOnly", "100% Hold"]),
        a_budget("broken", selector={"matchLabels": {"team": HOSTILE}}, quota={"colour": HOSTILE}),
        a_budget("roomy", hours="1000", enforce="AlertOnly", quota={"usd": "500"}),
        elsewhere(a_budget("two")),
    ]
    kept = [each for each in budgets if each.name != without]
    pool = a_resource("PowerPool", "basement")
    return a_used_world(*kept, pool, pods=pods, nodes=nodes, now=now, **more)


def empty() -> World:
    """A cluster without anything."""
    return a_used_world()


def large(*, spent: int = 0) -> World:
    """A large fleet; the first budget has used so many hours more."""
    budgets = [
        a_budget(f"team-{each:03}", hours=str(50 + each), selector={"matchLabels": {"team": f"t{each}"}})
        for each in range(BUDGETS)
    ]
    pods = [
        running(
            f"pod-{each:05}",
            (1 + each % 5 + (spent if each == 0 else 0)) * HOUR,
            labels=(("team", f"t{each % BUDGETS}"),),
            node=f"node-{each % NODES:04}",
        )
        for each in range(8 * NODES)
    ]
    pods += [a_pod(f"late-{each:05}", labels=(("team", f"t{each % BUDGETS}"),)) for each in range(PODS - len(pods))]
    return a_used_world(*budgets, pods=pods, nodes=[a_node(f"node-{each:04}") for each in range(NODES)])

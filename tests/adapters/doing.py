"""Carries out actions on a simulated cluster, for the tests of effects."""

from __future__ import annotations

from typing import Any

import msgspec

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model import actions
from headroom.model.actions import Action
from tests.adapters.simulated import Cluster
from tests.builders import a_resource

BY = "GPUWorkloadBudget/team-a/one"
POD = "team-a/train-0"
CHORES = AnyResource(kind="Chores", namespace="", name="budgets", spec=None, status=Status())
"""What stands for a plan that found something to do for which no budget asks."""


def on(kind: type[Action], document: dict[str, Any], **more: Any) -> Action:
    return msgspec.convert({"type": kind.__name__, "pod": POD, "uid": document["metadata"]["uid"]} | more, kind)


def evict(document: dict[str, Any], **more: Any) -> Action:
    version = document["metadata"]["resourceVersion"]
    return on(actions.EvictPod, document, **({"resourceVersion": version, "graceSeconds": 30} | more))


async def do(cluster: Cluster, action: Action, resource: AnyResource | None = None) -> None:
    await cluster.port.perform(action, resource or a_resource())


async def do_twice(cluster: Cluster, action: Action, resource: AnyResource | None = None) -> None:
    """The second time must find nothing left to do."""
    await do(cluster, action, resource)
    writes = cluster.writes()
    await do(cluster, action, resource)
    assert cluster.writes() == writes


def notes(cluster: Cluster, kind: str, namespace: str, name: str) -> dict[str, str]:
    found: dict[str, str] = cluster.stored(kind, namespace, name)["metadata"].get("annotations") or {}
    return found


def forget(cluster: Cluster, path: str) -> None:
    cluster.server.do("DELETE", path, {"gracePeriodSeconds": 0})


def told(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    """The events: kind and name of what they are on, type, reason."""
    return [
        (
            f"{each['involvedObject']['kind']}/{each['involvedObject']['name']}",
            each["type"],
            each["reason"],
            each["message"],
        )
        for each in cluster.server.objects("Event")
    ]

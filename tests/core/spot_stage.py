"""A small stage for spot pools: a cloud that does what a test says, and a status that is written as decided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.spot_pools_status import Slot, SpotpoolStatus
from headroom.core import CAPACITY
from headroom.model import times
from headroom.model.actions import Action, LaunchInstance, TerminateInstance
from headroom.model.changes import EVERYTHING
from headroom.model.cloud_facts import Instance, Launch, Listing
from headroom.model.decisions import Decision
from headroom.model.facts import Node, Pod
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, by_ref, ref_of
from tests.builders import NOON, a_node, a_resource

SECOND, MINUTE, HOUR = times.SECOND, times.MINUTE, times.HOUR
GPU = "nvidia.com/gpu"
TYPE, ZONE = "GN7.2XLARGE32", "ap-singapore-2"
POOL = "team-a/one"


def a_spotpool(name: str = "one", **spec: Any) -> AnyResource:
    """A pool that keeps 2 to 2 machines in one zone, unless said otherwise, and that has our finalizer."""
    pool = a_resource("Spotpool", name, **{"availabilityZone": ZONE} | spec)
    assert not pool.problems, pool.problems
    return structs.replace(pool, finalizers=(marks.POOL_FINALIZER,))


def with_slots(pool: AnyResource, *slots: Slot, **status: Any) -> AnyResource:
    """A pool with what is remembered of some slots."""
    return structs.replace(pool, status=structs.replace(pool.status, slots=slots, **status))


def a_slot(number: int = 0, state: str = "Running", at: int = NOON - HOUR, **fields: Any) -> Slot:
    """What is remembered of a slot; moments are given in milliseconds."""
    told = {key: times.text(value) if isinstance(value, int) else value for key, value in fields.items()}
    base: dict[str, Any] = {
        "since": times.text(at),
        "launched_at": times.text(at),
        "instance_type": TYPE,
        "zone": ZONE,
        "token": f"token-{number}",
    }
    if state not in ("Launching", "Cancelling"):
        base |= {"instance_id": f"ins-{number}", "seen_at": times.text(at), "joined_at": times.text(at)}
    return Slot(slot=number, state=state, **base | told)  # type: ignore[arg-type]  # a test says which


def a_machine(number: int = 0, state: str = "RUNNING", *, pool: str = "one", **fields: Any) -> Instance:
    """A machine of a pool."""
    tags = {
        marks.CLUSTER_TAG: "default",
        marks.OWNER_TAG: f"uid-Spotpool-{pool}",
        marks.SLOT_TAG: str(number),
    }
    base: dict[str, Any] = {
        "name": f"ins-{number}",
        "provider": "tencent",
        "region": "ap-singapore",
        "zone": ZONE,
        "instance_type": TYPE,
        "state": state,
        "tags": tags,
        "launched_at": NOON - HOUR,
        "private_ip": f"10.0.0.{number}",
    }
    return Instance(**base | fields)


def its_node(number: int = 0, gpus: int = 1, **fields: Any) -> Node:
    """The node that a machine became."""
    base: dict[str, Any] = {"provider_id": f"qcloud:///2/ins-{number}", "ready_since": NOON - HOUR}
    return a_node(f"node-{number}", gpus=gpus, **base | fields)


def a_view(
    *pools: AnyResource,
    machines: Iterable[Instance] = (),
    launches: Iterable[Launch] = (),
    nodes: Iterable[Node] = (),
    pods: Iterable[Pod] = (),
    now: int = NOON,
    **more: Any,
) -> World:
    """A world with these pools and machines; `listed` is the moment of a live listing of every pool."""
    pod_table, node_table = PodTable(), NodeTable()
    for pod in pods:
        pod_table.put(pod)
    for node in nodes:
        node_table.put(node)
    if "listed" in more:
        at = more.pop("listed")
        keys = [f"{each.namespace}/{each.name}" for each in pools]
        more |= {"instances_given": False, "listings": {key: Listing(pool=key, at=at) for key in keys}}
    more["offers"] = {each.name: each for each in more.get("offers", ())}
    more["gateways"] = {each.pool: each for each in more.get("gateways", ())}
    return World(
        now=now,
        resources=by_ref(pools),
        pods=pod_table,
        nodes=node_table,
        instances={each.name: each for each in machines},
        launches={each.token: each for each in launches},
        **more,
    )


def decide(*pools: AnyResource, **more: Any) -> Decision:
    """What is decided on the first pool."""
    world = a_view(*pools, **more)
    found = {each.resource: each for each in CAPACITY.decide(world, EVERYTHING)}
    return found[ref_of(pools[0])]


def status_of(decision: Decision) -> SpotpoolStatus:
    """Its status."""
    assert isinstance(decision.status, SpotpoolStatus)
    return decision.status


def after(pool: AnyResource, decision: Decision) -> AnyResource:
    """The pool once its status is written."""
    return structs.replace(pool, status=decision.status)


def states(decision: Decision) -> list[str]:
    """The slots' states, by number."""
    return [each.state for each in status_of(decision).slots]


def launches(decision: Decision) -> list[LaunchInstance]:
    """The launches that are due."""
    return [each for each in decision.actions if isinstance(each, LaunchInstance)]


def ended(decision: Decision) -> list[str]:
    """The machines that are ended."""
    return [each.instance for each in decision.actions if isinstance(each, TerminateInstance)]


def effects(decision: Decision) -> list[Action]:
    """What is due, but for events."""
    return [each for each in decision.actions if type(each).__name__ != "EmitEvent"]


def condition(decision: Decision, type_: str) -> tuple[str, str]:
    """A condition's status and reason."""
    found = next((each for each in decision.status.conditions if each.type == type_), None)
    return (found.status, found.reason) if found is not None else ("", "")


def outcome(slot: Slot, word: str, instance: str = "", at: int = NOON) -> Launch:
    """What came of a launch."""
    return Launch(token=slot.token, pool=POOL, at=at, outcome=word, instance=instance)  # type: ignore[arg-type]  # a test says which

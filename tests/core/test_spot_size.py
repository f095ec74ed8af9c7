"""Many pools: all decided within their time, and after news only those that it concerns, with the same result."""

import gc
from time import process_time
from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.core import CAPACITY
from headroom.core.spot_pools.gathering import concerned
from headroom.model.changes import EVERYTHING, Changes, Topic
from headroom.model.cloud_facts import Instance, Listing, Offer
from headroom.model.decisions import Decision, Ref
from headroom.model.facts import Node
from headroom.model.world import World
from tests.builders import NOON, a_node
from tests.core.spot_stage import HOUR, MINUTE, a_machine, a_slot, a_spotpool, a_view, with_slots

POOLS, EACH = 1000, 20
LIMIT_S = 0.5


def a_large_world() -> World:
    pools: list[AnyResource] = []
    machines: list[Instance] = []
    nodes: list[Node] = []
    like = a_spotpool(minimum=EACH, maximum=EACH)
    for pool in range(POOLS):
        name = f"pool-{pool:04d}"
        slots = []
        for number in range(EACH):
            id_ = f"ins-{pool}-{number}"
            at = NOON - HOUR - pool * 1000 - number
            slots.append(
                a_slot(number, at=at, instance_id=id_, node=f"node-{pool}-{number}", token=f"t-{pool}-{number}")
            )
            machines.append(a_machine(number, name=id_, pool=name))
            nodes.append(a_node(f"node-{pool}-{number}", gpus=1, provider_id=f"qcloud:///2/{id_}", ready_since=at))
        named = structs.replace(like, name=name, uid=f"uid-Spotpool-{name}")
        pools.append(with_slots(named, *slots))
    return a_view(*pools, machines=machines, nodes=nodes, listed=NOON)


def test_twenty_thousand_machines_in_a_thousand_pools_are_decided_in_half_a_second() -> None:
    world = a_large_world()
    first = list(CAPACITY.decide(world, EVERYTHING))
    assert len(first) == POOLS
    assert all(each.reason == "Steady" for each in first)
    took = []
    gc.collect()
    gc.freeze()
    try:
        for _ in range(3):
            began = process_time()
            list(CAPACITY.decide(world, EVERYTHING))
            took.append(process_time() - began)
    finally:
        gc.unfreeze()
    assert min(took) < LIMIT_S, took


# --- whom news concerns ---------------------------------------------------------------------------------------------------------


def three(**more: Any) -> World:
    pools = [
        with_slots(a_spotpool(name, minimum=1, maximum=1), a_slot(0, instance_id=f"ins-{name}", token=f"token-{name}"))
        for name in ("one", "two", "three")
    ]
    machines = [a_machine(0, name=f"ins-{name}", pool=name) for name in ("one", "two", "three")]
    given: dict[str, Any] = {"machines": machines, "listed": NOON} | more
    return a_view(*pools, **given)


def of(world: World, changes: Changes) -> set[str]:
    found = concerned(world, changes)
    assert found is not None
    return {each.name for each in found}


def test_news_of_a_machine_a_list_or_a_launch_concerns_its_pool_alone() -> None:
    world = three()
    for name in ("ins-two", "team-a/two", "token-two"):
        assert of(world, Changes(facts={Topic.INSTANCES: {name}})) == {"two"}, name
    gone = structs.replace(world, instances={})
    assert of(gone, Changes(facts={Topic.INSTANCES: {"ins-two"}})) == {"two"}
    assert of(world, Changes(facts={Topic.OFFERS: {"x"}})) == {"one", "two", "three"}


def test_a_new_node_concerns_the_pool_of_its_machine() -> None:
    nodes = [a_node("n", provider_id="qcloud:///2/ins-two")]
    assert of(three(nodes=nodes), Changes(nodes={"n"})) == {"two"}
    assert of(three(), Changes(nodes={"elsewhere"})) == set()


def test_an_orphan_concerns_the_pool_that_reports_it() -> None:
    machines = [*three().instances.values(), a_machine(0, name="stray", pool="gone")]
    assert of(three(machines=machines), Changes(facts={Topic.INSTANCES: {"stray"}})) == {"one"}


def decided(world: World, changes: Changes) -> dict[Ref, Decision]:
    return {each.resource: each for each in CAPACITY.decide(world, changes)}


NEWS: dict[str, tuple[dict[str, Any], Changes]] = {
    "ended": ({"state": "SHUTDOWN"}, Changes(facts={Topic.INSTANCES: {"ins-two"}})),
    "reclaimed": ({"reclaim_at": NOON + MINUTE}, Changes(facts={Topic.INSTANCES: {"ins-two"}})),
    "of nobody": (
        {"tags": {marks.CLUSTER_TAG: "default", marks.OWNER_TAG: "x"}},
        Changes(facts={Topic.INSTANCES: {"ins-two"}}),
    ),
}


@pytest.mark.parametrize("name", NEWS)
def test_little_news_leads_to_what_everything_would(name: str) -> None:
    fields, changes = NEWS[name]
    before = three()
    machines = dict(before.instances)
    machines["ins-two"] = structs.replace(machines["ins-two"], **fields)
    after = structs.replace(before, instances=machines)
    together = decided(before, EVERYTHING) | decided(after, changes)
    assert together == decided(after, EVERYTHING)


def test_news_of_offers_and_lists_leads_to_what_everything_would() -> None:
    before = three()
    offer = Offer(name="x", provider="tencent", region="ap-singapore", instance_type="GN7.2XLARGE32", price_per_hour=1)
    old = {key: structs.replace(each, at=NOON - HOUR) for key, each in before.listings.items()}
    listing: dict[str, Listing] = {**before.listings, "team-a/two": old["team-a/two"]}
    for after, changes in (
        (structs.replace(before, offers={"x": offer}), Changes(facts={Topic.OFFERS: {"x"}})),
        (structs.replace(before, listings=listing), Changes(facts={Topic.INSTANCES: {"team-a/two"}})),
    ):
        assert decided(before, EVERYTHING) | decided(after, changes) == decided(after, EVERYTHING)

"""Demand: a pool as a supply in the capacity round, alone and beside others."""

from typing import Any

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.power_status import Breaker
from headroom.api.spot_pools_status import Purchases
from headroom.core import CAPACITY
from headroom.model.actions import LaunchInstance, UncordonNode, WakeMachine
from headroom.model.changes import EVERYTHING
from headroom.model.cloud_facts import Offer
from headroom.model.decisions import Decision
from headroom.model.facts import NodePool, Pod, Taint
from headroom.model.world import World
from tests.builders import NOON
from tests.core.power_stage import a_pool, waiting
from tests.core.spot_stage import (
    MINUTE,
    SECOND,
    ZONE,
    a_machine,
    a_slot,
    a_spotpool,
    a_view,
    after,
    condition,
    decide,
    ended,
    its_node,
    launches,
    outcome,
    states,
    status_of,
    with_slots,
)

TOLERATES = '[{"key": "headroom.dev/spotpool", "operator": "Exists"}]'


def on_demand(name: str = "one", **spec: Any) -> AnyResource:
    return a_spotpool(name, **{"minimum": 0, "maximum": 4, "desired": "Demand", "template": {"gpuCount": 2}} | spec)


def pending(name: str = "p", gpus: int = 1, **fields: Any) -> Pod:
    pod = waiting(name, gpus, **fields)
    return structs.replace(pod, shape=structs.replace(pod.shape, tolerations=TOLERATES))


def both(world: World) -> dict[str, Decision]:
    return {each.resource.kind: each for each in CAPACITY.decide(world, EVERYTHING)}


def test_pods_get_as_many_machines_as_they_need() -> None:
    decision = decide(on_demand(), pods=[pending(f"p{number}") for number in range(3)])
    assert len(launches(decision)) == 2
    assigned = [each.pods for slot in status_of(decision).slots for each in slot.assigned]
    assert sorted(assigned) == [1, 2]


def test_what_is_coming_is_for_those_it_was_launched_for() -> None:
    pods = [pending(f"p{number}") for number in range(3)]
    pool = after(on_demand(), decide(on_demand(), pods=pods))
    again = decide(pool, pods=pods, now=NOON + MINUTE)
    assert status_of(again).slots == pool.status.slots
    retried = [pending(f"q{number}", since=NOON) for number in range(3)]
    assert len(status_of(decide(pool, pods=retried, now=NOON + MINUTE)).slots) == 2


def test_never_more_than_the_maximum_and_the_rest_is_told() -> None:
    pods = [pending(f"p{number}", 2) for number in range(9)]
    decision = decide(on_demand(maximum=3), pods=pods)
    assert len(launches(decision)) == 3
    assert condition(decision, "Unserved") == ("True", "MaximumReached")
    assert status_of(decision).unserved[0].pods == 6


def test_what_does_not_fit_launches_nothing() -> None:
    decision = decide(on_demand(), pods=[pending(gpus=3)])
    assert launches(decision) == []
    assert condition(decision, "Unserved") == ("True", "NoMachineFits")


def test_a_pool_that_is_not_on_demand_launches_nothing_for_pods() -> None:
    decision = decide(on_demand(desired=None), pods=[pending()])
    assert launches(decision) == []


def test_pods_of_other_namespaces_are_not_served_unless_an_administrator_says_so() -> None:
    pod = pending(namespace="team-b")
    assert launches(decide(on_demand(), pods=[pod])) == []
    assert len(launches(decide(on_demand(), pods=[pod], pool_namespaces={"team-a/one": ("team-b",)}))) == 1
    assert len(launches(decide(on_demand(), pods=[pod], pool_namespaces={"team-a/one": ("*",)}))) == 1
    assert launches(decide(on_demand(), pods=[pod], pool_namespaces={"team-a/two": ("*",)})) == []


def test_pods_must_tolerate_the_taint_that_keeps_others_off() -> None:
    plain = waiting("p")
    assert launches(decide(on_demand(), pods=[plain])) == []
    assert len(launches(decide(on_demand(), pods=[plain], pool_namespaces={"team-a/one": ("*",)}))) == 1


def test_labels_of_type_and_zone_count() -> None:
    def asks(zone: str) -> Pod:
        pod = pending()
        return structs.replace(
            pod, shape=structs.replace(pod.shape, node_selector=(("topology.kubernetes.io/zone", zone),))
        )

    pool = on_demand(availabilityZone=None, zones=[ZONE, "ap-singapore-3"])
    [first] = launches(decide(pool, pods=[asks("ap-singapore-3")]))
    assert first.zone == "ap-singapore-3"
    assert launches(decide(pool, pods=[asks("ap-singapore-9")])) == []


def test_what_karpenter_could_serve_is_left_to_it() -> None:
    nodes = NodePool(name="gpu", ready=True)
    assert launches(decide(on_demand(), pods=[pending()], node_pools={"gpu": nodes})) == []


def test_an_idle_machine_above_the_minimum_is_ended_and_comes_back_for_a_pod() -> None:
    slots = [a_slot(number, node=f"node-{number}") for number in range(2)]
    pool = with_slots(on_demand(minimum=1), *slots)
    machines, nodes = [a_machine(0), a_machine(1)], [its_node(0, 2), its_node(1, 2)]
    pool = after(pool, first := decide(pool, machines=machines, nodes=nodes))
    assert [each.idle_since for each in status_of(first).slots] == ["2026-11-15T12:00:00Z"] * 2
    assert states(decide(pool, machines=machines, nodes=nodes, now=NOON + 599 * SECOND)) == ["Running", "Running"]
    idle = decide(pool, machines=machines, nodes=nodes, now=NOON + 600 * SECOND)
    assert states(idle) == ["Draining", "Running"]
    nodes[0] = its_node(0, 2, unschedulable=True, annotations=(("headroom.dev/cordoned-by", "Spotpool/team-a/one"),))
    pods = [pending(f"p{number}", 2, since=NOON + 595 * SECOND) for number in range(2)]
    back = decide(after(pool, idle), machines=machines, nodes=nodes, pods=pods, now=NOON + 601 * SECOND)
    assert states(back) == ["Running", "Running"]
    assert UncordonNode(node="node-0") in back.actions
    assert launches(back) == []


def test_sold_out_passes_pods_on_to_the_next_supply() -> None:
    power = a_pool("rack", machines={"w1": 2}, order=200)
    spot = with_slots(on_demand(minimum=0), a_slot(0, "Launching", at=NOON - MINUTE))
    pods = [pending(since=NOON - 2 * MINUTE)]
    before = both(a_view(on_demand(), power, pods=pods))
    assert not [each for each in before["PowerPool"].actions if isinstance(each, WakeMachine)]
    assert len(launches(before["Spotpool"])) == 1
    sold_out = [outcome(spot.status.slots[0], "SoldOut")]
    later = both(a_view(spot, power, pods=pods, launches=sold_out))
    assert [each.machine for each in later["PowerPool"].actions if isinstance(each, WakeMachine)] == ["w1"]
    assert launches(later["Spotpool"]) == []


def test_one_of_two_supplies_acts_and_the_other_if_its_machine_never_comes() -> None:
    power = a_pool("rack", machines={"w1": 2}, order=200)
    pods = [pending(since=NOON - MINUTE)]
    first = both(a_view(on_demand(), power, pods=pods))
    [slot] = status_of(first["Spotpool"]).slots
    assert not [each for each in first["PowerPool"].actions if isinstance(each, WakeMachine)]
    spot, power = after(on_demand(), first["Spotpool"]), after(power, first["PowerPool"])
    machine = a_machine(0, launched_at=NOON)
    came = both(a_view(spot, power, pods=pods, machines=[machine], launches=[outcome(slot, "Accepted", "ins-0")]))
    spot, power = after(spot, came["Spotpool"]), after(power, came["PowerPool"])
    waits = both(a_view(spot, power, pods=pods, machines=[machine], now=NOON + 10 * MINUTE))
    assert not [each for each in waits["PowerPool"].actions if isinstance(each, WakeMachine)]
    late = both(a_view(spot, power, pods=pods, machines=[machine], now=NOON + 16 * MINUTE))
    assert ended(late["Spotpool"]) == ["ins-0"]
    spot, power = after(spot, late["Spotpool"]), after(power, late["PowerPool"])
    gone = structs.replace(machine, state="SHUTDOWN")
    other = both(a_view(spot, power, pods=pods, machines=[gone], now=NOON + 17 * MINUTE))
    assert [each.machine for each in other["PowerPool"].actions if isinstance(each, WakeMachine)] == ["w1"]
    assert not [each for each in other["Spotpool"].actions if isinstance(each, LaunchInstance)]


def test_an_earlier_power_pool_acts_first() -> None:
    found = both(a_view(on_demand(), a_pool("rack", machines={"w1": 2}), pods=[pending()]))
    assert [each.machine for each in found["PowerPool"].actions if isinstance(each, WakeMachine)] == ["w1"]
    assert launches(found["Spotpool"]) == []


def test_a_machine_that_has_joined_a_moment_ago_is_waited_for() -> None:
    """What runs on every node may not have started there, and pods do not tolerate that."""
    pool = with_slots(on_demand(), a_slot(0, node="node-0", joined_at=NOON - 10 * SECOND, at=NOON - 3 * MINUTE))
    node = its_node(
        0, 2, taints=(Taint("node.cilium.io/agent-not-ready", "", "NoSchedule"),), ready_since=NOON - 10 * SECOND
    )
    decision = decide(pool, machines=[a_machine(0)], nodes=[node], pods=[pending(since=NOON - 3 * MINUTE)])
    assert launches(decision) == []


def test_pods_wait_for_the_next_hour_once_its_purchases_are_used_up() -> None:
    """It is a rate: whoever limits it does not mean that the next pool buys instead."""
    first, second = on_demand(maxPurchasesPerHour=1, order=1), on_demand("two", order=2)
    pods = [pending(f"p{number}", 2) for number in range(3)]
    world = a_view(first, second, pods=pods)
    made = {each.resource.name: each for each in CAPACITY.decide(world, EVERYTHING)}
    assert (len(launches(made["one"])), len(launches(made["two"]))) == (1, 0)
    assert condition(made["one"], "Unserved") == ("True", "PurchaseLimit")
    [told] = status_of(made["one"]).unserved
    assert (told.pods, told.reason) == (2, "PurchaseLimit")
    assert "maxPurchasesPerHour" in told.message
    bought = (Purchases(minute="2026-11-15T11:30:00Z", count=1),)
    for now, count in ((NOON, 0), (NOON + 31 * MINUTE, 1)):
        assert len(launches(decide(with_slots(first, purchases=bought), second, pods=pods, now=now))) == count


def test_pods_of_other_namespaces_pass_on_instead() -> None:
    """Whoever writes the pool could keep them waiting for ever."""
    first = on_demand(maxPurchasesPerHour=1, order=1)
    other = structs.replace(on_demand("two", order=2), namespace="team-b")
    pods = [pending(f"p{number}", 2, namespace="team-b") for number in range(3)]
    world = a_view(first, other, pods=pods, pool_namespaces={"team-a/one": ("team-b",)})
    made = {each.resource.name: len(launches(each)) for each in CAPACITY.decide(world, EVERYTHING)}
    assert made == {"one": 1, "two": 2}


def test_what_the_maximum_or_the_breaker_keeps_from_being_launched_passes_on() -> None:
    for status in ({}, {"breaker": Breaker(failed=3, until="2026-11-15T12:20:00Z")}):
        first = with_slots(on_demand(maximum=1, maxPurchasesPerHour=1, order=1), **status)
        world = a_view(first, on_demand("two", order=2), pods=[pending(f"p{number}", 2) for number in range(3)])
        made = {each.resource.name: len(launches(each)) for each in CAPACITY.decide(world, EVERYTHING)}
        assert made == ({"one": 0, "two": 3} if status else {"one": 1, "two": 2})


def test_the_cheapest_is_launched_for_pods() -> None:
    pool = on_demand(instanceType=None, instanceTypes=["dear", "cheap"], allocation="LowestPrice")
    offers = [
        Offer(name=kind, provider="tencent", region="ap-singapore", zone=ZONE, instance_type=kind, price_per_hour=price)
        for kind, price in (("dear", 2_000_000), ("cheap", 1_000_000))
    ]
    [found] = launches(decide(pool, pods=[pending()], offers=offers))
    assert found.instance_type == "cheap"

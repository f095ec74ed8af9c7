"""What a pod without a node is told of spot pools: the machine that comes for it, or why none is launched."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.power_status import Unserved
from headroom.core import power, sources, spot_pools
from headroom.core.capacity import PodAnswer, round_of
from headroom.model.facts import Pod
from headroom.model.world import World
from tests.builders import NOON, a_resource
from tests.core.power_stage import waiting
from tests.core.spot_stage import (
    MINUTE,
    POOL,
    a_machine,
    a_slot,
    a_spotpool,
    a_view,
    decide,
    its_node,
    status_of,
    with_slots,
)

REF = "Spotpool/team-a/one"
EVERYBODY: dict[str, Any] = {"pool_namespaces": {POOL: ("*",), "team-a/two": ("*",)}}
TYPE = "GN7.2XLARGE32 in ap-singapore-2"
POD = waiting("train")


def on_demand(**spec: Any) -> AnyResource:
    base: dict[str, Any] = {"minimum": 0, "maximum": 2, "desired": "Demand", "template": {"gpuCount": 1}}
    return a_spotpool(**base | spec)


def answer(world: World, pod: Pod = POD) -> PodAnswer | None:
    return spot_pools.explained(round_of(world, sources()), pod)


def said(*pools: AnyResource, pod: Pod = POD, **more: Any) -> PodAnswer:
    found = answer(a_view(*pools, **{"pods": [pod]} | EVERYBODY | more), pod)
    assert found is not None
    return found


def test_a_machine_is_to_be_launched_for_it() -> None:
    found = said(on_demand())
    assert (found.state, found.sentence) == ("Launching", f"A machine of {REF} ({TYPE}) is launched for it next.")
    assert found.machine


def test_one_that_is_being_launched_for_it_says_since_when() -> None:
    decision = decide(on_demand(), pods=[POD], **EVERYBODY)
    [slot] = status_of(decision).slots
    pool = with_slots(on_demand(), slot)
    found = said(pool, now=NOON + MINUTE)
    assert found.sentence == f"slot 0 ({TYPE}) of {REF} is being launched for it since 2026-11-15T12:00:00Z."


def test_one_that_runs_says_until_when_it_must_join() -> None:
    slot = a_slot(0, at=NOON - 5 * MINUTE, joined_at="")
    found = said(with_slots(on_demand(), slot), machines=[a_machine(0)])
    assert (found.state, found.machine) == ("Joining", "ins-0")
    assert found.sentence == (
        f"ins-0 ({TYPE}) of {REF} is booting for it; if its node is not ready by 2026-11-15T12:10:00Z, the machine is ended and "
        "another one is tried."
    )


def test_a_node_of_a_pool_that_has_room_is_named() -> None:
    pool = with_slots(on_demand(), a_slot(0, joined_at=NOON - MINUTE // 2))
    found = said(pool, machines=[a_machine(0)], nodes=[its_node(0, ready_since=NOON - MINUTE // 2)])
    assert (found.state, found.sentence) == ("Placed", f"It fits on node-0, a node of {REF}.")


def test_why_none_is_launched_is_said_by_the_first_pool_and_the_others_follow() -> None:
    full = with_slots(on_demand(maximum=0, minimum=0))
    other = structs.replace(on_demand(order=200), name="two", uid="uid-Spotpool-two", spec=full.spec)
    found = said(full, other)
    assert found.state == "MaximumReached"
    assert found.sentence == (
        f"{REF} launches no machine for it: 0 machines run or are being launched, the most that the pool may have (maximum: 0)."
    )
    assert [each.split(": ")[:2] for each in found.details] == [["Spotpool/team-a/two", "MaximumReached"]]


def test_a_pod_that_waits_for_the_next_hour_is_told_so() -> None:
    shape = structs.replace(POD.shape, tolerations='[{"key": "headroom.dev/spotpool", "operator": "Exists"}]')
    first, second = (structs.replace(waiting(name), shape=shape) for name in ("first", "second"))
    found = said(on_demand(maxPurchasesPerHour=1), pod=second, pods=[first, second], pool_namespaces={})
    assert found.state == "PurchaseLimit"
    assert found.sentence.startswith(f"{REF} launches no machine for it yet: 0 machines were bought in the last hour")


def test_a_pod_without_a_toleration_fits_on_no_machine() -> None:
    found = said(on_demand(), pool_namespaces={})
    assert found.state == "NoMachineFits"
    assert "headroom.dev/spotpool" in found.sentence


def test_a_pool_of_another_namespace_says_nothing() -> None:
    assert answer(a_view(on_demand(), pods=[(pod := waiting("x", namespace="elsewhere"))]), pod) is None


def test_a_pool_that_launches_nothing_for_pods_says_nothing() -> None:
    assert answer(a_view(a_spotpool(), pods=[POD], **EVERYBODY)) is None
    gated = structs.replace(POD, gates=("example.com/hold",))
    assert answer(a_view(a_spotpool(), pods=[gated], **EVERYBODY), gated) is None


def test_who_is_left_out_is_told_why_unless_another_capability_says_it() -> None:
    gated = structs.replace(waiting("x"), gates=("example.com/hold",))
    world = a_view(on_demand(), pods=[gated])
    found = answer(world, gated)
    assert found is not None
    assert found.sentence.startswith("No machine is launched for it: ")
    with_power = a_view(on_demand(), a_resource("PowerPool", "basement"), pods=[gated])
    assert answer(with_power, gated) is None
    assert power.explained(round_of(with_power, sources()), gated) is not None


def test_who_does_not_see_the_cloud_tells_what_the_operator_wrote() -> None:
    told = Unserved(pod=POD.key, reason="SoldOut", message="No machine can be launched now: all is sold out.")
    pool = with_slots(on_demand(), unserved=(told,))
    found = said(pool, instances_given=False)
    assert found.sentence == f"{REF} launches no machine for it: no machine can be launched now: all is sold out."
    assert answer(a_view(on_demand(), pods=[POD], instances_given=False, **EVERYBODY)) is None


def test_power_leaves_the_word_to_whose_machine_it_is() -> None:
    world = a_view(on_demand(), a_resource("PowerPool", "basement", order=500), pods=[POD], **EVERYBODY)
    found = round_of(world, sources())
    assert spot_pools.explained(found, POD) is not None
    assert power.explained(found, POD) is None


def test_each_speaks_of_its_own_pools_only() -> None:
    world = a_view(on_demand(maximum=0), a_resource("PowerPool", "basement", paused=True), pods=[POD], **EVERYBODY)
    found = round_of(world, sources())
    spot, metal = spot_pools.explained(found, POD), power.explained(found, POD)
    assert spot is not None
    assert metal is not None
    assert (metal.state, spot.state) == ("Paused", "MaximumReached")
    assert not [each for each in (metal.sentence, *metal.details) if "Spotpool" in each]
    assert not [each for each in (spot.sentence, *spot.details) if "PowerPool" in each]

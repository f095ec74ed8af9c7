"""What Karpenter is told of the bandwidth of machines, and when it is told no more."""

from typing import Any, Final

import pytest
from msgspec import structs

from headroom.api.bandwidth_config import EXTENDED
from headroom.core import bandwidth
from headroom.model.actions import Action, ApplyNodeOverlay, DeleteNodeOverlay
from headroom.model.bandwidth import BandwidthRules
from headroom.model.bandwidth_facts import NodeOverlay
from headroom.model.cloud_facts import Offer
from headroom.model.facts import NodeClass, NodePool, Requirement
from headroom.model.world import World
from tests.builders import NOON

NATIVE: Final = BandwidthRules(mode="Native")
LABELS: Final = (("headroom.dev/device-plugin", "true"),)
SMALL: Final = Offer(name="a", provider="aws", region="r", instance_type="small", network_mbps=500)
SETTINGS: Final = {EXTENDED[0]: "1000", EXTENDED[1]: "19000", EXTENDED[2]: "1000", EXTENDED[3]: "19000"}
POOLS: Final = {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["gpu", "more"]}


def view(*overlays: NodeOverlay, **more: Any) -> World:
    pools = [NodePool(name="more", labels=LABELS), NodePool(name="gpu", labels=LABELS), NodePool(name="bare")]
    given: dict[str, Any] = {
        "node_pools": {each.name: each for each in pools},
        "node_overlays": {each.name: each for each in overlays},
        "node_overlays_served": True,
        "bandwidth": NATIVE,
        "bandwidth_problem": "not here",
    }
    return World(now=NOON, **given | more)


def due(world: World) -> list[Action]:
    return [*bandwidth.PLAN.chores(world)]


def told(action: Action) -> NodeOverlay:
    """As it is read once it is written."""
    assert isinstance(action, ApplyNodeOverlay)
    spec = action.spec
    return NodeOverlay(
        name=action.node_overlay,
        uid=f"uid-{action.node_overlay}",
        requirements=tuple(Requirement(**{**each, "values": (*each["values"],)}) for each in spec["requirements"]),
        capacity=tuple(sorted((name, int(mbps) * 1_000_000) for name, mbps in spec["capacity"].items())),
        weight=spec["weight"],
        ours=True,
    )


def test_karpenter_is_told_what_machines_of_pools_with_a_device_plugin_carry() -> None:
    [every, known] = due(view(offers={"a": SMALL}))
    assert every == ApplyNodeOverlay(
        node_overlay="headroom-bandwidth", spec={"requirements": [POOLS], "capacity": SETTINGS, "weight": 10}
    )
    types = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["small"]}
    capacity = {**dict.fromkeys(EXTENDED[::2], "500"), **dict.fromkeys(EXTENDED[1::2], "19500")}
    assert known == ApplyNodeOverlay(
        node_overlay="headroom-bandwidth-500",
        spec={"requirements": [POOLS, types], "capacity": capacity, "weight": 20},
    )


def test_and_once_only() -> None:
    world = view(offers={"a": SMALL})
    written = [told(each) for each in due(world)]
    assert due(view(*written, offers={"a": SMALL})) == []
    edited = structs.replace(written[0], capacity=written[0].capacity[:1])
    assert due(view(edited, written[1], offers={"a": SMALL})) == due(world)[:1]


def test_machine_types_of_ec2_are_known_where_karpenter_makes_them() -> None:
    world = view(node_classes={"EC2NodeClass/a": NodeClass(kind="EC2NodeClass", name="a")})
    found = {each.node_overlay: each.spec for each in due(world) if isinstance(each, ApplyNodeOverlay)}
    assert found["headroom-bandwidth-400000"]["requirements"][1]["values"] == [
        "g6e.48xlarge",
        "g7e.12xlarge",
        "p4d.24xlarge",
        "p4de.24xlarge",
    ]
    assert len({each for spec in found.values() for one in spec["requirements"][1:] for each in one["values"]}) > 50


@pytest.mark.parametrize(
    "more",
    [
        {"bandwidth": BandwidthRules()},
        {"bandwidth": BandwidthRules(mode="Extender")},
        {"node_pools": {"bare": NodePool(name="bare")}},
        {"node_pools": {"gpu": NodePool(name="gpu", labels=LABELS, deleting=True)}},
    ],
)
def test_what_was_told_is_taken_back_where_it_is_true_no_more(more: dict[str, Any]) -> None:
    [ours] = [told(each) for each in due(view())]
    assert due(view(ours, **more)) == [DeleteNodeOverlay(node_overlay=ours.name, uid=ours.uid)]
    assert due(view(structs.replace(ours, ours=False), **more)) == []


def test_one_of_that_name_that_somebody_else_made_is_left_alone() -> None:
    assert due(view(NodeOverlay(name="headroom-bandwidth"))) == []


@pytest.mark.parametrize(
    "more",
    [
        {"node_overlays_served": False},
        {"unseen": {"nodeoverlays.karpenter.sh": "403"}},
        {"unseen": {"nodepools.karpenter.sh": "403"}},
    ],
)
def test_where_nodepools_or_overlays_are_not_seen_nothing_is_done(more: dict[str, Any]) -> None:
    assert due(view(**more)) == []

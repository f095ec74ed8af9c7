"""Native mode: nodes with a device plugin publish what their links carry, and nothing is taken away from under a bound pod."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.bandwidth import BandwidthStatus, LinksUsed, RatesUsed
from headroom.api.bandwidth_config import EXTENDED
from headroom.api.kinds import AnyResource
from headroom.core.bandwidth import Attestation, attestation, parse_rate
from headroom.core.bandwidth.accounting import account
from headroom.core.bandwidth.native import shares
from headroom.core.bandwidth.plan import PLAN
from headroom.model.actions import Action, ApplyBandwidth, EmitEvent, SetNodeResources, TaintNode, UntaintNode
from headroom.model.bandwidth import BandwidthRules, Links, Rates
from headroom.model.changes import EVERYTHING
from headroom.model.conditions import find, holds
from headroom.model.decisions import Decision
from headroom.model.facts import UNREADABLE, Amounts, Node, Owner, Pod, Shape, Taint
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World
from tests.builders import NOON, a_node, a_pod, a_resource, a_world

EGRESS, INGRESS, LOCAL_EGRESS, LOCAL_INGRESS = (
    f"headroom.dev/{each}-mbps" for each in ("egress", "ingress", "local-egress", "local-ingress")
)
MILLION = 1_000_000
ATTESTED = (("headroom.dev/device-plugin", "true"),)
KEY = "headroom.dev/bandwidth-unavailable"
OURS = Taint(KEY, "", "NoSchedule")
NATIVE = BandwidthRules(mode="Native")
WHOLE = {EGRESS: 1000, INGRESS: 1000, LOCAL_EGRESS: 19000, LOCAL_INGRESS: 19000}
"""Of a node of which only the settings say something: the card has its share of the virtual switch."""


def amounts(mbps: dict[str, int]) -> Amounts:
    return tuple(sorted((name, each * MILLION) for name, each in mbps.items()))


def the_node(published: dict[str, int] | None = None, **fields: Any) -> Node:
    has = amounts(published or {})
    base = {"uid": "node-1", "labels": ATTESTED, "published": has, "published_capacity": has}
    return a_node("n1", **(base | fields))


def requesting(name: str, egress: int, resource: str = EGRESS, **fields: Any) -> Pod:
    """A bound pod that requests so much of its node natively, whoever says so."""
    shape = Shape(requests=amounts({resource: egress}))
    base: dict[str, Any] = {"node": "n1", "phase": "Running", "shape": shape}
    return a_pod(name, **(base | fields))


def a_scene(node: Node, *pods: Pod, resource: AnyResource | None = None, **more: Any) -> World:
    table, nodes = PodTable(), NodeTable()
    nodes.put(node)
    for pod in pods:
        table.put(pod)
    found = resource or a_resource("Bandwidth", "n1", capacity={})
    return a_world(found, pods=table, nodes=nodes, **({"bandwidth": NATIVE} | more))


def carrying(**network: int) -> AnyResource:
    return a_resource("Bandwidth", "n1", capacity={"network": network})


def decided(world: World) -> Decision:
    [decision] = PLAN.decide(world, EVERYTHING)
    return decision


def done(world: World) -> list[Action]:
    return [each for each in decided(world).actions if not isinstance(each, EmitEvent)]


def publish(mbps: dict[str, int]) -> SetNodeResources:
    texts = {name: str(each) for name, each in sorted(mbps.items())}
    return SetNodeResources(node="n1", resources=texts, uid="node-1")


def verdict(world: World) -> tuple[str, str]:
    found = find(decided(world).status.conditions, "NativePlacement")
    return (found.status, found.reason) if found else ("", "")


TAINT = TaintNode(node="n1", taint=f"{KEY}:NoSchedule", uid="node-1")
UNTAINT = UntaintNode(node="n1", taint=f"{KEY}:NoSchedule", uid="node-1")


# --- what is published -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [ATTESTED, (("a", "b"), ("nvidia.com/gpu.deploy.device-plugin", "true"))])
def test_a_node_with_a_device_plugin_publishes_what_its_links_carry(labels: Any) -> None:
    world = a_scene(the_node(labels=labels))
    assert (done(world), verdict(world)) == ([publish(WHOLE)], ("True", "Published"))
    assert decided(world).look_again_ms == 10_000, "a kubelet may undo it a moment later"
    assert done(a_scene(the_node(WHOLE, labels=labels))) == [], "an unchanged world is not written to"


@pytest.mark.parametrize(
    "labels", [(), (("headroom.dev/device-plugin", "false"),), (("nvidia.com/gpu.deploy.device-plugin", ""),)]
)
def test_a_node_without_one_publishes_nothing_and_says_so(labels: Any) -> None:
    world = a_scene(the_node(labels=labels))
    assert (done(world), verdict(world)) == ([], ("False", "NoDevicePlugin"))
    there = a_scene(the_node(labels=labels), requesting("somehow", 300))
    assert (done(there), verdict(there)) == ([], ("False", "NoDevicePlugin"))
    message = decided(world).message
    assert "No label attests a device plugin on this node (headroom.dev/device-plugin=true or nvidia.com" in message
    assert "Pods that request bandwidth are not placed here." in message


def test_amounts_are_whole_and_rounded_down() -> None:
    node = the_node(annotations=(("headroom.dev/network-bandwidth", "1999999999/900k"),))
    # Less than one Mbps is nothing.
    assert done(a_scene(node)) == [publish({EGRESS: 1999, LOCAL_EGRESS: 18000, LOCAL_INGRESS: 19999})]


def test_it_says_how_many_nodes_are_attested() -> None:
    nodes = NodeTable()
    for number in range(5):
        nodes.put(a_node(f"n{number}", labels=ATTESTED if number < 2 else ()))
    assert attestation(a_world(nodes=nodes, bandwidth=NATIVE)) == Attestation(2, 3)
    assert attestation(a_world(nodes=nodes, bandwidth=BandwidthRules(device_plugin_labels=()))) == Attestation(0, 5)


@pytest.mark.parametrize(
    ("published", "capacity"),
    [
        (dict.fromkeys(WHOLE, 0), dict.fromkeys(WHOLE, 0)),
        (WHOLE, {}),
        ({}, WHOLE),
        (WHOLE | {EGRESS: 10**9}, WHOLE),
        (WHOLE, WHOLE | {EGRESS: 10**9}),
    ],
)
def test_what_a_kubelet_or_anybody_else_made_of_it_is_mended(published: Any, capacity: Any) -> None:
    node = structs.replace(the_node(), published=amounts(published), published_capacity=amounts(capacity))
    assert done(a_scene(node, requesting("a", 300))) == [publish(WHOLE)]


def test_what_pods_hold_that_request_nothing_is_not_given_to_others() -> None:
    """Bound before the mode was native, or by somebody whom no policy looks at."""
    before = a_pod("old", gpus=0, node="n1", annotations=(("kubernetes.io/egress-bandwidth", "300100k"),))
    world = a_scene(the_node(WHOLE), before, requesting("new", 400))
    assert done(world) == [publish(WHOLE | {EGRESS: 699})]
    over = a_scene(the_node(WHOLE), before, requesting("new", 900))
    assert done(over) == [TAINT, publish(WHOLE | {EGRESS: 900, LOCAL_EGRESS: 18799})]


def test_a_request_for_nothing_does_not_hide_what_a_pod_holds() -> None:
    """Made while the mode was another one, where nobody compares requests with annotations."""
    asks = (("kubernetes.io/egress-bandwidth", "300M"),)
    before = requesting("old", 0, LOCAL_EGRESS, annotations=asks)
    assert done(a_scene(the_node(WHOLE), before)) == [publish(WHOLE | {EGRESS: 700})]


def test_the_virtual_switch_is_given_out_once() -> None:
    """Whoever requests the card is on it too, and requests nothing of it."""
    slow = a_resource("Bandwidth", "n1", capacity={"local": {"ulMbps": 700}})
    assert done(a_scene(the_node(), resource=slow)) == [publish({EGRESS: 700, INGRESS: 1000, LOCAL_INGRESS: 19000})]
    wide = a_resource("Bandwidth", "n1", capacity={"local": {"ulMbps": 1700}})
    assert done(a_scene(the_node(), resource=wide)) == [publish(WHOLE | {LOCAL_EGRESS: 700})]


def test_who_requests_only_the_virtual_switch_holds_nothing_of_the_card() -> None:
    """By hand: a policy cannot know that all that a pod says stays on its node."""
    inside = (requesting("a", 15_000, LOCAL_EGRESS), requesting("b", 4_000, LOCAL_EGRESS), requesting("c", 1_000))
    world = a_scene(the_node(WHOLE), *inside)
    assert (done(world), verdict(world)) == ([], ("True", "Published"))
    over = find(decided(world).status.conditions, "Overcommitted")
    assert over is not None
    assert over.status == "False"


def test_what_is_requested_beyond_the_card_is_no_excess_of_the_card() -> None:
    """Ten pods that say little to other nodes, and much to each other."""
    shape = Shape(requests=amounts({EGRESS: 100, LOCAL_EGRESS: 900}))
    world = a_scene(
        the_node(WHOLE), *(a_pod(f"p{each}", node="n1", phase="Running", shape=shape) for each in range(10))
    )
    assert (done(world), verdict(world)) == ([], ("True", "Published"))
    status = decided(world).status
    assert isinstance(status, BandwidthStatus)
    assert status.used == LinksUsed(local=RatesUsed(ul_mbps=10_000), network=RatesUsed(ul_mbps=1000))
    assert not holds(status.conditions, "Overcommitted")


# --- more than there is ------------------------------------------------------------------------------------------------------------


def test_it_never_sinks_below_what_bound_pods_request() -> None:
    pods = (requesting("a", 300), requesting("b", 400), requesting("gone", 900, phase="Succeeded"))
    lowered = carrying(ulMbps=500)
    world = a_scene(the_node(WHOLE), *pods, resource=lowered)
    excess = WHOLE | {EGRESS: 700, LOCAL_EGRESS: 19300}
    assert done(world) == [TAINT, publish(excess)]
    assert verdict(world) == ("True", "CapacityExceeded")
    over = find(decided(world).status.conditions, "Overcommitted")
    assert over is not None
    assert (over.status, over.reason) == ("True", "CapacityExceeded")
    stands = the_node(excess, taints=(OURS,))
    assert done(a_scene(stands, *pods, resource=lowered)) == []
    assert done(a_scene(stands, pods[0], resource=lowered)) == [publish(WHOLE | {EGRESS: 500, LOCAL_EGRESS: 19500})]
    below = the_node(WHOLE | {EGRESS: 500, LOCAL_EGRESS: 19500}, taints=(OURS,))
    assert done(a_scene(below, pods[0], resource=lowered)) == [UNTAINT]


def test_pods_on_their_way_keep_what_they_were_given() -> None:
    """Bound by the old amounts, and no kubelet has said anything yet."""
    waiting = requesting("a", 700, phase="Pending")
    assert done(a_scene(the_node(WHOLE), waiting, resource=carrying(ulMbps=500))) == [
        TAINT,
        publish(WHOLE | {EGRESS: 700, LOCAL_EGRESS: 19300}),
    ]


@pytest.mark.parametrize("egress", [1001, 10**9, UNREADABLE // MILLION])
def test_a_pod_that_names_its_node_itself_makes_nothing_rise(egress: int) -> None:
    """Its kubelet refuses it by what is published; had that risen, it would let it run."""
    smuggled = requesting("a", egress, phase="Pending")
    world = a_scene(the_node(WHOLE), smuggled, requesting("b", 300))
    assert (done(world), verdict(world)) == ([], ("True", "Published"))
    assert done(a_scene(the_node(), smuggled)) == [publish(WHOLE)]
    assert verdict(a_scene(the_node(labels=()), smuggled)) == ("False", "NoDevicePlugin")


def test_pods_that_run_beyond_the_capacity_stay_whatever_their_kubelet_says_of_it() -> None:
    running, started = requesting("a", 600), requesting("b", 600, phase="Pending", started=NOON)
    world = a_scene(the_node(dict.fromkeys(WHOLE, 0)), running, started)
    assert done(world) == [TAINT, publish(WHOLE | {EGRESS: 1200, LOCAL_EGRESS: 18800})]


def test_an_absurd_amount_stays_one_that_can_be_added_up() -> None:
    many = [requesting(f"p{number}", UNREADABLE // MILLION) for number in range(3)]
    [_, published] = done(a_scene(the_node(WHOLE), *many))
    assert isinstance(published, SetNodeResources)
    assert int(published.resources[EGRESS]) == 10**12


@pytest.mark.parametrize("mbps", [10**9 + 1, 9 * 10**15, UNREADABLE // MILLION])
def test_the_api_server_takes_what_is_said_of_absurd_requests(mbps: int) -> None:
    """Or nothing would be written of the node, and so nothing be published on it, for as long as such a pod names it."""
    both = Shape(requests=amounts({EGRESS: mbps, LOCAL_EGRESS: mbps}))
    status = decided(a_scene(the_node(), *(requesting(f"p{number}", 1, shape=both) for number in range(300)))).status
    assert isinstance(status, BandwidthStatus)
    assert msgspec.convert(msgspec.to_builtins(status), BandwidthStatus) == status
    assert status.used is not None
    assert status.used.local.ul_mbps < 2**53, "which JSON numbers carry exactly"


def test_requests_alone_may_be_too_many() -> None:
    """Siblings hold nothing of the card by the accounting; kube-scheduler counts all that they request."""
    owner: dict[str, Any] = {
        "owner": Owner("StatefulSet", "s", "s-uid", "apps"),
        "annotations": (("headroom.dev/traffic", "siblings"),),
    }
    world = a_scene(the_node(WHOLE), requesting("a", 600, **owner), requesting("b", 600, **owner))
    over = find(decided(world).status.conditions, "Overcommitted")
    assert over is not None
    assert (over.status, over.reason) == ("True", "RequestsExceeded")
    assert "200 headroom.dev/egress-mbps" in over.message


# --- leaving -----------------------------------------------------------------------------------------------------------------------


def test_a_node_that_loses_its_label_keeps_what_bound_pods_need_and_takes_no_others() -> None:
    without: dict[str, Any] = {"labels": ()}
    world = a_scene(the_node(WHOLE, **without), requesting("a", 300))
    kept = {EGRESS: 300}
    assert (done(world), verdict(world)) == ([TAINT, publish(kept)], ("False", "DevicePluginLost"))
    assert "The requests of bound pods stay reserved: 300 headroom.dev/egress-mbps" in decided(world).message
    stands = the_node(kept, taints=(OURS,), **without)
    assert done(a_scene(stands, requesting("a", 300))) == []
    zeroed = the_node({EGRESS: 0}, taints=(OURS,), **without)
    assert done(a_scene(zeroed, requesting("a", 300))) == [publish(kept)]
    assert done(a_scene(stands)) == [publish({})], "who is let in before that is seen would be given it"
    assert done(a_scene(the_node(taints=(OURS,), **without))) == [UNTAINT]
    assert done(a_scene(the_node(kept, taints=(OURS,)), requesting("a", 300))) == [publish(WHOLE)]
    assert done(a_scene(the_node(WHOLE, taints=(OURS,)), requesting("a", 300))) == [UNTAINT]


@pytest.mark.parametrize("mode", ["Off", "Extender"])
def test_leaving_the_mode_withdraws_all_that_no_bound_pod_requests(mode: Any) -> None:
    rules = BandwidthRules(mode=mode)
    assert done(a_scene(the_node(WHOLE, taints=(OURS,)), bandwidth=rules)) == [publish({})]
    assert done(a_scene(the_node(taints=(OURS,)), bandwidth=rules)) == [UNTAINT]
    world = a_scene(the_node(WHOLE), requesting("a", 300), bandwidth=rules)
    assert (done(world), verdict(world)) == ([publish({EGRESS: 300})], ("False", "Leaving"))
    gone = a_scene(the_node(), requesting("a", 300), bandwidth=rules)
    assert (done(gone), verdict(gone)) == ([], ("", ""))


def test_taints_of_others_stay() -> None:
    theirs = (Taint(KEY, "x", "NoSchedule"), Taint(KEY, "", "NoExecute"), Taint("a", "", "NoSchedule"))
    assert done(a_scene(the_node(WHOLE, taints=theirs))) == []
    assert done(a_scene(the_node(WHOLE, taints=(*theirs, OURS)))) == [UNTAINT]


@pytest.mark.parametrize(
    ("node", "more"),
    [
        ({}, {"stopped": True}),
        ({}, {"complete": False, "unseen": {"pods": "no answer"}}),
        ({}, {"resource": a_resource("Bandwidth", "n1", capacity={}, paused=True)}),
        ({}, {"resource": a_resource("Bandwidth", "n1", capacity={"local": {"ulMbps": -1}})}),
        ({}, {"resource": structs.replace(a_resource("Bandwidth", "n1", capacity={}), deleting=True)}),
        ({"deleting": NOON}, {}),
    ],
)
def test_nothing_is_done_then(node: Any, more: Any) -> None:
    for labels in (ATTESTED, ()):
        assert done(a_scene(the_node({EGRESS: 1}, taints=(OURS,), labels=labels, **node), **more)) == []


def test_a_node_without_its_object_gets_that_first() -> None:
    nodes = NodeTable()
    nodes.put(the_node())
    [decision] = PLAN.decide(a_world(nodes=nodes, bandwidth=NATIVE), EVERYTHING)
    assert [type(each) for each in decision.actions] == [ApplyBandwidth]
    assert find(decision.status.conditions, "NativePlacement") is not None


# --- properties --------------------------------------------------------------------------------------------------------------------

sizes = st.sampled_from([0, 1, 299, 300, 1000, 5000])
crowds = st.lists(st.tuples(sizes, st.sampled_from(["Pending", "Running", "Succeeded"])), max_size=6)


def published_after(node: Node, actions: list[Action]) -> Node:
    """The node once all is done."""
    for each in actions:
        if isinstance(each, SetNodeResources):
            has = amounts({name: int(value) for name, value in each.resources.items()})
            node = structs.replace(node, published=has, published_capacity=has)
        elif isinstance(each, TaintNode):
            node = structs.replace(node, taints=(*node.taints, OURS))
        elif isinstance(each, UntaintNode):
            node = structs.replace(node, taints=tuple(taint for taint in node.taints if taint != OURS))
    return node


rates = st.builds(Rates, st.integers(-50, 2000), st.integers(-50, 2000))


@given(local=rates, network=rates)
def test_no_link_is_given_out_beyond_what_it_carries(local: Rates, network: Rates) -> None:
    given_out = shares(Links(local, network))
    for way in ("up", "down"):
        card, rest = getattr(given_out.network, way), getattr(given_out.local, way)
        assert 0 <= card <= max(0, getattr(network, way))
        assert card + rest == max(0, getattr(local, way)), "nor is any of the virtual switch lost"
        assert rest == 0 or card == max(0, getattr(network, way)), "and the card comes first"


@given(
    crowd=crowds,
    given_out=st.dictionaries(st.sampled_from(EXTENDED), sizes),
    carries=st.integers(1, 2000),
    attested=st.booleans(),
    mode=st.sampled_from(["Off", "Native"]),
)
def test_what_bound_pods_were_given_is_never_taken_and_once_done_nothing_is_due(
    crowd: Any, given_out: dict[str, int], carries: int, attested: bool, mode: Any
) -> None:
    pods = [requesting(f"p{number}", each, phase=phase) for number, (each, phase) in enumerate(crowd)]
    node = the_node(given_out, labels=ATTESTED if attested else ())
    rules = BandwidthRules(mode=mode)
    scene: dict[str, Any] = {"resource": carrying(ulMbps=carries), "bandwidth": rules}
    after = published_after(node, done(a_scene(node, *pods, **scene)))
    after = published_after(after, done(a_scene(after, *pods, **scene)))
    now, had = dict(after.published), dict(node.published)
    bound = sum(each for each, phase in crowd if phase != "Succeeded") * MILLION
    running = sum(each for each, phase in crowd if phase == "Running") * MILLION
    assert now.get(EGRESS, 0) >= min(bound, had.get(EGRESS, 0)), "it sinks no further than to what is bound"
    if (mode == "Native" and attested) or EGRESS in had:
        assert now.get(EGRESS, 0) >= running
    most = carries if mode == "Native" and attested else 0
    assert now.get(EGRESS, 0) <= max(most * MILLION, bound), "and it is no more than the card and the pods say"
    is_over = now.get(EGRESS, 0) > most * MILLION or bool(now and not attested)
    assert (OURS in after.taints) == (mode == "Native" and is_over)
    assert done(a_scene(after, *pods, **scene)) == []


asked_of = st.dictionaries(st.sampled_from(EXTENDED), st.sampled_from([1, 200, 450, 900]), max_size=4)
rate_texts = st.sampled_from(["", "100k", "300M", "450500k"])


@given(
    crowd=st.lists(st.tuples(asked_of, rate_texts, st.booleans()), max_size=12),
    local=st.integers(1, 3000),
    network=st.integers(1, 2000),
    earlier=st.lists(rate_texts, max_size=2),
)
def test_whatever_mixture_kube_scheduler_lets_in_no_link_carries_more_than_it_can(
    crowd: list[tuple[dict[str, int], str, bool]], local: int, network: int, earlier: list[str]
) -> None:
    """Pods that request one link or both, by a policy or by hand, beside some of before the mode, which request nothing."""
    node = the_node(
        annotations=(("headroom.dev/local-bandwidth", f"{local}M"), ("headroom.dev/network-bandwidth", f"{network}M"))
    )
    pods = [
        a_pod(
            f"old{number}", node="n1", gpus=0, phase="Running", annotations=(("kubernetes.io/egress-bandwidth", text),)
        )
        for number, text in enumerate(earlier)
        if text
    ]
    began = used(a_scene(node, *pods))
    for number, (requests, text, together) in enumerate(crowd):
        node = published_after(node, done(a_scene(node, *pods)))
        if OURS in node.taints:
            break
        annotations = [("kubernetes.io/egress-bandwidth", text)] if text else []
        asks = requests | ({EGRESS: -(-rate(text) // MILLION)} if text else {})
        annotations += [("headroom.dev/traffic", "siblings")] if together else []
        taken = Counter({name: sum(dict(each.shape.requests).get(name, 0) for each in pods) for name in EXTENDED})
        room = dict(node.published)
        if all(taken[name] + mbps * MILLION <= room.get(name, 0) for name, mbps in asks.items()):
            owner = Owner("StatefulSet", "ranks", "set-1", "apps") if together else None
            pods.append(
                a_pod(
                    f"p{number}", node="n1", gpus=0, phase="Running", owner=owner, shape=Shape(requests=amounts(asks)),
                    annotations=tuple(sorted(annotations)),
                )
            )  # fmt: skip
    now = used(a_scene(node, *pods))
    for link, carries in (("local", local), ("network", network)):
        for way in ("up", "down"):
            before = getattr(getattr(began, link), way)
            assert getattr(getattr(now, link), way) <= max(carries * MILLION, before)


def used(world: World) -> Links:
    return account(world, "n1", {}).used


def rate(text: str) -> int:
    found = parse_rate(text, "bits")
    assert isinstance(found, int)
    return found

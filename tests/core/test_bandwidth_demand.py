"""Bandwidth as resources of a room: which machines wake, or are launched, for pods that ask for it, and why for others none is."""

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.bandwidth import EGRESS_MBPS, INGRESS_MBPS, MARKER, SIBLINGS, TRAFFIC
from headroom.core import capacity_round, spot_pools
from headroom.core.bandwidth import notes
from headroom.core.bandwidth.overlays import karpenter_note
from headroom.model.bandwidth import MEGABIT, BandwidthRules
from headroom.model.bandwidth_facts import NodeOverlay
from headroom.model.facts import Node, NodePool, Owner, Pairs, Pod, Requirement, Shape
from headroom.model.world import World
from tests.builders import NOON, a_resource
from tests.core import spot_stage
from tests.core.power_stage import (
    GPU,
    LONG_AGO,
    MINUTE,
    SECOND,
    Stage,
    a_pool,
    a_view,
    decided,
    explained,
    finished,
    off,
    on,
    remembered,
    running,
    status,
    waiting,
    wakes,
    was,
)
from tests.core.test_capacity_changes import Watched
from tests.core.test_spot_demand import TOLERATES, on_demand

EXTENDER: Final = BandwidthRules(mode="Extender")
NATIVE: Final = BandwidthRules(mode="Native")
WAYS: Final = ("kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth")
RESOURCES: Final = (EGRESS_MBPS, INGRESS_MBPS)
ATTESTED: Final = ("headroom.dev/device-plugin", "true")
PROMISED: Final[dict[str, Any]] = {"template": {"labels": dict([ATTESTED])}}


def shape(gpus: int = 1, mbps: int = 0, *, marker: bool = False) -> Shape:
    asked = {GPU: gpus} | (dict.fromkeys(RESOURCES, mbps) if mbps else {}) | ({MARKER: 1} if marker else {})
    return Shape(requests=tuple(sorted((name, amount * 1_000_000) for name, amount in asked.items())))


def marked(name: str, mbps: int, gpus: int = 1, **fields: Any) -> Pod:
    """A pod as the policy makes it in extender mode."""
    notes = tuple((each, f"{mbps}M") for each in WAYS)
    base: dict[str, Any] = {"shape": shape(gpus, marker=True), "annotations": notes}
    return waiting(name, gpus, **base | fields)


def native(name: str, mbps: int, gpus: int = 1, **fields: Any) -> Pod:
    """A pod as the policy makes it in native mode."""
    return waiting(name, gpus, **{"shape": shape(gpus, mbps)} | fields)


def bound(pod: Pod, node: str) -> Pod:
    return structs.replace(
        pod,
        node=node,
        phase="Running",
        started=NOON - 60 * MINUTE,
        created=NOON - 60 * MINUTE,
        unschedulable_since=None,
    )


def publishing(node: Node, mbps: int) -> Node:
    """A node with a device plugin, of which kube-scheduler counts the bandwidth."""
    more = tuple((name, mbps * MEGABIT) for name in RESOURCES)
    return structs.replace(node, allocatable=tuple(sorted((*node.allocatable, *more))), labels=(*node.labels, ATTESTED))


def with_labels(node: Node, *labels: tuple[str, str]) -> Node:
    return structs.replace(node, labels=(*node.labels, *labels))


def reason(world: World) -> tuple[str, str]:
    [told] = status(decided(world)["one"]).unserved
    return told.reason, told.message


# --- a sleeping machine wakes for them ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mbps", [1, 600, 1_000])
def test_in_extender_mode_a_sleeping_machine_wakes_for_a_pod_that_its_links_hold(mbps: int) -> None:
    view = a_view(a_pool(machines={"w1": 8}), pods=[marked("p", mbps)], bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == ["w1"]
    told = explained(view, next(iter(view.pods)))
    assert told is not None
    assert told.state == "Waking"


def test_in_native_mode_one_wakes_whose_labels_to_be_attest_a_device_plugin() -> None:
    pool = a_pool(listed=None, machines={"w1": 8}, **PROMISED)
    view = a_view(pool, pods=[native("p", 600)], bandwidth=NATIVE)
    assert wakes(decided(view)["one"]) == ["w1"]


@pytest.mark.parametrize("labels", [(ATTESTED,), (("nvidia.com/gpu.deploy.device-plugin", "true"),)])
def test_or_whose_node_has_such_a_label(labels: tuple[tuple[str, str], ...]) -> None:
    view = a_view(
        a_pool(machines={"w1": 8}),
        nodes=[with_labels(off("w1"), *labels)],
        pods=[native("p", 600)],
        bandwidth=NATIVE,
    )
    assert wakes(decided(view)["one"]) == ["w1"]


def test_each_machine_holds_as_many_as_its_links_carry() -> None:
    machines = {f"w{number}": 8 for number in range(4)}
    pods = [marked(f"p{number}", 400) for number in range(5)]
    view = a_view(a_pool(machines=machines), pods=pods, bandwidth=EXTENDER)
    assert len(wakes(decided(view)["one"])) == 3
    pods = [native(f"p{number}", 400) for number in range(5)]
    view = a_view(a_pool(machines=machines, **PROMISED), pods=pods, bandwidth=NATIVE)
    assert len(wakes(decided(view)["one"])) == 3


def test_what_a_bandwidth_says_of_a_machine_without_a_node_counts() -> None:
    said = a_resource("Bandwidth", "w2", capacity={"network": {"ulMbps": 5_000, "dlMbps": 5_000}})
    view = a_view(a_pool(machines={"w1": 8, "w2": 8}), said, pods=[marked("p", 3_000)], bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == ["w2"]


def test_and_so_does_its_machine_type() -> None:
    template = {"labels": {"node.kubernetes.io/instance-type": "p4d.24xlarge"}}
    view = a_view(a_pool(machines={"w1": 8}, template=template), pods=[marked("p", 300_000)], bandwidth=EXTENDER)
    # The card carries it, and the virtual switch by the settings does not.
    assert reason(view) == (
        "BandwidthTooLarge",
        "It requests 300000 Mbps of local egress; the machines that could hold it have at most 20000 Mbps.",
    )
    view = a_view(a_pool(machines={"w1": 8}, template=template), pods=[marked("p", 15_000)], bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == ["w1"]


# --- what is ready --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("held", "woken"), [(300, []), (400, []), (401, ["w2"]), (1_000, ["w2"])])
def test_in_extender_mode_a_node_whose_card_is_full_is_no_room(held: int, woken: list[str]) -> None:
    pool = remembered(a_pool(machines={"w1": 8, "w2": 8}), was("w1", "On", LONG_AGO), was("w2", "Off", LONG_AGO))
    pods = [bound(marked("old", held), "w1"), marked("p", 600)]
    view = a_view(pool, nodes=[on("w1")], pods=pods, bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == woken


@pytest.mark.parametrize(("held", "woken"), [(400, []), (401, ["w2"])])
def test_in_native_mode_what_the_node_shows_less_what_is_requested_is_free(held: int, woken: list[str]) -> None:
    pool = remembered(
        a_pool(machines={"w1": 8, "w2": 8}, **PROMISED), was("w1", "On", LONG_AGO), was("w2", "Off", LONG_AGO)
    )
    pods = [bound(native("old", held), "w1"), native("p", 600)]
    view = a_view(pool, nodes=[publishing(on("w1"), 1_000)], pods=pods, bandwidth=NATIVE)
    assert wakes(decided(view)["one"]) == woken


def test_a_node_that_has_just_come_and_shows_nothing_yet_is_awaited() -> None:
    pool = remembered(
        a_pool(machines={"w1": 8, "w2": 8}, **PROMISED), was("w1", "On", NOON - SECOND), was("w2", "Off", LONG_AGO)
    )
    fresh = with_labels(on("w1", since=NOON - SECOND), ATTESTED)
    view = a_view(pool, nodes=[fresh], pods=[native("p", 600)], bandwidth=NATIVE)
    assert wakes(decided(view)["one"]) == []
    zeroed = publishing(fresh, 0)
    view = a_view(pool, nodes=[zeroed], pods=[native("p", 600)], bandwidth=NATIVE)
    assert wakes(decided(view)["one"]) == []


def test_what_was_freed_a_moment_ago_is_no_verdict_of_kube_schedulers() -> None:
    pool = remembered(a_pool(machines={"w1": 8, "w2": 8}), was("w1", "On", LONG_AGO), was("w2", "Off", LONG_AGO))
    ended = finished("old", "w1", NOON - 5 * SECOND, shape=shape(marker=True), annotations=((WAYS[0], "900M"),))
    pod = marked("p", 600, since=NOON - 10 * MINUTE)
    view = a_view(pool, nodes=[on("w1")], pods=[ended, pod], bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == []


def test_pods_that_do_not_ask_by_kube_scheduler_are_not_kept_by_links() -> None:
    # Made before the mode was set, they have annotations and no marker: the extender is not asked of them.
    plain = structs.replace(marked("p", 5_000), shape=shape())
    view = a_view(a_pool(machines={"w1": 8}), pods=[plain], bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == ["w1"]


# --- who is told why not --------------------------------------------------------------------------------------------------------


def test_a_pod_that_asks_for_more_than_any_link_carries_wakes_nothing_and_is_told() -> None:
    too_large = "the machines that could hold it have at most 1000 Mbps."
    view = a_view(a_pool(machines={"w1": 8}), pods=[marked("p", 1_001)], bandwidth=EXTENDER)
    assert reason(view) == ("BandwidthTooLarge", f"It requests 1001 Mbps of network egress; {too_large}")
    view = a_view(a_pool(machines={"w1": 8}, **PROMISED), pods=[native("p", 1_001)], bandwidth=NATIVE)
    assert reason(view) == ("BandwidthTooLarge", f"It requests 1001 Mbps of network egress; {too_large}")
    told = explained(view, next(iter(view.pods)))
    assert told is not None
    assert told.state == "BandwidthTooLarge"
    assert told.sentence == (
        f"PowerPool/one wakes no machine for it: it requests 1001 Mbps of network egress; {too_large}"
    )


def test_the_most_that_a_machine_carries_is_told_with_nobody_on_it() -> None:
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", "On", LONG_AGO))
    pods = [bound(marked("old", 900), "w1"), marked("p", 2_000)]
    view = a_view(pool, nodes=[on("w1")], pods=pods, bandwidth=EXTENDER)
    assert reason(view)[1].endswith("have at most 1000 Mbps.")


def test_a_machine_without_a_device_plugin_is_not_woken_and_the_pod_is_told() -> None:
    view = a_view(a_pool(machines={"w1": 8}), nodes=[off("w1")], pods=[native("p", 600)], bandwidth=NATIVE)
    assert wakes(decided(view)["one"]) == []
    assert reason(view) == (
        "NoDevicePlugin",
        (
            "It requests bandwidth, which only nodes with a device plugin offer, and none of the machines that could hold it "
            "has a label that attests one (headroom.dev/device-plugin=true or "
            "nvidia.com/gpu.deploy.device-plugin=true)."
        ),
    )


def test_what_lacks_beside_bandwidth_is_told_first() -> None:
    view = a_view(a_pool(machines={"w1": 4}), pods=[marked("p", 5_000, gpus=8)], bandwidth=EXTENDER)
    assert reason(view)[0] == "NoMachineFits"


# --- spot pools -----------------------------------------------------------------------------------------------------------------


def tolerant(pod: Pod) -> Pod:
    return structs.replace(pod, shape=structs.replace(pod.shape, tolerations=TOLERATES))


def test_a_machine_is_launched_in_both_modes_or_the_pod_is_told() -> None:
    labelled = on_demand(template={"gpuCount": 2, "labels": dict([ATTESTED])})
    for pool, pod, rules in (
        (on_demand(), marked("p", 600), EXTENDER),
        (labelled, native("p", 600), NATIVE),
    ):
        assert len(spot_stage.launches(spot_stage.decide(pool, pods=[tolerant(pod)], bandwidth=rules))) == 1
    for pool, pod, rules, why in (
        (on_demand(), marked("p", 6_000), EXTENDER, "BandwidthTooLarge"),
        (labelled, native("p", 6_000), NATIVE, "BandwidthTooLarge"),
        (on_demand(), native("p", 600), NATIVE, "NoDevicePlugin"),
    ):
        world = spot_stage.a_view(pool, pods=[tolerant(pod)], bandwidth=rules)
        decision = spot_stage.decide(pool, pods=[tolerant(pod)], bandwidth=rules)
        assert spot_stage.launches(decision) == []
        assert [each.reason for each in spot_stage.status_of(decision).unserved] == [why]
        told = spot_pools.explained(capacity_round(world), tolerant(pod))
        assert told is not None
        assert told.state == why


# --- Karpenter ------------------------------------------------------------------------------------------------------------------


def overlay(*requirements: Requirement, ready: bool = True, judged: bool = True, mbps: int = 1_000) -> NodeOverlay:
    capacity = ((MARKER, 1_000_000_000), *((name, mbps * MEGABIT) for name in RESOURCES))
    return NodeOverlay(name="rates", requirements=requirements, capacity=capacity, ready=ready, judged=judged)


def of_pool(*names: str) -> Requirement:
    return Requirement(key="karpenter.sh/nodepool", operator="In", values=names)


@pytest.mark.parametrize(
    ("overlays", "woken"),
    [
        ([], ["w1"]),
        ([overlay()], []),
        ([overlay(of_pool("gpu", "cpu"))], []),
        ([overlay(of_pool("cpu"))], ["w1"]),
        ([overlay(ready=False)], ["w1"]),
    ],
)
@pytest.mark.parametrize(("make", "rules"), [(marked, EXTENDER), (native, NATIVE)])
def test_karpenter_could_serve_them_only_where_an_overlay_tells_it_so(
    overlays: list[NodeOverlay], woken: list[str], make: Any, rules: BandwidthRules
) -> None:
    known: dict[str, Any] = {"node_pools": {"gpu": NodePool(name="gpu")}}
    known["node_overlays"] = {each.name: each for each in overlays}
    pods = [make("p", 600), structs.replace(waiting("q"), namespace="team-b")]
    view = a_view(a_pool(machines={"w1": 1}, **PROMISED), pods=pods, bandwidth=rules, **known)
    decision = decided(view)["one"]
    assert wakes(decision) == woken
    shared = {each.pod for each in status(decision).unserved if each.reason == "SharedWithKarpenter"}
    assert shared == {"team-b/q"} | ({"team-a/p"} if not woken else set())
    note = karpenter_note(view, next(each for each in view.pods if each.name == "p"))
    assert bool(note) == (not overlays or not overlays[0].ready)


def test_an_overlay_that_tells_of_less_is_none_and_one_that_nobody_can_see_may_be_one() -> None:
    known: dict[str, Any] = {"node_pools": {"gpu": NodePool(name="gpu")}, "bandwidth": NATIVE}
    pool, pods = a_pool(machines={"w1": 8}, **PROMISED), [native("p", 600)]
    small = a_view(pool, pods=pods, node_overlays={"rates": overlay(mbps=500)}, **known)
    assert wakes(decided(small)["one"]) == ["w1"]
    unseen = a_view(pool, pods=pods, unseen={"nodeoverlays.karpenter.sh": "403 Forbidden"}, **known)
    assert wakes(decided(unseen)["one"]) == []


def test_why_karpenter_brings_nothing_is_told_as_far_as_it_is_known() -> None:
    known: dict[str, Any] = {"node_pools": {"gpu": NodePool(name="gpu")}, "bandwidth": NATIVE}
    lacks = "Karpenter brings no node for it: no NodeOverlay in effect provides headroom.dev/egress-mbps"
    for overlays, why in (
        ([], " on machines"),
        ([overlay(ready=False)], ", since Karpenter refuses NodeOverlay rates; its conditions say why"),
        (
            [overlay(ready=False, judged=False)],
            ", since Karpenter has not looked at NodeOverlay rates: its feature gate NodeOverlay may be off",
        ),
    ):
        view = a_view(pods=[native("p", 600)], node_overlays={each.name: each for each in overlays}, **known)
        pod = next(iter(view.pods))
        assert karpenter_note(view, pod) == lacks + why
        assert [*notes(view, pod, {})][-1] == f"bandwidth: {lacks}{why}"
    plain = a_view(pods=[waiting("p")], **known)
    assert karpenter_note(plain, next(iter(plain.pods))) == ""


# --- attacks --------------------------------------------------------------------------------------------------------------------


def test_in_mode_off_nothing_of_this_counts() -> None:
    pool = a_pool(machines={"w1": 8}, **PROMISED)
    for pod in (marked("p", 5_000), native("p", 5)):
        view = a_view(pool, pods=[pod])
        assert wakes(decided(view)["one"]) == []
    plain = structs.replace(marked("p", 5_000), shape=shape())
    assert wakes(decided(a_view(pool, pods=[plain]))["one"]) == ["w1"]


@pytest.mark.parametrize("amount", [10**9, 2**63, 10**30])
@pytest.mark.parametrize("rules", [NATIVE, EXTENDER])
def test_absurd_requests_raise_nothing_and_wake_nothing(amount: int, rules: BandwidthRules) -> None:
    absurd = Shape(requests=((GPU, 1_000_000), (EGRESS_MBPS, amount * 1_000_000)))
    pods = [waiting("p", shape=absurd), waiting("q", shape=Shape(requests=(*absurd.requests, (MARKER, amount))))]
    view = a_view(a_pool(machines={"w1": 8}, **PROMISED), pods=pods, bandwidth=rules)
    assert wakes(decided(view)["one"]) == []
    assert "InternalError" not in decided(view)["one"].reason
    assert {each.reason for each in status(decided(view)["one"]).unserved} <= {"BandwidthTooLarge", "NoMachineFits"}


def test_a_crowd_with_a_marker_set_by_hand_wake_no_machine_over_and_over() -> None:
    # kube-scheduler was not told to ignore the marker, so it places none of them wherever they are.
    pods = [waiting(f"p{number:03d}", shape=shape(marker=True)) for number in range(100)]
    stage = Stage(a_pool(machines={f"w{number}": 8 for number in range(20)}), pods=pods, bandwidth=NATIVE)
    stage.never = {pod.uid for pod in pods}
    stage.pass_time(4 * 60 * MINUTE, every=20 * SECOND)
    woken = [each for _, each in stage.commands() if each.startswith("wake")]
    assert 0 < len(woken) <= 40, woken


def test_who_says_siblings_counts_on_the_card_like_anybody() -> None:
    notes: Pairs = (*((each, "300M") for each in WAYS), (TRAFFIC, SIBLINGS))
    owner = Owner("StatefulSet", "set", "uid-set")
    pods = [marked(f"p{number}", 300, annotations=notes, owner=owner) for number in range(4)]
    view = a_view(a_pool(machines={"w1": 8, "w2": 8}), pods=pods, bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == ["w1", "w2"]


def test_other_pods_find_the_same_places_beside_them() -> None:
    view = a_view(a_pool(machines={"w1": 4}), pods=[marked("p", 5_000), waiting("q")], bandwidth=EXTENDER)
    assert wakes(decided(view)["one"]) == ["w1"]
    again = a_view(a_pool(machines={"w1": 4}), pods=[waiting("q"), running("r", "w9")], bandwidth=EXTENDER)
    assert wakes(decided(again)["one"]) == ["w1"]


# --- what changed ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [NATIVE, EXTENDER])
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.sampled_from([1, 300, 700, 1_500])), max_size=10))
def test_what_is_decided_of_what_changed_is_what_is_decided_of_everything(
    rules: BandwidthRules, events: list[tuple[int, int, int]]
) -> None:
    watched = Watched()
    watched.more["bandwidth"] = rules
    watched.pool("one", "m1", "m2", **PROMISED)
    make = native if rules is NATIVE else marked
    for what, number, mbps in events:
        node = publishing(on("m1"), 1_000) if number % 2 else with_labels(on("m1"), ATTESTED)
        match what:
            case 0 | 1 | 2:
                watched.pod_sink.put(make(f"p{number}", mbps))
            case 3 | 4:
                watched.pod_sink.put(bound(make(f"p{number}", mbps), "m1"))
            case 5:
                watched.pod_sink.remove(f"uid-p{number}", None, NOON)
            case 6:
                watched.node_sink.put(node)
            case _:
                watched.write("one")
        watched.decide()
        assert watched.is_right()

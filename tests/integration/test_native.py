"""Native mode with the real kube-scheduler: no link is given out twice, and no pod loses what it was given."""

import json
from collections.abc import Iterator

import pytest

from tests.integration.extended import CARD, Document, given_out
from tests.integration.native import LABEL, NativeSite, asked, native_cluster, pod
from tests.processes import PATIENCE_SECONDS

CROWD = 2_000
HASTE = 120
"""Seconds in which news of room must have moved kube-scheduler: after five minutes it would look again by itself."""
SIZES = (20, 50, 100)
BANDWIDTHS = "/apis/headroom.dev/v1alpha1/bandwidths"
TAINT = "headroom.dev/bandwidth-unavailable:NoSchedule"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeSite]:
    with native_cluster(tmp_path_factory.mktemp("native")) as made:
        made.until(lambda: "Native" in made.plane.kubectl("get", "bandwidthconfigs"), "the policies know the mode")
        yield made


def is_refused(found: Document) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["reason"] == "Unschedulable" for each in conditions)


def own_node(name: str) -> Document:
    """A node that KWOK does not play."""
    size = {"cpu": "640", "memory": "5120Gi", "pods": "200"}
    labels = {"pool": name, "kubernetes.io/hostname": name, LABEL: "true"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": size, "allocatable": size}}


def effects(site: NativeSite) -> int:
    """How often the operator wrote to a node."""
    lines = [json.loads(each) for each in site.operator.log.splitlines() if '"effect done"' in each]
    return sum(each["effect"] in ("SetNodeResources", "TaintNode", "UntaintNode") for each in lines)


def test_no_link_is_given_out_twice_to_two_thousand_pods_at_full_speed(site: NativeSite) -> None:
    # So few nodes that not all pods find room, and some without a device plugin, where there is none for them.
    nodes = [f"node-{number:03d}" for number in range(105)]
    site.nodes(*(f"bare-{number}" for number in range(10)), labels={"pool": "crowd"})
    site.attested(*nodes, pool="crowd")
    pods = [pod(f"crowd-{number}", SIZES[number % 3], pool="crowd") for number in range(CROWD)]
    site.create(pods)
    mine = {each["metadata"]["name"] for each in pods}

    def all_tried() -> bool:
        found = [each for name, each in site.pods().items() if name in mine]
        return all(each["spec"].get("nodeName") or is_refused(each) for each in found)

    site.until(all_tried, "every pod is bound or refused", timeout=2 * PATIENCE_SECONDS)
    found = [each for name, each in site.pods().items() if name in mine]
    taken = given_out(found)
    assert taken.pop(""), "some wait"
    assert {name: mbps for name, mbps in taken.items() if mbps > CARD or name not in nodes} == {}
    assert not [each for each in found if each["status"]["phase"] == "Failed"]
    # Only for lack of room is anybody refused.
    least = min(asked(each, "headroom.dev/egress-mbps") for each in found if not each["spec"].get("nodeName"))
    assert max(CARD - taken[name] for name in nodes) < least
    assert {site.condition(name, "Overcommitted")[0] for name in nodes[:20]} == {"False"}
    assert all(map(site.is_whole, nodes[:20]))
    assert site.condition("bare-0", "NativePlacement") == ("False", "NoDevicePlugin")
    assert site.published("bare-0") == ({}, {})
    site.delete(*mine)


def test_a_pod_is_refused_with_the_reason_and_bound_once_there_is_room(site: NativeSite) -> None:
    site.attested("full")
    site.create([pod("first", 900, pool="full")])
    site.until(lambda: bool(site.bound(["first"])), "the first pod is bound")
    site.create([pod("second", 600, pool="full")])
    site.until(lambda: bool(site.refusal("second")), "the second pod is refused")
    assert "1 Insufficient headroom.dev/egress-mbps" in site.refusal("second")
    assert "1 Insufficient headroom.dev/ingress-mbps" in site.refusal("second")
    site.delete("first")
    site.until(lambda: bool(site.bound(["second"])), "the second pod is bound", timeout=HASTE)
    # Room that is made by more capacity is room as well.
    site.create([pod("third", 600, pool="full")])
    site.until(lambda: bool(site.refusal("third")), "the third pod is refused")
    site.say("full", {"capacity": {"network": {"ulMbps": 1300, "dlMbps": 1300}}})
    site.until(lambda: bool(site.bound(["third"])), "the third pod is bound", timeout=HASTE)


def test_a_capacity_below_what_is_bound_is_an_excess_that_nobody_is_evicted_for(site: NativeSite) -> None:
    site.attested("lowered")
    names = [f"low-{number}" for number in range(4)]
    site.create([pod(name, 200, pool="lowered") for name in names])
    site.until(lambda: len(site.bound(names)) == 4, "all are bound")
    site.until(lambda: all(site.pods()[name]["status"]["phase"] == "Running" for name in names), "all run")
    site.say("lowered", {"capacity": {"network": {"ulMbps": 500, "dlMbps": 500}}})
    site.until(lambda: site.taints("lowered") == [TAINT], "the node is tainted")
    kept = {"egress_mbps": 800, "ingress_mbps": 800, "local_egress_mbps": 19200, "local_ingress_mbps": 19200}
    site.until(lambda: site.publishes("lowered", **kept), "what bound pods request stays")
    assert site.condition("lowered", "Overcommitted") == ("True", "CapacityExceeded")
    assert site.condition("lowered", "NativePlacement") == ("True", "CapacityExceeded")
    site.create([pod("plain", 0, pool="lowered")])
    site.until(lambda: "untolerated taint" in site.refusal("plain"), "no new pod comes")
    site.delete(*names[2:])
    lowered = {"egress_mbps": 500, "ingress_mbps": 500, "local_egress_mbps": 19500, "local_ingress_mbps": 19500}
    site.until(lambda: site.publishes("lowered", **lowered) and not site.taints("lowered"), "all is well")
    assert site.condition("lowered", "Overcommitted") == ("False", "WithinCapacity")
    left = site.bound(names[:2])
    assert (len(left), {site.pods()[name]["status"]["phase"] for name in left}) == (2, {"Running"})
    site.until(lambda: bool(site.bound(["plain"])), "the waiting pod is bound")


def test_what_a_restarted_kubelet_has_set_to_nothing_is_there_again_soon(site: NativeSite) -> None:
    site.attested("restarted")
    site.create([pod("before", 700, pool="restarted")])
    site.until(lambda: bool(site.bound(["before"])), "it is bound")
    site.kubelets.restart(site.api, "restarted")
    site.until(lambda: site.is_whole("restarted"), "it is mended")
    site.create([pod("after", 400, pool="restarted")])
    site.until(lambda: "Insufficient headroom.dev/egress-mbps" in site.refusal("after"), "what is bound still counts")
    assert site.pods()["before"]["status"]["phase"] == "Running"


def test_a_label_that_comes_and_goes_takes_nothing_from_running_pods(site: NativeSite) -> None:
    site.attested("flapping")
    site.create([pod("stays", 300, pool="flapping")])
    site.until(lambda: site.pods()["stays"]["status"]["phase"] == "Running", "it runs")
    kept = {"egress_mbps": 300, "ingress_mbps": 300}
    for _ in range(3):
        site.label("flapping", None)
        site.until(lambda: site.condition("flapping", "NativePlacement")[1] == "DevicePluginLost", "it is told")
        site.label("flapping", "true")
        site.until(lambda: site.condition("flapping", "NativePlacement")[1] == "Published", "it is told")
    site.label("flapping", None)
    site.until(lambda: site.publishes("flapping", **kept) and site.taints("flapping") == [TAINT], "only that stays")
    # Its kubelet restarts: this is why such nodes get nothing.
    site.kubelets.restart(site.api, "flapping")
    site.until(lambda: site.publishes("flapping", **kept), "it is mended")
    site.delete("stays")
    site.until(lambda: site.publishes("flapping") and not site.taints("flapping"), "nothing of ours is left")
    assert site.condition("flapping", "NativePlacement") == ("False", "NoDevicePlugin")


def test_a_tenant_who_names_the_node_and_asks_for_absurd_amounts_gets_nothing(site: NativeSite) -> None:
    """By a kubelet of our own, which refuses what does not fit as real ones do."""
    site.api.send("POST", "api/v1/nodes", own_node("besieged"))
    site.until(lambda: site.is_whole("besieged"), "the node publishes its bandwidth")
    before = site.node("besieged")["metadata"]["resourceVersion"]
    greedy = []
    for number, amount in enumerate(("1001", "100000", "1000000000000", "9000000000000000")):
        one = pod(f"greedy-{number}", 0, egress_mbps=amount)
        one["spec"]["nodeName"] = "besieged"
        greedy.append(one)
    site.create(greedy)
    names = [each["metadata"]["name"] for each in greedy]
    site.until(lambda: {site.pods()[name]["status"]["phase"] for name in names} == {"Failed"}, "all are refused")
    site.create([pod("honest", 800, pool="besieged")])
    site.until(lambda: site.pods()["honest"]["status"]["phase"] == "Running", "whoever fits runs")
    assert site.is_whole("besieged")
    assert site.taints("besieged") == []
    assert site.node("besieged")["metadata"]["resourceVersion"] == before, "nothing was written to the node"


def test_a_node_that_is_made_again_gets_what_is_its_own(site: NativeSite) -> None:
    site.attested("again")
    site.say("again", {"capacity": {"network": {"ulMbps": 700, "dlMbps": 700}}})
    site.until(lambda: not site.is_whole("again"), "it publishes what was said")
    site.send([("DELETE", "/api/v1/nodes/again", None)])
    gone = f"{BANDWIDTHS}?fieldSelector=metadata.name=again"
    site.until(lambda: not json.loads(site.plane.get(gone))["items"], "its Bandwidth goes with it")
    site.attested("again")


def test_an_unchanged_cluster_is_not_written_to(site: NativeSite) -> None:
    site.attested("quiet")
    before = effects(site)
    site.operator.kill()
    site.operator.start()  # a new one knows nothing but what it sees
    site.create([pod("last", 10, pool="quiet")])

    def accounted() -> int:
        return int(json.loads(site.plane.get(BANDWIDTHS + "/quiet"))["status"].get("pods", 0))

    site.until(lambda: accounted() == 1, "it has decided on every node")
    assert effects(site) == before


def test_leaving_the_mode_withdraws_what_nobody_needs(site: NativeSite) -> None:
    site.attested("empty", "needed")
    site.create([pod("needs", 300, pool="needed")])
    site.until(lambda: site.pods()["needs"]["status"]["phase"] == "Running", "it runs")
    site.operator.stop()
    site.operator._settings["bandwidth_mode"] = "Off"
    site.operator.start()
    site.until(lambda: site.publishes("empty"), "it is withdrawn")
    site.until(lambda: site.condition("needed", "NativePlacement") == ("False", "Leaving"), "it is told")
    # The status is told before the node is written to: they are two effects.
    site.until(lambda: site.publishes("needed", egress_mbps=300, ingress_mbps=300), "the rest is withdrawn")
    site.delete("needs")
    site.until(lambda: site.publishes("needed"), "it is withdrawn")
    site.until(lambda: not [name for name in ("empty", "needed") if site.taints(name)], "nothing of ours is left")

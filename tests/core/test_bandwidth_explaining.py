"""What people are told of one pod's bandwidth: what it asks for, what is reserved where, and who decides where it may go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import bandwidth as api
from headroom.api.bandwidth_config import BandwidthConfigSpec, RateKey
from headroom.api.resources import Condition
from headroom.core.bandwidth import notes, rules_with
from headroom.core.bandwidth.configuring import config_of
from headroom.core.bandwidth.telling import digest_of
from headroom.model.bandwidth import MEGABIT, AnnotationKey, BandwidthRules, Rates
from headroom.model.decisions import Ref
from headroom.model.facts import Owner, Pod, Shape
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World
from tests.builders import a_node, a_pod, a_world

UP, DOWN, TRAFFIC = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth", "headroom.dev/traffic"
SET = Owner("StatefulSet", "ranks", "set-1", "apps")
N1 = Ref("Bandwidth", "", "n1")


def asking(name: str = "a", up: str = "100M", *, siblings: bool = False, **fields: Any) -> Pod:
    found = [(UP, up)] + ([(TRAFFIC, "siblings")] if siblings else [])
    return a_pod(name, gpus=0, **({"node": "n1", "annotations": tuple(sorted(found))} | fields))


def told(*pods: Pod, statuses: dict[Ref, object] | None = None, **rules: Any) -> list[str]:
    """What is said of the first of them."""
    table = PodTable()
    for pod in pods:
        table.put(pod)
    world: World = a_world(pods=table, bandwidth=BandwidthRules(**rules))
    return list(notes(world, pods[0], statuses or {}))


def requesting(*names: str) -> Shape:
    return Shape(requests=tuple((name, 100 * 1_000_000) for name in sorted(names)))


def remembered(**fields: Any) -> api.BandwidthStatus:
    first = api.Reservation(pod_uid="uid-a", up_bits=50 * MEGABIT, **fields)
    return api.BandwidthStatus(reservations=(first,), read_by=digest_of(BandwidthRules()))


def test_a_pod_that_asks_for_nothing_has_nothing_to_tell() -> None:
    assert told(asking(annotations=())) == []
    assert told(asking(node="", annotations=())) == []
    assert told(asking(phase="Succeeded")) == []


def test_what_is_reserved_for_a_bound_pod_and_of_which_links() -> None:
    says = "bandwidth: 100/0 Mbps up/down are reserved on node n1, of its virtual switch and its network card"
    assert told(asking()) == [says]


def test_a_link_local_pod_says_who_is_there_with_it() -> None:
    pods = [asking(name, siblings=True, owner=SET) for name in ("a", "b")]
    [found] = told(*pods)
    assert found.startswith("bandwidth: 100/0 Mbps up/down are reserved on node n1, of its virtual switch only: ")
    assert found.endswith("all pods of StatefulSet ranks are on this node, so the network card is not used")


def test_a_pod_with_native_requests_says_which_links_they_are_of() -> None:
    alone = asking(annotations=(), shape=requesting(api.LOCAL_EGRESS_MBPS))
    says = "bandwidth: 100/0 Mbps up/down are reserved on node n1, of its virtual switch"
    assert told(alone, mode="Native") == [f"{says} only: it requests nothing of the network card"]
    [who] = told(structs.replace(alone, node=""), mode="Native")
    assert who.startswith("bandwidth: kube-scheduler counts it by its request for headroom.dev/local-egress-mbps")
    more = asking(shape=requesting(api.EGRESS_MBPS, api.LOCAL_EGRESS_MBPS))
    says = says.replace("100/0", "200/0")
    assert told(more, mode="Native") == [f"{says}, and 100/0 of these of its network card"]


@pytest.mark.parametrize(
    ("others", "owner", "why"),
    [
        ((), None, "it has no controller, so it has no siblings, and the network card is used"),
        (("n2",), SET, "the pods of StatefulSet ranks are on 2 nodes (n1, n2), so the network card is used"),
        (
            ("n2", "n3", "n4", "n5"),
            SET,
            "the pods of StatefulSet ranks are on 5 nodes (n1, n2, n3 and 2 more), so the network card is used",
        ),
    ],
)
def test_a_pod_that_talks_to_siblings_says_why_it_is_not_link_local(
    others: tuple[str, ...], owner: Owner | None, why: str
) -> None:
    first = asking(siblings=True, owner=owner)
    pods = [asking(f"b{number}", siblings=True, owner=SET, node=node) for number, node in enumerate(others)]
    assert told(first, *pods)[1] == f"bandwidth: it declares traffic with siblings only, but {why}"


def test_what_cannot_be_read_is_quoted_with_what_it_counts_as() -> None:
    assert told(asking(up="10MB"))[1:] == [
        f"bandwidth: {UP} '10MB' must be bits per second such as 100M; it counts as 20/0 Mbps up/down"
    ]


def test_an_edited_pod_keeps_what_its_status_remembers() -> None:
    found = told(asking(), statuses={N1: remembered()})
    assert found[0].startswith("bandwidth: 50/0 Mbps up/down are reserved on node n1, of its virtual switch")
    assert "edited after it was bound, without effect" in found[1]


def test_what_other_settings_read_is_not_remembered() -> None:
    found = told(asking(), statuses={N1: structs.replace(remembered(), read_by="older")})
    assert found[0].startswith("bandwidth: 100/0 Mbps up/down are reserved")


def test_the_pods_of_an_overcommitted_node_say_so() -> None:
    says: dict[str, Any] = {
        "reason": "CapacityExceeded",
        "message": "5 Mbps too much.",
        "last_transition_time": "2026-01-01T00:00:00Z",
    }
    over = Condition(type="Overcommitted", status="True", **says)
    found = told(asking(), statuses={N1: api.BandwidthStatus(conditions=(over,))})
    assert found[-1] == "bandwidth: node n1 is overcommitted: 5 Mbps too much."


def test_a_pod_in_the_network_of_its_node_has_nothing_reserved() -> None:
    [found] = told(asking(shape=Shape(host_network=True)))
    assert "no bandwidth is reserved for it" in found
    assert told(asking(shape=Shape(host_network=True), annotations=())) == []


# --- pods without a node ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "mode", "says"),
    [
        (Shape(), "Off", "it may go to any node: it was created while placement by bandwidth was off"),
        (requesting(api.MARKER), "Extender", "kube-scheduler asks Headroom's extender which nodes fit"),
        (requesting(api.MARKER), "Off", "kube-scheduler asks Headroom's extender which nodes fit"),
        (requesting(api.EGRESS_MBPS), "Native", "kube-scheduler counts it by its request for headroom.dev/egress-mbps"),
        (Shape(), "Native", "bandwidth_mode is Native, but the pod was created before its policies"),
    ],
)
def test_a_pending_pod_says_who_decides_where_it_goes(shape: Shape, mode: Any, says: str) -> None:
    asks, who = told(asking(node="", shape=shape), mode=mode)
    assert asks == f"bandwidth: it requests 100/0 Mbps up/down ({UP})"
    assert who.startswith(f"bandwidth: {says}")


def test_in_native_mode_a_pending_pod_says_how_many_nodes_publish_bandwidth() -> None:
    table, nodes = PodTable(), NodeTable()
    table.put(pod := asking(node="", shape=requesting(api.EGRESS_MBPS)))
    for name, labels in (("n1", (("headroom.dev/device-plugin", "true"),)), ("n2", ())):
        nodes.put(a_node(name, labels=labels))
    world = a_world(pods=table, nodes=nodes, bandwidth=BandwidthRules(mode="Native"))
    assert "; 1 of 2 nodes publish them" in list(notes(world, pod, {}))[1]


def test_how_many_nodes_have_room_is_told_where_they_are_known() -> None:
    def left(mbps: int) -> api.BandwidthStatus:
        rates = api.RatesLeft(ul_mbps=mbps, dl_mbps=mbps)
        return api.BandwidthStatus(remaining=api.LinksLeft(local=rates, network=rates))

    statuses: dict[Ref, object] = {Ref("Bandwidth", "", str(each)): left(each) for each in (-5, 99, 100, 101)}
    assert told(asking(node=""), statuses=statuses)[-1] == "bandwidth: 2 of 4 nodes have that much free on their links"


# --- settings of the operator, as who has others reads them ------------------------------------------------------------------------


def test_rules_come_back_from_what_the_policies_were_told() -> None:
    keys = (AnnotationKey("example.com/up", "Mbps"),)
    rules = BandwidthRules(mode="Extender", egress=keys, defaults=Rates(20 * MEGABIT, 30 * MEGABIT))
    assert rules_with(BandwidthRules(), config_of(rules)) == rules
    assert rules_with(rules, config_of(BandwidthRules())) == BandwidthRules()
    assert rules_with(rules, None) == rules


def test_a_default_that_cannot_be_read_is_none() -> None:
    odd = BandwidthConfigSpec(egress=(RateKey(annotation="a.b/c"),), default_egress="many")
    assert rules_with(BandwidthRules(), odd).defaults is None

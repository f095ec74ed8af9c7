"""What the extender makes of the watches: the same sums as the accounting, whatever happens to pods, and the same capacities."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.adapters.kube.node_links import Edited, decoder
from headroom.core.bandwidth import Placement, PodAsk, Touching
from headroom.core.bandwidth.accounting import account
from headroom.model.bandwidth import GIGABIT, MEGABIT, BandwidthRules, Rates
from headroom.model.facts import Node, Owner, Pod, Shape
from headroom.model.tables import PodTable
from headroom.model.world import World
from headroom.web.extender.cluster import PlacementSink, four
from tests.builders import a_pod, a_world

NODES = ("n1", "n2", "n3")
LARGE = (10**18,) * 4
UP, DOWN = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth"
RULES = BandwidthRules()


class Watched:
    """A table of pods as the operator has it, and the extender's placement, fed with the same events."""

    def __init__(self, rules: BandwidthRules = RULES) -> None:
        self.placement, self.table = Placement(), PodTable()
        self.sink = PlacementSink(Touching(self.placement), rules, lambda: 0)
        self.rules, self.version = rules, 0
        for name in NODES:
            self.placement.set_node(name, LARGE)

    def put(self, pod: Pod) -> None:
        self.sink.put(pod)
        self.table.put(pod)

    def remove(self, uid: str) -> None:
        self.sink.remove(uid, None, 0)
        self.table.remove(uid)

    def used(self, node: str) -> tuple[int, ...]:
        return tuple(size - left for size, left in zip(LARGE, self.placement.links.left_of(node), strict=True))

    def accounted(self, node: str) -> tuple[int, ...]:
        used = account(a_world(pods=self.table, bandwidth=self.rules), node, {}).used
        return (used.local.up, used.local.down, used.network.up, used.network.down)


def asking(uid: str, node: str, rate: str = "100M", group: int = 0, **more: Any) -> Pod:
    notes = (
        (DOWN, rate),
        (UP, "50M"),
        *((("headroom.dev/traffic", "siblings"),) if more.pop("siblings", False) else ()),
    )
    owner = Owner("StatefulSet", f"set-{group}", f"set-{group}", "apps") if group else None
    return a_pod(uid, uid=uid, node=node, gpus=0, annotations=tuple(sorted(notes)) if rate else (), owner=owner, **more)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(("", *NODES)),
        st.sampled_from(("", "100M", "1G", "nonsense", "-1", "1500m", "1P")),
        st.integers(0, 2),
        st.booleans(),
        st.sampled_from(("Pending", "Running", "Succeeded", "gone", "host")),
    ),
    max_size=40,
)


@given(events=EVENTS, siblings=st.booleans(), defaults=st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_extender_counts_what_the_accounting_counts(events: list[Any], siblings: bool, defaults: bool) -> None:
    watched = Watched(BandwidthRules(siblings=siblings, defaults=Rates(7, 7) if defaults else None))
    bound: dict[str, Pod] = {}
    for number, (which, node, rate, group, says, state) in enumerate(events):
        uid = f"pod-{which}"
        if state == "gone":
            watched.remove(uid)
            bound.pop(uid, None)
        else:
            before = bound.get(uid)
            shape = Shape(host_network=state == "host")
            made = asking(
                uid, node, rate, group, siblings=says, phase=state if state != "host" else "Running", shape=shape
            )
            if before is not None:
                # A pod never leaves its node and never comes back from its end. Its controller may release it, and another adopt it.
                ended = before.phase == "Succeeded"
                made = a_pod(
                    uid, uid=uid, node=before.node, gpus=0, annotations=made.annotations, owner=made.owner,
                    shape=before.shape, phase="Succeeded" if ended else made.phase, resource_version=str(number),
                )  # fmt: skip
            watched.put(made)
            if made.node:
                bound[uid] = made
        assert [watched.used(each) for each in NODES] == [watched.accounted(each) for each in NODES]


def test_a_pod_that_its_controller_released_has_no_siblings_any_more() -> None:
    """As whoever looks into one pod of a Deployment has it: a label less, and its ReplicaSet makes another one."""
    watched = Watched()
    for uid in ("one", "two"):
        watched.put(asking(uid, "n1", group=1, siblings=True))
    assert watched.used("n1")[2:] == (0, 0)
    watched.put(asking("one", "n1", siblings=True, resource_version="2"))
    assert watched.used("n1")[2:] == watched.accounted("n1")[2:] == (50 * MEGABIT, 100 * MEGABIT)
    watched.put(asking("one", "n1", group=1, siblings=True, resource_version="3"))
    assert watched.used("n1")[2:] == (0, 0)


def test_an_edit_of_before_the_start_is_known_by_the_operator_s_status() -> None:
    watched = Watched()
    watched.sink.put(asking("one", "n1", "1M"))
    watched.sink.edited(
        "n1", [Edited("one", 50 * MEGABIT, 900 * MEGABIT, siblings=False), Edited("never", 1, 1, siblings=True)]
    )
    assert watched.used("n1")[1] == 900 * MEGABIT
    watched.sink.put(asking("two", "n1", "1M"))
    watched.sink.edited("n2", [Edited("late", 0, 700 * MEGABIT, siblings=False)])
    watched.sink.put(asking("late", "n2", "1M"))
    assert (watched.used("n1")[1], watched.used("n2")[1]) == (901 * MEGABIT, 700 * MEGABIT)
    watched.sink.remove("one", None, 0)
    assert watched.used("n1")[1] == MEGABIT


def test_an_older_version_of_a_pod_changes_nothing() -> None:
    watched = Watched()
    watched.sink.put(asking("one", "n1", resource_version="5"))
    watched.sink.put(asking("one", "", resource_version="4"))
    assert watched.used("n1")[1] == 100 * MEGABIT


def test_a_new_leader_waits_for_no_pod_with_a_gate() -> None:
    watched = Watched()
    watched.sink.put(asking("one", "", gates=("headroom.dev/budget",)))
    assert not watched.placement.waiting
    watched.sink.put(asking("one", ""))
    assert set(watched.placement.waiting) == {"one"}


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    """Deleted while it was held for, and made again."""
    watched = Watched()
    old, new = (a_pod("web", uid=uid, gpus=0, annotations=((UP, "600M"),)) for uid in ("old", "new"))
    watched.put(old)
    watched.placement.filter(PodAsk("old", 600 * MEGABIT), ["n1"], 0)
    watched.put(new)
    watched.placement.filter(PodAsk("new", 600 * MEGABIT), ["n2"], 0)
    watched.remove("old")
    assert (watched.used("n1"), watched.used("n2")[0]) == ((0, 0, 0, 0), 600 * MEGABIT)


def test_nothing_is_kept_of_pods_and_nodes_that_are_gone() -> None:
    """Jobs and nodes come and go by the thousand a day, and the process stays."""
    touching = Touching(Placement())
    sink = PlacementSink(touching, RULES, lambda: 0)
    keepers = (sink, touching, touching.placement, touching.placement.links)
    for number in range(3):
        node, uid = f"node-{number}", f"pod-{number}"
        touching.placement.set_node(node, LARGE)
        sink.edited(node, [Edited(uid, 5, 6, siblings=False)])
        sink.put(asking(uid, "", group=number + 1))
        touching.refused(touching.placement.waiting[uid], f"team/{uid}", [node], 0)
        sink.put(asking(uid, node, group=number + 1))
        sink.remove(uid, None, 0)
        sink.edited(node, [])
        touching.placement.remove_node(node)
    kept = {name: it for each in keepers for name, it in vars(each).items() if isinstance(it, dict) and it}
    assert kept == {}


WORLD = World(now=0, bandwidth=RULES)


@pytest.mark.parametrize(
    ("spec", "status", "node", "network"),
    [
        ({}, {}, {}, (1, 1)),
        ({"network": {"ulMbps": 5000, "dlMbps": 0}}, {}, {}, (5, 1)),
        ({}, {}, {"annotations": (("headroom.dev/network-bandwidth", "25G/10G"),)}, (25, 10)),
        ({}, {}, {"annotations": (("headroom.dev/network-bandwidth", "fast"),)}, (1, 1)),
        ({}, {"networkFrom": "Offer", "capacity": {"network": {"ulMbps": 40000, "dlMbps": 40000}}}, {}, (40, 40)),
        ({}, {"networkFrom": "Settings", "capacity": {"network": {"ulMbps": 40000, "dlMbps": 40000}}}, {}, (1, 1)),
        (
            {"network": {"ulMbps": 5000, "dlMbps": 5000}},
            {"networkFrom": "Offer", "capacity": {"network": {"ulMbps": 40000}}},
            {},
            (5, 5),
        ),
        ({"network": {"ulMbps": -3, "dlMbps": 10**30}}, {}, {}, (1, 10**6)),
        ({"network": "wide"}, {"capacity": 7, "reservations": "none"}, {}, (1, 1)),
    ],
)
def test_capacity_is_that_of_the_accounting(
    spec: dict[str, Any], status: dict[str, Any], node: dict[str, Any], network: tuple[int, int]
) -> None:
    document = {
        "kind": "Bandwidth",
        "apiVersion": "headroom.dev/v1alpha1",
        "metadata": {"name": "n1", "resourceVersion": "1"},
        "spec": {"capacity": spec},
        "status": status,
    }
    said = decoder().event(json.dumps({"type": "ADDED", "object": document}).encode()).fact
    assert four(Node(name="n1", **node), said, WORLD)[2:] == (network[0] * GIGABIT, network[1] * GIGABIT)


def test_only_reservations_that_were_edited_are_kept() -> None:
    reservations = [
        {"podUid": "a", "upBits": 5, "downBits": 6, "edited": True, "siblings": True},
        {"podUid": "b", "upBits": 5, "downBits": 6},
    ]
    document = {"metadata": {"name": "n1", "resourceVersion": "1"}, "status": {"reservations": reservations}}
    said = decoder().event(json.dumps({"type": "ADDED", "object": document}).encode()).fact
    assert said is not None
    assert said.edited == (Edited("a", 5, 6, siblings=True),)

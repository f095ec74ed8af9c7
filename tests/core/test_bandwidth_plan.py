"""One decision for each node, whether its object exists or not; a pass over what changed says the same as one over everything."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.sinks import NodeSink, PodSink
from headroom.api.bandwidth import MOST_LISTED, NODE_UID, BandwidthSpec, BandwidthStatus, LinkQuantities
from headroom.api.bandwidth_config import Mode
from headroom.api.kinds import AnyResource
from headroom.core.bandwidth.plan import PLAN
from headroom.model.actions import ApplyBandwidth, DeleteBandwidth, EmitEvent
from headroom.model.bandwidth import MEGABIT, BandwidthRules, Rates
from headroom.model.changes import EVERYTHING, Changes, Topic
from headroom.model.conditions import find
from headroom.model.decisions import Decision, Ref
from headroom.model.facts import Node, Owner, Pod, Shape
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, ref_of
from tests.builders import NOON, a_node, a_pod, a_resource, a_world, news_of

UP, TRAFFIC = "kubernetes.io/egress-bandwidth", "headroom.dev/traffic"
N1 = Ref("Bandwidth", "", "n1")
MADE = ApplyBandwidth(node="n1", spec=BandwidthSpec(capacity=LinkQuantities()), uid="node-1")


def the_node(**fields: Any) -> Node:
    return a_node("n1", **({"uid": "node-1"} | fields))


def asking(name: str, up: str = "100M", **fields: Any) -> Pod:
    return a_pod(name, gpus=0, **({"node": "n1", "annotations": ((UP, up),) if up else ()} | fields))


def a_scene(
    *resources: AnyResource, pods: tuple[Pod, ...] = (), nodes: tuple[Node, ...] = (the_node(),), **more: Any
) -> World:
    table, machines = PodTable(), NodeTable()
    for pod in pods:
        table.put(pod)
    for node in nodes:
        machines.put(node)
    return a_world(*resources, pods=table, nodes=machines, **more)


def decided(world: World, changes: Changes = EVERYTHING) -> dict[Ref, Decision]:
    return {each.resource: each for each in PLAN.decide(world, changes)}


def written(decision: Decision, resource: AnyResource | None = None) -> AnyResource:
    found = resource or a_resource("Bandwidth", "n1", capacity={})
    return structs.replace(found, status=decision.status)


def status_of(decision: Decision) -> BandwidthStatus:
    assert isinstance(decision.status, BandwidthStatus)
    return decision.status


# --- the object --------------------------------------------------------------------------------------------------------------------


def test_a_node_without_an_object_has_its_whole_status_and_gets_one() -> None:
    decision = decided(a_scene(pods=(asking("a"),)))[N1]
    status = status_of(decision)
    assert decision.actions == (MADE,)
    assert status.used is not None
    assert (status.used.network.ul_mbps, status.pods, status.node_uid, status.status) == (100, 1, "node-1", "Created")
    assert decision.message.startswith("1 pod has reserved 100/0 of 1000/1000 Mbps up/down of the network card")


def test_once_the_object_is_there_only_the_status_is_due() -> None:
    world = a_scene(a_resource("Bandwidth", "n1"), pods=(asking("a"),))
    decision = decided(world)[N1]
    assert (decision.actions, status_of(decision).network_from) == ((), "Object")
    again = decided(structs.replace(world, now=NOON + 60_000, resources=ResourceTable({N1: written(decision)})))
    assert structs.replace(status_of(again[N1]), network_from="Object") is not None
    fixed = structs.replace(
        world, now=NOON + 60_000, resources=ResourceTable({N1: written(decision, world.resources[N1])})
    )
    assert decided(fixed)[N1].status == decision.status, "an unchanged world needs no new date"


@pytest.mark.parametrize("mark", ["status", "annotation"])
def test_the_object_goes_with_its_node(mark: str) -> None:
    made = a_resource("Bandwidth", "n1")
    given_by = (
        {"status": BandwidthStatus(node_uid="node-1")} if mark == "status" else {"annotations": {NODE_UID: "node-1"}}
    )
    gone = structs.replace(made, **given_by)
    assert decided(a_scene(gone, nodes=()))[N1].actions == (DeleteBandwidth(node="n1"),)
    blind = decided(a_scene(gone, nodes=(), complete=False))[N1].actions
    assert not [each for each in blind if isinstance(each, DeleteBandwidth)], "not on half a view"
    assert decided(a_scene(structs.replace(gone, deleting=True), nodes=()))[N1].actions == ()
    recreated = decided(a_scene(gone, nodes=(the_node(uid="node-2"),)))[N1]
    assert (recreated.actions, status_of(recreated).node_uid) == ((), "node-2")


def test_one_for_a_node_that_never_was_stays_and_says_so() -> None:
    decision = decided(a_scene(a_resource("Bandwidth", "n1"), nodes=()))[N1]
    assert (decision.reason, decision.message) == (
        "NodeNotFound",
        "There is no node n1; a Bandwidth has the name of its node.",
    )
    assert [type(each) for each in decision.actions] == [EmitEvent]
    healed = decided(a_scene(written(decision)))[N1]
    assert (healed.reason, status_of(healed).status) == ("Reconciled", "Created")


def test_nothing_is_made_on_half_a_view() -> None:
    assert decided(a_scene(complete=False, unseen={"pods": "no answer"})) == {}
    known = decided(a_scene(a_resource("Bandwidth", "n1"), complete=False, unseen={"pods": "no answer"}))[N1]
    assert find(known.status.conditions, "Ready") is not None
    assert known.reason not in ("Reconciled", "")


def test_an_object_that_is_wrong_is_accounted_all_the_same() -> None:
    wrong = a_resource("Bandwidth", "n1", capacity={"local": {"ulMbps": -1}})
    status = status_of(decided(a_scene(wrong, pods=(asking("a"),)))[N1])
    assert (status.status, status.pods) == ("Error", 1)
    assert "ulMbps" in status.error_reason
    healed = structs.replace(a_resource("Bandwidth", "n1", generation=2), status=status)
    assert status_of(decided(a_scene(healed))[N1]).error_reason == ""


def test_an_annotation_of_the_node_that_cannot_be_read_is_quoted() -> None:
    node = the_node(annotations=(("headroom.dev/network-bandwidth", "fast"),))
    decision = decided(a_scene(a_resource("Bandwidth", "n1", capacity={}), nodes=(node,)))[N1]
    assert decision.reason == "InvalidAnnotation"
    assert "headroom.dev/network-bandwidth 'fast' must be bits per second such as 100M" in decision.message


# --- what it says -----------------------------------------------------------------------------------------------------------------


def test_what_people_write_into_the_spec_is_not_counted() -> None:
    entry = {"podUid": "uid-x", "bandwidth": {"ulMbps": 500}}
    resource = a_resource("Bandwidth", "n1", requests=[entry], reservations=[entry])
    assert status_of(decided(a_scene(resource))[N1]).pods == 0


def test_more_than_there_is_is_a_condition_and_no_pod_is_touched() -> None:
    resource = a_resource("Bandwidth", "n1", capacity={"network": {"ulMbps": 150}})
    decision = decided(a_scene(resource, pods=(asking("a"), asking("b"))))[N1]
    over = find(decision.status.conditions, "Overcommitted")
    assert over is not None
    assert (over.status, over.reason) == ("True", "CapacityExceeded")
    assert "50 Mbps up on the network card" in over.message
    left = status_of(decision).remaining
    assert left is not None
    assert (left.network.ul_mbps, left.local.ul_mbps) == (-50, 19_800)
    assert decision.actions == ()
    fits = decided(a_scene(written(decision, resource), pods=(asking("a"),)))[N1]
    over = find(fits.status.conditions, "Overcommitted")
    assert over is not None
    assert over.status == "False"


def test_only_nodes_with_a_problem_come_into_the_history() -> None:
    node = a_resource("Bandwidth", "n1")
    assert decided(a_scene())[N1].routine
    assert decided(a_scene(node, pods=(asking("a"),)))[N1].routine
    small = a_resource("Bandwidth", "n1", capacity={"network": {"ulMbps": 50}})
    assert not decided(a_scene(small, pods=(asking("a"),)))[N1].routine
    assert not decided(a_scene(structs.replace(node, spec=structs.replace(node.spec, paused=True))))[N1].routine


def test_at_most_a_hundred_are_listed_and_all_are_counted() -> None:
    status = status_of(decided(a_scene(pods=tuple(asking(f"p{each}") for each in range(150))))[N1])
    assert (len(status.reservations), status.pods) == (MOST_LISTED, 150)


def test_whoever_wrote_what_cannot_be_read_is_told_once() -> None:
    resource = a_resource("Bandwidth", "n1", capacity={})
    world = a_scene(resource, pods=(asking("a", "-5M"),))
    first = decided(world)[N1]
    [event] = first.actions
    assert isinstance(event, EmitEvent)
    assert (event.object, event.reason) == ("Pod/team-a/a", "MalformedBandwidth")
    assert "kubernetes.io/egress-bandwidth '-5M' must be between 1k and 1P" in event.message
    assert status_of(first).malformed_pods == 1
    assert decided(structs.replace(world, resources=ResourceTable({N1: written(first, resource)})))[N1].actions == ()


def test_whoever_edits_a_bound_pod_is_told_once_however_often() -> None:
    resource = a_resource("Bandwidth", "n1", capacity={})
    world = a_scene(resource, pods=(asking("a"),))
    resource = written(decided(world)[N1], resource)
    told = []
    for up in ("900M", "100M", "1M", "100M"):
        world.pods.put(asking("a", up))
        world = structs.replace(world, resources=ResourceTable({N1: resource}))
        decision = decided(world)[N1]
        told += [each.reason for each in decision.actions if isinstance(each, EmitEvent)]
        resource = written(decision, resource)
        assert status_of(decision).reservations[0].up_bits == 100 * MEGABIT
    assert told == ["BandwidthEdited"]
    assert status_of(decision).edited_pods == 1


def test_another_operator_goes_on_from_the_status() -> None:
    """It sees the edited annotation only; what the pod was bound with stands in the status."""
    resource = a_resource("Bandwidth", "n1", capacity={})
    before = decided(a_scene(resource, pods=(asking("a"),)))[N1]
    after = decided(a_scene(written(before, resource), pods=(asking("a", "900M"),)))[N1]
    assert status_of(after).used == status_of(before).used
    assert status_of(after).edited_pods == 1


def test_with_other_settings_the_memory_is_worth_nothing() -> None:
    resource = a_resource("Bandwidth", "n1", capacity={})
    before = decided(a_scene(resource, pods=(asking("a", ""),), bandwidth=BandwidthRules(defaults=Rates(MEGABIT, 0))))[
        N1
    ]
    assert status_of(before).pods == 1
    assert status_of(decided(a_scene(written(before, resource), pods=(asking("a", ""),)))[N1]).pods == 0


# --- the law ------------------------------------------------------------------------------------------------------------------------

NODES = ["n1", "n2", "n3"]
SETS = [
    None,
    Owner("StatefulSet", "s", "s-uid", "apps"),
    Owner("ReplicaSet", "w-1", "w1-uid", "apps"),
    Owner("ReplicaSet", "w-2", "w2-uid", "apps"),
]
steps = st.tuples(
    st.sampled_from(["pod", "pod", "pod", "pod", "unpod", "node", "unnode", "object", "unobject", "write", "stop"]),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(["", *NODES]),
    st.sampled_from(["", "5M", "x"]),
    st.booleans(),
    st.sampled_from(SETS),
    st.sampled_from(["Pending", "Running", "Succeeded"]),
    st.sampled_from([0, 5, 1500, 10**13]),
)


class Cluster:
    """Tables behind the sinks of the watches, so that news are told as in production."""

    def __init__(self) -> None:
        self.pods, self.nodes, self.changes = PodTable(), NodeTable(), Subscriptions()
        self.pod_sink, self.node_sink = (
            PodSink(self.pods, self.changes),
            NodeSink(self.nodes, self.changes, lambda: NOON),
        )
        self.world = a_world(pods=self.pods, nodes=self.nodes)
        self.resources: dict[Ref, AnyResource] = {}
        self.changes.subscribe("bandwidth", PLAN.parts)
        self.changes.take("bandwidth")

    def step(self, step: Any, known: dict[Ref, Decision]) -> Changes:
        what, name, node, up, siblings, owner, phase, native = step
        fields: dict[str, Any]
        ref = Ref("Bandwidth", "", node or "n1")
        if what == "pod":
            notes = ([(UP, up)] if up else []) + ([(TRAFFIC, "siblings")] if siblings else [])
            labels = (("pod-template-hash", owner.name[-1]),) if owner is not None else ()
            before = self.pods.get(f"uid-{name}")
            at = before.node if before is not None and before.node else node  # a pod stays on its node
            shape = Shape(requests=(("headroom.dev/egress-mbps", native * MEGABIT),) if native else ())
            fields = {"owner": owner, "labels": labels, "phase": phase, "annotations": tuple(sorted(notes))}
            self.pod_sink.put(a_pod(name, node=at, shape=shape, **fields))
        elif what == "unpod":
            self.pod_sink.remove(f"uid-{name}", None, NOON)
        elif what == "node":
            notes = [("headroom.dev/network-bandwidth", up)] if up else []
            labels = (("headroom.dev/device-plugin", "true"),) if siblings else ()
            published = (("headroom.dev/egress-mbps", native * MEGABIT),) if phase == "Running" else ()
            fields = {"labels": labels, "published": published, "published_capacity": published}
            self.node_sink.put(a_node(ref.name, uid=f"node-{ref.name}", annotations=tuple(notes), **fields))
        elif what == "unnode":
            self.node_sink.remove(ref.name, None, NOON)
        elif what == "stop":
            self.world = structs.replace(self.world, stopped=not self.world.stopped)
            self.changes.fact(Topic.SETTINGS)
        else:
            self._object(what, ref, known)
        self.world = structs.replace(self.world, resources=ResourceTable(self.resources))
        return self.changes.take("bandwidth")

    def _object(self, what: str, ref: Ref, known: dict[Ref, Decision]) -> None:
        before = self.resources.get(ref)
        if what == "unobject":
            self.resources.pop(ref, None)
        elif what == "object" and before is None:
            self.resources[ref] = a_resource("Bandwidth", ref.name, capacity={})
        elif what == "write" and before is not None and ref in known:
            self.resources[ref] = structs.replace(before, status=known[ref].status)
        else:
            return
        self.changes.resource(ref)


@given(history=st.lists(steps, max_size=16), all_siblings=st.booleans(), mode=st.sampled_from(["Off", "Native"]))
def test_deciding_on_what_changed_equals_deciding_on_everything(
    history: list[Any], all_siblings: bool, mode: Mode
) -> None:
    cluster = Cluster()
    cluster.world = structs.replace(cluster.world, bandwidth=BandwidthRules(siblings=all_siblings, mode=mode))
    known: dict[Ref, Decision] = {}
    absent: set[Ref] = set()
    for step in history:
        changes = cluster.step(step, known)
        found = decided(cluster.world, changes)
        known |= found
        # As the loop does: of an object that does not exist, and for which nothing is due, nothing is remembered.
        due = {ref for ref, each in found.items() if each.actions}
        absent = {ref for ref in due | (absent - found.keys()) if ref not in cluster.world.resources}
        known = {ref: each for ref, each in known.items() if ref in cluster.world.resources or ref in absent}
        assert known == decided(cluster.world)
        for each in found.values():
            assert msgspec.convert(msgspec.to_builtins(each.status), BandwidthStatus) == each.status, (
                "the server takes it"
            )


placings = st.tuples(st.sampled_from("abcd"), st.sampled_from(["", *NODES, "gone", "ended"]), st.sampled_from(SETS[1:]))


@given(history=st.lists(placings, min_size=4, max_size=24))
def test_siblings_that_come_and_go_are_told_to_the_nodes_of_the_others(history: list[Any]) -> None:
    cluster = Cluster()
    for name in NODES:
        cluster.node_sink.put(a_node(name))
    known = decided(cluster.world, cluster.changes.take("bandwidth")) | decided(cluster.world)
    for name, node, owner in history:
        if node == "gone":
            step = ("unpod", name, "", "", False, None, "", 0)
        else:
            phase = "Succeeded" if node == "ended" else "Running"
            step = ("pod", name, "" if node == "ended" else node, "5M", True, owner, phase, 0)
        changes = cluster.step(step, known)
        known |= decided(cluster.world, changes)
        assert known == decided(cluster.world)


def test_one_pod_touches_its_node_and_at_most_one_of_its_siblings() -> None:
    """No cascade: however large the group, and over however many nodes."""
    cluster = Cluster()
    for number in range(30):
        cluster.node_sink.put(a_node(f"m{number:02}"))
        cluster.pod_sink.put(
            a_pod(f"p{number}", node=f"m{number:02}", owner=SETS[1], annotations=((TRAFFIC, "siblings"),))
        )
    cluster.changes.take("bandwidth")
    cluster.pod_sink.put(a_pod("new", node="m07", owner=SETS[1]))
    assert {each.name for each in decided(cluster.world, cluster.changes.take("bandwidth"))} == {"m07"}
    for number in range(2, 30):
        cluster.pod_sink.remove(f"uid-p{number}", None, NOON)
        assert len(decided(cluster.world, cluster.changes.take("bandwidth"))) <= 2


def test_news_of_settings_concern_every_node() -> None:
    assert list(decided(a_scene(), news_of(Topic.OFFERS))) == [N1]
    assert decided(a_scene(), Changes(pods={"uid-x"})) == {}
    assert ref_of(a_resource("Bandwidth", "n1")) == N1


# --- at scale ----------------------------------------------------------------------------------------------------------------------


def test_the_collector_need_not_look_at_what_is_reserved() -> None:
    """A fleet has 100,000 reservations, each with two links, in what stands there and in what is decided."""
    status = status_of(decided(a_scene(pods=(asking("a"),)))[N1])
    [held] = status.reservations
    parts = [held, held.bandwidth, held.bandwidth.network, status.capacity, status.used, status.remaining]
    assert [gc.is_tracked(each) for each in parts] == [False] * 6

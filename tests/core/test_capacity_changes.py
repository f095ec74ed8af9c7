"""What is decided when little changed: while no pod is pending only the pools that are concerned, and the same as if all were.

What changed is told by the sinks that tell it in production, so that no test says of a change what they would not.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.adapters.kube import device_sinks, sinks
from headroom.adapters.kube.changes import Subscriptions
from headroom.api import marks
from headroom.api.power_status import Fruitless, TrialStatus
from headroom.core import CAPACITY, demand, sources
from headroom.model import conditions, times
from headroom.model.changes import EVERYTHING, Changes, Topic
from headroom.model.decisions import Decision, Ref
from headroom.model.devices import DeviceTable
from headroom.model.facts import Machine, Namespace, Node, NodePool, Pod, Shape, SwitchCall
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.times import MINUTE
from headroom.model.world import World, ref_of
from tests.builders import NOON, a_claim, a_resource
from tests.core import stage
from tests.core.power_stage import GPU, a_machine, a_pool, cordoned, off, on, running, waiting
from tests.core.test_power_claims import slices
from tests.core.toy_supply import Market, plan_of

POOLS: Final = ("one", "two", "three")
PARTS: Final = CAPACITY.parts | {Topic.PODS}
"""What the plan hears of, and what happens to pods on nodes: of that nobody wakes it, and it looks by itself."""


class Watched:
    """A world that changes as the watches say, and what they tell the plan of it."""

    def __init__(self, *, budget: bool = False) -> None:
        self.told = Subscriptions()
        self.pods, self.nodes, self.resources, self.devices = PodTable(), NodeTable(), ResourceTable(), DeviceTable()
        self.facts: dict[str, dict[str, Any]] = {"machines": {}, "calls": {}}
        self.more: dict[str, Any] = {}
        self.pod_sink = sinks.PodSink(self.pods, self.told, now=lambda: NOON)
        self.node_sink = sinks.NodeSink(self.nodes, self.told, lambda: NOON)
        self.pool_sink = sinks.ResourceSink("PowerPool", self.resources, self.told)
        self.slices = device_sinks.device_slices(self.told, self.devices)
        self.claims = device_sinks.claims(self.told, self.pod_sink, self.facts.setdefault("claims", {}))
        self.named = {name: sinks.facts(self.told, name, self.facts) for name in ("namespaces", "node_pools")}
        self.known: dict[Ref, Decision] = {}
        if budget:
            found = stage.a_budget()
            self.resources.put(ref_of(found), found)
        self.told.subscribe("capacity", PARTS)

    @property
    def world(self) -> World:
        """As it is now."""
        fields = {"pods": self.pods, "nodes": self.nodes, "resources": self.resources, "devices": self.devices}
        return World(now=NOON, **fields | self.facts | self.more)  # type: ignore[arg-type]  # each has its type

    def decide(self, more: Changes | None = None) -> set[str]:
        """Decide on what changed; the pools that were decided."""
        changes = self.told.take("capacity")
        changes.add(more or Changes())
        found = {each.resource: each for each in CAPACITY.decide(self.world, changes)}
        known = self.known | found
        self.known = {ref: each for ref, each in known.items() if ref in self.resources}
        return {ref.name for ref in found}

    def is_right(self) -> bool:
        """Whether what the small passes led to is what a full one says."""
        return self.known == {each.resource: each for each in CAPACITY.decide(self.world, EVERYTHING)}

    def pool(self, name: str, *machines: str, **spec: Any) -> None:
        """Somebody writes a pool; the API server counts that."""
        before = self.resources.get(Ref("PowerPool", "", name))
        # The switch of any two machines whose names end alike is the same.
        listed = [a_machine(each, 8, scaleDownEndpoint=f"http://power-api/{each[-1]}/down") for each in machines]
        found = structs.replace(a_pool(name, listed=listed, **spec), generation=before.generation + 1 if before else 1)
        self.pool_sink.put(structs.replace(found, status=before.status) if before else found)

    def write(self, name: str, **status: Any) -> None:
        """The status that was decided is written."""
        ref = Ref("PowerPool", "", name)
        before = self.resources.get(ref)
        if before is not None and ref in self.known:
            self.pool_sink.put(structs.replace(before, status=structs.replace(self.known[ref].status, **status)))

    def delete(self, name: str) -> None:
        """A pool is deleted."""
        found = self.resources.get(Ref("PowerPool", "", name))
        if found is not None:
            self.pool_sink.remove(found.uid, None, NOON)

    def machine(self, name: str, power: Any) -> None:
        """A BMC says something else."""
        self.facts["machines"][name] = Machine(name=name, power=power, since=NOON - MINUTE)
        self.told.fact(Topic.MACHINES, name)

    def call(self, name: str, outcome: Any) -> None:
        """A call has ended."""
        self.facts["calls"][name] = SwitchCall(machine=name, command="Wake", at=NOON, outcome=outcome, message="no")
        self.told.fact(Topic.MACHINES, name)

    def budget(self, *, over: bool) -> Changes:
        """An earlier plan has decided something else on a budget."""
        found = stage.a_budget()
        told = conditions.judged(found, "QuotaExceeded", over, "Says", "", NOON)
        self.resources.put(
            ref_of(found), structs.replace(found, status=structs.replace(found.status, conditions=(told,)))
        )
        return Changes(resources={ref_of(found)})


# --- the law ---------------------------------------------------------------------------------------------------------------------

MACHINES: Final = ("w1", "w2", "x1", "x2", "y2")
TEAM: Final[dict[str, Any]] = {"namespace": "team-a", "labels": (("team", "a"),)}


def _pods(name: str) -> list[Pod]:
    """One pod in all the ways that it may be."""
    claiming: dict[str, Any] = {"shape": Shape(), "claims": ("claim",)}
    return [
        waiting(name, 8, **TEAM),
        waiting(name, 8, unschedulable_since=None, **TEAM),
        waiting(name, 0, shape=Shape(requests=(("cpu", 10**9),)), **TEAM),
        waiting(name, 8, gates=(marks.GATE,), unschedulable_since=None, **TEAM),
        waiting(name, 0, **claiming, **TEAM),
        waiting(name, 8, labels=(("scheduling.x-k8s.io/pod-group", "g"),), since=NOON - 2 * MINUTE),
        waiting(name, 8, unschedulable_since=None, labels=(("scheduling.x-k8s.io/pod-group", "g"),)),
        waiting(name, 8, nominated_node="w1", **TEAM),
        *(running(name, node, 8) for node in MACHINES),
    ]


def _nodes(name: str) -> list[Node]:
    return [on(name), off(name), cordoned(on(name)), on(name, 4), on(name, 0)]


def _tried(ago: int) -> TrialStatus:
    return TrialStatus(shape="s", machine="w1", at=times.text(NOON - ago * MINUTE), in_vain=1)


def _fruitless(many: int) -> Fruitless:
    return Fruitless(namespace="team-a", at=(times.text(NOON - MINUTE),) * many)


pods = st.sampled_from(["p", "q"]).flatmap(lambda name: st.sampled_from(_pods(name)))
steps = st.one_of(
    st.tuples(st.just("pod"), pods),
    st.tuples(st.just("no_pod"), st.sampled_from(["uid-p", "uid-q"])),
    st.tuples(st.just("node"), st.sampled_from(MACHINES).flatmap(lambda name: st.sampled_from(_nodes(name)))),
    st.tuples(st.just("no_node"), st.sampled_from(MACHINES)),
    st.tuples(
        st.just("pool"),
        st.sampled_from(POOLS),
        st.sets(st.sampled_from(MACHINES), min_size=1),
        st.fixed_dictionaries(
            {},
            optional={
                "order": st.integers(0, 2),
                "minOn": st.integers(0, 1),
                "paused": st.booleans(),
                "deviceClasses": st.just(["gpu.nvidia.com"]),
                "gpuResourceName": st.sampled_from([GPU, "amd.com/gpu", "cpu"]),
            },
        ),
    ),
    st.tuples(st.just("no_pool"), st.sampled_from(POOLS)),
    st.tuples(
        st.just("write"),
        st.sampled_from(POOLS),
        st.fixed_dictionaries(
            {},
            optional={
                "trials": st.sampled_from([(), (_tried(1),), (_tried(3),)]),
                "fruitless": st.sampled_from([(), (_fruitless(1),), (_fruitless(5),)]),
            },
        ),
    ),
    st.tuples(st.just("power"), st.sampled_from(MACHINES), st.sampled_from(["On", "Off", "PoweringOff", "Unknown"])),
    st.tuples(st.just("call"), st.sampled_from(MACHINES), st.sampled_from(["Accepted", "Failed"])),
    st.tuples(st.just("slice"), st.sampled_from(MACHINES), st.integers(1, 8)),
    st.tuples(st.just("claim"), st.booleans()),
    st.tuples(st.just("namespace"), st.booleans()),
    st.tuples(st.just("karpenter"), st.booleans()),
    st.tuples(st.just("sight"), st.booleans()),
    st.tuples(st.just("stop"), st.booleans()),
    st.tuples(st.just("budget"), st.booleans()),
)


class Happening:
    """What may happen, by the name of the step."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def pod(self, pod: Pod) -> None:
        self.watched.pod_sink.put(structs.replace(pod))

    def no_pod(self, uid: str) -> None:
        self.watched.pod_sink.remove(uid, None, NOON)

    def node(self, node: Node) -> None:
        self.watched.node_sink.put(node)

    def no_node(self, name: str) -> None:
        self.watched.node_sink.remove(name, None, NOON)

    def pool(self, name: str, machines: set[str], spec: dict[str, Any]) -> None:
        self.watched.pool(name, *sorted(machines), **spec)

    def no_pool(self, name: str) -> None:
        self.watched.delete(name)

    def write(self, name: str, status: dict[str, Any]) -> None:
        self.watched.write(name, **status)

    def power(self, name: str, power: str) -> None:
        self.watched.machine(name, power)

    def call(self, name: str, outcome: str) -> None:
        self.watched.call(name, outcome)

    def slice(self, name: str, count: int) -> None:
        self.watched.slices.put(slices(name, count=count)[0])

    def claim(self, allocated: bool) -> None:
        self.watched.claims.put(a_claim(devices=int(allocated)))

    def namespace(self, labelled: bool) -> None:
        labels = (("kubernetes.io/metadata.name", "team-a"),) if labelled else ()
        self.watched.named["namespaces"].put(Namespace(name="team-a", labels=labels))

    def karpenter(self, there: bool) -> None:
        sink = self.watched.named["node_pools"]
        sink.put(NodePool(name="gpus", ready=True)) if there else sink.remove("gpus", None, NOON)

    def sight(self, complete: bool) -> None:
        self.watched.more["complete"] = complete
        self.watched.told.fact(Topic.SIGHT)

    def stop(self, stopped: bool) -> None:
        self.watched.more["stopped"] = stopped
        self.watched.told.fact(Topic.SETTINGS)

    def budget(self, over: bool) -> Changes:
        return self.watched.budget(over=over)


def a_fleet(*, trials: bool, fruitless: bool, pending: bool) -> Watched:
    """Two pools that share a machine and a switch, and a third one; their statuses are written, with what they may remember."""
    watched = Watched(budget=True)
    watched.pool("one", "w1", "w2")
    watched.pool("two", "x1", "w2")
    watched.pool("three", "y2")
    for name in MACHINES:
        watched.node_sink.put(off(name) if name == "w2" else on(name))
    if pending:
        watched.pod_sink.put(waiting("p", 8, **TEAM))
    watched.decide()
    for name, ago, many in (("one", 1, 3), ("two", 2, 2)):
        known: dict[str, Any] = {"trials": (_tried(ago),)} if trials else {}
        watched.write(name, **known | ({"fruitless": (_fruitless(many),)} if fruitless else {}))
    watched.write("three")
    watched.decide()
    return watched


flags = st.booleans()


@settings(max_examples=200)
@given(trials=flags, fruitless=flags, pending=flags, happens=st.lists(steps, min_size=1, max_size=8))
def test_deciding_on_what_changed_equals_deciding_on_everything(
    trials: bool, fruitless: bool, pending: bool, happens: list[tuple[Any, ...]]
) -> None:
    watched = a_fleet(trials=trials, fruitless=fruitless, pending=pending)
    assert watched.is_right()
    for what, *details in happens:
        watched.decide(getattr(Happening(watched), what)(*details))
        assert watched.is_right(), (what, details)


@pytest.mark.parametrize("forgotten", ["trials", "fruitless"])
def test_what_a_pool_forgets_concerns_those_that_remember_the_same(forgotten: str) -> None:
    watched = a_fleet(trials=True, fruitless=True, pending=False)
    watched.write("one", **{forgotten: ()})
    watched.decide()
    assert watched.is_right()


def test_where_plain_resources_count_as_gpus_any_pending_pod_concerns_all() -> None:
    watched = Watched()
    watched.pool("one", "w1", gpuResourceName="cpu")
    watched.node_sink.put(off("w1"))
    watched.decide()
    watched.write("one")
    watched.decide()
    watched.pod_sink.put(waiting("p", 0, shape=Shape(requests=(("cpu", 8_000_000),))))
    watched.decide()
    assert watched.is_right()


# --- that it is little -----------------------------------------------------------------------------------------------------------


def a_quiet_fleet() -> Watched:
    """Three pools whose statuses are written, and nothing is pending."""
    watched = Watched()
    for name, letter in zip(POOLS, "abc", strict=True):
        watched.pool(name, f"{letter}-{name}")
        watched.node_sink.put(on(f"{letter}-{name}"))
    watched.decide()
    for name in POOLS:
        watched.write(name)
    assert watched.decide() == {*POOLS}
    return watched


def test_with_nothing_pending_only_the_pool_of_a_node_that_changed_is_decided() -> None:
    watched = a_quiet_fleet()
    watched.node_sink.put(off("b-two"))
    assert watched.decide() == {"two"}


def test_with_nothing_pending_only_the_pool_of_a_machine_that_changed_is_decided() -> None:
    watched = a_quiet_fleet()
    watched.machine("c-three", "Off")
    assert watched.decide() == {"three"}


def test_a_resource_that_is_due_is_decided_alone() -> None:
    assert a_quiet_fleet().decide(Changes(resources={Ref("PowerPool", "", "one")})) == {"one"}


def test_pods_that_nobody_refused_and_what_only_pending_pods_ask_for_concern_no_pool() -> None:
    watched = a_quiet_fleet()
    watched.told.subscribe("capacity", CAPACITY.parts)
    watched.decide()
    watched.pod_sink.put(waiting("p", 8, unschedulable_since=None))
    watched.pod_sink.put(running("p", "b-two", 8))
    watched.pod_sink.put(waiting("plain", 0, shape=Shape(requests=(("cpu", 1),))))
    watched.claims.put(a_claim())
    watched.named["namespaces"].put(Namespace(name="team-a"))
    assert watched.decide() == set()


def test_a_refused_pod_concerns_all_when_it_comes_and_when_it_goes() -> None:
    watched = a_quiet_fleet()
    watched.pod_sink.put(waiting("p", 8))
    assert watched.decide() == {*POOLS}
    watched.pod_sink.remove("uid-p", None, NOON)
    assert watched.decide() == {*POOLS}
    assert watched.decide() == set()


def test_a_new_spec_concerns_all_until_it_is_observed() -> None:
    watched = a_quiet_fleet()
    watched.pool("three", "b-two", order=-1)
    assert watched.decide() == {*POOLS}
    watched.write("three")
    assert watched.decide() == {"three"}


def test_a_source_that_does_not_say_what_concerns_it_is_decided_whole() -> None:
    plan = plan_of((*sources(), Market().source))
    watched = a_quiet_fleet()
    toy = a_resource("Spotpool", "toy")
    watched.resources.put(ref_of(toy), structs.replace(toy, status=structs.replace(toy.status, observed_generation=1)))
    found = {each.resource.name for each in plan.decide(watched.world, Changes(nodes={"b-two"}))}
    assert found == {*POOLS, "toy"}


# --- what wakes it ---------------------------------------------------------------------------------------------------------------


def _take(*topics: Topic) -> Changes:
    told = Subscriptions()
    told.subscribe("capacity", CAPACITY.parts)
    told.take("capacity")
    for each in topics:
        told.fact(each, "x")
    told.pod("uid-p", unbound=False, nodes=("w1",))
    return told.take("capacity")


@pytest.mark.parametrize("topic", [Topic.USAGE, Topic.LEDGER, Topic.PRICES, Topic.INDEX, Topic.HOLDS, Topic.REFUSALS])
def test_it_hears_of_nothing_that_it_does_not_read(topic: Topic) -> None:
    assert not _take(topic)


@pytest.mark.parametrize("topic", [Topic.MACHINES, Topic.CLAIMS, Topic.NAMESPACES, Topic.KARPENTER, Topic.DEVICES])
def test_it_hears_of_what_it_reads(topic: Topic) -> None:
    assert _take(topic).facts == {topic: {"x"}}


@pytest.mark.parametrize("over", [False, True])
def test_a_budget_that_turned_concerns_all_while_its_pod_is_pending(over: bool) -> None:
    watched = Watched(budget=True)
    watched.pool("one", "a-one")
    watched.pod_sink.put(waiting("p", 8, **TEAM))
    watched.budget(over=not over)
    watched.decide()
    assert watched.decide(watched.budget(over=over)) == {"one"}
    assert watched.is_right()
    assert demand.may_be_wanted(watched.world)
    assert "GPUWorkloadBudget" in CAPACITY.reads

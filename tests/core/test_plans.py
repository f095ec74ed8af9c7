"""What every plan keeps, whichever capability it belongs to."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.kinds import KINDS
from headroom.core import PLANS
from headroom.model.actions import ApplyNodePool, EmitEvent
from headroom.model.changes import EVERYTHING, Changes, Topic
from headroom.model.conditions import find
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable
from headroom.model.times import text
from headroom.model.world import World, ref_of
from tests.builders import NOON, a_node, a_pod, a_ref, a_resource, a_world, news_of
from tests.core.offer_stage import a_class, an_offer

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
WRONG: dict[str, dict[str, Any]] = {
    "GPUWorkloadBudget": {"quota": {"gpuHours": "0", "windowHours": 0}},
    "Spotpool": {"minimum": 5, "maximum": 2},
    "PowerPool": {"machines": []},
    "Bandwidth": {"capacity": {"local": {"ulMbps": -1}}},
    "LeftoverNodePool": {"minSpotScore": 11},
    "ReleaseRequest": {"target": {"kind": "pod", "name": "x y"}},
}


def decided(plan: Plan, world: World, changes: Changes = EVERYTHING) -> dict[Ref, Decision]:
    """What a plan decides, under the resources. What cheapest capacity chooses from is there, and a node for each Bandwidth."""
    surroundings = {"offers": {"one": an_offer(at=None)}, "node_classes": {"EC2NodeClass/gpu": a_class()}}
    world = structs.replace(world, **surroundings) if plan.name == "offers" else world
    if plan.name == "bandwidth":
        nodes = NodeTable()
        for ref, _ in world.of_kind("Bandwidth"):
            nodes.put(a_node(ref.name))
        world = structs.replace(world, nodes=nodes)
    return {each.resource: each for each in plan.decide(world, changes)}


def test_the_first_page_and_its_picture_count_the_plans() -> None:
    said = f"{('no', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight')[len(PLANS)]} pure plans"
    root = Path(__file__).parents[2]
    assert said in (root / "README.md").read_text(encoding="utf-8")
    assert said in (root / "docs/images/loop.svg").read_text(encoding="utf-8")


def test_every_kind_has_exactly_one_plan() -> None:
    assert sorted(kind for plan in PLANS for kind in plan.kinds) == sorted(KINDS)
    assert len({plan.name for plan in PLANS}) == len(PLANS)


@every_plan
def test_a_valid_resource_is_ready(plan: Plan) -> None:
    decision = decided(plan, a_world(a_resource(plan.kinds[0])))[a_ref(plan.kinds[0])]

    ready = find(decision.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.observed_generation) == ("True", "Reconciled", 1)
    assert [type(each) for each in decision.actions] == ([ApplyNodePool] * 2 if plan.name == "offers" else [])


@every_plan
def test_an_invalid_resource_is_not_ready_and_names_every_wrong_field(plan: Plan) -> None:
    resource = a_resource(plan.kinds[0], **WRONG[plan.kinds[0]])

    decision = decided(plan, a_world(resource))[a_ref(plan.kinds[0])]

    ready = find(decision.status.conditions, "Ready")
    assert resource.problems
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "InvalidSpec")
    assert all(each.field in ready.message for each in resource.problems)
    assert [type(action) for action in decision.actions] == [EmitEvent]


@every_plan
def test_the_kill_switches_are_said_in_the_status(plan: Plan) -> None:
    resource = a_resource(plan.kinds[0])
    stopped = decided(plan, a_world(resource, stopped=True))[ref_of(resource)]
    paused = decided(plan, a_world(a_resource(plan.kinds[0], paused=True)))[ref_of(resource)]

    assert (stopped.reason, paused.reason) == ("Stopped", "Paused")


@every_plan
def test_deciding_on_its_own_decision_changes_nothing(plan: Plan) -> None:
    """The fixpoint: once the status is written, the same world asks for nothing more, at any later time."""
    resource = a_resource(plan.kinds[0])
    (first,) = plan.decide(a_world(resource), EVERYTHING)
    written = structs.replace(resource, status=first.status)

    (later,) = plan.decide(a_world(written, now=NOON + 3_600_000), EVERYTHING)

    assert (later.status, later.actions) == (first.status, ())


@every_plan
def test_a_turn_is_told_once(plan: Plan) -> None:
    bad = a_resource(plan.kinds[0], **WRONG[plan.kinds[0]])
    turned = decided(plan, a_world(bad))[ref_of(bad)]
    again = decided(plan, a_world(structs.replace(bad, status=turned.status), now=NOON + 1000))[ref_of(bad)]
    good = structs.replace(a_resource(plan.kinds[0], generation=2), status=turned.status)
    mended = decided(plan, a_world(good, now=NOON + 2000))[ref_of(good)]

    assert [action.event_type for action in turned.actions if isinstance(action, EmitEvent)] == ["Warning"]
    assert {action.since for action in turned.actions if isinstance(action, EmitEvent)} == {text(NOON)}
    assert again.actions == ()
    assert [action.event_type for action in mended.actions if isinstance(action, EmitEvent)] == ["Normal"]
    assert {action.since for action in mended.actions if isinstance(action, EmitEvent)} == {text(NOON + 2000)}


names = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    """A few things that happen to resources, pods and the kill switch: (what, kind, name)."""
    step = st.tuples(
        st.sampled_from(["put", "break", "pause", "delete", "pod", "stop", "write"]),
        st.sampled_from(sorted(KINDS)),
        names,
    )
    return draw(st.lists(step, max_size=12))


class History:
    """A world that is changed step by step, with the changes that a port would tell of."""

    def __init__(self) -> None:
        self.world = a_world()
        self.resources = dict(self.world.resources)

    def step(self, what: str, kind: str, name: str, known: dict[Ref, Decision]) -> Changes:
        """Do one thing and say what changed."""
        ref = a_ref(kind, name)
        before = self.resources.get(ref)
        generation = before.generation + 1 if before else 1
        if what == "stop":
            self.world = structs.replace(self.world, stopped=not self.world.stopped)
            return news_of(Topic.SETTINGS)
        if what == "pod":
            pod = a_pod(name)
            self.world.pods.put(pod)
            return Changes(pods={pod.uid}, unbound=True)
        if what == "delete":
            self.resources.pop(ref, None)
        elif what == "write" and before and ref in known:
            self.resources[ref] = structs.replace(before, status=known[ref].status)
        elif what in ("put", "break", "pause"):
            spec = {"break": WRONG[kind], "pause": {"paused": True}}.get(what, {})
            fresh = a_resource(kind, name, generation=generation, **spec)
            self.resources[ref] = structs.replace(fresh, status=before.status) if before else fresh
        self.world = structs.replace(self.world, resources=ResourceTable(self.resources))
        return Changes(resources={ref})


@every_plan
@given(steps=histories())
def test_deciding_on_what_changed_equals_deciding_on_everything(plan: Plan, steps: list[tuple[str, str, str]]) -> None:
    """The law that lets the loop ask for little."""
    history = History()
    known: dict[Ref, Decision] = {}
    for what, kind, name in steps:
        changes = history.step(what, kind, name, known)
        known |= decided(plan, history.world, changes)
        known = {ref: each for ref, each in known.items() if ref in history.world.resources}

        assert known == decided(plan, history.world)


@every_plan
@given(steps=histories())
def test_a_plan_leaves_the_world_as_it_was(plan: Plan, steps: list[tuple[str, str, str]]) -> None:
    history = History()
    for what, kind, name in steps:
        history.step(what, kind, name, {})
    before = copy.deepcopy(history.resources)

    decided(plan, history.world)

    assert dict(history.world.resources) == before

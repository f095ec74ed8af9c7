"""A plan may decide on an object that does not exist yet: what is due for it is done, and it has no status to write."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headroom.api.bandwidth import BandwidthSpec, LinkQuantities
from headroom.api.resources import Status
from headroom.cli import planning
from headroom.core import PLANS
from headroom.core.ticks import Tick, decide_all
from headroom.model.actions import Action, ApplyBandwidth, EmitEvent
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, standing
from headroom.model.world import World, by_ref
from tests.builders import a_resource, a_world
from tests.runtime.fakes import FakePort
from tests.runtime.test_loop import Rig

KIND = "Bandwidth"
MADE = Ref(KIND, "", "n1")
APPLY = ApplyBandwidth(node="n1", spec=BandwidthSpec(capacity=LinkQuantities()))


class Maker:
    """A plan that wants an object for a node, and decides on it as on any other once it is there."""

    def __init__(self, *due: Action) -> None:
        self.due = due or (APPLY,)
        self.plan = Plan(name="maker", kinds=(KIND,), at_most_every_ms=100, decide=self._decide)

    def _decide(self, world: World, _changes: Changes) -> Iterable[Decision]:
        resource = world.resources.get(MADE)
        if resource is not None:
            yield standing(world, MADE, resource, "It is there.")
        elif self.due:
            yield Decision(resource=MADE, status=Status(), reason="Missing", message="It is made.", actions=self.due)


def rig_of(maker: Maker) -> Rig:
    return Rig(FakePort(a_resource()), maker.plan)


async def test_what_is_due_for_it_is_done_and_no_status_is_written() -> None:
    rig = rig_of(Maker())
    await rig.tick()
    assert rig.port.done == [("action", APPLY)]
    assert rig.operator.loop.decisions[MADE].reason == "Missing"
    for _ in range(5):
        await rig.tick(1.0)
    assert rig.port.done == [("action", APPLY)], "done once, not at every look"


async def test_once_it_is_there_it_is_decided_on_like_any_other() -> None:
    rig = rig_of(Maker())
    await rig.tick()
    rig.port.put(a_resource(KIND, "n1"))
    await rig.tick(1.0)
    assert rig.operator.loop.decisions[MADE].reason == "Reconciled"
    assert rig.port.done[-1] == ("status", MADE)


async def test_one_that_nobody_wants_any_more_is_forgotten() -> None:
    maker = Maker()
    rig = rig_of(maker)
    await rig.tick()
    maker.due = ()
    rig.port.change(Changes(everything=True))
    await rig.tick(1.0)
    assert MADE not in rig.operator.loop.decisions
    assert rig.count("headroom_plan_differences_total", plan="maker") == 0


async def test_it_stays_known_while_something_else_is_looked_at() -> None:
    def once(world: World, changes: Changes) -> Iterable[Decision]:
        if changes.everything:
            yield Decision(resource=MADE, status=Status(), reason="Missing", message="", actions=(APPLY,))

    rig = Rig(FakePort(a_resource()), Plan(name="maker", kinds=(KIND,), at_most_every_ms=100, decide=once))
    await rig.tick()
    rig.port.change(Changes(nodes={"n2"}))
    await rig.tick(1.0)
    assert MADE in rig.operator.loop.decisions


def test_later_plans_are_not_shown_an_object_that_does_not_exist() -> None:
    maker, seen = Maker(), list[list[Ref]]()

    def look(world: World, _changes: Changes) -> Iterable[Decision]:
        seen.append([ref for ref, _ in world.of_kind(KIND)])
        return ()

    later = Plan(name="later", kinds=("PowerPool",), reads=(KIND,), at_most_every_ms=100, decide=look)
    tick = Tick(a_world(), (maker.plan, later))
    assert [each.resource for each in tick.ask(maker.plan, EVERYTHING)] == [MADE]
    tick.ask(later, EVERYTHING)
    assert seen == [[]]
    assert [each.resource for each in decide_all(a_world(), (maker.plan, later))] == [MADE]


def test_plan_f_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    event = EmitEvent(object=str(MADE), event_type="Normal", reason="Made", message="It is made.")
    monkeypatch.setattr("headroom.core.PLANS", (*PLANS, Maker(APPLY, event).plan))
    result = planning.planned(World(now=1_000, resources=by_ref([])))
    [row] = result["decisions"]
    assert row["resource"] == {"kind": KIND, "namespace": "", "name": "n1"}
    assert [each["type"] for each in row["actions"]] == ["ApplyBandwidth", "EmitEvent"]

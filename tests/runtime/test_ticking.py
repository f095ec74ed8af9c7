"""How often the loop looks at the world: as often as somebody may be asked, however much happens, and at once for what may end all effects."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from headroom.adapters.kube.changes import Subscriptions
from headroom.api.kinds import AnyResource
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision
from headroom.model.plans import Plan, affected, standing
from headroom.model.world import World, ref_of
from headroom.runtime.leader import Never
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.sim.clock import SimClock, run_virtual
from tests.builders import NOON, a_ref, a_resource, a_world

KIND = "GPUWorkloadBudget"
SECONDS = 10
MIDDLE = NOON + SECONDS * 500


class Port:
    """A cluster in which a pod changes every ten milliseconds."""

    def __init__(self, *resources: AnyResource) -> None:
        self.resources, self.changes = list(resources), Subscriptions()
        self.looks: list[int] = []
        self.asked: list[int] = []

    def world(self, now: int) -> World:
        self.looks.append(now)
        return a_world(*self.resources, now=now)

    def subscribe(self, plan: str, parts: frozenset[str]) -> None:
        self.changes.subscribe(plan, parts)

    def take_changes(self, plan: str) -> Changes:
        return self.changes.take(plan)

    async def changed(self, besides: Collection[str] = ()) -> None:
        await self.changes.changed(besides)

    def decide(self, world: World, changes: Changes) -> Iterable[Decision]:
        self.asked.append(world.now)
        return [standing(world, ref, each, "Fine.") for ref, each in affected(world, KIND, changes)]


def played(port: Port, in_the_middle: Callable[[], None] = lambda: None) -> None:
    """Ten seconds in which pods change all the time, and something else once."""

    async def script() -> None:
        clock, known = SimClock(NOON), port
        plan = Plan(
            name="pods",
            kinds=(KIND,),
            wakes_on=frozenset({Topic.PODS, Topic.SIGHT}),
            at_most_every_ms=250,
            decide=port.decide,
        )
        seam: Any = known
        running = Operator(seam, Never(), Settings(), Runtime(clock=clock), [plan])
        task = asyncio.create_task(running.run())
        for number in range(SECONDS * 100):
            port.changes.pod(f"p{number}", unbound=False, nodes=())
            if clock.now() == MIDDLE:
                in_the_middle()
            await clock.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(script)


def test_a_plan_with_resources_is_asked_at_its_pace_and_nothing_is_looked_at_in_between() -> None:
    port = Port(a_resource())
    played(port)
    assert 25 <= len(port.asked) <= SECONDS * 4
    assert len(port.looks) <= len(port.asked) + SECONDS


def test_a_plan_without_resources_is_asked_once_a_second() -> None:
    port = Port()
    played(port)
    assert SECONDS - 2 <= len(port.asked) <= SECONDS + 1
    assert len(port.looks) <= 2 * SECONDS


@pytest.mark.parametrize("topic", [Topic.SETTINGS, Topic.SIGHT])
def test_what_may_end_all_effects_is_looked_at_though_nobody_may_be_asked(topic: Topic) -> None:
    port = Port()
    played(port, lambda: port.changes.fact(topic))
    assert 0 < next(each for each in port.looks if each > MIDDLE) - MIDDLE <= 100


def test_a_first_resource_is_decided_on_though_pods_could_wait() -> None:
    port = Port()

    def create() -> None:
        resource = a_resource()
        port.resources.append(resource)
        port.changes.resource(ref_of(resource))

    played(port, create)
    assert next(each for each in port.asked if each > MIDDLE) - MIDDLE <= 300


async def is_woken_by(news: Callable[[Subscriptions], None]) -> bool:
    changes = Subscriptions()
    for name, parts in (("knows", {Topic.PODS, Topic.SIGHT, KIND}), ("other", {Topic.NODES})):
        changes.subscribe(name, frozenset(parts))
        changes.take(name)
    waiting = asyncio.create_task(changes.changed(besides=["knows"]))
    await asyncio.sleep(0)
    news(changes)
    for _ in range(3):
        await asyncio.sleep(0)
    is_woken = waiting.done()
    waiting.cancel()
    assert changes.take("knows"), "it is told all the same"
    return is_woken


def test_a_plan_that_knows_enough_is_woken_by_what_is_urgent_alone() -> None:
    assert not asyncio.run(is_woken_by(lambda changes: changes.pod("p1", unbound=False, nodes=())))
    for topic in (Topic.SETTINGS, Topic.SIGHT):
        assert asyncio.run(is_woken_by(lambda changes, topic=topic: changes.fact(topic)))  # type: ignore[misc]  # a default binds it
    assert asyncio.run(is_woken_by(lambda changes: changes.resource(a_ref())))

"""Pods that kube-scheduler never places, made so that they cost as much as they can: what they wake and keep on is little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from headroom.api.power_status import Fruitless
from headroom.core.capacity import Ration
from headroom.core.power import fruitless, sleeping
from headroom.model import actions, times
from headroom.model.facts import Node, Pod, Shape
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import GPU, Stage, a_pool, a_view, decided, machine, off, on, remembered, waiting, was
from tests.tiers import DEEP

MACHINES = 10
STEP = 30 * SECOND
LOOKS_EVERY = STEP if DEEP else MINUTE
"""In the long run; it comes to the same."""
ROOM = (("cpu", 64_000_000), (GPU, 8_000_000), ("pods", 110_000_000))
GANG = (("scheduling.x-k8s.io/pod-group", "train"),)


def up(name: str) -> Node:
    """A machine that has been on for an hour."""
    return on(name, since=NOON - HOUR, allocatable=ROOM)


def refused(name: str, milli: int, now: int, namespace: str = "lab", **fields: Any) -> Pod:
    """A pod of a whole machine with a CPU request of its own, made and refused now."""
    shape = Shape(requests=(("cpu", milli * 1000), (GPU, 8_000_000)))
    return waiting(name, shape=shape, namespace=namespace, since=now, **fields)


class Attack(Stage):
    """Ten machines, and pods that are made anew every so often; kube-scheduler places none of them."""

    def __init__(self, make: Callable[[int, int], list[Pod]], every: int, *, awake: bool = False) -> None:
        names = [f"m{number}" for number in range(MACHINES)]
        # Those that are on were used until a moment ago.
        nodes = [up(name) if awake else off(name, allocatable=ROOM) for name in names]
        pool = a_pool(machines=dict.fromkeys(names, 8))
        super().__init__(pool, nodes=nodes, now=NOON)
        self.make, self.every, self.binds, self.on_ms = make, every, False, 0

    def last(self, ms: int) -> None:
        """Let so much time pass."""
        epoch = -1
        until = self.now + ms
        while self.now < until:
            if (self.now - NOON) // self.every != epoch:
                epoch = (self.now - NOON) // self.every
                self.pods = {pod.uid: pod for pod in self.make(epoch, self.now)}
            self.pass_time(LOOKS_EVERY, every=LOOKS_EVERY)
            self.on_ms += LOOKS_EVERY * sum(node.ready for node in self.nodes.values())

    @property
    def wakes(self) -> int:
        return sum(isinstance(each, actions.WakeMachine) for _, each in self.done)

    @property
    def share(self) -> float:
        """Of all machine-hours, those that machines were on."""
        return self.on_ms / (MACHINES * (self.now - NOON))


def ten(epoch: int, now: int, namespace: str = "lab", **fields: Any) -> list[Pod]:
    return [refused(f"{namespace}-{number}-{epoch}", 1000 + epoch, now, namespace, **fields) for number in range(10)]


def in_three_namespaces(epoch: int, now: int) -> list[Pod]:
    return [pod for number in range(3) for pod in ten(epoch, now, f"lab-{number}")]


@pytest.mark.parametrize(
    ("make", "every", "wakes", "share"),
    [
        pytest.param(ten, 25 * MINUTE, 35, 0.06, id="every 25 minutes"),
        pytest.param(ten, MINUTE, 50, 0.12, id="every minute"),
        pytest.param(ten, 14 * MINUTE, 40, 0.06, id="just before machines are idle for long enough"),
        pytest.param(lambda epoch, now: ten(epoch, now, labels=GANG), 25 * MINUTE, 35, 0.08, id="a gang"),
        pytest.param(in_three_namespaces, 25 * MINUTE, 105, 0.12, id="three namespaces"),
    ],
)
def test_pods_made_anew_cost_few_wakes_and_few_hours_of_a_day(
    make: Callable[[int, int], list[Pod]], every: int, wakes: int, share: float
) -> None:
    attack = Attack(make, every)
    attack.last(24 * HOUR)
    assert attack.wakes >= MACHINES, "at first nobody knows better"
    assert attack.wakes <= wakes
    assert attack.share <= share


@pytest.mark.parametrize("every", [MINUTE, 25 * MINUTE, 50 * MINUTE])
def test_idle_machines_are_not_kept_on_again_and_again(every: int) -> None:
    """Nothing is ever woken for these pods: they only keep on what others have used."""
    attack = Attack(ten, every, awake=True)
    attack.last(12 * HOUR)
    assert attack.share <= 0.2


def test_a_namespace_keeps_few_idle_machines_on_and_fewer_the_more_often_it_was_for_nothing() -> None:
    for many, kept in ((0, 10), (2, 3), (5, 0), (20, 0)):
        known = (Fruitless(namespace="lab", at=(times.text(NOON - 5 * HOUR),) * many),) if many else ()
        machines = [was(f"m{number}", "On", idle_since=NOON - 20 * MINUTE) for number in range(MACHINES)]
        pool = remembered(a_pool(machines={f"m{number}": 8 for number in range(MACHINES)}), *machines, fruitless=known)
        world = a_view(
            pool,
            nodes=[up(f"m{number}") for number in range(MACHINES)],
            pods=ten(0, NOON - 15 * MINUTE),
        )
        found = decided(world)["one"]
        kept_for = [each.name for each in found.status.machines if each.kept_for == ("lab",)]  # type: ignore[attr-defined]  # a pool's
        assert len(kept_for) == kept, many


def test_what_was_kept_on_for_nothing_is_remembered_though_the_pods_have_gone() -> None:
    stage = Stage(a_pool(machines={"m0": 8}), nodes=[up("m0")])
    stage.binds = False
    stage.pods = {pod.uid: pod for pod in ten(0, NOON)[:1]}
    stage.pass_time(30 * MINUTE, every=STEP)
    assert machine(stage.decisions["one"], "m0").kept_for == ("lab",)
    stage.pods.clear()
    stage.pass_time(5 * MINUTE, every=STEP)
    [known] = stage.pools[next(iter(stage.pools))].status.fruitless
    assert (known.namespace, len(known.at)) == ("lab", 1)


def test_a_machine_that_is_used_after_all_was_not_kept_for_nothing() -> None:
    stage = Stage(a_pool(machines={"m0": 8}), nodes=[up("m0")])
    stage.binds = False
    stage.pods = {pod.uid: pod for pod in ten(0, NOON)[:1]}
    stage.pass_time(30 * MINUTE, every=STEP)
    stage.binds = True
    stage.pass_time(MINUTE, every=STEP)
    assert machine(stage.decisions["one"], "m0").kept_for == ()
    stage.end("uid-lab-0-0")
    stage.pass_time(20 * MINUTE, every=STEP)
    assert stage.state("m0") == "Off"
    assert stage.pools[next(iter(stage.pools))].status.fruitless == ()


def test_at_most_an_hour_a_machine_is_kept_on_whoever_is_refused() -> None:
    stage = Stage(a_pool(machines={"m0": 8}), nodes=[up("m0")])
    stage.binds = False
    for epoch in range(12):
        now = stage.now
        stage.pods = {pod.uid: pod for pod in ten(epoch, now, f"lab-{epoch}")[:1]}
        stage.pass_time(10 * MINUTE, every=STEP)
    slept = next(at for at, each in stage.done if isinstance(each, actions.SleepMachine))
    assert slept <= NOON + sleeping.REFUSED_MS + 15 * MINUTE


def _rations(*moments: int) -> Ration:
    return fruitless.ration(sorted(NOON - each for each in moments), NOON)


@pytest.mark.parametrize(
    ("moments", "pods", "gangs"),
    [
        ([30 * MINUTE], 4, False),
        ([2 * HOUR] * 3, 5, True),
        ([59 * MINUTE] * 5, 0, False),
        ([HOUR] * 5, 5, True),
        ([59 * MINUTE] * 6, 0, False),
        ([HOUR] * 6, 1, False),
        ([HOUR, *[5 * HOUR] * 14], 1, False),
        ([HOUR, *[5 * HOUR] * 15], 0, False),
        ([2 * HOUR] * 25, 1, False),
        ([239 * MINUTE] * 32, 0, False),
        ([4 * HOUR] * 32, 1, False),
        ([299 * MINUTE] * 6, 1, False),
        ([5 * HOUR] * 6, 1, True),
        ([20 * HOUR] * 32, 1, True),
    ],
)
def test_the_more_wakes_were_fruitless_the_fewer_are_tried(moments: list[int], pods: int, gangs: bool) -> None:
    assert _rations(*moments)[:2] == (pods, gangs)


def test_who_has_mended_the_pods_is_served_again_one_after_the_other() -> None:
    """One wake an hour is tried whatever was before; the first that is of use lets the others follow."""
    attack = Attack(ten, 25 * MINUTE)
    attack.last(8 * HOUR)
    attack.binds = True
    began = attack.now
    attack.pods = {pod.uid: structs.replace(pod, created=began, unschedulable_since=began) for pod in ten(99, began)}
    attack.pass_time(3 * HOUR, every=STEP)
    assert all(pod.node for pod in attack.pods.values())

"""What holds in every world: the power invariants over random lives of pods and machines, and that deciding again asks for nothing new."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.model.actions import Action, CordonNode, OnMachine, SleepMachine, UncordonNode, WakeMachine
from headroom.model.decisions import Decision
from headroom.model.facts import Node, Shape
from tests.builders import NOON
from tests.core.power_stage import (
    GPU,
    HOUR,
    SECOND,
    Stage,
    a_pool,
    a_view,
    decided,
    effects,
    gpus_of,
    machine,
    off,
    on,
    remembered,
    running,
    status,
    waiting,
    wakes,
    was,
)

STEP = 5 * SECOND
LABELS = (("scheduling.x-k8s.io/pod-group", "gang"),)


class Life(NamedTuple):
    """What happens at one step."""

    what: str
    number: int


happenings = st.lists(
    st.builds(
        Life,
        st.sampled_from(
            ["wait", "wait", "pod", "pod", "big", "gang", "end", "gone", "by hand", "die", "refuse", "uncordon"]
        ),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=40,
)
policies = st.fixed_dictionaries(
    {
        "idleSeconds": st.sampled_from([0, 30, 120]),
        "bootTimeoutSeconds": st.sampled_from([60, 300]),
        "minOn": st.sampled_from([0, 1, 2]),
        "minOnSeconds": st.sampled_from([0, 90]),
        "minOffSeconds": st.sampled_from([0, 60, 200]),
        "togglesPerHour": st.sampled_from([1, 2, 6, 120]),
    },
    optional={"maxConcurrentWakes": st.sampled_from([1, 2]), "maxConcurrentSleeps": st.sampled_from([1, 3])},
)


def happen(stage: Stage, life: Life, number: int) -> None:
    """One thing in the life of a cluster."""
    name = f"w{life.number % 5 + 1}"
    bound = sorted(uid for uid, pod in stage.pods.items() if pod.node and pod.phase == "Running")
    match life.what:
        case "pod" | "big":
            gpus = 4 if life.what == "big" else 1 + life.number % 3
            stage.pods[f"uid-p{number}"] = waiting(f"p{number}", gpus, since=stage.now)
        case "gang":
            for rank in range(2):
                pod = waiting(f"g{number}-{rank}", 4, since=stage.now)
                stage.pods[pod.uid] = structs.replace(pod, labels=(("scheduling.x-k8s.io/pod-group", f"g{number}"),))
        case "end" | "gone" if bound:
            stage.end(bound[life.number % len(bound)], gone=life.what == "gone")
        case "by hand" if name in stage.nodes and not any(pod.node == name for pod in stage.pods.values()):
            stage._turn(name, ready=not stage.nodes[name].ready)
        case "die":
            stage.dead ^= {name}
        case "refuse":
            stage.refusing ^= {name}
        case "uncordon" if name in stage.nodes:
            stage.nodes[name] = structs.replace(stage.nodes[name], unschedulable=False)


class Watcher:
    """Sees every command, and what the rules say of it."""

    def __init__(self, stage: Stage, policy: dict[str, Any]) -> None:
        self.stage, self.policy = stage, policy
        self.cordoned_at: dict[str, int] = {}
        self.last: dict[str, dict[str, int]] = {}

    def check(self, due: Iterable[Action], before: Stage) -> None:
        """P-S1, P-S2 and P-S5 at the moment at which commands are sent."""
        now, states = self.stage.now, self.states()
        wakes = [each.machine for each in due if isinstance(each, WakeMachine)]
        sleeps = [each.machine for each in due if isinstance(each, SleepMachine)]
        assert len(set(wakes) | set(sleeps)) == len(wakes) + len(sleeps), "one transition at a time"
        for name in sleeps:
            node = before.nodes.get(name)
            if node is not None and node.ready:  # else nothing can come there
                assert now - self.cordoned_at[name] >= 10 * SECOND
            assert not [pod for pod in before.pods.values() if pod.node == name and pod.phase == "Running"]
            assert now - self.at(name, "wake") >= self.policy["minOnSeconds"] * SECOND
        for name in wakes:
            assert now - self.at(name, "sleep") >= self.policy["minOffSeconds"] * SECOND
        for name in (*wakes, *sleeps):
            lately = [at for at, each in self.stage.done if isinstance(each, OnMachine) and each.machine == name]
            assert len([at for at in lately if at > now - HOUR]) <= self.policy["togglesPerHour"]
            self.last.setdefault(name, {})["wake" if name in wakes else "sleep"] = now
        # One that never joined is put back to sleep whatever is on: it is not among those.
        joined = [name for name in sleeps if name in before.nodes and before.nodes[name].ready]
        if joined or any(isinstance(each, CordonNode) for each in due):
            assert states.count("On") >= self.policy["minOn"]
        going = states.count("Draining") + states.count("Sleeping")
        assert going <= max(1, self.policy.get("maxConcurrentSleeps", 1))
        if wakes and "maxConcurrentWakes" in self.policy:
            assert states.count("Booting") <= self.policy["maxConcurrentWakes"]
        self.note(due)

    def at(self, name: str, command: str) -> int:
        return self.last.get(name, {}).get(command, 0)

    def states(self) -> list[str]:
        [pool] = self.stage.pools.values()
        return [each.state for each in pool.status.machines]

    def note(self, due: Iterable[Action]) -> None:
        for each in due:
            if isinstance(each, CordonNode):
                self.cordoned_at.setdefault(each.node, self.stage.now)
            elif isinstance(each, UncordonNode):
                self.cordoned_at.pop(each.node, None)
        for name in [name for name in self.cordoned_at if not self.stage.nodes[name].unschedulable]:
            del self.cordoned_at[name]


@settings(max_examples=60)
@given(policies, happenings)
@example(
    {
        "idleSeconds": 0,
        "bootTimeoutSeconds": 60,
        "minOn": 2,
        "minOnSeconds": 0,
        "minOffSeconds": 0,
        "togglesPerHour": 2,
    },
    [Life("die", 4), Life("by hand", 0), Life("die", 6), *[Life("wait", 0)] * 4, Life("wait", 4), Life("wait", 7)],
)
def test_no_life_of_a_cluster_breaks_a_rule(policy: dict[str, Any], lives: list[Life]) -> None:
    pool = a_pool(machines={"w1": 4, "w2": 4, "w3": 2, "w4": 8, "w5": 1}, **policy)
    stage = Stage(pool, nodes=[on("w1", 4), off("w2", 4), on("w3", 2)])
    stage.boot_ms = 40 * SECOND
    watcher = Watcher(stage, policy)
    for number, life in enumerate(lives):
        happen(stage, life, number)
        for _ in range(1 + life.number):
            before = Stage(pods=stage.pods.values())
            watcher.note(())
            due = stage.pass_time(STEP, every=STEP)
            watcher.check(due, before)


# --- deciding again -----------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A world to decide on, as ingredients in some order."""

    pools: list[Any]
    nodes: list[Any]
    pods: list[Any]

    def decided(self, chance: random.Random | None = None, now: int = NOON) -> dict[str, Decision]:
        parts = [list(each) for each in self]
        for each in parts if chance else ():
            chance.shuffle(each)  # type: ignore[union-attr]  # there is one
        pools, nodes, pods = parts
        return decided(a_view(*pools, nodes=nodes, pods=pods, now=now))


def whole(node: Node) -> Node:
    """A node with CPUs beside its GPUs."""
    return structs.replace(node, allocatable=(("cpu", 20_000_000), *node.allocatable))


@st.composite
def places(draw: st.DrawFn) -> Place:
    """Two pools with machines on and off, and pods of a few shapes that wait or run."""
    pools, nodes, pods = [], [], []
    for pool in "ab":
        sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=8))
        names = {f"{pool}{number}": size for number, size in enumerate(sizes)}
        pools.append(a_pool(pool, names, idleSeconds=draw(st.sampled_from([0, 600]))))
        for name, size in names.items():
            what = draw(st.sampled_from(["absent", "off", "idle", "busy"]))
            if what == "off":
                nodes.append(whole(off(name, size)))
            elif what != "absent":
                nodes.append(whole(on(name, size)))
            if what == "busy":
                pods.append(running(f"r-{name}", name, draw(st.integers(1, size))))
    for number in range(draw(st.integers(0, 14))):
        shape = Shape(
            requests=(
                ("cpu", draw(st.integers(1, 3)) * 1_000_000),
                (GPU, draw(st.sampled_from([1, 2, 4, 8])) * 1_000_000),
            )
        )
        pod = waiting(
            f"p{number:02d}",
            priority=draw(st.sampled_from([0, 0, 5])),
            since=NOON - draw(st.sampled_from([5, 90])) * SECOND,
        )
        pods.append(structs.replace(pod, shape=shape, labels=LABELS if draw(st.integers(0, 5)) == 0 else ()))
    return Place(pools, nodes, pods)


@settings(max_examples=100)
@given(places(), st.integers(0, 99))
def test_the_same_world_is_decided_alike_in_whatever_order_it_is_told(place: Place, seed: int) -> None:
    assert place.decided() == place.decided(random.Random(seed))


@settings(max_examples=100)
@given(places(), st.sampled_from([0, SECOND, 30 * SECOND]))
def test_what_is_written_down_asks_for_no_second_command(place: Place, later: int) -> None:
    first = place.decided()
    written = [structs.replace(pool, status=first[pool.name].status) for pool in place.pools]
    again = place._replace(pools=written).decided(now=NOON + later)
    assert [each for one in again.values() for each in effects(one) if isinstance(each, OnMachine)] == []
    if not later:
        assert [status(one).machines for one in again.values()] == [status(one).machines for one in first.values()]


@settings(max_examples=100)
@given(places(), st.sampled_from([0, 5 * SECOND, 30 * SECOND]))
def test_machines_that_come_are_enough_until_pods_are_bound_to_them(place: Place, later: int) -> None:
    first = place.decided()
    sizes = {each.name: each.gpu_count for pool in place.pools for each in pool.spec.machines}
    woken = [each.machine for one in first.values() for each in one.actions if isinstance(each, WakeMachine)]
    written = [structs.replace(pool, status=first[pool.name].status) for pool in place.pools]
    ready = NOON + 20 * SECOND
    nodes = [each for each in place.nodes if each.name not in woken] + [
        whole(on(name, sizes[name], ready)) for name in woken
    ]
    come = place._replace(pools=written, nodes=nodes)
    seen = come.decided(now=ready)
    again = come._replace(pools=[structs.replace(pool, status=seen[pool.name].status) for pool in written])
    for each in (seen, again.decided(now=ready + later)):
        assert [action for one in each.values() for action in one.actions if isinstance(action, WakeMachine)] == []


@settings(max_examples=100)
@given(places())
def test_what_is_woken_is_needed_and_what_sleeps_is_not(place: Place) -> None:
    sizes = {each.name: each.gpu_count for pool in place.pools for each in pool.spec.machines}
    first = place.decided()
    # A warm spare is woken for nobody.
    woken = [name for one in first.values() for name in wakes(one) if machine(one, name).assigned]
    waits = sum(gpus_of(pod.shape) for pod in place.pods if not pod.node)
    # A machine on trial is woken for one shape alone, whatever else would fit beside it.
    if woken and not any(status(one).trials for one in first.values()):
        most = sum(sizes[name] for name in woken) - max(sizes[name] for name in woken)
        assert most * 1_000_000 < waits, "even without the largest of them it would hold everything"
    sleeping = {each.node for one in first.values() for each in one.actions if isinstance(each, CordonNode)}
    assert not sleeping & {pod.node for pod in place.pods}


# --- many at once -------------------------------------------------------------------------------------------------------------------


def crowd(seed: int) -> Place:
    """So many machines and pods that the choice among them is a good one, not the best."""
    chance = random.Random(seed)
    names = {f"m{number:03d}": chance.choice([4, 8]) for number in range(150)}
    pool = a_pool("a", names, template={"resources": {"cpu": "20"}})
    shapes = [
        Shape(requests=(("cpu", chance.randint(1, 9) * 1_000_000), (GPU, chance.choice([1, 1, 2, 3, 4]) * 1_000_000)))
        for _ in range(40)
    ]
    pods = [
        structs.replace(waiting(f"p{number:03d}", priority=chance.choice([0, 5])), shape=chance.choice(shapes))
        for number in range(300)
    ]
    return Place([pool], [], pods)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_woken_for_a_crowd_is_enough_until_all_have_their_place(seed: int) -> None:
    place = crowd(seed)
    first = place.decided()["a"]
    woken = [each.machine for each in first.actions if isinstance(each, WakeMachine)]
    assert 50 < len(woken) < 150
    booting = place._replace(pools=[structs.replace(place.pools[0], status=first.status)])
    assert effects(booting.decided(now=NOON + 10 * SECOND)["a"]) == []
    sizes = {each.name: each.gpu_count for each in place.pools[0].spec.machines}
    come = booting._replace(nodes=[whole(on(name, sizes[name], NOON + 30 * SECOND)) for name in woken])
    assert effects(come.decided(now=NOON + 30 * SECOND)["a"]) == []


@pytest.mark.parametrize(("seed", "leaving"), [(7, 20), (10, 20), (5, 40), (6, 40), (9, 40)])
def test_machines_that_were_kept_from_sleeping_are_filled_as_when_they_were_kept(seed: int, leaving: int) -> None:
    place = crowd(seed)
    machines = place.pools[0].spec.machines
    going = [was(each.name, "Draining", NOON - 5 * SECOND, idle_since=NOON - HOUR) for each in machines[:leaving]]
    there = [whole(on(each.name, each.gpu_count, NOON - 2 * HOUR)) for each in machines[:leaving]]
    before = place._replace(pools=[remembered(place.pools[0], *going)], nodes=there)
    first = before.decided()["a"]
    assert [each.name for each in status(first).machines if each.cause == "Kept"]
    again = before._replace(pools=[structs.replace(place.pools[0], status=first.status)])
    for later in (SECOND, 30 * SECOND):
        assert [each for each in effects(again.decided(now=NOON + later)["a"]) if isinstance(each, WakeMachine)] == []

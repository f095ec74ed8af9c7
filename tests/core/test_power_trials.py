"""What kube-scheduler knows better: pods that it refuses though they would fit, the machine that is tried for them, and what is kept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from headroom.api.power_status import TrialStatus
from headroom.core.capacity.trials import MOST
from headroom.core.demand import digest_of
from headroom.model.facts import Pod, Shape
from headroom.model.times import moment, text
from headroom.model.world import ref_of
from tests.builders import NOON
from tests.core.power_stage import (
    GPU,
    HOUR,
    MINUTE,
    SECOND,
    Stage,
    a_pool,
    a_view,
    decided,
    on,
    remembered,
    running,
    status,
    waiting,
    wakes,
    was,
)

SPREAD = Shape(requests=((GPU, 1_000_000),), spread='[{"topologyKey":"zone"}]')
REFUSED = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."


def refused(count: int, since: int = NOON - 2 * MINUTE) -> list[Pod]:
    return [
        structs.replace(waiting(f"p{number}", since=since), shape=SPREAD, unschedulable_message=REFUSED)
        for number in range(count)
    ]


def test_one_machine_is_tried_for_what_we_do_not_understand() -> None:
    pool = a_pool(machines={"w1": 2, "w2": 2, "w3": 2})
    world = a_view(pool, nodes=[on("n1", 8)], pods=refused(5))
    decision = decided(world)["one"]
    assert wakes(decision) == ["w1"]
    assert [(each.machine, each.at) for each in status(decision).trials] == [("w1", text(NOON))]
    assert REFUSED.rstrip(".") in decision.message
    assert [(each.reason, each.pods) for each in status(decision).unserved] == [("Unmodelled", 3)]

    written = structs.replace(pool, status=decision.status)
    later = decided(a_view(written, nodes=[on("n1", 8)], pods=refused(5), now=NOON + MINUTE))["one"]
    assert wakes(later) == []


def test_a_machine_of_the_pool_may_be_the_one_that_does_not_do() -> None:
    pool = remembered(a_pool(machines={"w1": 2, "w2": 2}), was("w1", "On", NOON - HOUR, idle_since=NOON - MINUTE))
    decision = decided(a_view(pool, nodes=[on("w1", 2)], pods=refused(1)))["one"]
    assert wakes(decision) == ["w2"]
    assert [each.machine for each in status(decision).trials] == ["w2"]
    come = remembered(a_pool(machines={"w1": 2, "w2": 2}), was("w1", "On", NOON - 59 * SECOND))
    assert wakes(decided(a_view(come, nodes=[on("w1", 2)], pods=refused(1)))["one"]) == [], "it has just come"


def test_the_next_one_is_tried_once_such_a_pod_is_bound() -> None:
    pool = a_pool(machines={"w1": 2, "w2": 2, "w3": 2})
    first = decided(a_view(pool, nodes=[on("n1", 8)], pods=refused(5)))["one"]
    written = structs.replace(pool, status=first.status)
    nodes = [on("n1", 8), on("w1", 2, since=NOON + 2 * MINUTE)]
    now = NOON + 5 * MINUTE
    stuck = decided(a_view(written, nodes=nodes, pods=refused(5), now=now))["one"]
    assert wakes(stuck) == []
    bound = structs.replace(running("p9", "w1", created=NOON - HOUR, started=NOON + 3 * MINUTE), shape=SPREAD)
    moved = decided(a_view(written, nodes=nodes, pods=[*refused(5), bound], now=now))["one"]
    assert wakes(moved) == ["w2"]
    for started in (NOON - HOUR, None):
        old = structs.replace(running("p9", "n1", created=NOON - HOUR, started=started), shape=SPREAD)
        assert wakes(decided(a_view(written, nodes=nodes, pods=[*refused(5), old], now=now))["one"]) == []
    pulls = structs.replace(running("p9", "w1", created=NOON - HOUR, started=None), shape=SPREAD)
    assert wakes(decided(a_view(written, nodes=nodes, pods=[*refused(5), pulls], now=now))["one"]) == ["w2"]


def test_a_trial_ends_when_its_machine_failed_or_everybody_is_gone() -> None:
    pool = a_pool(machines={"w1": 2, "w2": 2})
    first = decided(a_view(pool, nodes=[on("n1", 8)], pods=refused(1)))["one"]
    written = structs.replace(pool, status=first.status)
    failed = decided(a_view(written, nodes=[on("n1", 8)], pods=refused(1), now=NOON + 15 * MINUTE))["one"]
    assert wakes(failed) == ["w2"]
    assert [each.machine for each in status(failed).trials] == ["w2"]
    nodes = [on("n1", 8), on("w1", 2, since=NOON + MINUTE)]
    assert len(status(decided(a_view(written, nodes=nodes, now=NOON + HOUR - 1))["one"]).trials) == 1
    assert status(decided(a_view(written, nodes=nodes, now=NOON + HOUR))["one"]).trials == ()


@pytest.mark.parametrize("machines", [{"w1": 2, "w2": 2}, {"w1": 2}])
def test_after_a_machine_that_was_no_help_the_pauses_grow(machines: dict[str, int]) -> None:
    """Another one is tried where there is one; in a day a dozen machines at most were woken in vain."""
    stage = Stage(a_pool(machines=machines, idleSeconds=60), nodes=[on("n1", 8)], pods=refused(2))
    stage.binds = False
    stage.pass_time(24 * HOUR, every=MINUTE)
    woken = [(at, command) for at, command in stage.commands() if command.startswith("wake")]
    pauses = [later[0] - earlier[0] for earlier, later in pairwise(woken)]
    assert 5 <= len(woken) <= 8
    assert 15 * 60 <= pauses[0] <= 20 * 60
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses))
    assert {command for _, command in woken} == {f"wake {name}" for name in machines}
    assert "did not help such pods, so no machine is tried for them before" in stage.decisions["one"].message


def test_a_machine_woken_for_pods_that_are_not_placed_there_goes_to_sleep_as_any() -> None:
    """There is no other machine to try, and it was woken while they waited: it has its answer."""
    stage = Stage(a_pool(machines={"w1": 2}, idleSeconds=60), pods=refused(2))
    stage.binds = False
    stage.pass_time(15 * MINUTE, every=5 * SECOND)
    assert [command for _, command in stage.commands()] == ["wake w1", "sleep w1"]
    assert stage.decisions["one"].reason == "Unmodelled"


def test_pods_that_come_later_are_not_starved_by_one_that_is_refused_for_itself() -> None:
    """One pod has a volume that is elsewhere: nobody but itself waits for that."""
    stage = Stage(a_pool(machines={"w1": 2, "w2": 2}, idleSeconds=60), pods=refused(1))
    stage.never = {"uid-p0"}
    stage.pass_time(15 * MINUTE, every=5 * SECOND)
    assert stage.commands()[-1][1] == "sleep w2"
    fresh = [structs.replace(pod, uid=f"f{place}", name=f"f{place}") for place, pod in enumerate(refused(4, stage.now))]
    stage.pods |= {pod.uid: pod for pod in fresh}
    stage.pass_time(25 * MINUTE, every=5 * SECOND)
    assert {stage.pods[pod.uid].node for pod in fresh} == {"w1", "w2"}
    for pod in fresh:
        stage.end(pod.uid, gone=True)
    stage.pass_time(10 * MINUTE, every=5 * SECOND)
    before = len(stage.commands())
    stage.pods |= {pod.uid: structs.replace(pod, unschedulable_since=stage.now) for pod in fresh}
    stage.look()
    assert len(stage.commands()) == before + 2, "such pods have found their place: these are like any others"
    assert stage.pools[ref_of(a_pool())].status.trials[0].placed


def test_a_pod_that_is_refused_everywhere_wakes_no_machine_again_and_again() -> None:
    """Though others like it come and go all day."""
    stage = Stage(a_pool(machines={"w1": 2, "w2": 2, "w3": 2}, idleSeconds=60), pods=refused(1))
    stage.never = {"uid-p0"}
    for number in range(48):
        uid = f"f{number}"
        [pod] = refused(1, stage.now)
        stage.pods[uid] = structs.replace(pod, uid=uid, name=uid)
        stage.pass_time(20 * MINUTE, every=MINUTE)
        if stage.pods[uid].node:
            stage.end(uid, gone=True)
        stage.pass_time(10 * MINUTE, every=MINUTE)
    woken = [command for _, command in stage.commands() if command.startswith("wake")]
    assert len(woken) <= 48 + 10
    assert not [uid for uid, pod in stage.pods.items() if uid != "uid-p0" and not pod.node], "all others had their turn"


def test_a_retried_job_does_not_wake_a_machine_with_every_try() -> None:
    """Its pods are others each time, and all are refused."""
    stage = Stage(a_pool(machines={"w1": 2, "w2": 2}, idleSeconds=60))
    stage.binds = False
    for number in range(40):
        uid = f"try-{number}"
        [pod] = refused(1, stage.now)
        stage.pods = {uid: structs.replace(pod, uid=uid, name=uid)}
        stage.pass_time(10 * MINUTE, every=30 * SECOND)
    assert len([command for _, command in stage.commands() if command.startswith("wake")]) <= 10, "hardly one an hour"


def test_no_machine_is_tried_while_others_boot_for_the_same() -> None:
    """They were woken before kube-scheduler was heard."""
    pool = a_pool(machines={"w1": 2, "w2": 2, "w3": 2})
    booting = remembered(pool, was("w1", "Booting", NOON - MINUTE, woken_at=NOON - MINUTE))
    decision = decided(a_view(booting, nodes=[on("n1", 1)], pods=refused(5)))["one"]
    assert wakes(decision) == []
    assert wakes(decided(a_view(pool, nodes=[on("n1", 1)], pods=refused(5)))["one"]) == ["w1"]


def test_a_trial_whose_machine_others_fill_is_over() -> None:
    pool = a_pool(machines={"w1": 2, "w2": 2})
    first = decided(a_view(pool, nodes=[on("n1", 8)], pods=refused(1)))["one"]
    written = structs.replace(pool, status=first.status)
    nodes = [on("n1", 8), on("w1", 2, since=NOON + MINUTE)]
    other = running("other", "w1", 2, started=NOON + MINUTE)
    come = decided(a_view(written, nodes=nodes, pods=[*refused(1), other], now=NOON + 2 * MINUTE))["one"]
    assert wakes(come) == []
    written = structs.replace(pool, status=come.status)
    later = decided(a_view(written, nodes=nodes, pods=[*refused(1), other], now=NOON + 4 * MINUTE))["one"]
    assert wakes(later) == ["w2"]


def woken(stage: Stage) -> list[str]:
    return [command.removeprefix("wake ") for _, command in stage.commands() if command.startswith("wake ")]


def trial_of(stage: Stage) -> TrialStatus:
    shape = digest_of(SPREAD)
    [trial] = [trial for pool in stage.pools.values() for trial in pool.status.trials if trial.shape == shape]
    assert isinstance(trial, TrialStatus)
    return trial


def test_each_machine_has_its_turn() -> None:
    """In the end the one is tried that does, whichever pool has it."""
    pools = [a_pool("one", {"w1": 2, "w2": 2}, idleSeconds=60), a_pool("two", {"w3": 2, "w4": 4}, idleSeconds=60)]
    stage = Stage(*pools, nodes=[on("n1", 8)], pods=refused(1))
    stage.only["uid-p0"] = "w4"
    stage.pass_time(4 * HOUR, every=30 * SECOND)
    assert woken(stage) == ["w1", "w2", "w3", "w4"]
    assert stage.pods["uid-p0"].node == "w4"


@pytest.mark.parametrize("policy", [{"minOn": 1}, {"protectedMachines": ["w1", "w2"]}, {"idleSeconds": 7200}])
def test_a_machine_that_stays_on_is_no_trial_for_ever(policy: dict[str, Any]) -> None:
    stage = Stage(a_pool(machines={"w1": 2, "w2": 2, "w3": 2}, **policy), nodes=[on("w1", 2)], pods=refused(1))
    stage.only["uid-p0"] = "w3"
    stage.pass_time(HOUR, every=30 * SECOND)
    assert stage.pods["uid-p0"].node == "w3"


def test_a_machine_that_wakes_for_others_is_not_on_trial_again() -> None:
    stage = Stage(a_pool(machines={"w1": 2}, idleSeconds=60), nodes=[on("n1", 1)], pods=refused(1))
    stage.never = {"uid-p0"}
    stage.pass_time(10 * MINUTE, every=15 * SECOND)
    before = trial_of(stage)
    assert (before.machine, before.in_vain) == ("w1", 1)
    for number in range(2):
        stage.pods[f"o{number}"] = waiting(f"o{number}", 2, since=stage.now, uid=f"o{number}")
        stage.pass_time(3 * MINUTE, every=15 * SECOND)
        assert stage.pods[f"o{number}"].node == "w1"
        stage.end(f"o{number}", gone=True)
        assert trial_of(stage).until == before.until
    assert trial_of(stage).in_vain == 1


def test_the_pause_ends_when_it_was_to_end_whatever_goes_to_sleep() -> None:
    pool = a_pool(machines={"w1": 2, "w2": 2}, idleSeconds=60, minOffSeconds=12)
    stage = Stage(pool, nodes=[on("n1", 8)], pods=refused(1))
    stage.never = {"uid-p0"}
    stage.pass_time(5 * MINUTE, every=15 * SECOND)
    ends = moment(trial_of(stage).until) or 0
    stage.pods["other"] = waiting("other", 2, since=stage.now, uid="other", shape=Shape(requests=((GPU, 2_000_000),)))
    stage.only["other"] = "w2"
    stage.pass_time(5 * MINUTE, every=15 * SECOND)
    stage.end("other", gone=True)
    stage.pass_time(ends - stage.now, every=15 * SECOND)
    assert trial_of(stage).machine == "w2", "the next one is tried"
    assert trial_of(stage).at == text(ends)


def test_who_comes_later_waits_an_hour_at_most() -> None:
    """Even if the first ones are tried only once a day by now, and none has been placed."""
    long_refused = TrialStatus(
        shape=digest_of(SPREAD),
        machine="w1",
        at=text(NOON - HOUR),
        in_vain=9,
        refused_at=text(NOON),
        until=text(NOON + 24 * HOUR),
    )
    off = was("w1", "Off", woken_at=NOON - HOUR), was("w2", "Off")
    pool = remembered(a_pool(machines={"w1": 2, "w2": 2}), *off, trials=(long_refused,))
    late = refused(1, since=NOON)
    assert wakes(decided(a_view(pool, pods=refused(1), now=NOON + 2 * HOUR))["one"]) == []
    assert wakes(decided(a_view(pool, pods=late, now=NOON + HOUR - SECOND))["one"]) == []
    assert wakes(decided(a_view(pool, pods=late, now=NOON + HOUR))["one"]) == ["w2"]


def test_who_comes_later_is_served_at_once_when_others_like_them_were_placed() -> None:
    """Also while a node refuses the first one, and while another machine is tried for it."""
    stage = Stage(a_pool(machines={"w1": 2, "w2": 2, "w3": 2}, idleSeconds=60), nodes=[on("n1", 1)], pods=refused(1))
    stage.never = {"uid-p0"}
    stage.pass_time(10 * MINUTE, every=15 * SECOND)
    stage.pods["first"] = structs.replace(refused(1, stage.now)[0], uid="first", name="first")
    stage.only["first"] = "n1"
    stage.pass_time(MINUTE, every=15 * SECOND)
    assert trial_of(stage).placed
    for number in range(10):
        uid = f"f{number}"
        stage.pods[uid] = structs.replace(refused(1, stage.now)[0], uid=uid, name=uid)
        stage.pass_time(5 * MINUTE, every=15 * SECOND)
        assert stage.pods[uid].node, "within a boot"
        stage.end(uid, gone=True)
        stage.pass_time(15 * MINUTE, every=15 * SECOND)


def test_what_one_pod_finds_out_says_nothing_of_a_gang() -> None:
    shape = Shape(requests=((GPU, 8_000_000),))
    labels = (("jobset.sigs.k8s.io/jobset-name", "g"),)
    gang = [waiting(f"g{n}", 8, since=NOON - 2 * MINUTE, shape=shape, labels=labels) for n in range(3)]
    stray = waiting("stray", 8, since=NOON - 2 * MINUTE, shape=shape)
    pool = a_pool(machines={"w1": 8, "w2": 8, "w3": 8})
    assert wakes(decided(a_view(pool, nodes=[on("n1", 8)], pods=gang))["one"]) == ["w1", "w2"]
    with_stray = decided(a_view(pool, nodes=[on("n1", 8)], pods=[*gang, stray]))["one"]
    assert {"w1", "w2"} <= set(wakes(with_stray))


def test_shapes_that_nothing_can_hold_do_not_block_others() -> None:
    picky = [
        structs.replace(
            waiting(f"p{n}", since=NOON - 5 * MINUTE),
            shape=Shape(requests=((GPU, 1_000_000), ("cpu", n + 1)), node_selector=(("kubernetes.io/hostname", "n1"),)),
        )
        for n in range(20)
    ]
    [last] = refused(1)
    node = on("n1", 8, allocatable=(("cpu", 64_000_000), (GPU, 8_000_000)))
    world = a_view(a_pool(machines={"w1": 2}), nodes=[node], pods=[*picky, structs.replace(last, name="z", uid="z")])
    assert wakes(decided(world)["one"]) == ["w1"]


def test_a_neighbour_that_begins_anew_all_the_time_proves_nothing() -> None:
    pool = a_pool(machines={"w1": 2, "w2": 2, "w3": 2}, idleSeconds=60)
    stage = Stage(pool, nodes=[on("n1", 8)], pods=refused(1))
    stage.never = {"uid-p0"}
    for _ in range(12):
        loops = structs.replace(running("loops", "n1", created=NOON - 5 * HOUR, started=stage.now), shape=SPREAD)
        stage.pods[loops.uid] = structs.replace(loops, started_after=stage.now - MINUTE)
        stage.pass_time(5 * MINUTE, every=15 * SECOND)
    assert len(woken(stage)) <= 3


def test_a_machine_that_does_not_boot_is_no_answer() -> None:
    stage = Stage(
        a_pool(machines={"w1": 2, "w2": 2, "w3": 2}, bootTimeoutSeconds=300), nodes=[on("n1", 8)], pods=refused(1)
    )
    stage.never, stage.dead = {"uid-p0"}, {"w2"}
    stage.pass_time(30 * MINUTE, every=15 * SECOND)
    assert woken(stage) == ["w1", "w2", "w3"]
    at = {command: at for at, command in stage.commands()}
    assert at["wake w3"] - at["wake w2"] <= 330, "as soon as w2 has failed"


def test_a_trial_that_two_pools_remember_is_kept_once() -> None:
    trial = TrialStatus(
        shape=digest_of(SPREAD), machine="w1", at=text(NOON - HOUR), in_vain=1, refused_at=text(NOON), until=text(NOON)
    )
    later = structs.replace(trial, machine="w3", at=text(NOON - MINUTE))
    one = remembered(a_pool("one", {"w1": 2}), was("w1", "Off"), trials=(trial,))
    two = remembered(a_pool("two", {"w3": 2}), was("w3", "Off"), trials=(later,))
    found = decided(a_view(one, two, nodes=[on("n1", 8)], pods=refused(1), now=NOON - SECOND))
    assert [status(each).trials for each in found.values()] == [(), (later,)]


def test_no_more_is_remembered_than_a_status_holds() -> None:
    old = [
        TrialStatus(
            shape=f"s{n:03}",
            machine="w2",
            at=text(NOON - n * MINUTE),
            in_vain=1,
            refused_at=text(NOON),
            until=text(NOON + HOUR),
        )
        for n in range(MOST)
    ]
    off = was("w1", "Off"), was("w2", "Off")
    pool = remembered(a_pool(machines={"w1": 2, "w2": 2}), *off, trials=tuple(old))
    decision = decided(a_view(pool, nodes=[on("n1", 8)], pods=refused(1)))["one"]
    kept = {each.shape for each in status(decision).trials}
    assert len(kept) == MOST
    assert digest_of(SPREAD) in kept
    assert f"s{MOST - 1:03}" not in kept, "the oldest"


def test_many_shapes_are_tried_each_in_its_turn() -> None:
    shapes = [Shape(requests=((GPU, 1_000_000),), spread=f'[{{"topologyKey":"z{n}"}}]') for n in range(80)]
    pods = [
        structs.replace(waiting(f"p{n:02}", since=NOON - 2 * MINUTE), shape=shape, namespace=f"team-{n}")
        for n, shape in enumerate(shapes)
    ]
    stage = Stage(a_pool(machines={f"w{n:02}": 1 for n in range(90)}, idleSeconds=60), nodes=[on("n1", 8)], pods=pods)
    stage.binds = False
    stage.pass_time(80 * MINUTE, every=30 * SECOND)
    assert {trial.in_vain for trial in stage.pools[ref_of(a_pool())].status.trials} == {3}
    assert 2 * 80 <= len(woken(stage)) <= 3 * 80


def test_a_gang_is_tried_as_a_whole_once_its_pause_is_over() -> None:
    """A late volume, say: it was refused for forty minutes, and would be placed now."""
    labels = (("jobset.sigs.k8s.io/jobset-name", "g"),)
    gang = [waiting(f"g{n}", 8, since=NOON - 2 * MINUTE, labels=labels) for n in range(2)]
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8, "w3": 8}), pods=gang)
    stage.binds = False
    stage.pass_time(50 * MINUTE, every=30 * SECOND)
    assert sorted(woken(stage)) == ["w1", "w1", "w2", "w3"], "twice in vain, each in its turn"
    assert all(stage.state(name) == "Off" for name in ("w1", "w2", "w3"))
    stage.binds = True
    stage.pass_time(HOUR, every=30 * SECOND)
    assert len({pod.node for pod in stage.pods.values()} & {"w1", "w2", "w3"}) == 2


def test_pods_of_others_on_a_machine_on_trial_are_no_reason_for_the_next_one() -> None:
    machines = {f"w{number}": 8 for number in range(6)}
    stage = Stage(a_pool(machines=machines, warmPercent=0), nodes=[on("n1", 8)], pods=refused(1))
    stage.never = {"uid-p0"}
    for number in range(20):
        uid = f"o{number}"
        spread = "w0" if stage.nodes.get("w0") and stage.nodes["w0"].ready else "n1"
        stage.pods[uid] = running(
            uid, spread, 1, started=stage.now, created=stage.now, shape=Shape(requests=((GPU, 1_000_000),))
        )
        stage.pass_time(3 * MINUTE, every=30 * SECOND)
        del stage.pods[uid]
    assert len(woken(stage)) <= 3


def test_once_a_refused_pod_finds_its_place_the_others_are_served_at_once() -> None:
    pods = refused(12)
    stage = Stage(a_pool(machines={f"w{number}": 2 for number in range(6)}, idleSeconds=60), pods=pods)
    stage.binds = False
    stage.pass_time(20 * MINUTE, every=15 * SECOND)
    stage.binds = True
    stage.pass_time(90 * MINUTE, every=15 * SECOND)  # after six fruitless wakes their namespace has to wait for an hour
    assert all(pod.node for pod in stage.pods.values())


def test_a_clock_that_was_turned_back_keeps_nobody_waiting() -> None:
    far = TrialStatus(
        shape=digest_of(SPREAD),
        machine="w1",
        at=text(NOON),
        in_vain=3,
        refused_at=text(NOON),
        until="9999-01-01T00:00:00Z",
    )
    pool = remembered(a_pool(machines={"w1": 2}), was("w1", "Off"), trials=(far,))
    stage = Stage(pool, nodes=[on("n1", 8)], pods=refused(1))
    stage.never = {"uid-p0"}
    stage.look()
    assert trial_of(stage).until == text(NOON + 24 * HOUR)


def test_shapes_that_fit_on_one_machine_on_trial_share_it() -> None:
    shapes = [Shape(requests=((GPU, 1_000_000),), spread=f'[{{"topologyKey":"z{n}"}}]') for n in range(8)]
    pods = [structs.replace(waiting(f"p{n}", since=NOON - 2 * MINUTE), shape=shape) for n, shape in enumerate(shapes)]
    world = a_view(a_pool(machines={f"w{n}": 8 for n in range(9)}), nodes=[on("n1", 8)], pods=pods)
    assert wakes(decided(world)["one"]) == ["w0"]


def test_pods_that_come_and_go_beside_it_prove_nothing() -> None:
    """One of the same shape a minute, placed at once: they were never refused."""
    stage = Stage(a_pool(machines={f"w{number}": 8 for number in range(8)}), nodes=[on("n1", 8)], pods=refused(1))
    stage.never = {"uid-p0"}
    for number in range(40):
        uid = f"f{number}"
        stage.pods[uid] = structs.replace(refused(1, stage.now)[0], uid=uid, name=uid)
        stage.pass_time(MINUTE, every=20 * SECOND)
        stage.end(uid, gone=True)
    assert len(woken(stage)) <= 3

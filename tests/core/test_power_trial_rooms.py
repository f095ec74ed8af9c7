"""Whose room a machine on trial is: of those for whom it is tried, while they wait for the outcome, and then of everybody."""

from __future__ import annotations

from msgspec import structs

from headroom.api.power_status import Assigned, MachineStatus, TrialStatus
from headroom.core import power
from headroom.model import times
from headroom.model.facts import Pod, Shape
from tests.builders import NOON
from tests.core.power_stage import (
    GPU,
    MINUTE,
    SECOND,
    Stage,
    a_pool,
    a_view,
    decided,
    on,
    remembered,
    status,
    waiting,
    wakes,
    was,
)

REFUSED = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."
SPREAD = Shape(requests=((GPU, 1_000_000),), spread='[{"topologyKey":"zone"}]')
LABELS = (("jobset.sigs.k8s.io/jobset-name", "g"),)


def refused(count: int, since: int = NOON - 2 * MINUTE) -> list[Pod]:
    return [
        structs.replace(waiting(f"p{number}", since=since), shape=SPREAD, unschedulable_message=REFUSED)
        for number in range(count)
    ]


def test_a_machine_on_trial_is_no_room_for_a_gang_that_needs_others_of_another_pool() -> None:
    pods = [*refused(1), *(waiting(f"g{number}", 1, labels=LABELS) for number in range(6))]
    pools = [a_pool("one", {"w1": 2}), a_pool("two", {"w2": 4})]
    first = decided(a_view(*pools, nodes=[on("n1", 1)], pods=pods))
    assert [wakes(each) for each in first.values()] == [["w1"], []], "one on trial; the gang has five places, not six"
    written = [structs.replace(pool, status=first[pool.name].status) for pool in pools]
    again = decided(a_view(*written, nodes=[on("n1", 1)], pods=pods))
    assert [wakes(each) for each in again.values()] == [[], []]


def test_a_shape_that_shares_a_machine_on_trial_is_tried_on_no_other_when_it_has_come() -> None:
    pods = [waiting("g0", 4, since=NOON - 2 * MINUTE, labels=LABELS), *refused(5)]
    pool = a_pool(machines={"w1": 1, "w2": 8})
    first = decided(a_view(pool, nodes=[on("n1", 4)], pods=pods))["one"]
    assert wakes(first) == ["w2"]
    written = structs.replace(pool, status=first.status)
    ready = NOON + 20 * SECOND
    come = decided(a_view(written, nodes=[on("n1", 4), on("w2", 8, ready)], pods=pods, now=ready))["one"]
    assert wakes(come) == [], "one pod of five found no place on it, which is no reason to try another"


def test_others_do_not_take_the_place_of_those_for_whom_it_is_tried() -> None:
    """One machine is tried for the large pods, one for the middle one, and the small one shares that. The second large one came before both."""
    pods = [
        structs.replace(
            waiting(f"p{gpus}-{number}", since=NOON - minutes * MINUTE),
            shape=Shape(requests=((GPU, gpus * 1_000_000),), spread=SPREAD.spread),
            unschedulable_message=REFUSED,
        )
        for gpus, minutes, count in ((4, 4, 2), (2, 3, 1), (1, 2, 1))
        for number in range(count)
    ]
    pool = a_pool(machines={"w1": 4, "w2": 4, "w3": 1})
    first = decided(a_view(pool, nodes=[on("n1", 4)], pods=pods))["one"]
    assert wakes(first) == ["w1", "w2"]
    again = decided(a_view(structs.replace(pool, status=first.status), nodes=[on("n1", 4)], pods=pods))["one"]
    assert (wakes(again), status(again).trials) == ([], status(first).trials)


def a_gang(stage: Stage) -> None:
    """Three pods that need two machines come."""
    for number in range(3):
        pod = waiting(f"g{number}", 4, since=stage.now - 5 * SECOND, labels=LABELS)
        stage.pods[pod.uid] = structs.replace(pod, created=stage.now - MINUTE)


def on_trial(machines: dict[str, int], *, minutes: int) -> tuple[Stage, Pod]:
    """A pod that is never placed, beside a machine that was woken to try."""
    [pod] = refused(1)
    stage = Stage(a_pool(machines=machines), nodes=[on("n1", 1)], pods=[pod])
    stage.never, stage.boot_ms = {pod.uid}, MINUTE
    stage.look()
    stage.pass_time(minutes * MINUTE, every=5 * SECOND)
    assert [name for _, name in stage.commands()] == ["wake w1"]
    return stage, pod


def test_a_machine_is_everybodys_once_nobody_waits_for_what_it_shows() -> None:
    stage, pod = on_trial({"w1": 8, "w2": 8}, minutes=1)
    stage.pass_time(30 * SECOND, every=5 * SECOND)
    del stage.pods[pod.uid]
    stage.pass_time(150 * SECOND, every=5 * SECOND)
    a_gang(stage)
    stage.never |= set(stage.pods)
    stage.pass_time(30 * SECOND, every=5 * SECOND)
    assert [name for _, name in stage.commands()] == ["wake w1", "wake w2"]


def test_a_gang_that_counts_on_a_machine_on_trial_wakes_no_other_while_it_boots() -> None:
    stage, _ = on_trial({"w1": 8, "w2": 8, "w3": 8, "w4": 8}, minutes=1)
    stage.pass_time(20 * SECOND, every=5 * SECOND)
    a_gang(stage)
    stage.never |= set(stage.pods)
    stage.pass_time(2 * MINUTE, every=5 * SECOND)
    assert [name for _, name in stage.commands()] == ["wake w1", "wake w2"]


# --- which machines are on trial is a field of theirs ---------------------------------------------------------------------------------


def rooms_on_trial(shape: str, *machines: MachineStatus, at: int = NOON - MINUTE) -> frozenset[str]:
    """The machines that a trial still has, by what is remembered of it and of them."""
    trial = TrialStatus(shape=shape, machine=machines[0].name, at=times.text(at))
    pool = remembered(a_pool(machines={each.name: 8 for each in machines}), *machines, trials=(trial,))
    [supply] = power.SOURCE.supplies(a_view(pool, nodes=[on(each.name) for each in machines]), ())
    return supply.terms.trials[0].rooms


def test_a_machine_is_on_trial_by_its_own_word_whatever_the_moments_say() -> None:
    """A clock that was turned back makes the moment at which it was woken another one than that of the trial."""
    ahead = NOON + 10 * MINUTE
    machine = was("w1", "On", woken_at=ahead, tried_for=("a",))
    assert rooms_on_trial("a", machine, at=ahead) == {"w1"}
    assert rooms_on_trial("b", machine, at=ahead) == frozenset()


def test_one_that_was_woken_in_the_same_moment_for_others_is_not() -> None:
    woken = NOON - MINUTE
    machines = [
        was("w1", "Booting", woken_at=woken, tried_for=("Gang-a",)),
        was("w2", "Booting", woken_at=woken, tried_for=("Gang-a", "Gang-b")),
        was("w3", "Booting", woken_at=woken, assigned=(Assigned(shape="Gang-a"),)),
    ]
    assert rooms_on_trial("Gang-a", *machines) == {"w1", "w2"}


def test_a_status_without_that_field_counts_as_without_a_trial() -> None:
    assert rooms_on_trial("a", was("w1", "On", woken_at=NOON - MINUTE)) == frozenset()


def test_the_field_is_there_while_the_trial_runs_and_goes_with_it() -> None:
    stage = Stage(a_pool(machines={"w1": 2}, idleSeconds=900), nodes=[on("n1", 1)], pods=refused(1))
    stage.never = {"uid-p0"}
    stage.pass_time(10 * SECOND, every=5 * SECOND)
    [pool] = stage.pools.values()
    [trial], [machine] = pool.status.trials, pool.status.machines
    assert (machine.state, machine.tried_for) == ("Booting", (trial.shape,))
    stage.pass_time(6 * MINUTE, every=5 * SECOND)
    [pool] = stage.pools.values()
    assert ([each.in_vain for each in pool.status.trials], pool.status.machines[0].tried_for) == ([1], ())

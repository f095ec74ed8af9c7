"""Machines that boot and never join: they go to sleep again, a breaker opens after three in a row, and their energy counts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec import structs

from headroom.api.power_status import Breaker, Energy, PowerPoolStatus
from headroom.core.power import energy
from headroom.core.power.members import PowerPoolState
from headroom.model import actions, times
from headroom.model.actions import Action
from headroom.model.conditions import find
from headroom.model.decisions import Ref
from headroom.model.facts import Machine, Owner, SwitchCall
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import Stage, a_pool, off, on, remembered, running, waiting, was

NAMES = ("w1", "w2", "w3", "w4")


class Silent(Stage):
    """Machines whose power follows every command, and whose nodes never come."""

    def _do(self, action: Action) -> None:
        super()._do(action)
        if isinstance(action, actions.WakeMachine | actions.SleepMachine):
            word = "On" if isinstance(action, actions.WakeMachine) else "Off"
            self.powers[action.machine] = Machine(name=action.machine, power=word, since=self.now)  # type: ignore[arg-type]  # one of two


def silent(*names: str, **spec: Any) -> Silent:
    pool = a_pool(machines=dict.fromkeys(names, 8), **spec)
    stage = Silent(pool, nodes=[off(name) for name in names], pods=[waiting("p", 8)])
    stage.dead |= set(names)
    stage.powers = {name: Machine(name=name, power="Off", since=NOON - HOUR) for name in names}
    return stage


def on_at_last(stage: Silent) -> list[str]:
    return [name for name, each in stage.powers.items() if each.power == "On"]


def wakes(stage: Stage) -> list[tuple[int, str]]:
    return [(at, words) for at, words in stage.commands() if words.startswith("wake")]


def test_none_stays_on_for_ever_and_none_after_the_pod_is_gone() -> None:
    stage = silent(*NAMES)
    stage.pass_time(24 * HOUR, every=MINUTE)
    assert len(on_at_last(stage)) <= 1
    stage.pods.clear()
    stage.pass_time(3 * HOUR, every=MINUTE)
    assert on_at_last(stage) == []
    assert {stage.state(name) for name in NAMES} == {"Off"}


def test_what_may_be_switched_once_an_hour_is_not_put_back_within_it() -> None:
    stage = silent("w1", bootTimeoutSeconds=60, togglesPerHour=1, minOnSeconds=0)
    stage.pass_time(59 * MINUTE, every=30 * SECOND)
    assert [words for _, words in stage.commands()] == ["wake w1"]
    stage.pods.clear()
    stage.pass_time(3 * MINUTE, every=30 * SECOND)
    assert [words for _, words in stage.commands()][1:] == ["sleep w1"]


def test_after_three_in_a_row_none_is_woken_for_half_an_hour_and_then_one_at_a_time() -> None:
    stage = silent(*NAMES, bootTimeoutSeconds=300)
    stage.pass_time(24 * HOUR, every=30 * SECOND)
    found = [at for at, _ in wakes(stage)]
    assert len(found) <= 10  # three, and then ever more rarely
    pauses = [later - earlier for earlier, later in pairwise(found[2:])]
    assert pauses[0] >= 30 * 60
    assert pauses == sorted(pauses)


def test_the_condition_says_so_and_the_status_remembers() -> None:
    stage = silent(*NAMES, bootTimeoutSeconds=300)
    stage.pass_time(20 * MINUTE, every=10 * SECOND)
    [pool] = stage.pools.values()
    assert pool.status.breaker is not None
    assert pool.status.breaker.failed == 3
    told = find(pool.status.conditions, "BootsFailing")
    assert told is not None
    assert (told.status, told.reason) == ("True", "NoneJoined")


def test_who_waits_for_the_one_that_is_tried_hears_why() -> None:
    stage = silent(*NAMES, bootTimeoutSeconds=300)
    stage.pods["uid-q"] = waiting("q", 8)
    stage.pass_time(72 * MINUTE, every=10 * SECOND)
    [pool] = stage.pools.values()
    assert [(each.reason, each.message) for each in pool.status.unserved] == [
        ("WakeLimit", "1 machine is booting, the most at a time (the last 4 did not join).")
    ]


def test_a_node_that_comes_closes_it() -> None:
    stage = silent(*NAMES, bootTimeoutSeconds=300)
    stage.pass_time(20 * MINUTE, every=10 * SECOND)
    stage.dead.clear()
    stage.pass_time(3 * HOUR, every=10 * SECOND)
    [pool] = stage.pools.values()
    assert stage.pods["uid-p"].node
    assert pool.status.breaker is None
    told = find(pool.status.conditions, "BootsFailing")
    assert told is not None
    assert told.status == "False"


def test_a_floor_is_no_reason_to_go_on_either() -> None:
    stage = silent(*NAMES, bootTimeoutSeconds=300, minOn=4)
    stage.pods.clear()
    stage.pass_time(24 * HOUR, every=30 * SECOND)
    assert len(wakes(stage)) <= 4 + 10


def failed(**fields: Any) -> Stage:
    """One machine that was woken an hour ago and never joined."""
    known = was("w1", "Failed", NOON - MINUTE, cause="NeverJoined", woken_at=NOON - HOUR, failures=1)
    pool = remembered(a_pool(machines={"w1": 8}, **fields), known)
    stage = Stage(pool, nodes=[off("w1")])
    stage.powers = {"w1": Machine(name="w1", power="On", since=NOON - HOUR)}
    stage.dead.add("w1")
    return stage


def test_it_is_cordoned_first_so_that_nothing_comes_while_it_goes() -> None:
    stage = failed()
    assert stage.look() == [actions.CordonNode(node="w1")]
    assert stage.look() == [actions.SleepMachine(pool="one", machine="w1")]


def test_where_a_pod_is_bound_to_it_it_stays() -> None:
    stage = failed()
    stage.pods["uid-q"] = running("q", "w1", 1)
    stage.pass_time(10 * MINUTE, every=MINUTE)
    assert stage.commands() == []


def test_a_protected_one_stays() -> None:
    stage = failed(protectedMachines=["w1"])
    stage.pass_time(10 * MINUTE, every=MINUTE)
    assert stage.commands() == []


def test_a_pod_of_a_daemon_set_is_no_reason_to_stay() -> None:
    stage = failed()
    stage.pods["uid-d"] = running("d", "w1", 0, owner=Owner(kind="DaemonSet", name="d", uid="u", group="apps"))
    stage.pass_time(10 * MINUTE, every=MINUTE)
    assert [words for _, words in stage.commands()] == ["sleep w1"]


def test_one_that_cannot_be_sent_to_sleep_is_told_again_ever_more_rarely() -> None:
    stage = failed()
    stage.refusing.add("w1")
    stage.pass_time(24 * HOUR, every=MINUTE)
    told = [at for at, words in stage.commands() if words == "sleep w1"]
    assert 3 <= len(told) <= 40


def test_its_failures_stand_after_it_was_put_back() -> None:
    stage = failed()
    stage.pass_time(10 * MINUTE, every=MINUTE)
    [pool] = stage.pools.values()
    [machine] = pool.status.machines
    assert (machine.state, machine.failures) == ("Sleeping", 1)
    stage.powers = {"w1": Machine(name="w1", power="Off", since=stage.now)}
    stage.pass_time(MINUTE, every=SECOND)
    [machine] = next(iter(stage.pools.values())).status.machines
    assert (machine.state, machine.failures) == ("Off", 1)


def test_what_it_draws_is_counted() -> None:
    known = was("w1", "Failed", NOON - HOUR, cause="NeverJoined", woken_at=NOON - HOUR, failures=1)
    spec: dict[str, Any] = {"template": {"idleWatts": 100}}
    resource = remembered(a_pool(machines={"w1": 8}, **spec), known, energy=Energy(as_of=times.text(NOON - HOUR)))
    pool = PowerPoolState(ref=Ref("PowerPool", "", "one"), resource=resource, spec=resource.spec, now=NOON)
    found = energy.counted(pool)
    assert found is not None
    assert (found.used_kwh, found.saved_kwh) == ("0.1", "0")


def test_a_breaker_of_another_time_makes_nobody_wait_for_ever() -> None:
    stage = silent("w1")
    [ref] = stage.pools
    ahead = Breaker(failed=9, until=times.text(NOON + 1000 * HOUR))
    pool = stage.pools[ref]
    stage.pools[ref] = structs.replace(pool, status=structs.replace(pool.status, breaker=ahead))
    stage.dead.clear()
    stage.pass_time(25 * HOUR, every=5 * MINUTE)
    assert wakes(stage)


# --- whatever became of the call ------------------------------------------------------------------------------------------------


class Lost(Silent):
    """The answers of wakes are lost, so that each counts as failed."""

    def _do(self, action: Action) -> None:
        super()._do(action)
        if isinstance(action, actions.WakeMachine):
            self.calls[action.machine] = SwitchCall(
                machine=action.machine, command="Wake", at=self.now, outcome="Failed", message="no answer"
            )


def only(stage: Stage) -> PowerPoolStatus:
    """The status of the one pool."""
    [pool] = stage.pools.values()
    found: PowerPoolStatus = pool.status
    return found


def lost(*names: str, **spec: Any) -> Lost:
    stage = Lost(a_pool(machines=dict.fromkeys(names, 8), **spec), nodes=list(map(off, names)), pods=[waiting("p", 8)])
    stage.dead |= set(names)
    stage.powers = {name: Machine(name=name, power="Off", since=NOON - HOUR) for name in names}
    return stage


def test_one_whose_wake_was_done_though_its_answer_was_lost_sleeps_again() -> None:
    stage = lost("w1", "w2", template={"idleWatts": 100})
    stage.pass_time(20 * MINUTE, every=30 * SECOND)
    assert on_at_last(stage)
    stage.pods.clear()
    stage.pass_time(3 * HOUR, every=MINUTE)
    assert on_at_last(stage) == []
    assert float((only(stage).energy or Energy()).used_kwh) > 0.03


def test_such_boots_open_the_breaker_too() -> None:
    stage = lost(*NAMES, bootTimeoutSeconds=300)
    stage.pass_time(6 * HOUR, every=30 * SECOND)
    breaker = only(stage).breaker
    assert breaker is not None
    assert breaker.failed >= 3


def test_one_that_somebody_switches_on_long_after_its_wake_failed_is_left_alone() -> None:
    stage = lost("w1")
    stage.powers["w1"] = Machine(name="w1", power="Off", since=NOON - HOUR)
    stage.pass_time(MINUTE, every=30 * SECOND)
    stage.powers["w1"] = Machine(name="w1", power="Off", since=stage.now)
    stage.pods.clear()
    stage.pass_time(6 * HOUR, every=MINUTE)
    stage.powers["w1"] = Machine(name="w1", power="On", since=stage.now)
    stage.pass_time(24 * HOUR, every=MINUTE)
    assert on_at_last(stage) == ["w1"]


def test_one_that_did_not_go_off_is_told_again_ever_more_rarely_and_its_energy_counts() -> None:
    stage = Stage(a_pool(machines={"w1": 8}, template={"idleWatts": 100}), nodes=[on("w1")])
    stage.powers = {"w1": Machine(name="w1", power="On", since=NOON - HOUR)}
    stage.pass_time(48 * HOUR, every=MINUTE)
    sleeps = [at for at, words in stage.commands() if words == "sleep w1"]
    assert 3 <= len(sleeps) <= 16
    pauses = [later - earlier for earlier, later in pairwise(sleeps)]
    assert pauses[-1] > pauses[0]
    assert float((only(stage).energy or Energy()).used_kwh) > 4.7


def test_machines_that_come_without_their_gpus_are_not_woken_in_turn_for_ever() -> None:
    stage = Stage(
        a_pool(machines=dict.fromkeys(NAMES, 8)), nodes=[off(name, 0) for name in NAMES], pods=[waiting("p", 8)]
    )
    stage.pass_time(24 * HOUR, every=MINUTE)
    assert len(wakes(stage)) <= 12
    assert not only(stage).fruitless, "the namespace has done nothing"
    stage.pods.clear()
    stage.pass_time(3 * HOUR, every=MINUTE)
    assert {stage.state(name) for name in NAMES} == {"Off"}

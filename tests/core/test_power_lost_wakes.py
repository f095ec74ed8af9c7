"""Wakes that did not happen are sent again, and nobody is woken while still shutting down."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.power import states
from headroom.model import actions, times
from headroom.model.actions import Action
from headroom.model.facts import Machine, Pod
from headroom.model.times import MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import (
    LONG_AGO,
    Stage,
    a_pool,
    a_view,
    cordoned,
    decided,
    machine,
    off,
    on,
    remembered,
    waiting,
    wakes,
    was,
)


def gang(count: int, gpus: int) -> list[Pod]:
    labels = (("scheduling.x-k8s.io/pod-group", "train"),)
    return [waiting(f"r{number}", gpus, labels=labels, since=NOON - MINUTE) for number in range(count)]


class Deaf(Stage):
    """Machines with a BMC, some of which do not hear the first wakes."""

    deaf: dict[str, int]

    def _do(self, action: Action) -> None:
        if isinstance(action, actions.WakeMachine):
            self.deaf[action.machine] -= 1
            if self.deaf[action.machine] >= 0:
                return
            self._say(action.machine, "On")
        elif isinstance(action, actions.SleepMachine):
            self._say(action.machine, "Off")
        super()._do(action)

    def _say(self, name: str, power: Any) -> None:
        self.powers[name] = Machine(name=name, power=power, since=self.now)


def deaf(heard_after: dict[str, int], *pods: Pod, **spec: Any) -> Deaf:
    """A stage on which each machine hears only what comes after so many wakes."""
    pool = a_pool(machines=dict.fromkeys(heard_after, 8), **spec)
    stage = Deaf(pool, nodes=[off(name) for name in heard_after], pods=pods)
    stage.deaf = dict(heard_after)
    stage.powers = {name: Machine(name=name, power="Off", since=LONG_AGO) for name in heard_after}
    return stage


def test_a_wake_that_did_not_happen_is_sent_again_with_its_key() -> None:
    stage = deaf({"w1": 1}, waiting("p", 8))
    stage.pass_time(MINUTE)
    woken_at = machine(stage.decisions["one"], "w1").woken_at
    stage.pass_time(4 * MINUTE)
    assert stage.commands() == [(1, "wake w1"), (61, "wake w1")]
    assert stage.pods["uid-p"].node == "w1"
    known = machine(stage.decisions["one"], "w1")
    assert (known.state, known.failures, known.woken_at) == ("On", 0, woken_at), "the key is made of woken_at"
    assert known.resent_at == times.text(NOON + 61 * SECOND)


def test_the_pauses_double_and_it_fails_in_the_end() -> None:
    stage = deaf({"w1": 1000}, waiting("p", 8))
    stage.pass_time(15 * MINUTE)
    assert [at for at, _ in stage.commands()] == [1, 61, 121, 241, 481]
    stage.pass_time(SECOND)
    assert stage.state("w1") == "Failed"


def test_another_machine_is_tried_after_the_second_silence() -> None:
    stage = deaf({"w1": 1000, "w2": 0}, waiting("p", 8))
    stage.pass_time(6 * MINUTE)
    assert stage.commands() == [(1, "wake w1"), (61, "wake w1"), (121, "wake w2")]
    assert stage.pods["uid-p"].node == "w2"
    known = machine(stage.decisions["one"], "w1")
    assert (known.state, known.failures) == ("Off", 2), "nobody needs it any more"


def test_a_gang_passes_on_too() -> None:
    stage = deaf({"w1": 1000, "w2": 0, "w3": 0}, *gang(2, 8))
    stage.pass_time(6 * MINUTE)
    woken = [each for _, each in stage.commands() if each.startswith("wake")]
    assert woken == ["wake w1", "wake w2", "wake w1", "wake w3"]
    assert {pod.node for pod in stage.pods.values()} == {"w2", "w3"}


def test_the_floor_takes_another_machine_too() -> None:
    stage = deaf({"w1": 1000, "w2": 0}, minOn=1)
    stage.pass_time(6 * MINUTE)
    assert stage.commands()[:3] == [(1, "wake w1"), (61, "wake w1"), (121, "wake w2")]
    assert stage.state("w2") == "On"


@pytest.mark.parametrize("power", ["On", "PoweringOff", "Unknown"])
def test_only_a_machine_that_is_surely_off_is_told_again(power: Any) -> None:
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", "Booting", NOON - 5 * MINUTE, woken_at=NOON - 5 * MINUTE))
    facts = [Machine(name="w1", power=power, since=NOON - 10 * MINUTE)]
    view = a_view(pool, nodes=[off("w1")], pods=[waiting("p", 8)], machines=facts)
    assert wakes(decided(view)["one"]) == []


# --- shutting down ----------------------------------------------------------------------------------------------------------------


def test_a_machine_that_is_shutting_down_sleeps_until_it_is_off() -> None:
    memory = was("w1", "Sleeping", NOON - 2 * MINUTE, slept_at=NOON - 2 * MINUTE)
    pool = remembered(a_pool(machines={"w1": 8}), memory)
    node = cordoned(off("w1", since=NOON - MINUTE))
    for power, state, woken in (("PoweringOff", "Sleeping", []), ("Off", "Booting", ["w1"])):
        facts = [Machine(name="w1", power=power, since=NOON - SECOND)]  # type: ignore[arg-type]  # one of two
        found = decided(a_view(pool, nodes=[node], pods=[waiting("p", 8)], machines=facts))["one"]
        assert (machine(found, "w1").state, wakes(found)) == (state, woken)


@pytest.mark.parametrize(
    ("slept_at", "state"), [(NOON - 2 * MINUTE, "Sleeping"), (NOON - 60 * MINUTE, "Unknown"), (None, "Unknown")]
)
def test_what_turns_out_to_be_shutting_down_is_not_woken(slept_at: int | None, state: str) -> None:
    more = {} if slept_at is None else {"slept_at": slept_at}
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", "Off", NOON - MINUTE, **more))
    facts = [Machine(name="w1", power="PoweringOff", since=NOON - SECOND)]
    view = a_view(pool, nodes=[off("w1")], pods=[waiting("p", 8)], machines=facts)
    found = decided(view)["one"]
    assert (machine(found, "w1").state, wakes(found)) == (state, [])


def test_a_node_whose_machine_is_shutting_down_is_no_place() -> None:
    pool = remembered(a_pool(machines={"w1": 8, "w2": 8}), was("w1", "On", LONG_AGO), was("w2", "Off", LONG_AGO))
    facts = [Machine(name="w1", power="PoweringOff", since=NOON - SECOND)]
    view = a_view(pool, nodes=[on("w1"), off("w2")], pods=[waiting("p", 8)], machines=facts)
    found = decided(view)["one"]
    assert (machine(found, "w1").state, wakes(found)) == ("Unknown", ["w2"])


def test_a_long_rest_is_long_enough_for_anybody() -> None:
    pool = remembered(a_pool(machines={"w1": 8}, minOffSeconds=600), was("w1", "Off", NOON, slept_at=NOON))
    view = a_view(pool, nodes=[off("w1", since=NOON)], pods=[waiting("p", 8)], now=NOON + 10 * MINUTE)
    assert wakes(decided(view)["one"]) == ["w1"]


@pytest.mark.parametrize(
    ("power", "rest"), [("Off", MINUTE), ("Unknown", states.UNSEEN * MINUTE), (None, states.UNSEEN * MINUTE)]
)
def test_a_machine_whose_power_nobody_knows_rests_longer(power: Any, rest: int) -> None:
    pool = remembered(a_pool(machines={"w1": 8}, minOffSeconds=60), was("w1", "Off", NOON, slept_at=NOON))
    facts = [Machine(name="w1", power=power, since=NOON)] if power else []
    for now, woken in ((NOON + rest - SECOND, []), (NOON + rest, ["w1"])):
        view = a_view(pool, nodes=[off("w1", since=NOON)], pods=[waiting("p", 8)], machines=facts, now=now)
        assert wakes(decided(view)["one"]) == woken

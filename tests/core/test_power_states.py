"""What a machine is doing: its node, its power, what it was last told and what came of that, against what is remembered."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.model.actions import UncordonNode
from headroom.model.facts import Machine, Node, SwitchCall, Taint
from headroom.model.times import moment, text
from tests.builders import NOON
from tests.core.power_stage import (
    HOUR,
    LONG_AGO,
    MINUTE,
    SECOND,
    Stage,
    a_pool,
    a_view,
    cordoned,
    decided,
    effects,
    explained,
    machine,
    off,
    on,
    remembered,
    status,
    told,
    waiting,
    wakes,
    was,
)

BOOT = 900 * SECOND


def seen(
    *, node: Node | None = None, memory: Any = None, power: Machine | None = None, call: SwitchCall | None = None
) -> Any:
    """What is said of w2 in a pool of one machine."""
    pool = a_pool(machines={"w2": 8}, idleSeconds=86400)
    if memory is not None:
        pool = remembered(pool, memory)
    world = a_view(pool, nodes=[node] if node else [], machines=[power] if power else [], calls=[call] if call else [])
    return decided(world)["one"]


def power(word: Any, since: int | None = LONG_AGO) -> Machine:
    return Machine(name="w2", power=word, since=since)


def call(command: Any, outcome: Any, at: int) -> SwitchCall:
    return SwitchCall(machine="w2", command=command, outcome=outcome, at=at, message="it says 503")


WOKEN = NOON - 2 * MINUTE


@pytest.mark.parametrize(
    ("node", "memory", "fact", "state"),
    [
        # Nothing is remembered.
        (None, None, None, "Off"),
        (None, None, power("Off"), "Off"),
        (None, None, power("On", NOON - MINUTE), "Unknown"),
        (None, None, power("Unknown"), "Off"),
        (off("w2"), None, None, "Unknown"),
        (off("w2"), None, power("Off"), "Off"),
        (on("w2"), None, None, "On"),
        (on("w2"), None, power("On"), "On"),
        # The node is ready: that wins, unless its power went off since then.
        (on("w2"), was("w2", "Off"), None, "On"),
        (on("w2"), was("w2", "Failed"), None, "On"),
        (on("w2"), was("w2", "Unknown"), None, "On"),
        (on("w2"), was("w2", "Booting", woken_at=WOKEN), None, "On"),
        (on("w2"), was("w2", "Draining", since=NOON - SECOND), None, "Draining"),
        (cordoned(on("w2")), was("w2", "Draining", since=NOON - SECOND), None, "Draining"),
        (cordoned(on("w2"), ""), was("w2", "Draining", since=NOON - SECOND), None, "On"),
        (cordoned(on("w2")), was("w2", "Sleeping", slept_at=WOKEN), None, "Sleeping"),
        (cordoned(on("w2")), was("w2", "Sleeping", slept_at=NOON - BOOT), None, "On"),
        (cordoned(on("w2", since=NOON - MINUTE)), was("w2", "Sleeping", slept_at=WOKEN), None, "On"),
        (cordoned(on("w2", since=WOKEN + 10 * SECOND)), was("w2", "Sleeping", slept_at=WOKEN), None, "Sleeping"),
        (on("w2"), was("w2", "On"), power("Off", NOON - MINUTE), "Unknown"),
        (on("w2"), was("w2", "On"), power("Off", NOON - 5 * MINUTE), "On"),
        (on("w2"), was("w2", "On"), power("Off", LONG_AGO - MINUTE), "On"),
        (on("w2", since=NOON - MINUTE), was("w2", "Booting", woken_at=WOKEN), power("Off", NOON - MINUTE + 999), "On"),
        (on("w2", since=NOON - MINUTE), was("w2", "On"), power("Off", NOON - MINUTE + SECOND), "Unknown"),
        (on("w2"), was("w2", "Sleeping", slept_at=WOKEN), power("Off", NOON - MINUTE), "Sleeping"),
        # It is not.
        (None, was("w2", "Booting", woken_at=WOKEN), None, "Booting"),
        (off("w2"), was("w2", "Booting", woken_at=WOKEN), power("Off"), "Booting"),
        (off("w2"), was("w2", "Booting", woken_at=NOON - BOOT), None, "Failed"),
        (off("w2"), was("w2", "Sleeping", slept_at=WOKEN), None, "Off"),
        (None, was("w2", "Sleeping", slept_at=WOKEN), None, "Off"),
        (off("w2"), was("w2", "Sleeping", slept_at=WOKEN), power("Off"), "Off"),
        (off("w2"), was("w2", "Sleeping", slept_at=WOKEN), power("On"), "Sleeping"),
        (off("w2"), was("w2", "Sleeping", slept_at=NOON - BOOT), power("On"), "Failed"),
        (off("w2"), was("w2", "On"), None, "Unknown"),
        (off("w2"), was("w2", "On"), power("Off"), "Off"),
        (off("w2"), was("w2", "On"), power("On"), "Unknown"),
        (None, was("w2", "On"), None, "Off"),
        (off("w2"), was("w2", "Draining", since=NOON - SECOND), None, "Unknown"),
        (off("w2"), was("w2", "Off"), None, "Off"),
        (off("w2"), was("w2", "Off"), power("On", NOON - MINUTE), "Unknown"),
        (off("w2"), was("w2", "Failed"), None, "Failed"),
        (off("w2"), was("w2", "Failed"), power("Off"), "Failed"),
        (off("w2"), was("w2", "Failed", slept_at=WOKEN), power("Off"), "Off"),
        (off("w2"), was("w2", "Unknown"), None, "Unknown"),
        (off("w2"), was("w2", "Unknown"), power("Off"), "Off"),
    ],
)
def test_what_is_observed_wins(node: Node | None, memory: Any, fact: Machine | None, state: str) -> None:
    decision = seen(node=node, memory=memory, power=fact)
    found = machine(decision, "w2")

    assert found.state == state
    if memory is not None and memory.state == state:
        assert found.since == memory.since, "since moves only when the state does"
    elif memory is not None:
        assert found.since == text(NOON)
    counts = decision.status.on, decision.status.off, decision.status.changing, decision.status.failed
    places = {"On": 0, "Off": 1, "Booting": 2, "Draining": 2, "Sleeping": 2, "Failed": 3}
    assert counts == tuple(int(places.get(state) == place) for place in range(4))


def test_at_first_sight_it_is_so_since_it_is_known_to_be() -> None:
    assert machine(seen(node=on("w2", since=NOON - HOUR)), "w2").since == text(NOON - HOUR)
    assert machine(seen(power=power("Off", NOON - HOUR)), "w2").since == text(NOON - HOUR)
    assert machine(seen(), "w2").since == text(NOON)
    assert told(seen(node=on("w2"))) == [], "what is seen for the first time has not turned"


# --- failures -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "pause"),
    [(0, 0), (1, BOOT), (2, 2 * BOOT), (3, 4 * BOOT), (9, 24 * HOUR), (10_000, 24 * HOUR)],
)
def test_a_boot_that_takes_too_long_fails_and_waits_longer_each_time(failures: int, pause: int) -> None:
    decision = seen(node=off("w2"), memory=was("w2", "Booting", woken_at=NOON - BOOT, failures=failures))
    found = machine(decision, "w2")

    assert (found.state, found.failures) == ("Failed", failures + 1)
    assert moment(found.retry_after) == NOON + pause
    assert found.reason == "Its node was not Ready 900s after the wake command of 2026-11-15T11:45:00Z."
    assert told(decision) == [("MachineFailed", f"w2 failed: {found.reason[0].lower()}{found.reason[1:]}")]


@pytest.mark.parametrize(
    ("failures", "pause"), [(0, 30 * SECOND), (1, MINUTE), (6, 1920 * SECOND), (7, HOUR), (99, HOUR)]
)
def test_a_wake_that_was_refused_fails_at_once(failures: int, pause: int) -> None:
    memory = was("w2", "Booting", woken_at=WOKEN, failures=failures)
    found = machine(seen(memory=memory, call=call("Wake", "Failed", WOKEN)), "w2")

    assert (found.state, found.reason) == ("Failed", "The wake command failed: it says 503")
    assert moment(found.retry_after) == NOON + pause


@pytest.mark.parametrize(
    "answer",
    [
        call("Wake", "Accepted", WOKEN),
        call("Wake", "Unknown", WOKEN),
        call("Wake", "Failed", WOKEN - 1),
        call("Sleep", "Failed", NOON),
    ],
)
def test_any_other_answer_leaves_it_booting(answer: SwitchCall) -> None:
    assert machine(seen(memory=was("w2", "Booting", woken_at=WOKEN), call=answer), "w2").state == "Booting"


def test_a_sleep_that_was_refused_brings_it_back() -> None:
    memory = was("w2", "Sleeping", slept_at=WOKEN, idle_since=0)
    decision = seen(node=cordoned(on("w2")), memory=memory, call=call("Sleep", "Failed", WOKEN + SECOND))
    found = machine(decision, "w2")

    assert (found.state, found.failures) == ("On", 1)
    assert moment(found.retry_after) == NOON + 30 * SECOND
    assert effects(decision) == [UncordonNode(node="w2")]
    assert found.reason == "It stays on: the sleep command failed: it says 503."


def test_a_machine_that_did_not_sleep_is_opened_again() -> None:
    decision = seen(node=cordoned(on("w2")), memory=was("w2", "Sleeping", slept_at=NOON - BOOT, failures=1))
    assert machine(decision, "w2").failures == 2
    assert effects(decision) == [UncordonNode(node="w2")]
    assert told(decision)[0][0] == "MachineOn"


def test_why_it_stays_on_is_told_until_it_is_tried_again() -> None:
    memory = was("w2", "On", LONG_AGO, reason="It stays on: x.", failures=1, retry_after=NOON + SECOND)
    assert machine(seen(node=on("w2"), memory=memory), "w2").reason == "It stays on: x."
    over = was("w2", "On", LONG_AGO, reason="It stays on: x.", failures=1, retry_after=NOON)
    assert machine(seen(node=on("w2"), memory=over), "w2").reason == ""


def test_a_machine_that_could_not_be_switched_off_and_whose_node_is_gone_has_failed() -> None:
    memory = was("w2", "Sleeping", slept_at=WOKEN)
    decision = seen(node=off("w2"), memory=memory, power=power("On"), call=call("Sleep", "Failed", WOKEN))
    found = machine(decision, "w2")
    assert (found.state, found.reason) == ("Failed", "The sleep command failed: it says 503")
    assert moment(found.retry_after) == NOON + 30 * SECOND


@pytest.mark.parametrize(("failures", "pause"), [(0, 0), (1, BOOT), (2, 2 * BOOT)])
def test_a_machine_that_stays_on_without_its_node_has_failed(failures: int, pause: int) -> None:
    memory = was("w2", "Sleeping", slept_at=NOON - BOOT, failures=failures)
    found = machine(seen(node=off("w2"), memory=memory, power=power("On")), "w2")
    assert found.reason == "The sleep command of 2026-11-15T11:45:00Z had no effect: its power is still on."
    assert moment(found.retry_after) == NOON + pause


def test_a_machine_that_sleeps_at_last_has_done_what_it_was_told() -> None:
    memory = was("w2", "Sleeping", slept_at=WOKEN, failures=3, retry_after=NOON + HOUR)
    found = machine(seen(node=off("w2"), memory=memory), "w2")
    assert (found.failures, found.retry_after) == (0, "")
    assert machine(seen(node=off("w2", 4), memory=memory), "w2").failures == 3, (
        "one that is short of GPUs would be so again"
    )


def test_failures_are_forgotten_once_it_is_on() -> None:
    found = machine(seen(node=on("w2"), memory=was("w2", "Failed", failures=4, retry_after=NOON + HOUR)), "w2")
    assert (found.failures, found.retry_after) == (0, "")


def test_a_clock_that_was_turned_back_makes_nothing_wait_for_it() -> None:
    found = machine(seen(memory=was("w2", "Booting", woken_at=NOON + 8760 * HOUR, since=NOON + 8760 * HOUR)), "w2")
    assert (found.woken_at, found.since) == (text(NOON), text(NOON))


# --- GPUs ---------------------------------------------------------------------------------------------------------------------


def test_a_node_that_is_ready_before_its_gpus_are_there_still_boots() -> None:
    pool = remembered(a_pool(machines={"w2": 8, "w3": 8}), was("w2", "Booting", woken_at=WOKEN), was("w3", "Off"))
    world = a_view(pool, nodes=[on("w2", 0, since=NOON - SECOND)], pods=[waiting("a", 8)])
    decision = decided(world)["one"]

    assert machine(decision, "w2").state == "Booting"
    assert machine(decision, "w2").reason == "Its node is Ready and shows 0 of 8 GPUs so far."
    assert wakes(decision) == [], "the pod goes where it was going"


@pytest.mark.parametrize("gpus", [0, 4])
def test_one_that_has_too_few_gpus_is_what_its_node_says(gpus: int) -> None:
    pool = remembered(a_pool(machines={"w2": 8, "w3": 8}), was("w2", "Booting", woken_at=NOON - BOOT), was("w3", "Off"))
    world = a_view(pool, nodes=[on("w2", gpus, since=NOON - MINUTE)], pods=[waiting("a", 8)])
    decision = decided(world)["one"]
    found = machine(decision, "w2")

    assert (found.state, found.failures, found.reason) == ("On", 1, f"Its node shows {gpus} of 8 GPUs.")
    assert wakes(decision) == ["w3"]
    assert told(decision)[0] == ("MachineOn", f"w2 is on, but its node shows {gpus} of 8 GPUs.")


# --- machines that people switch -------------------------------------------------------------------------------------------------


def test_a_machine_that_somebody_woke_is_capacity_and_then_idles_out() -> None:
    stage = Stage(a_pool(machines={"w2": 8}), now=NOON)
    stage.look()
    stage._turn("w2", ready=True)
    stage.look()
    assert stage.state("w2") == "On"
    assert told(stage.decisions["one"]) == [("MachineOn", "w2 is on; Headroom did not wake it.")]
    stage.pass_time(11 * MINUTE, every=5 * SECOND)
    assert [command for _, command in stage.commands()] == ["sleep w2"]


def test_a_machine_that_somebody_switched_off_may_be_woken_after_five_minutes() -> None:
    stage = Stage(a_pool(machines={"w2": 8}), nodes=[on("w2")])
    stage.look()
    stage._turn("w2", ready=False)
    stage.pods = {"p": waiting("p", 8)}
    stage.pass_time(5 * MINUTE - SECOND)
    assert stage.state("w2") == "Unknown"
    assert stage.commands() == []
    stage.pass_time(2 * SECOND)
    assert stage.commands() == [(300, "wake w2")]


def test_a_machine_that_is_on_and_does_not_join_is_given_the_time_of_a_boot() -> None:
    pool = a_pool(machines={"w2": 8}, bootTimeoutSeconds=300)
    fact = power("On", NOON - 5 * MINUTE + SECOND)
    early = decided(a_view(pool, machines=[fact], pods=[waiting("p")]))["one"]
    late = decided(a_view(pool, machines=[fact], pods=[waiting("p")], now=NOON + SECOND))["one"]
    assert (wakes(early), wakes(late)) == ([], ["w2"])
    assert early.next_turn_ms == SECOND


def test_where_nobody_knows_since_when_it_is_on_the_first_sight_counts() -> None:
    pool = a_pool(machines={"w2": 8}, bootTimeoutSeconds=300)
    first = decided(a_view(pool, machines=[power("On", None)], pods=[waiting("p")]))["one"]
    assert first.next_turn_ms == 5 * MINUTE
    written = structs.replace(pool, status=first.status)
    late = NOON + 5 * MINUTE
    assert wakes(decided(a_view(written, machines=[power("On", None)], pods=[waiting("p")], now=late))["one"]) == ["w2"]


def test_one_that_somebody_switched_on_counts_as_coming() -> None:
    pool = a_pool(machines={"w2": 8, "w3": 8})
    world = a_view(pool, machines=[power("On", NOON - MINUTE)], pods=[waiting("p", 8)])
    assert wakes(decided(world)["one"]) == []
    found = explained(world, next(iter(world.pods)))
    assert found is not None
    assert found.sentence == "It fits on w2 (8 GPUs) of PowerPool/one, which is on and has not joined the cluster yet."


def test_a_machine_of_two_pools_belongs_to_the_first_in_order() -> None:
    first = a_pool("b", {"w1": 8}, order=-1)
    second = a_pool("a", {"w1": 8, "w2": 8})
    found = decided(a_view(first, second, pods=[waiting("p", 8)]))

    assert wakes(found["b"]) == ["w1"]
    assert wakes(found["a"]) == []
    assert [each.name for each in status(found["a"]).machines] == ["w2"]
    conflict = next(each for each in found["a"].status.conditions if each.type == "Conflict")
    assert (conflict.status, conflict.message) == (
        "True",
        "Machines that another pool owns are left alone: w1 belongs to PowerPool/b.",
    )


def test_a_pool_that_lost_a_machine_lets_go_of_its_node() -> None:
    first, second = a_pool("b", {"w1": 8}, order=-1), a_pool("a", {"w1": 8})
    found = decided(a_view(first, second, nodes=[cordoned(on("w1"), "PowerPool/a")]))
    assert effects(found["a"]) == [UncordonNode(node="w1")]
    assert effects(found["b"]) == []


def test_a_machine_on_which_something_has_not_started_boots_until_it_has() -> None:
    """And one on which it never does has failed, as one without its GPUs: it is not woken again and again."""
    taint = Taint("node.cilium.io/agent-not-ready", "", "NoSchedule")
    pool = a_pool(machines={"w1": 4, "w2": 4}, bootTimeoutSeconds=300)
    stage = Stage(pool, nodes=[off("w1", 4, taints=(taint,)), off("w2", 4)], pods=[waiting("p", 4)])
    stage.binds = False
    stage.pass_time(4 * MINUTE)
    assert stage.state("w1") == "Booting"
    assert machine(stage.decisions["one"], "w1").reason == f"Its node is Ready and has the taint {taint.key} so far."
    stage.pass_time(2 * MINUTE)
    found = machine(stage.decisions["one"], "w1")
    assert (found.state, found.failures, found.reason) == ("On", 1, f"Its node still has the taint {taint.key}.")
    assert [command for _, command in stage.commands()] == ["wake w1", "wake w2"]
    stage.pods.clear()
    stage.pods["q"] = waiting("q", 4, since=stage.now, uid="q")
    stage.nodes["w1"] = structs.replace(stage.nodes["w1"], taints=())
    stage.pass_time(5 * SECOND)
    assert machine(stage.decisions["one"], "w1").reason == ""

"""Queued pods with an estimated start: their machines are kept, or opened in time, after those of pods that are pending."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.enforcement import QueuedUnit, QueueStatus
from headroom.api.kinds import AnyResource
from headroom.core import PLANS
from headroom.core.demand import wanted
from headroom.core.ticks import decide_all
from headroom.model import times
from headroom.model.facts import Owner, Pod, Usage
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON, a_pod, a_used_world
from tests.core.power_stage import Stage, a_pool, a_view, decided, explained, off, on, status, told, waiting, wakes
from tests.core.stage import a_budget, gated

BOOT: dict[str, Any] = {"bootTimeoutSeconds": 300}
GANG = (("scheduling.x-k8s.io/pod-group", "g"),)


def queued(name: str = "p", gpus: int = 8, **fields: Any) -> Pod:
    """A pod that only our gate keeps back."""
    return a_pod(name, gpus=gpus, **{"gates": (marks.GATE,), "created": NOON - HOUR} | fields)


def entry(starts_at: int | None, unit: str = "Pod/team-a/p", state: str = "Reserved", pods: int = 1) -> QueuedUnit:
    text = "" if starts_at is None else times.text(starts_at)
    return QueuedUnit(unit=unit, gpus="8", pods=pods, starts_at=text, state=state)  # type: ignore[arg-type]  # a test says which


def queueing(*entries: QueuedUnit, name: str = "team") -> AnyResource:
    """A budget with a queue."""
    budget = structs.replace(a_budget(hours="10"), name=name)
    held = QueueStatus(units=len(entries), pods=len(entries), queue=entries)
    return structs.replace(budget, status=structs.replace(budget.status, held=held))


def woken(pool: AnyResource, *budgets: AnyResource, pods: list[Pod], **more: Any) -> list[str]:
    nodes = [off(each.name, int(each.gpu_count)) for each in pool.spec.machines]
    return wakes(decided(a_view(pool, *budgets, pods=pods, nodes=nodes, **more))["one"])


@pytest.mark.parametrize(("minutes", "names"), [(4, ["w1"]), (5, ["w1"]), (6, []), (60, [])])
def test_a_machine_wakes_for_a_queued_pod_once_it_starts_within_the_boot_time(minutes: int, names: list[str]) -> None:
    pool = a_pool(machines={"w1": 8}, **BOOT)
    assert woken(pool, queueing(entry(NOON + minutes * MINUTE)), pods=[queued()]) == names


def test_the_pool_looks_again_when_the_machine_is_due() -> None:
    world = a_view(
        a_pool(machines={"w1": 8}, **BOOT), queueing(entry(NOON + 6 * MINUTE)), pods=[queued()], nodes=[off("w1")]
    )
    assert decided(world)["one"].next_turn_ms == MINUTE


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [entry(None)],
        [entry(NOON + MINUTE, state="NeverFits")],
        [entry(NOON + MINUTE, unit="Pod/team-a/other")],
        [entry(NOON - HOUR)],
    ],
)
def test_without_an_estimated_start_nothing_wakes(entries: list[QueuedUnit]) -> None:
    assert woken(a_pool(machines={"w1": 8}, **BOOT), queueing(*entries), pods=[queued()]) == []


@pytest.mark.parametrize("other", [None, NOON + HOUR])
def test_the_last_budget_that_queues_it_says_when(other: int | None) -> None:
    budgets = queueing(entry(NOON + MINUTE)), queueing(entry(other), name="other")
    assert woken(a_pool(machines={"w1": 8}, **BOOT), *budgets, pods=[queued()]) == []


@pytest.mark.parametrize("gates", [(marks.GATE, "example.com/other"), ("example.com/other",)])
def test_who_waits_behind_another_gate_too_is_not_announced(gates: tuple[str, ...]) -> None:
    pool = a_pool(machines={"w1": 8}, **BOOT)
    assert woken(pool, queueing(entry(NOON + MINUTE)), pods=[queued(gates=gates)]) == []


def test_pods_of_a_job_are_announced_together_and_gangs_as_a_whole() -> None:
    job = [queued(f"p{number}", 4, owner=Owner("Job", "train", "uid-train")) for number in range(4)]
    pool = a_pool(machines={"w1": 8, "w2": 8, "w3": 8}, **BOOT)
    assert len(woken(pool, queueing(entry(NOON + MINUTE, unit="Job/team-a/train", pods=4)), pods=job)) == 2
    gang = [queued(f"g{number}", 8, labels=GANG) for number in range(4)]
    assert woken(pool, queueing(entry(NOON + MINUTE, unit="PodGroup/team-a/g", pods=4)), pods=gang) == []
    assert len(woken(pool, queueing(entry(NOON + MINUTE, unit="PodGroup/team-a/g", pods=3)), pods=gang[:3])) == 3


@pytest.mark.parametrize("forged", [1, 20])
def test_who_only_says_to_belong_to_what_is_queued_wakes_nothing(forged: int) -> None:
    owner = Owner("Job", "train", "uid-train")
    pods = [queued(f"p{number}", 8, owner=owner) for number in range(1 + forged)]
    budget = queueing(entry(NOON + MINUTE, unit="Job/team-a/train"))
    assert woken(a_pool(machines={f"w{number}": 8 for number in range(9)}, **BOOT), budget, pods=pods) == []


def test_pending_pods_come_first() -> None:
    pods = [queued(priority=1000), waiting("q", 8)]
    world = a_view(a_pool(machines={"w1": 8}, **BOOT), queueing(entry(NOON + MINUTE)), pods=pods, nodes=[off("w1")])
    assert ("WakingMachine", "w1 (8 GPUs) wakes for 1 pod that needs 8 GPUs.") in told(decided(world)["one"])
    assert status(decided(world)["one"]).unserved == ()


def test_it_is_said_for_whom() -> None:
    world = a_view(
        a_pool(machines={"w1": 8}, **BOOT), queueing(entry(NOON + MINUTE)), pods=[queued()], nodes=[off("w1")]
    )
    assert ("WakingMachine", "w1 (8 GPUs) wakes for 1 queued pod that needs 8 GPUs.") in told(decided(world)["one"])
    [pod] = world.pods
    said = explained(world, pod)
    assert said is not None
    assert (said.state, said.machine) == ("Waking", "w1")
    some = [*world.pods, waiting("q", 8)]
    both = a_view(a_pool(machines={"w1": 16}, **BOOT), queueing(entry(NOON + MINUTE)), pods=some, nodes=[off("w1", 16)])
    assert "w1 (16 GPUs) wakes for 2 pods (1 queued) that need 16 GPUs." in [
        says for _, says in told(decided(both)["one"])
    ]


def test_an_idle_machine_is_kept_for_who_starts_soon_and_one_machine_serves_it() -> None:
    pool = a_pool(machines={"w1": 8, "w2": 8}, idleSeconds=60, minOnSeconds=0, **BOOT)
    stage = Stage(pool, queueing(entry(NOON + 4 * MINUTE)), nodes=[on("w1"), off("w2")], pods=[queued()])
    stage.binds = False
    stage.pass_time(4 * MINUTE, every=5 * SECOND)
    assert stage.commands() == []
    stage.pods["uid-p"] = structs.replace(stage.pods["uid-p"], gates=(), unschedulable_since=None)
    stage.binds = True
    stage.pass_time(MINUTE)
    assert (stage.commands(), stage.pods["uid-p"].node) == ([], "w1")


def test_a_machine_that_woke_ahead_serves_the_pod_and_no_second_one_wakes() -> None:
    pool = a_pool(machines={"w1": 8, "w2": 8}, **BOOT)
    stage = Stage(pool, queueing(entry(NOON + 3 * MINUTE)), nodes=[off("w1"), off("w2")], pods=[queued()])
    stage.pass_time(3 * MINUTE, every=5 * SECOND)
    stage.pods["uid-p"] = structs.replace(stage.pods["uid-p"], gates=())
    stage.pass_time(5 * MINUTE, every=5 * SECOND)
    assert [words for _, words in stage.commands()] == ["wake w1"]
    assert stage.pods["uid-p"].node == "w1"


def test_nobody_asks_for_announced_pods_unless_told_how_far_ahead() -> None:
    assert wanted(a_view(queueing(entry(NOON + MINUTE)), pods=[queued()])).announced == ()


@pytest.mark.parametrize(("boot", "names"), [(300, ["w1"]), (60, [])])
def test_what_a_budget_decides_in_this_tick_announces_its_queue(boot: int, names: list[str]) -> None:
    """The window moves on, and in two and a half minutes there is room for the pod: nothing of that is written yet."""
    begin, end = NOON - 62 * MINUTE, NOON - 52 * MINUTE
    usage = Usage(
        name="u", namespace="team-a", pod="old", uid="o", start=begin, end=end, gpus=110_000_000, labels={"team": "a"}
    )
    pod = gated("p", gpus=8, annotations=((marks.HELD_BY, "team-a/one"), (marks.EXPECTED_DURATION, "30m")))
    pool = a_pool(machines={"w1": 8}, bootTimeoutSeconds=boot)
    world = a_used_world(
        a_budget(hours="10", window=1, enforce="Hold"), pool, pods=[pod], nodes=[off("w1")], usage=[usage]
    )
    [decision] = [each for each in decide_all(world, PLANS) if each.resource.kind == "PowerPool"]
    assert wakes(decision) == names

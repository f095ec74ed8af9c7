"""What became of a victim: only what was stopped is recorded as stopped, and counts for a loop as long as the window has it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.enforcement import EvictedOwner, Stopped
from headroom.core.budgets.stopping import MOST_MOMENTS, Past
from headroom.model import conditions
from headroom.model.actions import EvictPod
from headroom.model.facts import Pod, Workload
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.usage import DAY
from tests.builders import NOON
from tests.core.stage import Stage, a_budget, of_job, running

OWNER = "ReplicaSet/team-a/rs"
RS = of_job("rs", "ReplicaSet")


def chosen(*pods: Pod, enforce: str = "Evict") -> Stage:
    """A budget that has chosen its victim, of which nothing is seen yet."""
    stage = Stage(a_budget(hours="5", enforce=enforce), pods=pods or [running("p", 6 * HOUR, owner=RS)])
    pods_, rows = dict(stage.pods), None
    stage.world()
    rows = dict(stage.rows)
    stage.look()
    assert stage.status().victim is not None
    stage.pods, stage.rows, stage.evicted, stage.workloads = pods_, rows, {}, {}
    stage.now += SECOND
    return stage


def told(stage: Stage) -> tuple[list[str], list[tuple[str, int]], bool]:
    """The outcomes that the status keeps, the owners it counts, and whether it says that something was done."""
    status = stage.status()
    owners = [(each.owner, each.count) for each in status.evictions]
    return [each.outcome for each in status.stopped], owners, bool(status.last_enforcement_at)


NOTHING: tuple[list[str], list[tuple[str, int]], bool] = ([], [], False)
ENDS: dict[str, dict[str, Any]] = {
    "finished": {"phase": "Succeeded", "ended": NOON, "ended_by": "ContainerFinish"},
    "failed": {"phase": "Failed", "ended": NOON, "ended_by": "FailureKnown"},
    "deleted by somebody else": {"deleting": NOON + 30 * SECOND},
    "deleted after an eviction that came to nothing": {"deleting": NOON, "evicted": NOON - HOUR},
}


@pytest.mark.parametrize("end", ENDS)
def test_a_victim_that_ends_by_itself_is_not_recorded_as_stopped(end: str) -> None:
    stage = chosen()
    stage.pods["uid-p"] = structs.replace(stage.pods["uid-p"], **ENDS[end])
    stage.look()
    assert stage.status().victim is None
    assert told(stage) == NOTHING


def test_one_that_is_gone_without_a_word_counts_for_caps_alone() -> None:
    """As after a restart: it may have been stopped, so the caps know of it, but it proves no loop."""
    stage = chosen()
    stage.pods.clear()
    stage.look()
    assert stage.status().victim is None
    assert told(stage) == (["Unknown"], [], False)


def test_one_whose_end_was_seen_and_was_no_eviction_is_not_recorded() -> None:
    stage = chosen()
    stage.seen_going = list(stage.pods)
    stage.pods.clear()
    stage.look()
    assert told(stage) == NOTHING


@pytest.mark.parametrize("end", [{"deleting": NOON + 30 * SECOND}, ENDS["failed"] | {"deleting": NOON}])
def test_one_that_the_api_server_evicted_is(end: dict[str, Any]) -> None:
    stage = chosen()
    stage.pods["uid-p"] = structs.replace(stage.pods["uid-p"], evicted=NOON, **end)
    stage.look()
    assert told(stage) == (["Stopped"], [(OWNER, 1)], True)


def test_one_that_was_evicted_and_went_between_two_looks_is_too() -> None:
    stage = chosen()
    stage.pods.clear()
    stage.evicted = {"uid-p": NOON - NOON % SECOND}
    stage.look()
    assert told(stage) == (["Stopped"], [(OWNER, 1)], True)


def test_a_gang_of_which_one_pod_was_evicted_was_stopped() -> None:
    """The others go with it, or finish first."""
    stage = chosen(*(running(f"r{n}", 6 * HOUR, owner=of_job("j")) for n in range(3)))
    for number, (uid, pod) in enumerate(sorted(stage.pods.items())):
        end = {"evicted": NOON, "deleting": NOON + SECOND} if number == 1 else ENDS["failed"]
        stage.pods[uid] = structs.replace(pod, **end)
    stage.look()
    assert told(stage) == (["Stopped"], [("Job/team-a/j", 1)], True)


def test_pods_that_end_by_themselves_are_no_eviction_loop() -> None:
    stage = chosen()
    for number in range(5):
        stage.pods = {
            uid: structs.replace(pod, phase="Succeeded", ended=stage.now, ended_by="ContainerFinish")
            for uid, pod in stage.pods.items()
        }
        stage.look()
        stage.pods[f"uid-{number}"] = running(str(number), 0, started=stage.now - SECOND, owner=RS)
        before, rows = dict(stage.pods), dict(stage.rows)
        stage.look()
        stage.pods, stage.rows, stage.evicted = before, rows, {}
        stage.now += 10 * SECOND
    found = conditions.find(stage.status().conditions, "EnforcementBlocked")
    assert found is not None
    assert found.reason != "EvictionLoop"
    assert told(stage)[1] == []


# --- suspended --------------------------------------------------------------------------------------------------------------------


def suspending() -> Stage:
    return chosen(running("p", 6 * HOUR, owner=of_job("j")), enforce="Suspend")


def a_job(by: str = "GPUWorkloadBudget/team-a/one", **fields: Any) -> dict[str, Workload]:
    job = Workload(kind="Job", uid="uid-j", namespace="team-a", name="j", suspended=True, suspended_by=by)
    return {job.key: structs.replace(job, **fields)}


def test_an_owner_with_our_mark_was_suspended() -> None:
    stage = suspending()
    stage.pods.clear()
    stage.workloads = a_job()
    stage.look()
    assert told(stage) == (["Stopped"], [], True)


@pytest.mark.parametrize("job", [{}, a_job(by=""), a_job(by="GPUWorkloadBudget/team-a/other"), a_job(suspended=False)])
def test_one_without_it_ended_by_itself(job: dict[str, Workload]) -> None:
    stage = suspending()
    stage.pods.clear()
    stage.workloads = job
    stage.look()
    stage.pass_time(15 * SECOND, every=SECOND)
    assert stage.status().victim is None
    assert told(stage) == NOTHING


def test_the_mark_may_be_seen_a_moment_after_its_pods_have_gone() -> None:
    stage = suspending()
    stage.pods.clear()
    stage.look()
    assert stage.status().victim is not None
    stage.workloads = a_job()
    stage.pass_time(SECOND)
    assert told(stage) == (["Stopped"], [], True)


def test_a_workload_of_kueue_stands_for_the_job_that_it_queues() -> None:
    stage = suspending()
    stage.pods.clear()
    queue = Workload(kind="Workload", uid="w", namespace="team-a", name="job-j-1", suspended=True)
    ours = structs.replace(queue, owner="Job/team-a/j", suspended_by="GPUWorkloadBudget/team-a/one")
    stage.workloads = {ours.key: ours}
    stage.look()
    assert told(stage) == (["Stopped"], [], True)


# --- the window -------------------------------------------------------------------------------------------------------------------


def a_stop(at: int) -> Stopped:
    return Stopped(unit="Pod/team-a/p", action="Evict", at=text(at), owner=OWNER)


def test_evictions_age_out_one_by_one() -> None:
    window, past, counts = 7 * DAY, Past((), ()), []
    for day in (0, 3, 6, 8, 11, 30):
        past = past.with_(a_stop(NOON + day * DAY)).trimmed(NOON + day * DAY, window)
        counts.append(past.times(OWNER))
    assert counts == [1, 2, 3, 3, 3, 1]
    assert past.trimmed(NOON + 37 * DAY, window).evictions == ()


def test_no_more_moments_are_kept_than_a_status_should_hold() -> None:
    past = Past((), ())
    for number in range(100):
        past = past.with_(a_stop(NOON + number * SECOND))
    assert len(past.evictions[0].moments) == past.times(OWNER) == MOST_MOMENTS


def test_a_status_without_moments_counts_from_the_last_one() -> None:
    past = Past((), (EvictedOwner(owner=OWNER, count=3, last=text(NOON)),))
    assert past.trimmed(NOON + DAY - 1, DAY).times(OWNER) == 3
    assert past.with_(a_stop(NOON + HOUR)).trimmed(NOON + DAY, DAY).times(OWNER) == 1


def test_an_owner_is_evicted_again_once_the_window_has_forgotten_the_first_time() -> None:
    """Three evictions, an hour apart, in a window of a day: left alone until the first is a day old."""
    moments = tuple(text(NOON - (23 - hour) * HOUR) for hour in range(3))
    budget = a_budget(hours="5")
    owner = EvictedOwner(owner=OWNER, count=3, last=moments[-1], moments=moments)
    budget = structs.replace(budget, status=structs.replace(budget.status, evictions=(owner,)))
    stage = Stage(budget, pods=[running("p", 6 * HOUR, owner=RS)])
    stage.look()
    assert [each for _, each in stage.done if isinstance(each, EvictPod)] == []
    assert stage.decisions["one"].next_turn_ms is not None
    assert stage.decisions["one"].next_turn_ms <= HOUR
    stage.pass_time(HOUR + SECOND, every=10 * MINUTE)
    assert len([each for _, each in stage.done if isinstance(each, EvictPod)]) == 1

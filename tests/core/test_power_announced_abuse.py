"""What announcing may cost: machines are kept on for words that come to nothing for an hour at most, and honest runs cost nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.demand.announcing import job_of
from headroom.model.actions import WakeMachine
from headroom.model.facts import Owner, Shape, Workload
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON, a_pod
from tests.core.power_stage import Stage, a_pool, off, on
from tests.core.test_capacity_announcers import BOOT, a_part, cron, given, woken

MACHINES = 10
STEP = 10 * SECOND


def a_stage(*, awake: int, **policy: Any) -> Stage:
    names = [f"m{number}" for number in range(MACHINES)]
    nodes = [on(name) if number < awake else off(name) for number, name in enumerate(names)]
    return Stage(a_pool(machines=dict.fromkeys(names, 8), **policy), nodes=nodes)


def wakes(stage: Stage) -> int:
    return sum(isinstance(action, WakeMachine) for _, action in stage.done)


def fruitless(stage: Stage) -> int:
    [pool] = stage.pools.values()
    return sum(len(each.at) for each in pool.status.fruitless)


@pytest.mark.parametrize("awake", [0, MACHINES])
@pytest.mark.parametrize("is_faked", [False, True])
def test_runs_that_never_come_keep_machines_on_for_an_hour_at_most(awake: int, *, is_faked: bool) -> None:
    """A pod that only names the Job of a run, asks for nothing that a machine has and is deleted again is no excuse."""
    stage, every, ran, used = a_stage(awake=awake), 4 * MINUTE, NOON, 0
    stage.more = given(cron(part=a_part(count=MACHINES), schedule="*/4 * * * *", created=NOON + SECOND))
    stage.binds = False
    while stage.now < NOON + 5 * HOUR:
        if stage.now - stage.now % every > ran:
            ran = stage.now - stage.now % every
            job = job_of("nightly", ran)
            fake = a_pod(job, created=stage.now, owner=Owner("Job", job, f"uid-{job}"))
            shape = Shape(requests=(("example.com/x", 1_000_000),))
            stage.pods = {fake.uid: a_pod(job, created=stage.now, owner=fake.owner, shape=shape)} if is_faked else {}
        elif stage.now > ran + 150 * SECOND:
            stage.pods = {}
        stage.pass_time(STEP, every=STEP)
        used += STEP * sum(node.ready for node in stage.nodes.values())
    assert used < 0.3 * MACHINES * 5 * HOUR
    assert fruitless(stage)
    assert wakes(stage) <= MACHINES + 5


@pytest.mark.parametrize("every", [5, 10])
@pytest.mark.parametrize("warm", [None, 0])
def test_an_honest_cron_job_of_short_runs_wakes_nothing_beside_the_machine_it_uses(
    every: int, warm: int | None
) -> None:
    stage, ran = a_stage(awake=1, warmPercent=warm), NOON - every * MINUTE

    def announce(*active: tuple[str, str]) -> None:
        schedule = f"*/{every} * * * *"
        stage.more = given(cron(part=a_part(8), schedule=schedule, ran_at=ran, active=active, created=NOON - HOUR))

    announce()
    while stage.now < NOON + 2 * HOUR:
        if stage.now - stage.now % (every * MINUTE) > ran:
            ran = stage.now - stage.now % (every * MINUTE)
            job = job_of("nightly", ran)
            pod = a_pod(job, gpus=8, created=stage.now, owner=Owner("Job", job, f"uid-{job}"))
            stage.pods[pod.uid] = pod
            announce((job, f"uid-{job}"))
        for uid, pod in list(stage.pods.items()):
            if pod.started is not None and pod.phase == "Running" and stage.now - pod.started >= MINUTE:
                stage.end(uid)
                announce()
            elif pod.ended and stage.now - pod.ended > MINUTE:
                del stage.pods[uid]
        stage.pass_time(STEP, every=STEP)
    assert wakes(stage) <= (0 if warm == 0 else 1), "at most its warm spare"
    assert not fruitless(stage)


@pytest.mark.parametrize("by", ["Workload", "Job"])
def test_a_run_that_others_announce_too_wakes_one_machine(by: str) -> None:
    job, now = job_of("nightly", NOON), NOON + 3 * SECOND
    run = cron(0, ran_at=NOON, active=((job, "uid-job"),))
    both: dict[str, Any] = {"namespace": "team-a", "parts": (a_part(),)}
    if by == "Job":
        other = Workload(kind="Job", name=job, uid="uid-job", released_at=now - SECOND, **both)
    else:
        owner: dict[str, Any] = {"owner": f"Job/team-a/{job}", "owner_uids": ("uid-job",)}
        other = Workload(kind="Workload", name="job-x", uid="uid-x", reserved_at=now - SECOND, **owner, **both)
    pool = a_pool(machines={"w1": 8, "w2": 8}, **BOOT)
    assert woken(pool, run, other, now=now, kueue=by == "Workload") == ["w1"]

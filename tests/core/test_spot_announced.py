"""Announced demand: machines are launched ahead of pods to come, and who announces in vain does so for a while only."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.power_status import Expected
from headroom.api.spot_pools_status import SpotpoolStatus
from headroom.core import CAPACITY
from headroom.core.demand.announcing import job_of
from headroom.core.spot_pools.gathering import concerned
from headroom.model.actions import CordonNode, UncordonNode
from headroom.model.batch_facts import CronJob
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.cloud_facts import Instance, Launch
from headroom.model.decisions import Decision
from headroom.model.facts import Node, Owner, Pod, Shape
from headroom.model.times import text
from headroom.model.world import ref_of
from tests.builders import NOON, a_node, a_pod
from tests.core.spot_stage import (
    HOUR,
    MINUTE,
    POOL,
    SECOND,
    a_machine,
    a_view,
    condition,
    ended,
    launches,
)
from tests.core.test_capacity_announced import entry, queued, queueing
from tests.core.test_capacity_announcers import a_part, cron, given
from tests.core.test_spot_demand import TOLERATES, on_demand

SHAPE = Shape(requests=(("nvidia.com/gpu", 1_000_000),), tolerations=TOLERATES)
STEP = 30 * SECOND


def a_run(minutes: int = 4, name: str = "nightly", **fields: Any) -> CronJob:
    return cron(minutes, name, a_part(shape=SHAPE), **fields)


def first(pool: AnyResource, *others: AnyResource, **more: Any) -> Decision:
    world = a_view(pool, *others, **more)
    return next(each for each in CAPACITY.decide(world, EVERYTHING) if each.resource == ref_of(pool))


@pytest.mark.parametrize(("minutes", "many"), [(1, 1), (5, 1), (6, 0), (50, 0)])
def test_a_machine_is_launched_for_a_run_that_is_due_within_the_lead_time(minutes: int, many: int) -> None:
    assert len(launches(first(on_demand(), **given(a_run(minutes))))) == many


@pytest.mark.parametrize(("minutes", "many"), [(4, 1), (6, 0)])
def test_and_for_a_queued_pod_that_a_budget_is_about_to_release(minutes: int, many: int) -> None:
    pods = [structs.replace(queued(), shape=SHAPE)]
    assert len(launches(first(on_demand(), queueing(entry(NOON + minutes * MINUTE)), pods=pods))) == many


def test_nothing_is_launched_for_a_run_of_another_namespace() -> None:
    assert launches(first(on_demand(), **given(a_run(4, namespace="team-b")))) == []


class Day:
    """A pool, a cloud that gives what is asked for within two minutes, and CronJobs whose pods come, or not."""

    def __init__(self, *jobs: CronJob, comes: Any = lambda _at: False) -> None:
        self.pool, self.jobs, self.comes = on_demand(template={"gpuCount": 1}), list(jobs), comes
        self.machines: dict[str, Instance] = {}
        self.nodes: dict[str, Node] = {}
        self.launched: dict[str, Launch] = {}
        self.now, self.machine_ms, self.pods = NOON, 0, list[Pod]()
        self.decision: Decision | None = None

    def play(self, ms: int) -> None:
        end = self.now + ms
        while self.now < end:
            self._turn()
            self.machine_ms += STEP * sum(each.state == "RUNNING" for each in self.machines.values())
            self.now += STEP

    def _turn(self) -> None:
        self.pods = [each for each in self.pods if self.now - each.created < 3 * MINUTE]
        for place, job in enumerate(self.jobs):
            if self.now % HOUR == int(job.schedule.split()[0]) * MINUTE and self.comes(self.now):
                self.pods.append(self._pod(job))
                name = job_of(job.name, self.now)
                self.jobs[place] = structs.replace(job, ran_at=self.now, active=((name, f"uid-{name}"),))
            elif job.active and not any(pod.name == f"{job.active[0][0]}-0" for pod in self.pods):
                self.jobs[place] = structs.replace(job, active=())
        world = a_view(
            self.pool,
            machines=self.machines.values(),
            nodes=self.nodes.values(),
            pods=self.pods,
            launches=self.launched.values(),
            now=self.now,
            listed=self.now,
            **given(*self.jobs),
        )
        [self.decision] = CAPACITY.decide(world, EVERYTHING)
        self.pool = structs.replace(self.pool, status=self.decision.status)
        self._obey(self.decision)

    def _pod(self, job: CronJob) -> Pod:
        name = job_of(job.name, self.now)
        owner = Owner(kind="Job", name=name, uid=f"uid-{name}")
        node = next((each.name for each in self.nodes.values() if (each.ready_since or 0) <= self.now), "")
        return a_pod(
            f"{name}-0",
            shape=SHAPE,
            owner=owner,
            created=self.now,
            node=node,
            phase="Running" if node else "Pending",
            unschedulable_since=None if node else self.now,
        )

    def _obey(self, decision: Decision) -> None:
        for each in launches(decision):
            if each.token not in self.launched:
                name = f"i-{len(self.launched)}"
                made = a_machine(each.slot, name=name, launched_at=self.now)
                self.machines[name] = structs.replace(made, tags=made.tags | {marks.TOKEN_TAG: each.token})
                self.launched[each.token] = Launch(
                    token=each.token, pool=POOL, at=self.now, outcome="Accepted", instance=name
                )
                ready = self.now + 2 * MINUTE
                self.nodes[name] = a_node(
                    f"node-{name}", gpus=1, provider_id=f"q/{name}", ready_since=ready, created=ready
                )
        for name in ended(decision):
            self.machines[name] = structs.replace(self.machines[name], state="SHUTDOWN")
            self.nodes.pop(name, None)
        for action in decision.actions:
            if isinstance(action, CordonNode | UncordonNode):
                cordons = isinstance(action, CordonNode)
                by = ((marks.CORDONED_BY, f"Spotpool/{POOL}"),) if cordons else ()
                name = action.node.removeprefix("node-")
                self.nodes[name] = structs.replace(self.nodes[name], unschedulable=cordons, annotations=by)


def often(name: str, every: int = 15) -> list[CronJob]:
    return [a_run(minute, f"{name}-{minute}") for minute in range(0, 60, every)]


def test_runs_that_never_come_keep_no_machine_for_long() -> None:
    """Each was believed: machines ran for ever, for the pods of a CronJob that cannot make any."""
    day = Day(*often("broken"))
    day.play(12 * HOUR)
    assert 0 < len(day.launched) <= 8
    assert day.machine_ms <= 3 * HOUR
    assert day.decision is not None
    assert condition(day.decision, "RunsMissed") == ("True", "NoPods")
    assert day.pool.status.missed[0].namespace == "team-a"


def test_runs_that_come_keep_their_machine_all_day() -> None:
    day = Day(*often("good"), comes=lambda _at: True)
    day.play(6 * HOUR)
    assert len(day.launched) == 1
    assert day.pool.status.missed == ()
    assert day.decision is not None
    assert condition(day.decision, "RunsMissed") == ("", "")


def test_once_they_come_again_they_are_believed_again() -> None:
    day = Day(*often("mended"), comes=lambda at: at >= NOON + 3 * HOUR)
    day.play(3 * HOUR)
    assert day.pool.status.missed
    day.play(6 * HOUR)
    assert day.pool.status.missed == ()


def test_pods_that_are_there_get_machines_whatever_was_announced_in_vain() -> None:
    day = Day(*often("broken"))
    day.play(3 * HOUR)
    pods = [a_pod("real", shape=SHAPE, created=day.now - MINUTE, unschedulable_since=day.now - MINUTE)]
    idle = structs.replace(day.pool, status=structs.replace(day.pool.status, slots=()))
    assert len(launches(first(idle, pods=pods, now=day.now, listed=day.now, **given(*day.jobs)))) == 1


def test_any_pod_may_be_one_that_was_announced() -> None:
    expects = Expected(of="CronJob/team-a/nightly", uid="uid-nightly", due_at=text(NOON))
    waits = structs.replace(on_demand(), status=SpotpoolStatus(expected=(expects,)))
    world = a_view(waits, on_demand("two"), pods=[a_pod("elsewhere", node="n", phase="Running")])
    assert concerned(world, Changes(pods={"uid-elsewhere"})) == {ref_of(waits)}
